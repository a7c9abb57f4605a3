// Reports over thirteen months of charges, pages and files of charges, and what reports cost
// settlements. The suite writes about 20 GB, so it runs only when it is named. BENCH_CHARGES asks
// for fewer charges than 31 million, BENCH_FILL_MINUTES for more than four minutes to write them.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Bucket,
  GetForecastRequestSchema,
  ListChargesRequestSchema,
  QueryRefusalsRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
  WatchChargesRequestSchema,
} from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { environmentToken } from "../../../src/contract/contract.ts";
import type { Postgres } from "../../../src/postgres/postgres.ts";
import { callBy } from "../../support/calls.ts";
import { query } from "../../support/query.ts";
import { connectLedger, findViolations, sumCharges } from "../books.ts";
import { download, signIn } from "../csv-download.ts";
import { Lab } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import { chargeMicroOfPair, startPairs } from "../pairs.ts";
import { type Result, type Row, single } from "../report.ts";
import {
  addHistory,
  addHistoryAccounts,
  busiestAccount,
  historyAccounts,
  historyChargeMicro,
  historyMonths,
} from "../usage-history.ts";

/** With their indexes about 20 GB. */
const chargesWanted = Number(process.env.BENCH_CHARGES ?? 31_000_000);
const fillMsMax = Number(process.env.BENCH_FILL_MINUTES ?? 4) * 60_000;
const calls = 40;
const rounds = 4;
const pairs = 25_000;
/** While settlements are measured: as 60 people who look at a report of 13 months once a minute. */
const reportEveryMs = 1_000;
const downloads = 2;
const downloadRows = 1_000_000;
/** The verifier reads every charge several times: more of them would take minutes. */
const verifiedMax = 5_000_000;

const dayMs = 24 * 3_600_000;
const busiest = callBy(environmentToken, { accountId: busiestAccount });

export async function reports(): Promise<Result> {
  await using lab = new Lab();
  const url = await lab.emptyDatabase("reports");
  const postgres = connectLedger(url);
  await addHistoryAccounts(postgres);
  const started = performance.now();
  const { charges, closingSeconds } = await addHistory(postgres, {
    charges: chargesWanted,
    msMax: fillMsMax,
  });
  const fillSeconds = (performance.now() - started) / 1000;
  const settled = await measureLedger(postgres);
  const files = await measureFiles(lab, url, postgres, charges);
  const checked = await check(postgres, charges, settled.count);
  const size = await sizeOf(postgres);
  await postgres.close();
  const million = (charges / 1e6).toFixed(1);
  return {
    rows: [...settled.rows, ...files.rows],
    faults: [...checked.faults, ...files.faults],
    notes: [
      `over ${million} million charges of ${historyMonths} months, ${size}, written in ${fillSeconds.toFixed(0)} s`,
      `closing and checking their days took ${closingSeconds.toFixed(1)} s of these`,
      ...checked.notes,
    ],
  };
}

type Question = () => Promise<unknown>;

/** Measures the reports of the busiest account, and settlements beside them. */
async function measureLedger(postgres: Postgres): Promise<{ rows: Row[]; count: number }> {
  const ledger = await startPairs(postgres);
  const { service } = ledger;
  const now = new Date();
  const from = timestampFromDate(
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - historyMonths + 1, 1)),
  );
  const { KEY, MODEL, FAMILY } = UsageGroup;
  const usage =
    (groupBy: UsageGroup[], bucket: Bucket, more: object = {}): Question =>
    () =>
      service.queryUsage(
        create(QueryUsageRequestSchema, { startAt: from, bucket, groupBy, ...more }),
        busiest,
      );
  const overMonths: Record<string, Question> = {
    "by day": usage([], Bucket.DAY),
    "by month": usage([], Bucket.MONTH),
    "by key and model": usage([KEY, MODEL], Bucket.NONE),
    "by month, key and family": usage([KEY, FAMILY], Bucket.MONTH),
    "by day, key and model, a page of 2,000": usage([KEY, MODEL], Bucket.DAY),
    "by day, key, model and family, the same": usage([KEY, MODEL, FAMILY], Bucket.DAY),
    "by month, of one model": usage([], Bucket.MONTH, { models: ["bench-a"] }),
    "by day, of one key": usage([], Bucket.DAY, { keyIds: ["key_1_1"] }),
  };
  const rows: Row[] = [];
  for (const [name, ask] of Object.entries(overMonths))
    rows.push(await timed(`13 months ${name}, p95`, ask, "≤ 500, goal 200"));
  const hundredDays = timestampFromDate(new Date(now.getTime() - 99 * dayMs));
  rows.push(
    await timed(
      "100 days by hour, p95",
      usage([], Bucket.HOUR, { from: hundredDays }),
      "≤ 500, goal 200",
    ),
    await timed("rejected requests by day, p95", () =>
      service.queryRefusals(
        create(QueryRefusalsRequestSchema, { startAt: from, bucket: Bucket.DAY }),
        busiest,
      ),
    ),
    await timed("forecast, p95", () =>
      service.getForecast(create(GetForecastRequestSchema), busiest),
    ),
    await timed(
      "a page of 100 charges, p95",
      () => service.listCharges(create(ListChargesRequestSchema, { pageSize: 100 }), busiest),
      "≤ 100",
    ),
    await timed(
      "a page of a filter that nothing matches, p95",
      () =>
        service.listCharges(
          create(ListChargesRequestSchema, { filter: { model: "none" } }),
          busiest,
        ),
      "≤ 100",
    ),
  );

  let count = 0;
  const settle = async () => {
    count += pairs;
    return (await ledger.run({ count: pairs, width: 500, keyOf: spreadKey })).perSecond;
  };
  const questions = Object.values(overMonths);
  const beside = {
    reports: () => askEvery(reportEveryMs, questions),
    "a reader": () => watchCharges(service),
  };
  const ratios: Record<keyof typeof beside, number[]> = { reports: [], "a reader": [] };
  const alone: number[] = [];
  await settle();
  for (let round = 0; round < rounds; round++) {
    for (const name of ["reports", "a reader"] as const) {
      // Without, with, without: what the machine does besides cancels out.
      const before = await settle();
      const other = beside[name]();
      const together = await settle();
      await other.stop();
      const after = await settle();
      alone.push(before, after);
      ratios[name].push((2 * together) / (before + after));
    }
  }
  await ledger.stop();
  rows.push(
    {
      measure: "settle rate with a report over 13 months every second ÷ without",
      value: spreadOf(ratios.reports),
      must: "≥ 0.95",
    },
    {
      measure: "settle rate while somebody watches charges ÷ without",
      value: spreadOf(ratios["a reader"]),
    },
    { measure: "hold + settle pairs/s without either", value: spreadOf(alone), unit: "/s" },
  );
  return { rows, count };
}

