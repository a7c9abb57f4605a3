// The ledger alone: pairs of hold and settlement per second, spread over many accounts, on one
// account, and on one account by four processes at once; and what a pair costs where few requests
// share a batch.

import { migrate } from "../../../src/postgres/migrate.ts";
import { addAccounts, addKeys, connectLedger, findViolations, sumCharges } from "../books.ts";
import { benchPrice } from "../catalog.ts";
import { Lab } from "../lab.ts";
import { cpuSecondsOfTree, spreadOf } from "../measure.ts";
import { type PairFigures, type PairKey, pairTokens, startPairs } from "../pairs.ts";
import type { PairsJob } from "../pairs-process.ts";
import type { Result } from "../report.ts";

const accounts = 10_000;
const pairs = 20_000;
const width = 1_000;
const rounds = 3;
const pairsAlone = 300;
/** As many at once as in the suites of whole requests. */
const few = { width: 32, pairs: 6_000 };
const processes = 4;
const together = { warmUp: 2_000, count: 5_000, width: width / processes };

export async function ledger(): Promise<Result> {
  await using lab = new Lab();
  const { url, pid } = await lab.database();
  await migrate(url);
  const postgres = connectLedger(url);
  await addAccounts(postgres, accounts);
  await addKeys(postgres, accounts, accounts);
  const keyOf = (n: number): PairKey => ({ accountId: `acc_${n}`, keyId: `key_${n}` });
  // Consecutive pairs use distant rows.
  const spreadKey = (pair: number) => keyOf(((pair * 7919) % accounts) + 1);

  const { run, stop } = await startPairs(postgres);
  const spread: PairFigures[] = [];
  const hot: PairFigures[] = [];
  const alone: PairFigures[] = [];
  const four: number[] = [];
  const spreadDatabase: number[] = [];
  const hotDatabase: number[] = [];
  const fewAtOnce: PairFigures[] = [];
  const fewDatabase: number[] = [];
  await run({ count: pairs / 2, width, keyOf: spreadKey });
  for (let round = 0; round < rounds; round++) {
    const before = cpuSecondsOfTree(pid);
    spread.push(await run({ count: pairs, width, keyOf: spreadKey }));
    const between = cpuSecondsOfTree(pid);
    hot.push(await run({ count: pairs, width, keyOf: () => keyOf(1) }));
    const after = cpuSecondsOfTree(pid);
    spreadDatabase.push(((between - before) * 1e6) / pairs);
    hotDatabase.push(((after - between) * 1e6) / pairs);
    fewAtOnce.push(await run({ count: few.pairs, width: few.width, keyOf: () => keyOf(1) }));
    fewDatabase.push(((cpuSecondsOfTree(pid) - after) * 1e6) / few.pairs);
    alone.push(await run({ count: pairsAlone, width: 1, keyOf: spreadKey }));
    const job: PairsJob = { url, key: keyOf(1), ...together };
    const each = await Promise.all(
      Array.from({ length: processes }, () =>
        lab.runProgram<PairFigures>("./pairs-process.ts", job),
      ),
    );
    four.push(each.reduce((sum, { perSecond }) => sum + perSecond, 0));
  }
  await stop();

  const faults = await findViolations(postgres);
  const made = BigInt(
    pairs / 2 +
      rounds *
        (2 * pairs + few.pairs + pairsAlone + processes * (together.warmUp + together.count)),
  );
  const expected = made * BigInt(pairTokens) * (benchPrice.input + benchPrice.output);
  const charged = await sumCharges(postgres);
  if (charged !== expected) faults.push(`charged ${charged} micro-credits instead of ${expected}`);
  await postgres.close();
  return {
    rows: [
      {
        measure: "hold + settle pairs per second, 10,000 accounts",
        value: spreadOf(spread.map((one) => one.perSecond)),
        unit: "/s",
        must: "≥ 10000",
      },
      {
        measure: "one hot account ÷ spread",
        value: spreadOf(
          hot.map((one, round) => one.perSecond / (spread[round]?.perSecond ?? Number.NaN)),
        ),
        must: "≥ 0.8",
      },
      {
        measure: "four processes on one hot account ÷ spread",
        value: spreadOf(
          four.map((perSecond, round) => perSecond / (spread[round]?.perSecond ?? Number.NaN)),
        ),
        must: "≥ 0.8",
      },
      {
        measure: "CPU of the gateway per pair",
        value: spreadOf(spread.map((one) => one.cpuMicros)),
        unit: "µs",
        must: "≤ 30 µs",
      },
      {
        measure: "CPU of PostgreSQL per pair, 10,000 accounts",
        value: spreadOf(spreadDatabase),
        unit: "µs",
      },
      {
        measure: "CPU of PostgreSQL per pair, one hot account",
        value: spreadOf(hotDatabase),
        unit: "µs",
      },
      {
        measure: `CPU of the gateway per pair, ${few.width} at once`,
        value: spreadOf(fewAtOnce.map((one) => one.cpuMicros)),
        unit: "µs",
        must: "≤ 40 µs",
      },
      {
        measure: `CPU of PostgreSQL per pair, ${few.width} at once`,
        value: spreadOf(fewDatabase),
        unit: "µs",
        must: "≤ 60 µs",
      },
      {
        measure: "one pair alone (two commits)",
        value: spreadOf(alone.map((one) => 1000 / one.perSecond)),
        unit: "ms",
      },
    ],
    faults,
  };
}
