-- Asks for a look at the orders whose payments changed: these, and if there are new blocks, those
-- that wait for blocks.
-- $1 processor  $2 chain  $3 external_ids of payments  $4 true: there are new blocks
update payment_orders
set hook_at = now(), next_look_at = now()
where order_id in (
  select order_id from chain_payments
  where processor = $1 and chain = $2
    and (external_id = any($3::text[]) or ($4::boolean and state = 'seen' and height is not null))
);
