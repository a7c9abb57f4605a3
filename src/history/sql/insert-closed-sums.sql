-- Stores the sums of a month that is being closed.
-- $1 month
insert into closed_months (account_id, month, "family", key_id, model, each_charged(#), overrun)
select account_id, month, "family", key_id, model, each_charged(#), overrun
from closing_sums
where month = $1::date;
