-- Records that the charges of a month are removed, if a verified export of them exists. No row: it
-- does not, or they were removed before.
-- $1 month
update month_archives
set dropped_at = now()
where month = $1::date and dropped_at is null
  and sha256 = (select sha256 from month_closings where month = $1::date)
returning month;
