-- Leaves a task to others.
-- $1 task  $2 holder
delete from history_leases
where task = $1 and holder = $2;
