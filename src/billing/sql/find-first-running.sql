-- Returns the database's time, how far the days and the tags of days are
-- written, and when the first running request of
-- an account was admitted; null if none runs.
-- $1 account_id  $2 key_ids, or null for all
select now() as at, (now() at time zone 'utc')::date as today, closed_to, tags_to,
  (
    select min(admitted_at)
    from holds
    where account_id = $1 and ($2::text[] is null or key_id = any($2))
  ) as admitted_at
from usage_progress;
