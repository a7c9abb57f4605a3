// Behind PgBouncer: in session mode everything works with all limits; in the other modes the start
// names the pooler.

import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { migrate } from "../../src/postgres/migrate.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { checkDatabase } from "../../src/postgres/preflight.ts";
import { one } from "../../src/postgres/statement.ts";
import { pgbouncerBinary, startPgbouncer } from "../support/pgbouncer.ts";
import { query } from "../support/query.ts";
import { startTestServer } from "../support/server-pair.ts";

// Skipped where PgBouncer is not installed.
const suite = test.skipIf(pgbouncerBinary === undefined);

let database: Awaited<ReturnType<typeof startTestServer>>;
beforeAll(async () => {
  if (pgbouncerBinary !== undefined) database = await startTestServer();
});
afterAll(() => database?.stop());

const limits = {
  name: "test/limits",
  text: `select current_setting('lock_timeout') as lock, current_setting('statement_timeout') as statement,
    current_setting('idle_in_transaction_session_timeout') as idle,
    current_setting('enable_seqscan') as seqscan, current_setting('plan_cache_mode') as plans`,
};
const usual = { seqscan: "on", plans: "auto" };

suite("PgBouncer in session mode loses no limit, and leaks none to the next client", async () => {
  const pooler = await startPgbouncer(database.server, "session");
  onTestFinished(() => pooler.stop());
  await checkDatabase(pooler.url);
  await migrate(pooler.url);
  const postgres = connectPostgres(pooler.url);
  const pool = { lock: "5s", statement: "28s", idle: "5s", ...usual };
  expect(await query(postgres, limits, [])).toEqual([pool]);
  const report = { ...pool, statement: "10s", plans: "force_custom_plan" };
  expect(await query(postgres.reports, limits, [])).toEqual([report]);
  expect(await postgres.transaction((tx) => query(tx, limits, []))).toEqual([pool]);
  const row = ([lock, statement]: readonly unknown[]) => ({ lock, statement });
  const text =
    "select current_setting('lock_timeout') as lock, current_setting('statement_timeout') as statement";
  const longLimits = one<undefined, unknown>("test/long-limits", text, () => [], row, "");
  const { signal } = new AbortController();
  expect(await postgres.runSlices((db) => db.run(longLimits), signal)).toEqual({
    statement: "1min",
    lock: "5s",
  });
  const connection = await postgres.connect();
  const queue = { lock: "1s", statement: "2s", idle: "2s", seqscan: "off" };
  const [answer] = await connection.send([[limits, []]]);
  expect(answer?.rows).toEqual([{ ...queue, plans: "force_generic_plan" }]);
  await connection.end();

  // The next client gets the same connection of the server.
  const other = connectPostgres(pooler.url);
  await vi.waitFor(async () => expect(await query(other, limits, [])).toEqual([pool]));
  await other.close();
  await postgres.close();
});

for (const mode of ["transaction", "statement"] as const) {
  suite(`PgBouncer in ${mode} mode is found, and named`, async () => {
    const pooler = await startPgbouncer(database.server, mode);
    onTestFinished(() => pooler.stop());
    await expect(checkDatabase(pooler.url)).rejects.toThrow("set it to session mode");
    // Also after other clients have left idle connections behind.
    const postgres = connectPostgres(pooler.url);
    const sleep = { name: "", text: "select pg_sleep(0.2)" };
    await Promise.all(Array.from({ length: 8 }, () => query(postgres, sleep, [])));
    await expect(checkDatabase(pooler.url)).rejects.toThrow("set it to session mode");
    await postgres.close();
  });
}
