-- Stores what was decided about an order, whose row the caller has locked.
-- $1 order_id  $2 state  $3 attention or null  $4 faults  $5 rule_micro
-- $6 true: a look has ended, and with it its lease. False: a person changed something
-- $7 the start of the look if it was answered, or null  $8 failed looks in a row
-- $9 milliseconds until the next look, or null: it is watched no more
update payment_orders
set state = $2, attention = $3, faults = $4, rule_micro = $5,
  lease_until = case when not $6::boolean then lease_until end,
  looked_at = greatest(looked_at, $7::timestamptz), failed_looks = $8,
  -- A webhook that came during the look asks for another one.
  hook_at = case when $7 is null or hook_at > $7 then hook_at end,
  next_look_at = case
    when hook_at > $7 then now()
    when $9::bigint is null then null
    when $6 then now() + $9 * interval '1 millisecond'
    else least(next_look_at, now() + $9 * interval '1 millisecond')
  end,
  version = version + 1
where order_id = $1;
