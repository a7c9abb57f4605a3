// Prices in nano-credits, made of those in micro-credits by migration 0024.

import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { createLedgerStore } from "../../src/billing/store.ts";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { emptyDatabase } from "../support/database.ts";

const before = readMigrations().filter(({ name }) => name < "0024");

test("versions of prices are multiplied by a thousand once, and no charge changes", async () => {
  const { url, drop } = await emptyDatabase();
  await migrate(url, { migrations: before });
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await drop();
  });
  await client.query(`
    insert into price_versions (price_version, model, input, output, thinking, cache_write_5m,
      cache_write_1h, cache_read, web_search)
    values ('price_1', 'm', 140, 700, 701, 175, 280, 14, 9);
    insert into charges (account_id, request_id, month, family, key_id, model, price_version,
      granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
      admitted_at, settled_at, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      web_searches)
    select 'acc_1', 'req_0000000' || n, date_trunc('month', now() at time zone 'utc')::date, 'v1',
      'key_1', 'm', 'price_1', 100, 10000, least(10000, n * 2019), 0, n, 2, 'completed',
      'reported', now(), now(), n, n, n, n, n, n, n
    from generate_series(0, 9) n;`);
  const sums = async () =>
    (await client.query("select * from charge_sums order by request_id")).rows;
  const earlier = await sums();

  await migrate(url);
  await migrate(url);

  expect(await sums()).toMatchObject(earlier);
  const { rows } = await client.query("select * from price_versions");
  expect(rows).toMatchObject([
    {
      ...{ price_version: "price_1", input: "140000", output: "700000", thinking: "701000" },
      ...{ cache_write_5m: "175000", cache_write_1h: "280000", cache_read: "14000" },
      web_search: "9",
    },
  ]);
  const postgres = connectPostgres(url);
  const found = await createLedgerStore(postgres).findCharge({
    accountId: "acc_1",
    requestId: "req_00000003",
  });
  expect(found?.price).toMatchObject({ input: 140_000n, cacheRead: 14_000n, webSearch: 9n });
  await postgres.close();
  // Versions are append-only again.
  await expect(client.query("update price_versions set input = 1")).rejects.toThrow("append-only");
});
