// Closing a month of ten million charges, and what it costs requests that run meanwhile. A gateway
// reads a month ahead as its charges are settled; here all of them are read at once, and then the
// month is closed. The suite writes about 7 GB, so it runs only when it is named. BENCH_CHARGES
// asks for fewer charges.

import { setTimeout as delay } from "node:timers/promises";
import { closeMonth, prepareClosing } from "../../../src/history/history.ts";
import { ownerOf } from "../../../src/postgres/owner.ts";
import { connectLedger, findViolations } from "../books.ts";
import { Lab } from "../lab.ts";
import { watchLongest } from "../longest.ts";
import { quantile } from "../measure.ts";
import { startPairs } from "../pairs.ts";
import { type Result, single } from "../report.ts";
import { addHistoryAccounts, addPastMonth, historyAccounts } from "../usage-history.ts";

const charges = Number(process.env.BENCH_CHARGES ?? 10_000_000);
/** Requests that come, whatever is answered. */
const pairsPerSecond = Number(process.env.BENCH_RATE ?? 500);
const aloneMs = 15_000;
const tickMs = 10;
/** The verifier reads the charges that are not closed only. */
const drainMs = 2_000;

export async function closing(): Promise<Result> {
  await using lab = new Lab();
  const url = await lab.emptyDatabase("closing");
  const postgres = connectLedger(url);
  await addHistoryAccounts(postgres);
  const filling = performance.now();
  const month = await addPastMonth(postgres, charges);
  const fillSeconds = (performance.now() - filling) / 1000;
  const ledger = await startPairs(postgres);

  /** Lets requests come at their rate until `until` resolves. */
  async function serve(until: Promise<unknown>) {
    let isOver = false;
    void until.finally(() => {
      isOver = true;
    });
    const each: number[] = [];
    let started = 0;
    let done = 0;
    const began = performance.now();
    const pair = async (number: number) => {
      const at = performance.now();
      const account = (number % historyAccounts) + 1;
      await ledger.pair({ accountId: `acc_${account}`, keyId: `key_${account}_1` });
      each.push(performance.now() - at);
      done += 1;
    };
    while (!isOver) {
      const due = ((performance.now() - began) / 1000) * pairsPerSecond;
      while (started < due) void pair(started++);
      await delay(tickMs);
    }
    const seconds = (performance.now() - began) / 1000;
    const inTime = done;
    await delay(drainMs);
    return { done: inTime, seconds, p50: quantile(each, 0.5), p99: quantile(each, 0.99) };
  }

  await serve(delay(aloneMs / 3));
  const alone = await serve(delay(aloneMs));
  const asOwner = async <T>(work: (owner: Awaited<ReturnType<typeof ownerOf>>) => Promise<T>) => {
    const owner = await ownerOf(url);
    return work(owner).finally(() => owner.end());
  };
  /** Does some work beside the requests. */
  async function beside<T>(start: () => Promise<T>) {
    const started = performance.now();
    const work = start();
    const serving = serve(work.catch(() => undefined));
    const result = await work;
    const seconds = (performance.now() - started) / 1000;
    return { result, seconds, during: await serving };
  }
  const watch = watchLongest(postgres);
  const reading = await beside(() => prepareClosing({ asOwner }, [month]));
  const ending = await beside(() => closeMonth({ asOwner }, month));
  const longest = watch.stop();
  await ledger.stop();
  const verifying = performance.now();
  const faults = await findViolations(postgres);
  const verifySeconds = (performance.now() - verifying) / 1000;
  const closed = ending.result.charges;
  if (closed !== BigInt(charges)) faults.push(`${closed} charges were closed, not ${charges}`);
  await postgres.close();
  const million = (charges / 1e6).toFixed(1);
  // The closing alone is too short to count requests.
  const done = reading.during.done + ending.during.done;
  const meanwhile = done / (reading.during.seconds + ending.during.seconds);
  return {
    rows: [
      {
        measure: `reading ${million}M charges ahead, beside ${pairsPerSecond} requests/s`,
        value: single(reading.seconds),
        unit: "s",
      },
      { measure: "closing them then", value: single(ending.seconds), unit: "s", must: "≤ 60" },
      {
        measure: "the longest transaction meanwhile",
        value: single(longest),
        unit: "s",
        must: "≤ 10",
      },
      {
        measure: "requests/s while it reads and closes ÷ before",
        value: single(meanwhile / (alone.done / alone.seconds)),
        must: "≥ 0.95",
      },
      { measure: "hold + settle, p50, before", value: single(alone.p50), unit: "ms" },
      {
        measure: "hold + settle, p50, while it reads",
        value: single(reading.during.p50),
        unit: "ms",
      },
      { measure: "hold + settle, p99, before", value: single(alone.p99), unit: "ms" },
      {
        measure: "hold + settle, p99, while it reads",
        value: single(reading.during.p99),
        unit: "ms",
      },
      {
        measure: "hold + settle, p99, while it closes",
        value: single(ending.during.p99),
        unit: "ms",
      },
      { measure: "verifying the ledger then", value: single(verifySeconds), unit: "s" },
    ],
    notes: [`written in ${Math.round(fillSeconds)} s`],
    faults,
  };
}
