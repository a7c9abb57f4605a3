// The months and caps of keys, carried over into budgets by migration 0018.

import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { createLedgerStore } from "../../src/billing/store.ts";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { emptyDatabase } from "../support/database.ts";

const before = readMigrations().slice(0, 17);

/** A database as the program before left it, with the key `key_1` of `acc_1`, and others. */
async function openBefore() {
  const { url, drop } = await emptyDatabase();
  await migrate(url, { migrations: before });
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await drop();
  });
  await client.query(`
    insert into accounts (account_id, name) values ('acc_1', ''), ('acc_2', '');
    insert into pools (account_id, family, posted, held)
      select account_id, family, 0, 0 from accounts, unnest(array['v1', 'v2']) family;
    insert into keys (key_id, account_id, family, name, monthly_cap) values
      ('key_1', 'acc_1', 'v1', '', 5000), ('key_2', 'acc_1', 'v1', '', null),
      ('key_3', 'acc_1', 'v2', '', 0), ('key_4', 'acc_2', 'v1', '', null);
    insert into price_versions (price_version, model, input, output, thinking, cache_write_5m,
      cache_write_1h, cache_read) values ('p', 'm', 1, 1, 1, 1, 1, 1);`);
  return { url, client };
}

test("what keys spent, hold and may spend becomes their budgets, and the sums of their pools", async () => {
  const { url, client } = await openBefore();
  // A charge of today, one of this month or before it, and one of long ago, and three that run.
  const charge = (id: string, key: string, family: string, at: string, amount: number) =>
    client.query(`
      do $$ begin
        execute format('create table if not exists %I partition of charges for values from (%L) to (%L)',
          to_char(${at}, '"charges_"YYYY_MM'), date_trunc('month', ${at})::date,
          (date_trunc('month', ${at}) + interval '1 month')::date);
      end $$;
      insert into charges (account_id, request_id, month, family, key_id, model, input, output,
        thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, price_version,
        granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
        admitted_at, settled_at)
      values ('acc_1', '${id}', date_trunc('month', ${at})::date, '${family}', '${key}', 'm',
        ${amount}, 0, 0, 0, 0, 0, 0, 'p', 0, ${amount}, ${amount}, 0, 0, 0, 'completed', 'reported',
        ${at} at time zone 'utc', ${at} at time zone 'utc');
      insert into usage_hourly (account_id, key_id, model, hour, input, amount, amount_input,
        requests, completed)
      values ('acc_1', '${key}', 'm', date_trunc('hour', ${at}) at time zone 'utc', ${amount},
        ${amount}, ${amount}, 1, 1)
      on conflict (account_id, hour, key_id, model) do update set
        input = usage_hourly.input + excluded.input, amount = usage_hourly.amount + excluded.amount,
        amount_input = usage_hourly.amount_input + excluded.amount_input,
        requests = usage_hourly.requests + 1, completed = usage_hourly.completed + 1;
      insert into key_months (account_id, key_id, month, spent, last_used_at)
      values ('acc_1', '${key}', date_trunc('month', ${at})::date, ${amount},
        ${at} at time zone 'utc')
      on conflict (account_id, key_id, month) do update set
        spent = key_months.spent + excluded.spent,
        last_used_at = greatest(key_months.last_used_at, excluded.last_used_at);
      update pools set posted = posted - ${amount}, in_debt = true
      where account_id = 'acc_1' and family = '${family}'`);
  const now = "(now() at time zone 'utc')";
  await charge("req_00000001", "key_1", "v1", now, 100);
  await charge("req_00000002", "key_1", "v1", `date_trunc('week', ${now})`, 20);
  await charge("req_00000003", "key_1", "v1", `date_trunc('month', ${now})`, 3);
  await charge("req_00000004", "key_1", "v1", `(${now} - interval '70 days')`, 4000);
  await charge("req_00000005", "key_2", "v1", now, 50_000);
  await charge("req_00000006", "key_3", "v2", `(${now} - interval '70 days')`, 600_000);
  await client.query(`
    insert into transfers (transfer_id, account_id, family, kind, amount, posted_after, actor,
      idempotency_key)
    select 'tra_' || family, 'acc_1', family, 'bonus', 1000000, 1000000, 't', family
    from unnest(array['v1', 'v2']) family;
    insert into holds (account_id, request_id, family, key_id, model, month, amount, price_version,
      nonce, admitted_at, deadline, granted_output)
    select 'acc_1', 'req_run_' || n, 'v1', case n when 9 then 'key_2' else 'key_1' end, 'm',
      date_trunc('month', ${now})::date, n, 'p', '', now(), now() + interval '1 hour', 1
    from generate_series(7, 9) n;
    insert into key_months (account_id, key_id, month, held)
    values ('acc_1', 'key_1', date_trunc('month', ${now})::date, 15),
      ('acc_1', 'key_2', date_trunc('month', ${now})::date, 9)
    on conflict (account_id, key_id, month) do update set held = excluded.held;
    update pools set posted = posted + 1000000 where account_id = 'acc_1';
    update pools set held = 24 where account_id = 'acc_1' and family = 'v1';
    update pools set in_debt = false`);
  const figures = await client.query(`
    select
      sum(amount) filter (where hour >= date_trunc('day', now(), 'UTC'))::int as day,
      sum(amount) filter (where hour >= date_trunc('week', now(), 'UTC'))::int as week,
      sum(amount) filter (where hour >= date_trunc('month', now(), 'UTC'))::int as month
    from usage_hourly where key_id = 'key_1'`);

  await migrate(url);

  const { rows } = await client.query(`
    select payer, family, spent::int, held::int, running, (spent - day_base)::int as day,
      (spent - week_base)::int as week, (spent - month_base)::int as month,
      month_limit::int as limit, b.is_limited, last_used_at is not null as is_used
    from budgets b order by payer`);
  expect(rows).toEqual([
    {
      ...{ payer: "key_1", family: "v1", spent: 4123, held: 15, running: 2, ...figures.rows[0] },
      ...{ limit: 5000, is_limited: true, is_used: true },
    },
    {
      ...{ payer: "key_2", family: "v1", spent: 50_000, held: 0, running: 0, day: 50_000 },
      ...{ week: 50_000, month: 50_000, limit: null, is_limited: false, is_used: true },
    },
    {
      ...{ payer: "key_3", family: "v2", spent: 600_000, held: 0, running: 0, day: 0, week: 0 },
      ...{ month: 0, limit: 0, is_limited: true, is_used: true },
    },
    {
      ...{ payer: "key_4", family: "v1", spent: 0, held: 0, running: 0, day: 0, week: 0, month: 0 },
      ...{ limit: null, is_limited: false, is_used: false },
    },
  ]);
  const postgres = connectPostgres(url);
  onTestFinished(() => postgres.close());
  expect(await createLedgerStore(postgres).verifyLedger()).toEqual([]);
});

test("no older program may run beside the migration, and none starts after it", async () => {
  const { url, client } = await openBefore();
  await client.query("insert into nodes (node_id, process) values ('node_older', '')");
  await expect(migrate(url)).rejects.toThrow(
    /migration 0018_budgets may not run beside an older version .* node_older still runs/,
  );
  const { rows } = await client.query("select to_regclass('key_months') is not null as is_there");
  expect(rows).toEqual([{ is_there: true }]);
  await client.query("delete from nodes");
  await migrate(url);
  await expect(migrate(url, { migrations: before })).rejects.toThrow(/newer than this program/);
});
