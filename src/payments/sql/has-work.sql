-- True if `take-work` would find something, or lacks only a slot. Asked each second, since it takes
-- a tenth of the time.
-- $1 processors  $2 true: also look for what is not posted
select exists (
    select from payment_orders
    where processor = any($1::text[]) and next_look_at <= now()
      and (lease_until is null or lease_until < now())
  ) or $2::boolean and (
    exists (select from payment_grants where transfer_id is null)
    or exists (select from payment_refunds where state in ('asked', 'cancelling'))
    or exists (select from promotion_uses where transfer_id is null)
  ) as has_work;
