-- Takes a task for some time, or keeps it. No row: another process has it.
-- $1 task  $2 holder  $3 milliseconds
insert into history_leases (task, holder, until)
values ($1, $2, now() + $3::integer * interval '1 millisecond')
on conflict (task) do update
set holder = excluded.holder, until = excluded.until
where history_leases.holder = excluded.holder or history_leases.until < now()
returning until;
