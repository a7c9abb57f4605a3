-- The time, the first transaction that runs, and the first one that has not begun: when all that
-- had begun have ended, no charge with an earlier time becomes visible any more. Charges are what
-- is asked about.
select now()::text as at, pg_snapshot_xmin(pg_current_snapshot())::text::bigint as first_running,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint as first_to_come
from (select 1) as always
where not exists (select 1 from charges where false);
