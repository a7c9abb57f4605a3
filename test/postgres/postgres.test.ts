// Queries, transactions, connections and migrations on a real server.

import { afterAll, expect, test, vi } from "vitest";
import { migrate, readMigrations, toMigration } from "../../src/postgres/migrate.ts";
import { connectPostgres, isUnreachable, type Postgres } from "../../src/postgres/postgres.ts";
import type { Runner, Text } from "../../src/postgres/statement.ts";
import { run } from "../../src/postgres/statement.ts";
import { emptyDatabase, freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";

const { postgres, drop } = await freshDatabase();
afterAll(() => drop());

function sql(name: string, text: string): Text {
  return { name: `test/${name}`, text };
}

const one = sql("one", "select 1 as one");
const insert = sql("insert", "insert into accounts (account_id, name) values ($1, 'x')");
const count = sql("count", "select count(*) as count from accounts where account_id = $1");

test("int8 arrives as bigint, date as text and timestamptz as Date", async () => {
  const statement = sql(
    "types",
    "select 9007199254740993::int8 as big, '{1,null}'::int8[] as bigs, date '2026-01-31' as day, timestamptz 'epoch' as moment",
  );
  const [row] = await query(postgres, statement, []);
  expect(row).toEqual({
    big: 9007199254740993n,
    bigs: [1n, null],
    day: "2026-01-31",
    moment: new Date(0),
  });
});

test("a transaction whose function throws is rolled back", async () => {
  const failure = new Error("changed my mind");
  const work = postgres.transaction(async (tx) => {
    await query(tx, insert, ["acc_thrown"]);
    throw failure;
  });
  await expect(work).rejects.toBe(failure);
  expect(await query(postgres, count, ["acc_thrown"])).toEqual([{ count: 0n }]);
});

test("a transaction that the server rolls back is never reported as committed", async () => {
  const work = postgres.transaction(async (tx) => {
    await query(tx, insert, ["acc_rolled_back"]);
    await query(tx, sql("fails", "select 1 / 0"), []).catch(() => {});
  });
  await expect(work).rejects.toThrow("rolled back");
  expect(await query(postgres, count, ["acc_rolled_back"])).toEqual([{ count: 0n }]);
});

test("two transactions that deadlock both commit in the end", async () => {
  for (const id of ["acc_left", "acc_right"]) await query(postgres, insert, [id]);
  const rename = sql("rename", "update accounts set name = name || '+' where account_id = $1");
  // Each waits until the other has locked its first row, so the first attempt of one must fail.
  const meeting = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const cross = (own: 0 | 1, first: string, second: string) =>
    postgres.transaction(async (tx) => {
      await query(tx, rename, [first]);
      meeting[own].resolve();
      await meeting[own === 0 ? 1 : 0].promise;
      await query(tx, rename, [second]);
    });
  await Promise.all([cross(0, "acc_left", "acc_right"), cross(1, "acc_right", "acc_left")]);
  const names = sql(
    "names",
    "select name from accounts where account_id in ('acc_left', 'acc_right')",
  );
  expect(await query(postgres, names, [])).toEqual([{ name: "x++" }, { name: "x++" }]);
});

test("a terminated connection is marked as lost, and its error counts as unreachable", async () => {
  const connection = await postgres.connect();
  const [answer] = await connection.send([[sql("pid", "select pg_backend_pid() as pid"), []]]);
  expect(connection.lost).toBe(false);
  await query(postgres, sql("terminate", "select pg_terminate_backend($1, 5000)"), [
    Object(answer?.rows[0]).pid,
  ]);
  const failure = await connection.send([[one, []]]).catch((error: unknown) => error);
  expect(isUnreachable(failure)).toBe(true);
  expect(connection.lost).toBe(true);
});

test("a transaction whose connection breaks fails, and the process continues", async () => {
  const work = postgres.transaction(async (tx) => {
    const [row] = await query<{ pid: number }>(
      tx,
      sql("own-pid", "select pg_backend_pid() as pid"),
      [],
    );
    await query(postgres, sql("terminate", "select pg_terminate_backend($1, 5000)"), [row?.pid]);
    // The connection ends while no statement is waiting for a result.
    await new Promise((resolve) => setTimeout(resolve, 100));
    return query(tx, one, []);
  });
  await expect(work).rejects.toMatchObject({ reason: "database_unavailable" });
  expect(await query(postgres, one, [])).toEqual([{ one: 1 }]);
});

test("an idle transaction releases its locks, and every statement has a time limit", async () => {
  const limits = sql(
    "limits",
    `select current_setting('lock_timeout') as lock, current_setting('statement_timeout') as statement,
       current_setting('idle_in_transaction_session_timeout') as idle`,
  );
  const expected = { lock: "5s", statement: "28s", idle: "5s" };
  expect(await query(postgres, limits, [])).toEqual([expected]);
  expect(await query(postgres.reports, limits, [])).toEqual([{ ...expected, statement: "10s" }]);
});

test("a transaction can let the server end a statement sooner, and with it its locks", async () => {
  const other = await freshDatabase();
  const lock = (db: Runner) => query(db, sql("lock", "select pg_advisory_xact_lock(1)"), []);
  const hanging = other.postgres.transaction(
    async (tx) => {
      await lock(tx);
      await query(tx, sql("hang", "select pg_sleep(60)"), []);
    },
    { statementMsMax: 50 },
  );
  await expect(hanging).rejects.toMatchObject({ reason: "database_unavailable" });
  expect(await lock(other.postgres)).toHaveLength(1);
  const limit = sql("limit", "select current_setting('statement_timeout') as statement");
  expect(await query(other.postgres, limit, [])).toEqual([{ statement: "28s" }]);
  await other.drop();
});

test("reports use connections of their own, so other queries do not wait for them", async () => {
  const other = await freshDatabase();
  const lock = Promise.withResolvers<void>();
  const isLocked = Promise.withResolvers<void>();
  const locking = other.postgres.transaction(async (tx) => {
    await query(tx, sql("lock", "lock table accounts"), []);
    isLocked.resolve();
    await lock.promise;
  });
  await isLocked.promise;
  const reports = Promise.all(
    Array.from({ length: 20 }, () => query(other.postgres.reports, count, ["acc_none"])),
  );
  expect(await query(other.postgres, one, [])).toEqual([{ one: 1 }]);
  const [waiting] = await query<{ n: number }>(
    other.postgres,
    sql(
      "waiting",
      "select count(*)::int as n from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    ),
    [],
  );
  // The transaction and the reports.
  expect(waiting?.n).toBeLessThanOrEqual(5);
  lock.resolve();
  await locking;
  expect(await reports).toHaveLength(20);
  await other.drop();
});

const stopped = [
  {
    name: "when its caller cancels",
    stop: (_: Postgres, caller: AbortController) => caller.abort(),
  },
  { name: "when the gateway stops", stop: (database: Postgres) => database.close() },
];
for (const { name, stop } of stopped) {
  test(`a long statement ends ${name}, on the server too`, async () => {
    const { url, drop: dropOther, postgres: watch } = await freshDatabase();
    const database = connectPostgres(url);
    const caller = new AbortController();
    const sleep = run<undefined>("test/long", "select pg_sleep(50)", () => []);
    const long = database.runSlices((db) => db.run(sleep), caller.signal);
    const failed = expect(long).rejects.toThrow();
    const sleeping = sql(
      "sleeping",
      "select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'",
    );
    await vi.waitFor(async () => expect(await query(watch, sleeping, [])).toHaveLength(1));
    await stop(database, caller);
    await failed;
    await vi.waitFor(async () => expect(await query(watch, sleeping, [])).toEqual([]));
    if (name !== "when the gateway stops") await database.close();
    await dropOther();
  });
}

test("a connection waits at most a second for a lock, so that its queue does not wait longer", async () => {
  const connection = await postgres.connect();
  const [answer] = await connection.send([
    [sql("limits", "select current_setting('lock_timeout') as lock"), []],
  ]);
  expect(answer?.rows).toEqual([{ lock: "1s" }]);
  await connection.end();
});

const faults = [
  { name: "a refused connection", url: "postgres://x:y@127.0.0.1:1/z" },
  { name: "a missing socket", url: "postgres://x:y@localhost/z?host=/nowhere" },
  { name: "an unknown host", url: "postgres://x:y@host.invalid/z" },
];
for (const { name, url } of faults) {
  test(`${name} counts as unreachable`, async () => {
    const unreachable = connectPostgres(url);
    await expect(query(unreachable, one)).rejects.toMatchObject({ reason: "database_unavailable" });
    await unreachable.close();
  });
}

test("a wrong statement does not count as unreachable", async () => {
  const wrong = query(postgres, sql("wrong", "select nothing"));
  await expect(wrong).rejects.toMatchObject({ message: 'column "nothing" does not exist' });
});

test("migrations have consecutive numbers and run once, even if several processes start together", async () => {
  const empty = await emptyDatabase();
  await Promise.all(Array.from({ length: 8 }, () => migrate(empty.url)));
  await migrate(empty.url);
  const database = connectPostgres(empty.url);
  const applied = await query(
    database,
    sql("applied", "select number, name from migrations where number > 0 order by number"),
    [],
  );
  expect(applied).toEqual(readMigrations().map(({ number, name }) => ({ number, name })));
  await database.close();
  await empty.drop();
});

test("a migration waits for a long report, and nothing waits for the migration", async () => {
  const { url, postgres: running, drop: dropOther } = await freshDatabase();
  const number = readMigrations().length + 1;
  const text = "-- compatible_from: 1\nalter table holds alter column nonce set not null";
  const later = toMigration(`${number}_later.sql`, text);
  const report = Promise.withResolvers<void>();
  const isReading = Promise.withResolvers<void>();
  const reading = running.transaction(async (tx) => {
    await query(tx, sql("read", "select from holds"), []);
    isReading.resolve();
    await report.promise;
  });
  await isReading.promise;
  const migrating = migrate(url, { migrations: [...readMigrations(), later] });
  const isMigrated = vi.fn();
  void migrating.then(isMigrated, isMigrated);
  const waiting = sql(
    "waiting",
    "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query ilike '%alter table holds%'",
  );
  await vi.waitFor(async () => expect(await query(running, waiting, [])).toHaveLength(1), {
    interval: 20,
  });
  const connection = await running.connect();
  await connection.send([[sql("hold", "select from holds for update"), []]]);
  await connection.end();
  expect(isMigrated).not.toHaveBeenCalled();
  report.resolve();
  await reading;
  await migrating;
  expect(
    await query(running, sql("done", "select name from migrations where name like '%_later'"), []),
  ).toHaveLength(1);
  await dropOther();
});

test("charges and transfers can be neither changed nor deleted", async () => {
  await query(postgres, insert, ["acc_books"]);
  await query(
    postgres,
    sql(
      "transfer",
      "insert into transfers values ('acc_books', 'tr_1', 'v1', 'bonus', 5, 5, 'admin', 'key')",
    ),
    [],
  );
  for (const text of [
    "update transfers set amount = 6",
    "delete from transfers",
    "truncate transfers",
    "truncate charges",
  ]) {
    await expect(query(postgres, sql(text, text), [])).rejects.toThrow("append-only");
  }
});
