-- Stores the sums of a month that is being closed.
-- $1 closing_id  $2 month
insert into closed_months (account_id, month, "family", key_id, model, each_charged(#), overrun)
select account_id, $2::date, "family", key_id, model, each_charged(sum(#)::bigint),
  sum(overrun)::bigint
from closing_sums
where closing_id = $1
group by account_id, "family", key_id, model;
