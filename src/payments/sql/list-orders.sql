-- Lists orders that their processor has opened, newest first; those that need attention, oldest
-- first.
-- $1 account_id, or null: of all accounts  $2 cursor: last order_id of the page before, or null
-- $3 true: only those that need attention  $4 rows at most
select
  order_id, account_id, "family", idempotency_key, kind, usd_micro, processor, method, asset,
  network, decimals, external_id, quoted_atoms, rate, pay_to, memo, checkout_url, state,
  cancelled_at, attention, faults, handled, rule_micro, refunded_usd_micro, receipt_number,
  created_by, created_at, quoted_until, watched_until, next_look_at, looked_at, failed_looks,
  hook_at, page_open_until, version, now() as read_at,
  (select coalesce(sum(g.micro), 0)::bigint from payment_grants g where g.order_id = o.order_id)
    as granted_micro,
  (select coalesce(sum(r.micro), 0)::bigint from payment_refunds r
   where r.order_id = o.order_id and r.state not in ('refused', 'cancelled')) as taken_back_micro
from payment_orders o
where ($1::text is null or account_id = $1) and (not $3::boolean or attention is not null)
  and ($2::text is null or case when $3 then order_id > $2 else order_id < $2 end)
  and external_id is not null
order by case when $3 then order_id end, order_id desc
limit $4;
