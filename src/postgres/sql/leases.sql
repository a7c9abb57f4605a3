-- timeout_ms=5000

-- name: TakeLease :run
-- Takes a task for some time, or keeps it. Changes no row: another process has it, or it rests.
insert into leases (task, holder, taken_at, until)
values (:task, :holder, now(), now() + :ms::float8 * interval '1 millisecond')
on conflict (task) do update
set holder = excluded.holder, taken_at = excluded.taken_at, until = excluded.until
where leases.holder = excluded.holder or leases.until < excluded.taken_at;

-- name: ReleaseLease :run
-- Leaves a task to the next process, after the rest.
update leases
set holder = '', until = now() + :rest_ms::float8 * interval '1 millisecond'
where task = :task and holder = :holder;
