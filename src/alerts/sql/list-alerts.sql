-- Lists alerts that are on the page, newest first.
-- $1 account_id  $2 true: only those that nobody has dismissed  $3 true: without those that name
-- people  $4 before this time  $5 and this alert_id; both null: from the newest  $6 rows at most
select alert_id, account_id, kind, facts, raised_at, dismissed_at
from alerts
where account_id = $1 and on_page
  and (not $2::boolean or dismissed_at is null)
  and (not $3::boolean or kind <> 'new_place')
  and ($4::timestamptz is null or (raised_at, alert_id) < ($4, $5::text))
order by raised_at desc, alert_id desc
limit $6;
