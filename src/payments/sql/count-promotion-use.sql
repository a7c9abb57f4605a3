-- Counts a use of a promotion. No row: it has ended, was stopped, or is used up. Simultaneous uses
-- wait for each other here.
-- $1 code_id
update promotions
set used = used + 1
where code_id = $1 and stopped_at is null and (ends_at is null or ends_at > now())
  and (most is null or used < most)
returning code_id;
