-- Removes the sums of the charges of a month that were read for its closing.
-- $1 month
delete from closing_sums
where month = $1::date;
