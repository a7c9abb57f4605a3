// Thirteen months of charges, written straight into the partitions, with their sums, months and
// pools: for reports over all of them. A fifth of the charges is of one account, `acc_1`, with 20
// keys and 5 models in every hour; the rest of 99 accounts with 4 keys each.

import { microRoundedDown } from "../../src/base/cost.ts";
import { createLog } from "../../src/base/log.ts";
import { priceVersion } from "../../src/billing/price.ts";
import { UsageDays } from "../../src/billing/usage-days.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { addAccounts, runSql } from "./books.ts";
import { pairPrice } from "./pairs.ts";

export const historyAccounts = 100;
export const historyMonths = 13;
/** A fifth of the charges is its own. */
export const busiestAccount = "acc_1";
const models = ["bench-a", "bench-b", "bench-c", "bench-d", "bench-e"];
const tokens = 100;
const price = priceVersion("bench-history", { ...pairPrice });
/** The amount of each charge. */
export const historyChargeMicro = microRoundedDown(BigInt(tokens) * (price.input + price.output));
const dayMs = 24 * 3_600_000;
/** Months that are written at once, to use two processors, and how much faster that is. */
const width = 2;
const speedup = 1.5;

/** Accounts `acc_1` to `acc_100` with credits, their pools, and their keys `key_<account>_<n>`. */
export async function addHistoryAccounts(postgres: Postgres): Promise<void> {
  await addAccounts(postgres, historyAccounts);
  await runSql(
    postgres,
    `insert into keys (key_id, account_id, family, name)
     select 'key_' || n || '_' || k, 'acc_' || n, 'v1', 'bench'
     from generate_series(1, $1::int) n,
       lateral generate_series(1, case when n = 1 then 20 else 4 end) k`,
    [historyAccounts],
  );
  await runSql(
    postgres,
    "insert into budgets (account_id, family, payer) select account_id, family, key_id from keys",
  );
  await runSql(
    postgres,
    "insert into price_versions values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
    [
      ...[price.priceVersion, "bench-history", price.input, price.output, price.cacheWrite5m],
      ...[price.cacheWrite1h, price.cacheRead, price.thinking],
    ],
  );
}

/** What was written, and how long closing its days took. */
export type History = { readonly charges: number; readonly closingSeconds: number };

type Month = { readonly start: Date; readonly end: Date };

/**
 * Adds `charges` charges, spread evenly over the thirteen months that end today. If they would take
 * longer than `msMax`, as one full month shows, it adds fewer to each of the others.
 */
export async function addHistory(
  postgres: Postgres,
  { charges, msMax }: { charges: number; msMax: number },
): Promise<History> {
  const started = performance.now();
  const months = monthsUntil(new Date(Math.floor(Date.now() / dayMs) * dayMs));
  const daysOf = ({ start, end }: Month) => (end.getTime() - start.getTime()) / dayMs;
  const allDays = months.reduce((sum, month) => sum + daysOf(month), 0);
  let perDay = charges / allDays;
  let added = 0;
  const add = async (month: Month) => {
    const count = Math.round(perDay * daysOf(month));
    if (count > 0) await addMonth(postgres, month, count);
    added += count;
  };
  const [last, full, ...others] = months;
  if (!last || !full) throw new Error("a history without months");
  await add(full);
  const msOfMonth = performance.now() - started;
  const msPerDay = msOfMonth / daysOf(full) / speedup;
  const msLeft = Math.max(0, msMax - msOfMonth);
  perDay *= Math.min(1, msLeft / (msPerDay * (allDays - daysOf(full))));
  const waiting = [last, ...others];
  const worker = async () => {
    for (let month = waiting.shift(); month; month = waiting.shift()) await add(month);
  };
  await Promise.all(Array.from({ length: width }, worker));
  return { charges: added, closingSeconds: await book(postgres) };
}

/** Adds charges to the month before the last one, whose days are closed. Returns the month. */
export async function addPastMonth(postgres: Postgres, charges: number): Promise<string> {
  const now = new Date();
  const startOf = (back: number) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1));
  await addMonth(postgres, { start: startOf(2), end: startOf(1) }, charges);
  await book(postgres);
  return startOf(2).toISOString().slice(0, 10);
}

/** Adds charges with tags to one day, which is open, with their hours. Returns the day. */
export async function addDay(postgres: Postgres, charges: number): Promise<string> {
  const now = new Date();
  const start = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 2, 15));
  await addMonth(postgres, { start, end: new Date(start.getTime() + dayMs) }, charges, tagsOfDay);
  await runSql(postgres, "vacuum analyze");
  await runSql(postgres, "checkpoint");
  return start.toISOString().slice(0, 10);
}

