// The sums of sales: how fast they are written anew from one, two and a half and five million
// charges of thirteen months, what a charge costs the processors, and how long reports over all of
// it take; and how long they take over the sums of 2,000 accounts. The suite writes about 5 GB, so
// it runs only when it is named. BENCH_CHARGES names other numbers of charges, with commas; with
// five million alone, it takes some minutes.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  ListProviderBillsRequestSchema,
  QueryLiabilitiesRequestSchema,
  QueryRevenueRequestSchema,
  QuerySalesRequestSchema,
  SalesBucket,
  SalesGroup,
} from "../../../gen/gateway/sales/v1/sales_pb.ts";
import { createLog } from "../../../src/base/log.ts";
import { reportRowsMax } from "../../../src/base/shown-figures.ts";
import type { Postgres } from "../../../src/postgres/postgres.ts";
import { createSales, SalesRollup } from "../../../src/sales/sales.ts";
import { connectLedger, runSql } from "../books.ts";
import { Lab } from "../lab.ts";
import { cpuSeconds, cpuSecondsOfTree, quantile } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";
import { addHistory, addHistoryAccounts, busiestAccount, historyMonths } from "../usage-history.ts";

const sizes = (process.env.BENCH_CHARGES ?? "1000000,2500000,5000000").split(",").map(Number);
const fillMsMax = 20 * 60_000;
const calls = 40;
const sumAccounts = 2_000;
const log = createLog("silent");
/** Charges a second that the roll-up has to follow. */
const followed = 2_000;

export async function sales(): Promise<Result> {
  const rows: Row[] = [];
  const faults: string[] = [];
  const perCharge: number[] = [];
  for (const charges of sizes) {
    await using lab = new Lab();
    const { pid } = await lab.database();
    const url = await lab.emptyDatabase(`sales_${charges}`);
    const postgres = connectLedger(url);
    await addHistoryAccounts(postgres);
    const { charges: written } = await addHistory(postgres, { charges, msMax: fillMsMax });
    const million = (written / 1e6).toFixed(1);
    const cpu = () => cpuSeconds(process.pid) + cpuSecondsOfTree(pid);
    const rollup = new SalesRollup({ postgres, log, marginMs: 0, rests: false });
    const [started, cpuBefore] = [performance.now(), cpu()];
    const counted = await rollup.rebuild(async () => undefined);
    const seconds = (performance.now() - started) / 1000;
    const micros = ((cpu() - cpuBefore) * 1e6) / written;
    if (counted !== BigInt(written)) faults.push(`${counted} charges are in sums, not ${written}`);
    perCharge.push(seconds / written);
    rows.push(
      {
        measure: `sums written from ${million}M charges`,
        value: single(written / seconds),
        unit: "/s",
      },
      {
        measure: `processors for ${followed} charges/s, ${million}M charges`,
        value: single((micros * followed) / 1e6),
        must: "≤ 0.10",
      },
    );
    if (charges === sizes.at(-1)) {
      rows.push(...(await timeReports(postgres, `${million}M charges`)));
      await addSums(postgres);
      rows.push(...(await timeReports(postgres, `${sumAccounts} accounts`)));
    }
    await postgres.close();
  }
  const [first = 1] = perCharge;
  const last = perCharge.at(-1) ?? first;
  rows.push({
    measure: "time a charge, the most charges ÷ the fewest",
    value: single(last / first),
    must: "≤ 1.2",
  });
  return { rows, notes: [], faults };
}

/** Sums of thirteen months of accounts that use three models at two providers every day. */
async function addSums(postgres: Postgres): Promise<void> {
  await runSql(
    postgres,
    `insert into sales_daily (day, account_id, family, model, provider, cost_version, requests,
       uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
       amount, overrun, cost_pico)
     select d::date, 'sum_' || a, 'v1', 'bench-' || m, 'provider-' || m % 2, 'cost', 10, 0, 1000,
       1000, 0, 0, 0, 5000, 0, 900000, 0, 2000000000
     from generate_series(date_trunc('month', now(), 'UTC') - interval '12 months', now(), '1 day') d,
       generate_series(1, $1::int) a, generate_series(1, 3) m`,
    [sumAccounts],
  );
  const sums = `sum(requests), sum(uncosted), sum(input), sum(output), sum(thinking),
    sum(cache_write_5m), sum(cache_write_1h), sum(cache_read), sum(web_searches), sum(amount),
    sum(overrun), sum(cost_pico)`;
  await runSql(postgres, "truncate sales_monthly, sales_totals");
  await runSql(
    postgres,
    `insert into sales_monthly
     select date_trunc('month', day::timestamp)::date, account_id, family, model, provider,
       cost_version, ${sums} from sales_daily group by 1, 2, 3, 4, 5, 6`,
  );
  await runSql(
    postgres,
    `insert into sales_totals
     select day, family, model, provider, cost_version, ${sums} from sales_daily
     group by 1, 2, 3, 4, 5`,
  );
  await runSql(postgres, "vacuum analyze");
}

/** Reports over all months, one after the other. `what`: what the sums are of. */
async function timeReports(postgres: Postgres, what: string): Promise<Row[]> {
  const reports = createSales({ postgres, file: { models: [] }, log });
  const now = new Date();
  const at = (months: number) =>
    timestampFromDate(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + months, 1)));
  const range = { startAt: at(1 - historyMonths), endAt: at(1) };
  const { ACCOUNT, MODEL, PROVIDER } = SalesGroup;
  const accountIds = [`sum_${sumAccounts}`, busiestAccount];
  const everything = { accountId: "" };
  const pageSize = reportRowsMax;
  const salesBy = (groupBy: SalesGroup[], bucket: SalesBucket = SalesBucket.NONE) => {
    const request = create(QuerySalesRequestSchema, { ...range, groupBy, bucket, pageSize });
    return () => reports.querySales(request, everything);
  };
  const asked: Readonly<Record<string, () => Promise<unknown>>> = {
    "sales by model and provider, a month a row": salesBy([MODEL, PROVIDER], SalesBucket.MONTH),
    "sales by day": salesBy([], SalesBucket.DAY),
    "sales by account": salesBy([ACCOUNT]),
    "sales by month and account, a page": salesBy([ACCOUNT], SalesBucket.MONTH),
    "sales by day, account and model, a page": salesBy([ACCOUNT, MODEL], SalesBucket.DAY),
    "sales of two accounts by day and model": () =>
      reports.querySales(
        create(QuerySalesRequestSchema, {
          ...{ ...range, accountIds, groupBy: [MODEL], bucket: SalesBucket.DAY, pageSize },
        }),
        everything,
      ),
    "bills of providers": () =>
      reports.listProviderBills(create(ListProviderBillsRequestSchema, range), everything),
    revenue: () => reports.queryRevenue(create(QueryRevenueRequestSchema, range), everything),
    "liabilities of each day": () =>
      reports.queryLiabilities(create(QueryLiabilitiesRequestSchema, range)),
  };
  const rows: Row[] = [];
  for (const [name, ask] of Object.entries(asked)) {
    const each: number[] = [];
    for (let call = 0; call < calls; call++) {
      const started = performance.now();
      await ask();
      each.push(performance.now() - started);
    }
    rows.push({
      measure: `${name}, ${historyMonths} months of ${what}, p95`,
      value: single(quantile(each, 0.95)),
      unit: "ms",
      must: "≤ 500",
    });
  }
  return rows;
}
