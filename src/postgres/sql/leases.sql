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

-- name: ReadHorizon :one
-- The time, the first transaction that runs, and the first one that has not begun: when all that
-- had begun have ended, nothing that they wrote becomes visible any more.
select now()::text as "at!", pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    as "first_running!",
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint as "first_to_come!";
