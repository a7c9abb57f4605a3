// Stops the commits of a database's ledger: new holds, charges and transfers wait inside COMMIT
// until the test lets them go.

import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";

export type CommitLock = {
  readonly database: Client;
  /** From now on, commits wait. */
  stall(): Promise<void>;
  release(): Promise<void>;
  /** Resolves when this many commits wait. */
  stalled(count?: number): Promise<void>;
  stop(): Promise<void>;
};

const wait = (table: string) => `
  create constraint trigger ${table}_wait after insert on ${table} deferrable initially deferred
    for each row execute function wait_at_commit();`;

/** Prepares the database of a gateway. Deferred triggers run inside COMMIT. */
export async function lockCommits(databaseUrl: string): Promise<CommitLock> {
  const database = new Client({ connectionString: databaseUrl });
  await database.connect();
  await database.query(`
    create function wait_at_commit() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(1); return null; end $$;
    ${["holds", "charges", "transfers"].map(wait).join("")}
  `);
  const waiting =
    "select pid from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
  return {
    database,
    stall: async () => void (await database.query("select pg_advisory_lock(1)")),
    release: async () => void (await database.query("select pg_advisory_unlock(1)")),
    async stalled(count = 1) {
      while ((await database.query(waiting)).rows.length < count) await delay(5);
    },
    stop: () => database.end(),
  };
}
