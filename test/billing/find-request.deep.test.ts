// How a request is found by its id alone, among few and among many accounts and months.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import type { Query } from "../../src/postgres/statement.ts";
import { writeCharges } from "../support/charges.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

type Ledger = FreshDatabase & { client: Client };

const ledgers: Ledger[] = [];
let small: Ledger;
let large: Ledger;

const now = new Date();
const monthMs = 30 * 86_400_000;
const at = (monthsAgo: number) => new Date(now.getTime() - monthsAgo * monthMs);

/** An id of this time, as a gateway makes them. */
const idOf = (made: Date, number: number) => {
  const time = made.getTime().toString(16).padStart(12, "0");
  return `req_${time}70008${number.toString(16).padStart(15, "0")}`;
};

/** Accounts, some of them with a charge each month. */
async function open(accounts: number, months: number): Promise<Ledger> {
  const database = await freshDatabase();
  const client = new Client({ connectionString: database.url });
  await client.connect();
  const ledger = { ...database, client };
  ledgers.push(ledger);
  await client.query(
    `insert into accounts (account_id, name)
     select 'acc_' || lpad(n::text, 7, '0'), 'Many' from generate_series(1, $1::int) n`,
    [accounts],
  );
  // Partitions, and a price.
  const payer = { accountId: "acc_0000001", keyId: "key_1", secretId: "", family: "v1" as const };
  await writeCharges((text, values) => client.query(text, values), {
    payer,
    count: 1,
    from: at(months - 1),
    stepMs: 1,
  });
  const count = Math.min(accounts, 20_000);
  for (let month = 0; month < months; month++)
    await addCharges(ledger, { made: at(month), settled: at(month), count, number: month });
  await client.query("vacuum analyze");
  return ledger;
}

/** Charges of so many accounts, a second apart. The first one has the id `idOf(made, number)`. */
async function addCharges(
  { client }: Ledger,
  charge: { made: Date; settled: Date; count: number; number: number; admitted?: Date },
): Promise<void> {
  const { made, settled, count, number, admitted = made } = charge;
  const kept = `"family", key_id, model, input, output, cache_write_5m, cache_write_1h, cache_read,
    thinking, price_version, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis`;
  await client.query(
    `insert into charges (account_id, request_id, month, admitted_at, settled_at, ${kept})
     select 'acc_' || lpad(n::text, 7, '0'),
       case n when 1 then $2 else 'req_other_' || $2 || n end,
       date_trunc('month', $3::timestamptz at time zone 'utc')::date, $3::timestamptz,
       $4::timestamptz + n * interval '1 second', ${kept}
     from generate_series(1, $1::int) n
     cross join (select * from charges where key_id = 'key_1' limit 1) one`,
    [count, idOf(made, number), admitted, settled],
  );
}

beforeAll(async () => {
  small = await open(1_000, 13);
  large = await open(200_000, 13);
});
afterAll(async () => {
  for (const { client, drop } of ledgers) {
    await client.end();
    await drop();
  }
});

/** The pages that a statement reads. */
async function pagesOf({ client }: Ledger, [{ text }, values]: Query): Promise<number> {
  const explain = `explain (analyze, buffers, format json) ${text}`;
  const { rows } = await client.query<{ "QUERY PLAN": unknown }>(explain, [...values]);
  const [{ Plan: plan }] = Object(rows[0]?.["QUERY PLAN"]);
  return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
}

for (const { name, requestId, made, found } of [
  { name: "that has a charge", requestId: idOf(at(7), 7), made: at(7), found: 1 },
  { name: "that does not exist", requestId: idOf(at(7), 99), made: at(7), found: 0 },
  { name: "of a client, which tells no time", requestId: `req_other_${idOf(at(7), 7)}9`, found: 1 },
  { name: "that no client has used", requestId: "req_nobody_has_used_it", found: 0 },
])
  test(`among 200,000 accounts as among 1,000, a few pages tell of an id ${name}`, async () => {
    const since = made && `${new Date(made.getTime() - 86_400_000).toISOString().slice(0, 7)}-01`;
    const { rows } = await large.client.query<{ month: string }>(
      "select distinct month::text from charges where month >= coalesce($1::date, '-infinity')",
      [since],
    );
    const months = since === undefined ? null : rows.map(({ month }) => month);
    const find = sql.findCharges.with({ requestId, months });
    const [few, many] = [await pagesOf(small, find), await pagesOf(large, find)];
    // The index of each month has a level more.
    expect(many).toBeLessThanOrEqual(few + rows.length);
    expect(many).toBeLessThanOrEqual(4 * rows.length);
    const store = createLedgerStore(large.postgres);
    expect(await store.findCharges(requestId)).toHaveLength(found);
  });

test("one that was settled late is found, and one whose client made up an old time", async () => {
  const store = createLedgerStore(large.postgres);
  const late = { made: at(3), settled: at(2.9), count: 1, number: 100 };
  await addCharges(large, late);
  expect(await store.findCharges(idOf(late.made, 100))).toHaveLength(1);
  const old = { made: at(40), admitted: at(1), settled: at(1), count: 1, number: 101 };
  await addCharges(large, old);
  expect(await store.findCharges(idOf(old.made, 101))).toHaveLength(1);
  expect(await store.findCharges(idOf(old.made, 102))).toEqual([]);
});
