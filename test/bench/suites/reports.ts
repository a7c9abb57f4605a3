// Reports over thirteen months of charges, pages of charges, and what reports cost settlements. The
// suite writes about 20 GB, so it runs only when it is named.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Bucket,
  GetForecastRequestSchema,
  ListChargesRequestSchema,
  QueryErrorsRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
} from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { environmentToken } from "../../../src/contract/contract.ts";
import type { Postgres } from "../../../src/postgres/postgres.ts";
import { callBy } from "../../support/calls.ts";
import { connectLedger, findViolations, sumCharges } from "../books.ts";
import { Lab } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import { chargeMicroOfPair, startPairs } from "../pairs.ts";
import { type Result, type Row, single } from "../report.ts";
import {
  addHistory,
  addHistoryAccounts,
  historyAccounts,
  historyChargeMicro,
  historyMonths,
} from "../usage-history.ts";

/** In thirteen months about 31 million, with their indexes about 20 GB. */
const perMonth = 2_400_000;
const fillMsMax = 20 * 60_000;
const calls = 40;
const rounds = 4;
const pairs = 10_000;
/** While settlements are measured: as 120 people who look at a report once a minute. */
const reportEveryMs = 500;

export async function reports(): Promise<Result> {
  await using lab = new Lab();
  const postgres = connectLedger(await lab.emptyDatabase("reports"));
  await addHistoryAccounts(postgres);
  const added = await addHistory(postgres, { perMonth, msMax: fillMsMax });
  const result = await measureReports(postgres, added);
  await postgres.close();
  return result;
}

/** Measures over a history of `added` charges. */
export async function measureReports(postgres: Postgres, added: number): Promise<Result> {
  const ledger = await startPairs(postgres);
  const { service } = ledger;
  const now = new Date();
  const from = timestampFromDate(
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - historyMonths + 1, 1)),
  );
  const busiest = callBy(environmentToken, { accountId: "acc_1" });
  const usageOf =
    (groupBy: UsageGroup[], bucket: Bucket, more: object = {}) =>
    () =>
      service.queryUsage(
        create(QueryUsageRequestSchema, { from, bucket, groupBy, ...more }),
        busiest,
      );
  const questions: Record<string, () => Promise<unknown>> = {
    "by day": usageOf([], Bucket.DAY),
    "by key and model": usageOf([UsageGroup.KEY, UsageGroup.MODEL], Bucket.NONE),
    "by month, key and family": usageOf([UsageGroup.KEY, UsageGroup.FAMILY], Bucket.MONTH),
    "by day, key and model, a page of 2,000": usageOf(
      [UsageGroup.KEY, UsageGroup.MODEL],
      Bucket.DAY,
    ),
    "by month, of one model": usageOf([], Bucket.MONTH, { models: ["bench-a"] }),
  };
  const others: Record<string, () => Promise<unknown>> = {
    "rejected requests by day and reason": () =>
      service.queryErrors(create(QueryErrorsRequestSchema, { from, bucket: Bucket.DAY }), busiest),
    forecast: () => service.getForecast(create(GetForecastRequestSchema), busiest),
    "a page of charges": () =>
      service.listCharges(create(ListChargesRequestSchema, { pageSize: 100 }), busiest),
  };

  const rows: Row[] = [];
  for (const [name, run] of Object.entries(questions))
    rows.push(await timed(`13 months ${name}, p95`, run, "≤ 500, goal 200"));
  rows.push(
    await timed("rejected requests by day, p95", others["rejected requests by day and reason"]),
  );
  rows.push(await timed("forecast, p95", others.forecast));
  rows.push(await timed("a page of 100 charges, p95", others["a page of charges"], "≤ 100"));

  const ratios: number[] = [];
  const alone: number[] = [];
  let settled = 0;
  const keyOf = (pair: number) => {
    const account = ((pair * 7919) % historyAccounts) + 1;
    return { accountId: `acc_${account}`, keyId: `key_${account}_1` };
  };
  const run = async () => {
    settled += pairs;
    return (await ledger.run({ count: pairs, width: 500, keyOf })).perSecond;
  };
  await run();
  for (let round = 0; round < rounds; round++) {
    const without = await run();
    const watching = watch(Object.values(questions));
    const withReports = await run();
    await watching.stop();
    ratios.push(withReports / without);
    alone.push(without);
  }
  rows.push({
    measure: "settle rate with two reports a second ÷ without",
    value: spreadOf(ratios),
    must: "≥ 0.95",
  });
  rows.push({
    measure: "hold + settle pairs/s without reports",
    value: spreadOf(alone),
    unit: "/s",
  });
  await ledger.stop();

  const faults = await findViolations(postgres);
  const charged = await sumCharges(postgres);
  const expected = BigInt(added) * historyChargeMicro + BigInt(settled) * chargeMicroOfPair;
  if (charged !== expected) faults.push(`charged ${charged} micro-credits instead of ${expected}`);
  return { rows, faults, notes: [`over ${(added / 1e6).toFixed(1)} million charges`] };
}

async function timed(
  measure: string,
  run: (() => Promise<unknown>) | undefined,
  must?: string,
): Promise<Row> {
  const eachMs: number[] = [];
  for (let call = 0; call < calls; call++) {
    const started = performance.now();
    await run?.();
    eachMs.push(performance.now() - started);
  }
  return { measure, value: single(quantile(eachMs, 0.95)), unit: "ms", ...(must && { must }) };
}

/** Asks one question after the other until it is stopped. */
function watch(questions: readonly (() => Promise<unknown>)[]) {
  const running = new Set<Promise<unknown>>();
  let next = 0;
  const timer = setInterval(() => {
    const asked = questions[next++ % questions.length]?.() ?? Promise.resolve();
    running.add(asked);
    void asked.finally(() => running.delete(asked));
  }, reportEveryMs);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(running);
    },
  };
}
