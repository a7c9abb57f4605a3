// A ledger in a process of its own that makes pairs for one key: reads a job from stdin and prints
// its speed as JSON.

import { text } from "node:stream/consumers";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { type PairFigures, type PairKey, startPairs } from "./pairs.ts";

export type PairsJob = {
  readonly url: string;
  readonly key: PairKey;
  /** Pairs before those that are measured. */
  readonly warmUp: number;
  readonly count: number;
  /** Concurrent pairs. */
  readonly width: number;
};

console.log(JSON.stringify(await run(JSON.parse(await text(process.stdin)))));

async function run({ url, key, warmUp, count, width }: PairsJob): Promise<PairFigures> {
  const postgres = connectPostgres(url);
  const pairs = await startPairs(postgres);
  const keyOf = () => key;
  await pairs.run({ count: warmUp, width, keyOf });
  const figures = await pairs.run({ count, width, keyOf });
  await pairs.stop();
  await postgres.close();
  return figures;
}
