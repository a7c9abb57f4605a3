-- Reads the last check of the ledger, and the end of the last one that found nothing. No row: it
-- was never checked.
select v.verification_id, v.started_at, v.ended_at, v.started_by, v.violation_count, v.violations,
  (select max(c.ended_at) from verifications c where c.violation_count = 0) as clean_at
from verifications v
order by v.verification_id desc
limit 1;
