-- Records how far the days are. The caller has locked the row.
-- $1 closed_to  $2 hours_from
update usage_progress set closed_to = $1::date, hours_from = $2::date;
