// Months of finished requests by SQL: as many charges in each hour for each key, with their
// roll-ups, months and pools.

import { createLog } from "../../src/base/log.ts";
import { UsageDays } from "../../src/billing/usage-days.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { runSql } from "./books.ts";
import {
  chargeMicroOfPair,
  inputMicroOfPair,
  outputMicroOfPair,
  pairModel,
  pairPrice,
  pairTokens,
} from "./pairs.ts";

/** Of thirty days. */
export const hoursPerMonth = 720;
export const keysCount = 200;
const perKeyAndHour = 7;
export const chargesPerMonth = hoursPerMonth * keysCount * perKeyAndHour;
/** Enough at once to use two processors. */
const width = 2;

/**
 * Adds charges of the keys `key_1` to `key_200` in the months of thirty days that end with the full
 * hour `before`, latest first, until all are there or `msMax` is over. Returns how many months were
 * added. Append-only triggers and constraints stay as they are.
 */
export async function addMonths(
  postgres: Postgres,
  { months, before, msMax }: { months: number; before: Date; msMax: number },
): Promise<number> {
  const end = Math.floor(before.getTime() / 3_600_000) * 3_600_000;
  const deadline = performance.now() + msMax;
  // Otherwise autovacuum would run on the large table, but not on the small one, while both are
  // measured.
  await addPartitions(postgres, new Date(end - months * hoursPerMonth * 3_600_000));
  for (const table of ["usage_hourly", ...(await partitionsOf(postgres))])
    await runSql(postgres, `alter table ${table} set (autovacuum_enabled = false)`);
  const price = [pairPrice.priceVersion, pairModel, ...tokenPrices];
  await runSql(
    postgres,
    "insert into price_versions values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
    price,
  );

  let added = 0;
  let next = 0;
  const worker = async () => {
    while (next < months && performance.now() < deadline) {
      const start = new Date(end - ++next * hoursPerMonth * 3_600_000);
      await addCharges(postgres, start);
      added += 1;
    }
  };
  await Promise.all(Array.from({ length: width }, worker));

  await runSql(
    postgres,
    `update budgets set spent = used.spent
     from (select key_id, sum(amount)::bigint as spent from usage_hourly group by 1) used
     where used.key_id = budgets.payer`,
  );
  await runSql(
    postgres,
    `update pools set posted = posted - used.spent, spent = used.spent
     from (select account_id, sum(amount)::bigint as spent from usage_hourly group by 1) used
     where used.account_id = pools.account_id`,
  );
  // The ledger of this site has closed its days while they were empty.
  await runSql(
    postgres,
    "update usage_progress set closed_to = '0001-01-01', hours_from = '0001-01-01'",
  );
  await new UsageDays(postgres, createLog("silent")).run();
  await runSql(postgres, "analyze");
  await runSql(postgres, "checkpoint");
  return added;
}

/** Adds the partitions of the months from `first` on. */
function addPartitions(postgres: Postgres, first: Date): Promise<unknown> {
  return runSql(
    postgres,
    `do $$
     declare month date;
     begin
       for month in
         select generate_series(
           date_trunc('month', '${first.toISOString()}'::timestamptz at time zone 'UTC'),
           now(), interval '1 month'
         )::date
       loop
         if to_regclass('charges_' || to_char(month, 'YYYY_MM')) is null then
           execute format('create table %I partition of charges for values from (%L) to (%L)',
             'charges_' || to_char(month, 'YYYY_MM'), month, (month + interval '1 month')::date);
         end if;
       end loop;
     end $$`,
  );
}

async function partitionsOf(postgres: Postgres): Promise<string[]> {
  const rows = await runSql<{ name: string }>(
    postgres,
    "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'charges'::regclass",
  );
  return rows.map(({ name }) => name);
}

const tokenPrices = [
  pairPrice.input,
  pairPrice.output,
  pairPrice.cacheWrite5m,
  pairPrice.cacheWrite1h,
  pairPrice.cacheRead,
  pairPrice.thinking,
];

// Ids as long as real ones, which begin with their time.
async function addCharges(postgres: Postgres, start: Date): Promise<void> {
  await runSql(
    postgres,
    `insert into charges (request_id, month, account_id, family, key_id, model, input, output,
       cache_write_5m, cache_write_1h, cache_read, thinking, price_version, hold, amount, overrun,
       output_over, thinking_over, outcome, basis, attempts, admitted_at, settled_at,
       granted_output)
     select 'req_' || lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 19),
       date_trunc('month', at at time zone 'UTC')::date, 'acc_' || n % 100 + 1, 'v1', 'key_' || n % $2::int + 1, $3, $4, $4, 0, 0,
       0, 0, $5, $6, $6, 0, 0, 0, 'completed', 'reported', '[]', at, at, $4
     from (
       select n, $1::timestamptz + n * interval '1 hour' / ($2::int * $7::int) as at
       from generate_series(0, $8::int - 1) n
     ) times`,
    [
      start,
      keysCount,
      pairModel,
      pairTokens,
      pairPrice.priceVersion,
      chargeMicroOfPair,
      perKeyAndHour,
      chargesPerMonth,
    ],
  );
  await runSql(
    postgres,
    `insert into usage_hourly (account_id, key_id, model, hour, input, output, amount, amount_input,
       amount_output, requests, completed)
     select 'acc_' || key % 100 + 1, 'key_' || key + 1, $2, $1::timestamptz + hour * interval '1 hour',
       $3::bigint * $4::int, $3::bigint * $4::int, $5::bigint * $4::int, $8::bigint * $4::int,
       $9::bigint * $4::int, $4::int, $4::int
     from generate_series(0, $6::int - 1) hour, generate_series(0, $7::int - 1) key`,
    [
      ...[start, pairModel, pairTokens, perKeyAndHour, chargeMicroOfPair, hoursPerMonth, keysCount],
      inputMicroOfPair,
      outputMicroOfPair,
    ],
  );
}
