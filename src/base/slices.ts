// Long work on the database in short pieces, which leave it to requests in between.

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";

/** Requests wait for the processor and the disk of a slice: it rests for so many times as long. */
const restShare = 3;
/** A small ledger is read without a rest: most of such a slice is its plan. */
const restMsMin = 300;

/** Runs a slice, and rests. Throws when `signal` aborts before it or in its rest. */
export async function runSlice<T>(slice: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  signal?.throwIfAborted();
  const beganMs = performance.now();
  const result = await slice();
  const restMs = restShare * (performance.now() - beganMs);
  if (restMs > restMsMin) await delay(restMs, undefined, signal ? { signal } : {});
  return result;
}
