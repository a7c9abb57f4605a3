-- Marks an alert as read. No row: the account has no such alert on its page.
-- $1 alert_id  $2 account_id  $3 true: not one that names people
update alerts
set dismissed_at = coalesce(dismissed_at, now())
where alert_id = $1 and account_id = $2 and on_page and (not $3::boolean or kind <> 'new_place')
returning alert_id;
