// How the database reads reports: by index, never all charges or all sums. It plans each report for
// its values, as the connections for reports do.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import type { Query } from "../../src/postgres/statement.ts";
import { writeCharges } from "../support/charges.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { planOf } from "../support/plans.ts";

const accountId = "acc_1";
const from = new Date("2025-10-01T00:00:00Z");
const closed = new Date("2026-11-19T00:00:00Z");
const to = new Date("2026-11-22T12:00:00Z");
const all = { accountId, keyIds: null, models: null };
const months = {
  ...all,
  hoursFrom: from,
  hoursTo: from,
  daysFrom: "2025-10-01",
  daysTo: "2026-11-19",
  laterFrom: closed,
  laterTo: to,
};
const hours = {
  ...all,
  hoursFrom: new Date("2026-11-15T00:00:00Z"),
  hoursTo: to,
  daysFrom: "2026-11-22",
  daysTo: "2026-11-22",
  laterFrom: to,
  laterTo: to,
};
const some = { ...months, keyIds: ["key_1", "key_2"] };
const whole = { byKey: false, byModel: false, byFamily: false, byMember: false };
const grouped = { byKey: true, byModel: true, byFamily: true, byMember: true };
const firstPage = {
  afterPeriod: null,
  afterDay: null,
  afterKeyId: null,
  afterModel: null,
  afterFamily: null,
  afterMember: null,
  afterReason: null,
  afterValue: null,
  rows: 2_001,
};
const laterPage = {
  ...firstPage,
  afterPeriod: from,
  afterDay: "2026-05-03",
  afterKeyId: "key_1",
  afterModel: "model-a",
  afterFamily: "",
  afterMember: "",
};
const tag = { tag: "team", value: null };

const reports: readonly (readonly [name: string, query: Query])[] = [
  [
    "usage by day over 13 months",
    sql.queryUsage.with({ ...months, ...whole, ...firstPage, bucket: "day" }),
  ],
  [
    "usage by key, model and family over 13 months",
    sql.queryUsage.with({ ...months, ...grouped, ...firstPage, bucket: "none" }),
  ],
  [
    "usage of some keys by month, a later page",
    sql.queryUsage.with({ ...some, ...whole, ...laterPage, byKey: true, bucket: "month" }),
  ],
  ["usage by hour", sql.queryUsage.with({ ...hours, ...grouped, ...firstPage, bucket: "hour" })],
  [
    "usage by day, key and model over 13 months",
    sql.listUsage.with({ ...months, ...firstPage, byFamily: true, byMember: true }),
  ],
  [
    "usage by day, key and model, a later page",
    sql.listUsage.with({ ...some, ...laterPage, byFamily: false, byMember: false }),
  ],
  ["the totals of usage over 13 months", sql.sumUsage.with(months)],
  [
    "rejected requests by reason",
    sql.queryErrors.with({
      ...all,
      ...firstPage,
      bucket: "day",
      from: closed,
      to,
      byKey: false,
      byReason: true,
    }),
  ],
  ["how requests failed", sql.countOutcomes.with({ ...all, from, to, tags: null })],
  [
    "how requests of a key with a tag failed",
    sql.countOutcomes.with({
      ...{ ...all, from: closed, to, tags: '{"team": "a"}' },
      keyIds: ["key_of_acc_1"],
    }),
  ],
  ["the first running request", sql.findFirstRunning.with({ accountId, keyIds: ["key_1"] })],
  ["the forecast", sql.readSpending.with({ accountId, days: 7 })],
  [
    "usage by the values of a tag over 13 months",
    sql.queryTags.with({ ...months, ...whole, ...firstPage, ...tag, bucket: "day" }),
  ],
];

/** Tables of which a report may read only the rows of its account. */
const large = /^(charges|usage_hourly|usage_daily|errors_hourly|tags_daily|holds)/;

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
  const client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`
    insert into accounts (account_id, name) select 'acc_' || n, '' from generate_series(1, 40) n;
    insert into pools (account_id, family) select account_id, 'v1' from accounts;
    insert into keys (key_id, account_id, family, name)
      select 'key_' || n, 'acc_' || n % 40 + 1, 'v1', '' from generate_series(1, 200) n;
    insert into usage_daily (account_id, day, key_id, model, amount)
      select account_id, day::date, key_id, model, 1
      from keys, generate_series('2025-10-01'::date, '2026-11-18', interval '1 day') day,
        unnest(array['model-a', 'model-b']) model;
    insert into usage_hourly (account_id, hour, key_id, model, amount)
      select account_id, hour, key_id, 'model-a', 1
      from keys, generate_series('2026-11-10'::timestamptz, '2026-11-22', interval '1 hour') hour;
    insert into errors_hourly (account_id, hour, key_id, reason, requests)
      select account_id, hour, key_id, 'rate_limited', 1
      from keys, generate_series('2026-11-10'::timestamptz, '2026-11-22', interval '1 hour') hour;
    insert into tags_daily
      select account_id, day::date, 'team', 'a', 'key_1', 'model-a',
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
      from accounts, generate_series('2025-10-01'::date, '2026-11-18', interval '1 day') day;
    insert into holds (account_id, request_id, family, key_id, model, month, amount, granted_output,
        price_version, nonce, admitted_at, deadline)
      select account_id, 'req_' || n, 'v1', 'key_1', 'model-a', '2026-11-01', 0, 0, '', '', now(),
        now()
      from accounts, generate_series(1, 100) n;
  `);
  for (const account of ["acc_1", "acc_2", "acc_3"])
    await writeCharges((text, values) => client.query(text, values), {
      payer: { accountId: account, family: "v1", keyId: `key_of_${account}` },
      count: 2_000,
      from: new Date("2026-09-01T00:00:00Z"),
      stepMs: 3_600_000,
      tags: `'{"team": "a"}'`,
    });
  await client.query("vacuum (analyze)");
  await client.end();
});
afterAll(() => database.drop());

for (const [name, query] of reports) {
  test(`${name} reads no large table from end to end`, async () => {
    const plan = await planOf(database.url, query, false);
    const read = plan.filter(({ table = "" }) => large.test(table));
    expect(read.length).toBeGreaterThan(0);
    expect(read.filter(({ kind }) => kind === "Seq Scan")).toEqual([]);
  });
}

test("how requests failed is read from an index alone, unless a tag is asked for", async () => {
  const kindsOf = async (tags: string | null) => {
    const query = sql.countOutcomes.with({ ...all, from, to, tags });
    const plan = await planOf(database.url, query, false);
    return [...new Set(plan.flatMap(({ kind, table = "" }) => (large.test(table) ? [kind] : [])))];
  };
  expect(await kindsOf(null)).toEqual(["Index Only Scan"]);
  expect(await kindsOf('{"team": "a"}')).not.toContain("Index Only Scan");
});

test("a report by a tag reads the charges of the months that its days leave over", async () => {
  const query = { ...months, ...whole, ...firstPage, ...tag, bucket: "day" };
  const tablesOf = async (report: typeof query) =>
    (await planOf(database.url, sql.queryTags.with(report), false)).flatMap(({ table = "" }) =>
      table.startsWith("charges") ? [table] : [],
    );
  expect(await tablesOf(query)).toEqual(["charges_2026_11"]);
  const early = { hoursFrom: new Date("2026-09-30T12:00:00Z"), hoursTo: new Date("2026-10-01") };
  expect(await tablesOf({ ...query, ...early })).toEqual([
    "charges_2026_09",
    "charges_2026_10",
    "charges_2026_11",
  ]);
});
