// The lines of charges: the digests of closed months were made of them, so they never change.

import { Client } from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import * as sql from "../../gen/sql/history.ts";
import { firstPlace, lineForm, readFigures } from "../../src/history/digest.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { planOf } from "../support/plans.ts";

const month = "2026-01-01";
// In the form of SQL. Their order is that of the settlements.
const charges = [
  `('acc_1', 'req_1', 'v1', 'key_1', null, 'model-test', 0, 0, 0, 0, 0, 0, 'price_1', 0, 0, 0, 0,
    0, 0, 'completed', 'reported', '[]', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', null)`,
  String.raw`('acc_1', 'req_2', 'v2', 'key_2', 'sec_1', E'org/a"b\\c\tЖ%s''\u0001', 1, 2, 3, 4, 5, 6,
    'price_1', 8, 9223372036854775807, 9007199254740993, 7, 1, 2, 'client_left', 'estimated',
    '[{"b": "x", "a": [1.50, -2e3, null, true]},
      {"z": {"": "50%"}, "text": "a\"b\\c\n\u00e9"}]',
    '2026-01-31T23:59:59.999999+00', '2026-02-01T05:30:00.1+05:30',
    '{"team": "a\"b\\", "Ключ": "x=y\n{}", "env": "%d 🙂"}')`,
  `('acc_2', 'req_1', 'v1', 'key_3', 'sec_2', '', 2147483647, 0, 0, 0, 0, 0, 'price_2',
    2147483647, 10, 1, 9223372036854775807, 0, 0, 'reaped', 'none', '[{}]',
    '2026-01-15T12:00:00.000001Z', '2026-03-01T00:00:00.010Z', '{}')`,
];
const lines = [
  [
    '{"request_id":"req_1","account_id":"acc_1","family":"v1","key_id":"key_1",',
    '"outcome":"completed","basis":"reported","price_version":"price_1","secret_id":null,',
    '"model":"model-test","admitted_at":"2026-01-01T00:00:00Z",',
    '"settled_at":"2026-01-01T00:00:00Z","attempts":[],"tags":{},"hold":0,"amount":0,',
    '"overrun":0,"input":0,"output":0,"thinking":0,"cache_write_5m":0,',
    '"cache_write_1h":0,"cache_read":0,"granted_output":0,"output_over":0,',
    '"thinking_over":0}',
  ],
  [
    '{"request_id":"req_2","account_id":"acc_1","family":"v2","key_id":"key_2",',
    '"outcome":"client_left","basis":"estimated","price_version":"price_1",',
    String.raw`"secret_id":"sec_1","model":"org/a\"b\\c\tЖ%s'\u0001",`,
    '"admitted_at":"2026-01-31T23:59:59.999999Z","settled_at":"2026-02-01T00:00:00.1Z",',
    '"attempts":[{"a": [1.50, -2000, null, true], "b": "x"}, ',
    String.raw`{"z": {"": "50%"}, "text": "a\"b\\c\né"}],`,
    String.raw`"tags":{"env": "%d 🙂", "team": "a\"b\\", "Ключ": "x=y\n{}"},`,
    '"hold":9223372036854775807,"amount":9007199254740993,"overrun":7,"input":1,',
    '"output":2,"thinking":6,"cache_write_5m":3,"cache_write_1h":4,"cache_read":5,',
    '"granted_output":8,"output_over":1,"thinking_over":2}',
  ],
  [
    '{"request_id":"req_1","account_id":"acc_2","family":"v1","key_id":"key_3",',
    '"outcome":"reaped","basis":"none","price_version":"price_2","secret_id":"sec_2",',
    '"model":"","admitted_at":"2026-01-15T12:00:00.000001Z",',
    '"settled_at":"2026-03-01T00:00:00.01Z","attempts":[{}],"tags":{},"hold":10,',
    '"amount":1,"overrun":9223372036854775807,"input":2147483647,"output":0,',
    '"thinking":0,"cache_write_5m":0,"cache_write_1h":0,"cache_read":0,',
    '"granted_output":2147483647,"output_over":0,"thinking_over":0}',
  ],
].map((parts) => parts.join(""));

let database: FreshDatabase;
let client: Client;
beforeAll(async () => {
  database = await freshDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`
    create table charges_2026_01 partition of charges
      for values from ('2026-01-01') to ('2026-02-01')`);
  await client.query(`
    insert into charges (account_id, request_id, "family", key_id, secret_id, model, input, output,
      cache_write_5m, cache_write_1h, cache_read, thinking, price_version, granted_output, hold,
      amount, overrun, output_over, thinking_over, outcome, basis, attempts, admitted_at,
      settled_at, tags, month)
    values ${charges.map((charge) => charge.replace(/\)$/, `, '${month}')`)).join(", ")}`);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

