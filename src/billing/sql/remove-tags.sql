-- Removes the sums of tags of some UTC days, which are written again.
-- $1 first day  $2 end, exclusive
delete from tags_daily
where day >= $1::date and day < $2::date;
