-- Sums the running requests of all accounts.
select count(*)::bigint as requests, coalesce(sum(amount), 0)::bigint as held,
  min(admitted_at) as oldest_admitted_at, min(deadline) as first_deadline_at
from holds;