test("the lines of charges are what they were, whatever the session sets", async () => {
  const select = `select line from charge_lines_${lineForm} order by settled_at`;
  const expected = lines.map((line) => ({ line }));
  expect((await client.query(select)).rows).toEqual(expected);
  await client.query("set datestyle = 'German'; set timezone = 'Asia/Kolkata'");
  expect((await client.query(select)).rows).toEqual(expected);
});

test("statements read the lines of the form that closings name", async () => {
  const { postgres } = database;
  const view = new RegExp(`charge_lines_${lineForm}\\b`);
  for (const { text } of [sql.digestBlock, sql.readLines, sql.readSettledLines])
    expect(text).toMatch(view);
  const all = { ...firstPlace, month, rows: 10_000 };
  const block = await postgres.run(sql.digestBlock, { ...all, before: "infinity" });
  expect(block.sha256?.toString("hex")).toBe(
    "a05e69c562e6b70e74e2e7b0b0ad868172c31c7c0158fb61c5a8f77b276ba41a",
  );
  const page = await postgres.run(sql.readLines, all);
  expect(page.lines).toBe(lines.map((line) => `${line}\n`).join(""));
  const days = await postgres.run(sql.readSettledLines, { ...all, until: "infinity", marginMs: 0 });
  expect(days.map((day) => [day.day, day.lines])).toEqual([
    ["2026-01-01", `${lines[0]}\n`],
    ["2026-02-01", `${lines[1]}\n`],
    ["2026-03-01", `${lines[2]}\n`],
  ]);
});

test("a line has every column of its charge but month, facts and manager, and gives its figures back", async () => {
  const { rows } = await client.query<{ name: string }>(`
    select attname as name from pg_attribute
    where attrelid = 'charges'::regclass and attnum > 0 and not attisdropped`);
  // Most charges have no `made_by` and no searches. Their lines are as they were before these. No
  // sum needs the facts, and `closed_budgets` has the sums of managers.
  const others = ["month", "made_by", "web_searches", "facts", "manager"];
  const columns = rows.map(({ name }) => name).filter((name) => !others.includes(name));
  for (const line of lines)
    expect(Object.keys(JSON.parse(line)).toSorted()).toEqual(columns.toSorted());
  expect(lines.map(readFigures)).toEqual([
    [0n, 0n, 0n, 0n, 0n, 0n, 0n, 0n, 0n, 0n],
    [9223372036854775807n, 9007199254740993n, 7n, 1n, 2n, 6n, 3n, 4n, 5n, 0n],
    [10n, 1n, 9223372036854775807n, 2147483647n, 0n, 0n, 0n, 0n, 0n, 0n],
  ]);
});

test("a charge of web searches has a line that ends with them, in the same form", async () => {
  await client.query("begin");
  onTestFinished(async () => void (await client.query("rollback")));
  await client.query(
    `insert into charges select (jsonb_populate_record(c, $1)).*
     from charges c where request_id = 'req_2'`,
    [{ request_id: "req_5", web_searches: 3 }],
  );
  const { rows } = await client.query<{ line: string }>(
    `select line from charge_lines_${lineForm} where request_id = 'req_5'`,
  );
  const [, without = ""] = lines;
  const line = without.replace("req_2", "req_5").replace(/}$/, ',"web_searches":3}');
  expect(rows).toEqual([{ line }]);
  expect(readFigures(line)).toEqual([...(readFigures(without) ?? []).slice(0, -1), 3n]);
});

test("a charge that a program had made has a line with its name, in the same form", async () => {
  await client.query("begin");
  onTestFinished(async () => void (await client.query("rollback")));
  const changed = { request_id: "req_4", made_by: 'token:a"b' };
  await client.query(
    `insert into charges select (jsonb_populate_record(c, $1)).*
     from charges c where request_id = 'req_2'`,
    [changed],
  );
  const { rows } = await client.query<{ line: string }>(
    `select line from charge_lines_${lineForm} where request_id = 'req_4'`,
  );
  const [, unnamed = ""] = lines;
  expect(rows).toEqual([
    {
      line: unnamed
        .replace("req_2", "req_4")
        .replace(',"hold":', String.raw`,"made_by":"token:a\"b","hold":`),
    },
  ]);
  expect(readFigures(rows[0]?.line ?? "")).toEqual(readFigures(unnamed));
});

test("the lines of a month are read from its partition alone", async () => {
  const all = { ...firstPlace, month, before: "infinity", rows: 10_000 };
  for (const isGeneric of [true, false])
    for (const query of [sql.digestBlock.with(all), sql.readLines.with(all)]) {
      const plan = await planOf(database.url, query, isGeneric);
      expect(plan.flatMap(({ table = [] }) => table)).toEqual(["charges_2026_01"]);
    }
});
