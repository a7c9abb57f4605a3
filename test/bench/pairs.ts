// Pairs of a hold and its settlement, made by the ledger in this process.

import { create } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { microRoundedDown } from "../../src/base/cost.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import type { Tags } from "../../src/base/tags.ts";
import { createBilling, type Hold } from "../../src/billing/billing.ts";
import { priceVersion } from "../../src/billing/price.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { cpuSeconds, cpuSecondsOfTree } from "./measure.ts";

export const pairModel = "bench";
export const pairPrice = priceVersion(pairModel, {
  input: 140_000n,
  output: 700_000n,
  cacheWrite5m: 175_000n,
  cacheWrite1h: 280_000n,
  cacheRead: 14_000n,
  thinking: 700_000n,
  webSearch: 0n,
});
/** Tokens of input, and of output, that a pair is charged for. */
export const pairTokens = 100;

/** The parts of each charge, and its amount. */
export const inputMicroOfPair = microRoundedDown(BigInt(pairTokens) * pairPrice.input);
export const outputMicroOfPair = microRoundedDown(BigInt(pairTokens) * pairPrice.output);
export const chargeMicroOfPair = inputMicroOfPair + outputMicroOfPair;

/** The time of a phase, and the processor time of this process and of the database. */
type PhaseFigures = { readonly seconds: number; readonly cpuSeconds: number };

export type PairFigures = { readonly perSecond: number; readonly cpuMicros: number };

/**
 * Starts a ledger. `run` makes `count` pairs, `width` of them at once, each for the key `keyOf`
 * names.
 */
export async function startPairs(postgres: Postgres) {
  const billing = createBilling({
    postgres,
    priceOf: () => pairPrice,
    log: createLog("silent"),
  });
  await billing.start();
  const { holds } = billing;
  const never = new AbortController().signal;
  const bounds = {
    input: 1_000,
    webSearches: 0,
    mostExpensiveInput: InputCategory.PLAIN,
    minOutput: pairTokens,
    maxOutput: pairTokens,
  };
  const usage = create(UsageSchema, { input: pairTokens, output: pairTokens });
  const ending = { usage, outcome: Outcome.COMPLETED, basis: Basis.REPORTED, attempts: [] };

  function place({ accountId, keyId }: PairKey, tags?: Tags) {
    const payer = { accountId, keyId, family: "v1" } as const;
    const request = {
      requestId: newRequestId(),
      hasNewId: true,
      payer,
      model: pairModel,
      price: pairPrice,
      bounds,
      deadlineMs: 60_000,
      tags,
    };
    return holds.place(request, never);
  }

  async function makePair(key: PairKey): Promise<void> {
    await holds.settle(await place(key), ending);
  }

  return {
    service: billing.service,
    /** Makes one pair. */
    pair: makePair,
    async run(parts: {
      count: number;
      width: number;
      keyOf: (pair: number) => PairKey;
    }): Promise<PairFigures> {
      const { count, width, keyOf } = parts;
      let next = 0;
      const cpuBefore = cpuSeconds(process.pid);
      const started = performance.now();
      const worker = async () => {
        while (next < count) await makePair(keyOf(next++));
      };
      await Promise.all(Array.from({ length: width }, worker));
      const seconds = (performance.now() - started) / 1000;
      return {
        perSecond: count / seconds,
        cpuMicros: ((cpuSeconds(process.pid) - cpuBefore) * 1e6) / count,
      };
    },
    /** The same, but all holds are placed before the first is settled. */
    async runApart(parts: {
      count: number;
      width: number;
      keyOf: (pair: number) => PairKey;
      databasePid: number;
      tags?: Tags;
    }): Promise<{ readonly place: PhaseFigures; readonly settle: PhaseFigures }> {
      const { count, width, keyOf, databasePid, tags } = parts;
      const measure = async (work: (pair: number) => Promise<unknown>): Promise<PhaseFigures> => {
        let next = 0;
        const cpu = () => cpuSeconds(process.pid) + cpuSecondsOfTree(databasePid);
        const cpuBefore = cpu();
        const started = performance.now();
        const worker = async () => {
          while (next < count) await work(next++);
        };
        await Promise.all(Array.from({ length: width }, worker));
        const seconds = (performance.now() - started) / 1000;
        return { seconds, cpuSeconds: cpu() - cpuBefore };
      };
      const placed: Hold[] = [];
      return {
        place: await measure(async (pair) => placed.push(await place(keyOf(pair), tags))),
        settle: await measure((pair) => {
          const hold = placed[pair];
          return hold ? holds.settle(hold, ending) : Promise.reject(new Error("no hold"));
        }),
      };
    },
    stop: () => billing.stop(),
  };
}

export type PairKey = { readonly accountId: string; readonly keyId: string };