const tagsOfDay = "jsonb_build_object('user', 'u' || n % 5003, 'team', 't' || n % 20)";

/** Books what the hours sum up to, and closes their days. Returns how long that took. */
async function book(postgres: Postgres): Promise<number> {
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
  await runSql(
    postgres,
    "update usage_progress set closed_to = '0001-01-01', hours_from = '0001-01-01'",
  );
  // As a gateway does: closes the days, and removes the hours that are too old.
  const closing = performance.now();
  await new UsageDays(postgres, createLog("silent")).run();
  const closingSeconds = (performance.now() - closing) / 1000;
  await runSql(postgres, "vacuum analyze");
  await runSql(postgres, "checkpoint");
  return closingSeconds;
}

/** The thirteen months that end at `end`, latest first. */
function monthsUntil(end: Date): Month[] {
  return Array.from({ length: historyMonths }, (_, back) => {
    const start = new Date(Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - back, 1));
    const next = new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1));
    return { start, end: next < end ? next : end };
  });
}

/** One month, in a table of its own that becomes a partition when it is full and indexed. */
async function addMonth(
  postgres: Postgres,
  { start, end }: Month,
  count: number,
  /** An expression of the number `n`. */
  tags = "null::jsonb",
): Promise<void> {
  const month = `${start.toISOString().slice(0, 7)}-01`;
  const name = `charges_${month.slice(0, 7).replace("-", "_")}`;
  const present = await runSql(postgres, "select 1 where to_regclass($1) is not null", [name]);
  const isNew = present.length === 0;
  if (isNew)
    await runSql(
      postgres,
      `create table ${name} (like charges including defaults including constraints)`,
    );
  await runSql(
    postgres,
    `insert into ${name} (request_id, month, account_id, family, key_id, model, input, output,
       cache_write_5m, cache_write_1h, cache_read, thinking, price_version, hold, amount, overrun,
       output_over, thinking_over, outcome, basis, attempts, admitted_at, settled_at,
       granted_output, tags)
     select 'req_' || lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
         || substr(md5(n::text), 1, 19),
       $1::date, 'acc_' || account, 'v1', 'key_' || account || '_' || key, ($2::text[])[model],
       $3, $3, 0, 0, 0, 0, $4, $5, $5, 0, 0, 0,
       case when n % 50 = 0 then 'client_left' when n % 70 = 0 then 'provider_broke'
         else 'completed' end,
       'reported',
       '[{"provider":"bench","outcome":"delivered","status":200,"firstEventAfter":"0.350s"}]',
       at, at + interval '3 seconds', $3, ${tags}
     from (
       select n, case when n % 5 = 0 then 1 else n / 5 % 99 + 2 end as account,
         case when n % 5 = 0 then n / 5 % 20 + 1 else n / 500 % 4 + 1 end as key,
         case when n % 5 = 0 then n / 100 % 5 + 1 else 1 end as model,
         -- Whole milliseconds, as times of admission are.
         date_trunc('milliseconds',
           $6::timestamptz + n * (($7::timestamptz - $6::timestamptz) / $8::int)) as at
       from generate_series(0, $8::int - 1) n
     ) rows`,
    [...[month, models, tokens, price.priceVersion, historyChargeMicro, start, end, count]],
  );
  if (isNew) {
    const indexes = await runSql<{ definition: string }>(
      postgres,
      `select pg_get_indexdef(indexrelid) as definition from pg_index
       where indrelid = 'charges'::regclass and not indisprimary`,
    );
    await postgres.transaction(async (tx) => {
      await runSql(tx, "set local maintenance_work_mem = '512MB'");
      await runSql(tx, `alter table ${name} add primary key (request_id, account_id, month)`);
      for (const { definition } of indexes)
        await runSql(tx, definition.replace(/ index \S+ on only \S+ /i, ` index on ${name} `));
      await runSql(
        tx,
        `alter table charges attach partition ${name}
           for values from ('${month}') to ('${month}'::date + interval '1 month')`,
      );
    });
  }
  await runSql(
    postgres,
    `insert into usage_hourly (account_id, key_id, model, hour, input, output, amount, amount_input,
       amount_output, requests, completed, failed, cut, first_event_4)
     select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(input),
       sum(output), sum(amount), sum(input * ${price.input} / 1000),
       sum(output * ${price.output} / 1000),
       count(*), count(*) filter (where outcome = 'completed'),
       count(*) filter (where outcome = 'provider_broke'),
       count(*) filter (where outcome = 'client_left'), count(*)
     from ${name}
     group by 1, 2, 3, 4`,
  );
}
