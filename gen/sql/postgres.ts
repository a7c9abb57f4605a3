// Made of src/postgres/sql by `npm run generate`. Do not edit.

import { type Run, run } from "../../src/postgres/statement.ts";

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
