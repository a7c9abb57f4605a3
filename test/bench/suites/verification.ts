// Verifying a ledger of five million charges, and what it costs the requests of its busiest account
// meanwhile. The suite writes about 3 GB, so it runs only when it is named. BENCH_CHARGES asks for
// fewer charges, BENCH_RATE for another rate.

import { setTimeout as delay } from "node:timers/promises";
import { findViolations } from "../../../src/billing/verifier.ts";
import type { Runner } from "../../../src/postgres/statement.ts";
import { connectLedger } from "../books.ts";
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
const warmUpMs = 10_000;
/** The verification runs and pauses in turns, so that other load weighs on both alike. */
const turnMs = 10_000;
const tickMs = 5;
const drainMs = 2_000;

export async function verification(): Promise<Result> {
  await using lab = new Lab();
  const postgres = connectLedger(await lab.emptyDatabase("verification"));
  await addHistoryAccounts(postgres);
  const history = await addHistory(postgres, { charges, msMax: fillMsMax });
  const ledger = await startPairs(postgres);

  let isPaused = true;
  let running = 0;
  let resume = Promise.withResolvers<void>();
  const turns = setInterval(() => {
    isPaused = !isPaused;
    if (isPaused) resume = Promise.withResolvers();
    else resume.resolve();
  }, turnMs);
  /** Hands on a slice of the verification when it is its turn. */
  const inTurn = (db: Runner): Runner => ({
    async run(statement, ...parameters) {
      await resume.promise;
      running += 1;
      return db.run(statement, ...parameters).finally(() => {
        running -= 1;
      });
    },
  });

  const usual: number[] = [];
  const during: number[] = [];
  let isOver = false;
  /** Lets requests come at their rate. Those that begin while a last slice ends do not count. */
  async function serve(): Promise<void> {
    let started = 0;
    const began = performance.now();
    const pair = async () => {
      const at = performance.now();
      const times = isPaused ? (running === 0 ? usual : undefined) : during;
      await ledger.pair({ accountId: busiestAccount, keyId: `key_1_1` });
      if (at - began > warmUpMs) times?.push(performance.now() - at);
    };
    while (!isOver) {
      const due = ((performance.now() - began) / 1000) * pairsPerSecond;
      for (; started < due; started++) void pair();
      await delay(tickMs);
    }
    await delay(drainMs);
  }

  const serving = serve();
  const watch = watchLongest(postgres);
  const verifying = performance.now();
  const { signal } = new AbortController();
  const work = postgres.runSlices((db) => findViolations(inTurn(db), signal), signal);
  const violations = await work.finally(() => {
    isOver = true;
    clearInterval(turns);
  });
  const seconds = (performance.now() - verifying) / 1000;
  const longest = watch.stop();
  const faults = violations.map(({ invariant, subject }) => `${invariant}: ${subject}`);
  await serving;
  await ledger.stop();
  await postgres.close();
  const mean = (times: number[]) => times.reduce((sum, one) => sum + one, 0) / times.length;
  return {
    rows: [
      {
        measure: `verifying ${(history.charges / 1e6).toFixed(1)}M charges in half of the time, beside ${pairsPerSecond} requests/s of one account`,
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
        measure: "hold + settle of the account in its turns ÷ in the others",
        value: single(mean(during) / mean(usual)),
        must: "≤ 1.2",
      },
      { measure: "hold + settle, mean, in the others", value: single(mean(usual)), unit: "ms" },
      {
        measure: "hold + settle, p99, in the others",
        value: single(quantile(usual, 0.99)),
        unit: "ms",
      },
      {
        measure: "hold + settle, p99, in its turns",
        value: single(quantile(during, 0.99)),
        unit: "ms",
      },
    ],
    faults,
  };
}
