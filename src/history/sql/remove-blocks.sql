-- Removes the digests of the charges of a month that were read for its closing.
-- $1 month
delete from closing_blocks
where month = $1::date;
