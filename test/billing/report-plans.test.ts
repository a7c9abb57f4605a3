// How the database reads reports and pages: by index, never all charges or all sums. Each statement
// is planned for its values, and without them, as a connection does that runs it often.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { statement } from "../../src/postgres/postgres.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

const store = new URL("../../src/billing/store.ts", import.meta.url).href;
const from = new Date("2025-10-01T00:00:00Z");
const closed = new Date("2026-11-19T00:00:00Z");
const to = new Date("2026-11-22T12:00:00Z");
const nothing = [to, to];
const days = [from, from, "2025-10-01", "2026-11-19", closed, to];
const firstPage = [null, null, null, null, 2_001];
const keys = ["key_1", "key_2"];

/** The values of each report, account first. */
const reports: { name: string; file: string; values: unknown[] }[] = [
  {
    name: "usage by day over 13 months",
    file: "query-usage",
    values: ["acc_1", "day", false, false, false, ...days, null, null, ...firstPage],
  },
  {
    name: "usage by key, model and family over 13 months",
    file: "query-usage",
    values: ["acc_1", "none", true, true, true, ...days, null, null, ...firstPage],
  },
  {
    name: "usage of some keys and models by month, a later page",
    file: "query-usage",
    values: [
      ...["acc_1", "month", true, false, false, ...days, keys, ["model-a"]],
      ...[from, "key_1", "", "", 2_001],
    ],
  },
  {
    name: "usage by hour",
    file: "query-usage",
    values: [
      ...["acc_1", "hour", true, true, false, new Date("2026-11-15T00:00:00Z"), to],
      ...["2026-11-22", "2026-11-22", ...nothing, null, null, ...firstPage],
    ],
  },
  {
    name: "usage by day, key and model over 13 months",
    file: "list-usage",
    values: ["acc_1", ...days, null, null, null, null, null, 2_001, true],
  },
  {
    name: "usage by day, key and model, a later page",
    file: "list-usage",
    values: ["acc_1", ...days, keys, null, "2026-05-03", "key_1", "model-a", 2_001, false],
  },
  {
    name: "the totals of usage over 13 months",
    file: "sum-usage",
    values: ["acc_1", ...days, null, null],
  },
  {
    name: "rejected requests by reason",
    file: "query-errors",
    values: ["acc_1", "day", false, true, closed, to, null, null, null, null, 2_001],
  },
  { name: "the forecast", file: "read-spending", values: ["acc_1", 7] },
  {
    name: "the first running request",
    file: "find-first-running",
    values: ["acc_1", keys],
  },
];

/** Tables of which a report may read only the rows of its account. */
const large = /^(charges|usage_hourly|usage_daily|errors_hourly)/;

let database: FreshDatabase;
let client: Client;
beforeAll(async () => {
  database = await freshDatabase();
  client = new Client({ connectionString: database.url });
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
    analyze;
  `);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

type Plan = { "Node Type": string; "Relation Name"?: string; Plans?: Plan[] };

function scansOf(plan: Plan): string[] {
  const relation = plan["Relation Name"];
  const own = relation === undefined ? [] : [`${plan["Node Type"]} on ${relation}`];
  return [...own, ...(plan.Plans ?? []).flatMap(scansOf)];
}

for (const { name, file, values } of reports) {
  for (const mode of ["force_custom_plan", "force_generic_plan"]) {
    test(`${name} reads no large table from end to end (${mode})`, async () => {
      const { text } = statement(store, file);
      await client.query(`set plan_cache_mode = ${mode}`);
      const { rows } = await client.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
        `explain (format json) ${text}`,
        values,
      );
      const plan = rows[0]?.["QUERY PLAN"][0]?.Plan;
      if (!plan) throw new Error("no plan");
      const read = scansOf(plan).filter((scan) => large.test(scan.replace(/.* on /, "")));
      if (file !== "find-first-running") expect(read.length).toBeGreaterThan(0);
      expect(read.filter((scan) => scan.startsWith("Seq Scan"))).toEqual([]);
    });
  }
}
