-- Finds an order, with what was granted for it and what refunds took back.
-- $1 order_id
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
where order_id = $1;
