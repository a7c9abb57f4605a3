// Verifying a ledger of five million charges, and what it costs the requests of its busiest account
// meanwhile. The suite writes about 3 GB, so it runs only when it is named. BENCH_CHARGES asks for
// fewer charges, BENCH_RATE for another rate.

import { setTimeout as delay } from "node:timers/promises";
import { connectLedger, findViolations } from "../books.ts";
import { Lab } from "../lab.ts";
import { watchLongest } from "../longest.ts";
import { quantile } from "../measure.ts";
import { startPairs } from "../pairs.ts";
import { type Result, single } from "../report.ts";
import { addHistory, addHistoryAccounts, busiestAccount } from "../usage-history.ts";

const charges = Number(process.env.BENCH_CHARGES ?? 5_000_000);
const fillMsMax = 900_000;
/** Requests of one account that come, whatever is answered. */
const pairsPerSecond = Number(process.env.BENCH_RATE ?? 200);
const aloneMs = 30_000;
const tickMs = 5;
const drainMs = 2_000;
export async function verification(): Promise<Result> {
  await using lab = new Lab();
  const postgres = connectLedger(await lab.emptyDatabase("verification"));
  await addHistoryAccounts(postgres);
  const history = await addHistory(postgres, { charges, msMax: fillMsMax });
  const ledger = await startPairs(postgres);

  /** Lets requests come at their rate until `until` resolves. Returns what each took. */
  async function serve(until: Promise<unknown>): Promise<number[]> {
    let isOver = false;
    void until.finally(() => {
      isOver = true;
    });
    const each: number[] = [];
    let started = 0;
    const began = performance.now();
    const pair = async () => {
      const at = performance.now();
      await ledger.pair({ accountId: busiestAccount, keyId: `key_1_1` });
      each.push(performance.now() - at);
    };
    while (!isOver) {
      const due = ((performance.now() - began) / 1000) * pairsPerSecond;
      for (; started < due; started++) void pair();
      await delay(tickMs);
    }
    await delay(drainMs);
    return each;
  }

  await serve(delay(aloneMs / 3));
  const before = await serve(delay(aloneMs));
  const watch = watchLongest(postgres);
  const verifying = performance.now();
  const work = findViolations(postgres);
  const during = await serve(work.catch(() => undefined));
  const seconds = (performance.now() - verifying) / 1000;
  const longest = watch.stop();
  const faults = await work;
  const after = await serve(delay(aloneMs));
  await ledger.stop();
  await postgres.close();
  const mean = (times: number[]) => times.reduce((sum, one) => sum + one, 0) / times.length;
  const usual = mean([...before, ...after]);
  return {
    rows: [
      {
        measure: `verifying ${(history.charges / 1e6).toFixed(1)}M charges, beside ${pairsPerSecond} requests/s of one account`,
        value: single(seconds),
        unit: "s",
      },
      {
        measure: "the longest transaction meanwhile",
        value: single(longest),
        unit: "s",
        must: "≤ 10",
      },
      {
        measure: "hold + settle of the account meanwhile ÷ before and after",
        value: single(mean(during) / usual),
        must: "≤ 1.2",
      },
      { measure: "hold + settle, mean, before and after", value: single(usual), unit: "ms" },
      { measure: "hold + settle, p99, before", value: single(quantile(before, 0.99)), unit: "ms" },
      {
        measure: "hold + settle, p99, meanwhile",
        value: single(quantile(during, 0.99)),
        unit: "ms",
      },
    ],
    faults,
  };
}
