// The counts of first events, carried over into finer ones by migration 0030, and what the prompt
// cache saved, which it finds in the charges.

import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { firstEventBoundsMs } from "../../src/base/shown-figures.ts";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { emptyDatabase } from "../support/database.ts";

const before = readMigrations().slice(0, 29);
/** As the counts were bounded, in milliseconds. The last one had no bound. */
const boundsBefore = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, Infinity];

/** A database as the program before left it. */
async function openBefore() {
  const { url, drop } = await emptyDatabase();
  await migrate(url, { migrations: before });
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await drop();
  });
  return { url, client };
}

test("each count goes on under the next bound above its own, and no request is lost", async () => {
  const { url, client } = await openBefore();
  const names = boundsBefore.map((_, index) => `first_event_${index + 1}`);
  const counts = boundsBefore.map((_, index) => 3 ** index);
  for (const [table, time] of [
    ["usage_hourly", "hour"],
    ["usage_daily", "day"],
  ])
    await client.query(
      `insert into ${table} (account_id, key_id, model, ${time}, ${names})
       values ('acc_1', 'key_1', 'm', '2026-11-20', ${counts})`,
    );
  await migrate(url);
  const expected = Object.fromEntries(
    [...firstEventBoundsMs, Infinity].map((_, index) => [`first_event_${index + 1}`, "0"]),
  );
  boundsBefore.forEach((bound, index) => {
    const next = firstEventBoundsMs.findIndex((one) => one >= bound);
    const place = next === -1 ? firstEventBoundsMs.length : next;
    expected[`first_event_${place + 1}`] = String(counts[index]);
  });
  for (const table of ["usage_hourly", "usage_daily"]) {
    const { rows } = await client.query(
      `select ${Object.keys(expected).map((name) => `${name}::text`)} from ${table}`,
    );
    expect(rows).toEqual([expected]);
  }
});

test("what the cache saved so far is that of the charges, in hours and in days", async () => {
  const { url, client } = await openBefore();
  await client.query(`
    create table if not exists charges_2026_10 partition of charges
      for values from ('2026-10-01') to ('2026-11-01');
    insert into price_versions (price_version, model, input, output, thinking, cache_write_5m,
      cache_write_1h, cache_read) values
      ('p', 'm', 1000, 5000, 5000, 1250, 2000, 100), ('q', 'm', 700, 5000, 5000, 900, 1500, 70);`);
  const charge = (id: number, at: string, price: string, tokens: readonly number[]) =>
    client.query(
      `insert into charges (account_id, request_id, month, family, key_id, model, input, output,
         thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, price_version,
         granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
         admitted_at, settled_at)
       values ('acc_1', 'req_0000000' || $1::text, '2026-10-01', 'v1', 'key_1', 'm', 5, 0, 0, $2, $3, $4,
         0, $5, 0, 1, 1, 0, 0, 0, 'completed', 'reported', $6, $6)`,
      [String(id), ...tokens, price, at],
    );
  await charge(1, "2026-10-05T03:10:00Z", "p", [7, 0, 1_000]);
  await charge(2, "2026-10-05T03:50:00Z", "q", [0, 11, 300]);
  await charge(3, "2026-10-05T22:00:00Z", "p", [0, 13, 0]);
  // Of one day, an hour is read from the hours, and of a request without a cache nothing is saved.
  await charge(4, "2026-10-06T00:00:00Z", "p", [0, 0, 0]);
  await client.query(`
    insert into usage_hourly (account_id, key_id, model, hour)
      select 'acc_1', 'key_1', 'm', hour::timestamptz
      from unnest(array['2026-10-05T03:00:00Z', '2026-10-05T22:00:00Z', '2026-10-06T00:00:00Z']) hour;
    insert into usage_daily (account_id, key_id, model, day)
      values ('acc_1', 'key_1', 'm', '2026-10-05'), ('acc_1', 'key_1', 'm', '2026-10-06')`);
  await migrate(url);
  const first = 7 * (1000 - 1250) + 1_000 * (1000 - 100) + 11 * (700 - 1500) + 300 * (700 - 70);
  const second = 13 * (1000 - 2000);
  const saved = async (table: string, time: string) =>
    (
      await client.query(`select cache_saved::integer as n from ${table} order by ${time}`)
    ).rows.map(({ n }) => n);
  expect(await saved("usage_hourly", "hour")).toEqual([first, second, 0]);
  expect(await saved("usage_daily", "day")).toEqual([first + second, 0]);
});