function spreadKey(pair: number): { accountId: string; keyId: string } {
  const account = ((pair * 7919) % historyAccounts) + 1;
  return { accountId: `acc_${account}`, keyId: `key_${account}_1` };
}

async function timed(measure: string, ask: Question, must?: string): Promise<Row> {
  const eachMs: number[] = [];
  for (let call = 0; call < calls; call++) {
    const started = performance.now();
    await ask();
    eachMs.push(performance.now() - started);
  }
  return { measure, value: single(quantile(eachMs, 0.95)), unit: "ms", ...(must && { must }) };
}

/** Asks one question after the other until it is stopped. */
function askEvery(ms: number, questions: readonly Question[]) {
  const running = new Set<Promise<unknown>>();
  let next = 0;
  const ask = () => {
    const asked = questions[next++ % questions.length]?.() ?? Promise.resolve();
    running.add(asked);
    void asked.finally(() => running.delete(asked));
  };
  ask();
  const timer = setInterval(ask, ms);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(running);
    },
  };
}

type Service = Awaited<ReturnType<typeof startPairs>>["service"];

/** Reads the stream of the busiest account until it is stopped. */
function watchCharges(service: Service) {
  const stopping = new AbortController();
  const { signal } = stopping;
  const call = callBy(environmentToken, { accountId: busiestAccount, signal });
  const messages = service.watchCharges(create(WatchChargesRequestSchema), call);
  const read = async () => {
    const reader = messages[Symbol.asyncIterator]();
    while (!(await reader.next()).done);
  };
  const reading = read().catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
  return {
    async stop() {
      stopping.abort();
      await reading;
    },
  };
}

/** Measures downloads of charges of the busiest account, at a gateway process of their own. */
async function measureFiles(lab: Lab, databaseUrl: string, postgres: Postgres, charges: number) {
  const gateway = await lab.gateway(await lab.provider(), { databaseUrl });
  const cookie = await signIn(gateway);
  // A fifth of all charges is of this account.
  const perDay = charges / 5 / (historyMonths * 30);
  const from = new Date(
    (Math.floor(Date.now() / dayMs) - Math.ceil(downloadRows / perDay)) * dayMs,
  );
  const rates: number[] = [];
  const growth: number[] = [];
  let rows = 0;
  // The first one warms up.
  for (let round = 0; round <= downloads; round++) {
    const one = await download(gateway, { cookie, accountId: busiestAccount, from });
    rows = one.rows;
    if (round === 0) continue;
    rates.push(one.rows / one.seconds);
    growth.push(one.bytes.second / one.bytes.first);
  }
  await lab.end(gateway);
  const [expected] = await query<{ count: bigint }>(
    postgres,
    {
      name: "",
      text: `select count(*) as count from charges where account_id = $1 and amount >= 0
        and admitted_at >= $2`,
    },
    [busiestAccount, from],
  );
  const isWhole = expected?.count === BigInt(rows);
  return {
    rows: [
      {
        measure: `CSV of ${rows.toLocaleString("en")} charges`,
        value: spreadOf(rates),
        unit: "rows/s",
        must: "≥ 50,000",
      },
      {
        measure: "largest memory in the second half of a file ÷ in the first",
        value: spreadOf(growth),
        must: "1: flat",
      },
    ],
    faults: isWhole ? [] : [`a file had ${rows} of ${expected?.count} charges`],
  };
}

async function check(postgres: Postgres, charges: number, settled: number) {
  const expected = BigInt(charges) * historyChargeMicro + BigInt(settled) * chargeMicroOfPair;
  const charged = await sumCharges(postgres);
  const isVerified = charges <= verifiedMax;
  const faults = isVerified ? await findViolations(postgres) : [];
  if (charged !== expected) faults.push(`charged ${charged} micro-credits instead of ${expected}`);
  return {
    faults,
    notes: isVerified ? [] : ["the sum of the charges is checked, not the whole ledger"],
  };
}

async function sizeOf(postgres: Postgres): Promise<string> {
  const rows = await query<{ size: string }>(
    postgres,
    { name: "", text: "select pg_size_pretty(pg_database_size(current_database())) as size" },
    [],
  );
  return rows[0]?.size ?? "";
}
