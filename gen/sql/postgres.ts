// Made of src/postgres/sql by `npm run generate`. Do not edit.

import { type One, one, type Run, run } from "../../src/postgres/statement.ts";

// leases.sql

/**
 * Takes a task for some time, or keeps it. Changes no row: another process has it, or it rests.
 */
export const takeLease: Run<{ task: string; holder: string; ms: number }> = run(
  "postgres/take-lease",
  `-- postgres/take-lease
insert into leases (task, holder, taken_at, until)
values ($1, $2, now(), now() + $3::float8 * interval '1 millisecond')
on conflict (task) do update
set holder = excluded.holder, taken_at = excluded.taken_at, until = excluded.until
where leases.holder = excluded.holder or leases.until < excluded.taken_at`,
  (p) => [p.task, p.holder, p.ms],
  5000,
);

/**
 * Leaves a task to the next process, after the rest.
 */
export const releaseLease: Run<{ restMs: number; task: string; holder: string }> = run(
  "postgres/release-lease",
  `-- postgres/release-lease
update leases
set holder = '', until = now() + $1::float8 * interval '1 millisecond'
where task = $2 and holder = $3`,
  (p) => [p.restMs, p.task, p.holder],
  5000,
);

export type ReadHorizonRow = { at: string; firstRunning: bigint; firstToCome: bigint };
/**
 * The time, the first transaction that runs, and the first one that has not begun: when all that
 * had begun have ended, nothing that they wrote becomes visible any more.
 */
export const readHorizon: One<undefined, ReadHorizonRow> = one(
  "postgres/read-horizon",
  `-- postgres/read-horizon
select now()::text as at, pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    as first_running,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint as first_to_come`,
  () => [],
  (v) => ({ at: v[0], firstRunning: v[1], firstToCome: v[2] }) as never,
  "",
  5000,
);
