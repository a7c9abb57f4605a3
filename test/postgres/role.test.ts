// The role of the gateway, the rights of the migration's user, and partitions for the months ahead.

import { randomBytes } from "node:crypto";
import { Client } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createLog, type Log } from "../../src/base/log.ts";
import { openLedger } from "../../src/postgres/open-ledger.ts";
import { run } from "../../src/postgres/statement.ts";
import { MonthKeeper } from "../../src/server/month-keeper.ts";
import { emptyDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";

const log: Log = createLog("silent");
const sql = (text: string) => ({ name: "", text });

let empty: Awaited<ReturnType<typeof emptyDatabase>>;
let root: Client;
beforeEach(async () => {
  empty = await emptyDatabase();
  root = new Client(empty.url);
  await root.connect();
});
afterEach(async () => {
  await root.end();
  await empty.drop();
});

/** Adds a user that may log in. Returns the database's address as this user. */
async function addUser(): Promise<{ name: string; url: string }> {
  const name = `user_${randomBytes(6).toString("hex")}`;
  await root.query(`create role ${name} login password 'of-a-test'`);
  const url = new URL(empty.url);
  url.username = name;
  url.password = "of-a-test";
  return { name, url: url.href };
}

const open = (url: string, ownerUrl?: string) => openLedger({ url, ownerUrl }, log);

const changes = [
  "update charges set amount = 0",
  "delete from charges",
  "truncate charges",
  "update transfers set amount = 1",
  "delete from transfers",
  "truncate transfers",
  "update price_versions set input = 0",
  "delete from price_versions",
  "truncate price_versions",
  // A view has the rights of its owner.
  "delete from charge_lines_1",
];

test("no connection of a gateway may change what is append-only, even as the owner", async () => {
  const ledger = await open(empty.url);
  expect(ledger.roleStatements).toEqual([]);
  const connection = await ledger.postgres.connect();
  for (const text of changes) {
    await expect(query(ledger.postgres, sql(text), [])).rejects.toThrow(/permission denied/);
    await expect(query(ledger.postgres.reports, sql(text), [])).rejects.toThrow(
      /permission denied/,
    );
    await expect(connection.send([[sql(text), []]])).rejects.toThrow(/permission denied/);
  }
  const remove = run<undefined>("", "delete from charges", () => []);
  const long = ledger.postgres.runSlices((db) => db.run(remove), new AbortController().signal);
  await expect(long).rejects.toThrow(/permission denied/);
  // Not through a partition either.
  const [partition] = await query<{ name: string }>(
    ledger.postgres,
    sql(
      "select min(inhrelid::regclass::text) as name from pg_inherits where inhparent = 'charges'::regclass",
    ),
    [],
  );
  await expect(query(ledger.postgres, sql(`delete from ${partition?.name}`), [])).rejects.toThrow(
    /permission denied/,
  );
  await connection.end();
  await ledger.postgres.close();
  // Triggers stop the owner too.
  await expect(root.query("truncate charges")).rejects.toThrow("append-only");
  await expect(root.query(`truncate ${partition?.name}`)).rejects.toThrow("append-only");
});

test("a gateway whose user owns nothing works after its owner migrated, and cannot change the past", async () => {
  const process = await addUser();
  const ledger = await open(process.url, empty.url);
  expect(ledger.roleStatements).toEqual([]);
  await query(
    ledger.postgres,
    sql("insert into accounts (account_id, name) values ('acc_1', 'x')"),
    [],
  );
  await expect(query(ledger.postgres, sql("delete from transfers"), [])).rejects.toThrow(
    /permission denied/,
  );
  expect(await query(ledger.postgres, sql("select amount from charge_sums"), [])).toEqual([]);
  const mayWrite = "has_table_privilege('charge_sums', 'INSERT, UPDATE, DELETE') as may_write";
  expect(await query(ledger.postgres, sql(`select ${mayWrite}`), [])).toEqual([
    { may_write: false },
  ]);
  await ledger.postgres.close();
  const again = await open(process.url, empty.url);
  await again.postgres.close();
  await root.query(`drop owned by ${process.name}`);
  await root.query(`drop role ${process.name}`);
});

test("the owner who made the role for another user takes it, too", async () => {
  const owner = await addUser();
  await root.query(`grant create, usage on schema public to ${owner.name}`);
  // As PostgreSQL does for the user that makes a role.
  await root.query(
    `grant model_gateway to ${owner.name} with admin true, inherit false, set false`,
  );
  const ledger = await open(owner.url);
  expect(ledger.roleStatements).toEqual([]);
  expect(await ledger.postgres.readChangeable()).toEqual([]);
  await ledger.postgres.close();
  await root.query(`drop owned by ${owner.name} cascade`);
  await root.query(`drop role ${owner.name}`);
});

test("where the role may not be made, the statements are named, and they suffice", async () => {
  const owner = await addUser();
  const process = await addUser();
  await root.query(`grant create, usage on schema public to ${owner.name}`);
  const first = await open(owner.url);
  expect(first.roleStatements.at(-1)).toBe(`grant model_gateway to "${owner.name}"`);
  expect(await first.postgres.readChangeable()).toEqual([
    "charges",
    "transfers",
    "price_versions",
    "cost_versions",
  ]);
  await first.postgres.close();

  const second = await open(owner.url, owner.url);
  for (const text of second.roleStatements) await root.query(text);
  await second.postgres.close();
  const third = await open(owner.url);
  expect(third.roleStatements).toEqual([]);
  expect(await third.postgres.readChangeable()).toEqual([]);
  await third.postgres.close();
  for (const { name } of [process, owner]) {
    await root.query(`drop owned by ${name} cascade`);
    await root.query(`drop role ${name}`);
  }
});

test("a start keeps three months ahead, and a month without a partition is a health warning", async () => {
  const ledger = await open(empty.url);
  const keeper = new MonthKeeper(ledger, log);
  await keeper.start();
  expect(keeper.monthsAhead).toBe(3);
  expect(keeper.state()).toBeUndefined();

  const dropMonths = (from: number) =>
    root.query(
      `do $$ begin
         for ahead in ${from}..3 loop
           execute format('drop table %I', to_char(
             (now() at time zone 'utc') + ahead * interval '1 month', '"charges_"YYYY_MM'));
         end loop;
       end $$`,
    );
  const failing = new MonthKeeper(
    { ...ledger, keepMonthsAhead: () => Promise.reject(new Error("no rights")) },
    log,
  );
  await dropMonths(1);
  await failing.keep();
  expect(failing.state()).toMatchObject({ state: "degraded" });
  await keeper.keep();
  expect(keeper.monthsAhead).toBe(3);
  await dropMonths(0);
  await failing.keep();
  expect(failing.state()).toMatchObject({ state: "down" });
  await keeper.keep();
  expect(keeper.state()).toBeUndefined();
  keeper.stop();
  await ledger.postgres.close();
});

test("partitions are added while charges are written and read", async () => {
  const ledger = await open(empty.url);
  await root.query(`drop table charges_${await nextMonth()}`);
  await root.query("begin");
  await root.query("insert into charges select * from charges where false");
  await ledger.keepMonthsAhead();
  await root.query("commit");
  expect((await ledger.readLastMonth()) ?? 0).toBeGreaterThan(0);
  await ledger.postgres.close();

  async function nextMonth(): Promise<string> {
    const { rows } = await root.query<{ month: string }>(
      "select to_char((now() at time zone 'utc') + interval '3 months', 'YYYY_MM') as month",
    );
    return rows[0]?.month ?? "";
  }
});
