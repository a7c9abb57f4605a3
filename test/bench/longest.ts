// The longest transaction of a database while something runs.

import type { Postgres } from "../../src/postgres/postgres.ts";
import { runSql } from "./books.ts";

const everyMs = 100;

const oldest = `
  select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8 as seconds
  from pg_stat_activity
  where datname = current_database() and backend_type = 'client backend'
    and pid <> pg_backend_pid()`;

/** Looks ten times a second, until it is stopped. */
export function watchLongest(postgres: Postgres): { stop(): number } {
  let longest = 0;
  const watch = setInterval(async () => {
    const [row] = await runSql<{ seconds: number }>(postgres, oldest).catch(() => []);
    longest = Math.max(longest, row?.seconds ?? 0);
  }, everyMs);
  return {
    stop() {
      clearInterval(watch);
      return longest;
    },
  };
}
