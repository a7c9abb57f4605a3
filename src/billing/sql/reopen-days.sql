-- Removes the sums of the UTC days from a day on, which are open again.
-- $1 day
delete from usage_daily
where day >= $1::date;
