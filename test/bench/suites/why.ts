// The reports behind a bar of the usage that somebody opens, and those of the small charts, at one,
// two and a half and five million charges of thirteen months, a fifth of them of one account: how
// long each takes, and how many pages it reads. The suite writes about 7 GB, so it runs only when
// it is named. BENCH_CHARGES names other numbers of charges, with commas.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import {
  Bucket,
  QueryRefusalsRequestSchema,
  QueryUsageRequestSchema,
  RefusalGroup,
  UsageGroup,
} from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { createReports } from "../../../src/billing/usage.ts";
import type { Postgres } from "../../../src/postgres/postgres.ts";
import type { Query, Runner } from "../../../src/postgres/statement.ts";
import { costOf } from "../../support/plans.ts";
import { connectLedger, runSql } from "../books.ts";
import { Lab } from "../lab.ts";
import { quantile } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";
import { addHistory, addHistoryAccounts, busiestAccount } from "../usage-history.ts";

const sizes = (process.env.BENCH_CHARGES ?? "1000000,2500000,5000000").split(",").map(Number);
const fillMsMax = 20 * 60_000;
const calls = 40;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const scope = { accountId: busiestAccount, onlyKey: undefined };
const { KEY, MODEL, FAMILY } = UsageGroup;

export async function why(): Promise<Result> {
  const rows: Row[] = [];
  const faults: string[] = [];
  for (const charges of sizes) {
    await using lab = new Lab();
    const url = await lab.emptyDatabase(`why_${charges}`);
    const postgres = connectLedger(url);
    await addHistoryAccounts(postgres);
    const { charges: written } = await addHistory(postgres, { charges, msMax: fillMsMax });
    await addRefusals(postgres);
    const client = new Client({ connectionString: url });
    await client.connect();
    const million = `${(written / 1e6).toFixed(2)}M`;
    for (const [name, ask] of Object.entries(questions())) {
      const p95 = await timed(() => ask(createReports(postgres.reports)));
      const pages = await pagesOf(client, postgres, ask);
      rows.push(
        { measure: `${million}: ${name}, p95`, value: single(p95), unit: "ms", must: "≤ 500" },
        { measure: `${million}: ${name}, pages read`, value: single(pages) },
      );
    }
    faults.push(...(await compare(createReports(postgres.reports))));
    await client.end();
    await postgres.close();
  }
  return { rows, faults, notes: [`of ${busiestAccount}, with a fifth of the charges`] };
}

type Reports = ReturnType<typeof createReports>;
type Question = (reports: Reports) => Promise<unknown>;

/** Midnight of so many days ago. */
function daysAgo(days: number): Date {
  return new Date((Math.floor(Date.now() / dayMs) - days) * dayMs);
}

type Range = { readonly from: Date; readonly to: Date };

const stampsOf = ({ from, to }: Range) => ({
  startAt: timestampFromDate(from),
  endAt: timestampFromDate(to),
});

/** What one bar asks for when it is opened: keys with outcomes and refusals, and models. */
function opening(range: Range, filter: { models?: string[]; keyIds?: string[] } = {}): Question {
  const asked = { ...stampsOf(range), ...filter, bucket: Bucket.NONE };
  const ofKeys = create(QueryUsageRequestSchema, {
    ...asked,
    groupBy: [KEY],
    includeOutcomes: true,
  });
  const ofModels = create(QueryUsageRequestSchema, { ...asked, groupBy: [MODEL] });
  const refused = create(QueryRefusalsRequestSchema, {
    ...{ ...stampsOf(range), groupBy: [RefusalGroup.REASON] },
    ...(filter.keyIds && { keyIds: filter.keyIds }),
  });
  return (reports) =>
    Promise.all([
      reports.queryUsage(ofKeys, scope),
      reports.queryUsage(ofModels, scope),
      reports.queryRefusals(refused, scope),
    ]);
}

function questions(): Readonly<Record<string, Question>> {
  const day = { from: daysAgo(20), to: daysAgo(19) };
  const hour = { from: day.from, to: new Date(day.from.getTime() + hourMs) };
  const month = { from: daysAgo(60), to: daysAgo(30) };
  const thirtyDays = { from: daysAgo(30), to: new Date() };
  const usage =
    (range: Range, bucket: Bucket, groupBy: UsageGroup[]): Question =>
    (reports) =>
      reports.queryUsage(
        create(QueryUsageRequestSchema, { ...stampsOf(range), bucket, groupBy }),
        scope,
      );
  return {
    "a day is opened": opening(day),
    "a day of one model": opening(day, { models: ["bench-a"] }),
    "a day of one key": opening(day, { keyIds: ["key_1_1"] }),
    "an hour is opened": opening(hour),
    "a month is opened": opening(month),
    "30 days by day and reason of refusal": (reports) =>
      reports.queryRefusals(
        create(QueryRefusalsRequestSchema, {
          ...{ ...stampsOf(thirtyDays), bucket: Bucket.DAY, groupBy: [RefusalGroup.REASON] },
        }),
        scope,
      ),
    "30 days by key, then model": usage(thirtyDays, Bucket.NONE, [KEY, MODEL]),
    "two months by day and pool": usage({ ...month, to: new Date() }, Bucket.DAY, [FAMILY]),
  };
}

/** Refusals of each hour of 100 days, of each key of the account, for three reasons. */
async function addRefusals(postgres: Postgres): Promise<void> {
  await runSql(
    postgres,
    `insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
     select $1, hour, key_id, reason, 3, hour
     from generate_series(date_trunc('hour', now()) - interval '99 days', now(), '1 hour') hour,
       (select key_id from keys where account_id = $1) k,
       unnest(array['rate_limited', 'credits_exhausted', 'budget_reached']) reason`,
    [busiestAccount],
  );
  await runSql(postgres, "vacuum analyze errors_hourly");
}

async function timed(ask: () => Promise<unknown>): Promise<number> {
  const eachMs: number[] = [];
  for (let call = 0; call < calls; call++) {
    const started = performance.now();
    await ask();
    eachMs.push(performance.now() - started);
  }
  return quantile(eachMs, 0.95);
}

/** The pages that all statements of a question read together. */
async function pagesOf(client: Client, postgres: Postgres, ask: Question): Promise<number> {
  const queries: Query[] = [];
  const recording: Runner = {
    run(statement, ...parameters) {
      queries.push(statement.with(...parameters));
      return postgres.reports.run(statement, ...parameters);
    },
  };
  await ask(createReports(recording));
  let pages = 0;
  for (const query of queries) pages += (await costOf(client, query)).pages;
  return pages;
}

/** The bar of a day, and the same day opened, have the same sums. */
async function compare(reports: Reports): Promise<string[]> {
  const faults: string[] = [];
  for (const days of [3, 20, 200]) {
    const asked = stampsOf({ from: daysAgo(days), to: daysAgo(days - 1) });
    const ask = (bucket: Bucket, groupBy: UsageGroup[]) =>
      reports.queryUsage(
        create(QueryUsageRequestSchema, { ...asked, bucket, groupBy, includeOutcomes: true }),
        scope,
      );
    const bar = (await ask(Bucket.DAY, [])).rows[0]?.sums;
    const { rows, outcomes } = await ask(Bucket.NONE, [KEY]);
    const amount = rows.reduce((sum, { sums }) => sum + (sums?.chargedMicrocredits ?? 0n), 0n);
    const failed = outcomes.reduce((sum, { requests }) => sum + requests, 0n);
    if (amount !== bar?.chargedMicrocredits || failed !== bar.failed + bar.cut)
      faults.push(`the day ${days} days ago has other sums when it is opened`);
  }
  return faults;
}
