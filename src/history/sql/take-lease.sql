-- Takes a task for some time, or keeps it. No row: another process has it.
-- $1 task  $2 holder  $3 milliseconds
insert into history_leases (task, holder, taken_at, until)
values ($1, $2, now(), now() + $3::integer * interval '1 millisecond')
on conflict (task) do update
set holder = excluded.holder, taken_at = excluded.taken_at, until = excluded.until
where history_leases.holder = excluded.holder or history_leases.until < excluded.taken_at
returning until;
