// Finds secrets in the database: one question for many digests. Whatever is asked while a question is under way goes into the next
// one, and the same digest is asked once, so that a flood of invented secrets costs a statement per hundreds and delays real ones
// by little.

import { setTimeout as delay } from "node:timers/promises";
import { Refusal } from "../errors.ts";
import type { KeyCache } from "./cache.ts";
import type { FoundSecret } from "./store.ts";

const batchMax = 256;
const waitingMax = 10_000;
// While the database is away, callers wait this long before they are told: a restart of it takes a second or two.
const patienceMsDefault = 10_000;
const retryMs = 250;

export type Lookup = (digest: string) => Promise<FoundSecret | undefined>;

type Waiter = { sinceMs: number; promise: Promise<FoundSecret | undefined> } & Pick<
  PromiseWithResolvers<FoundSecret | undefined>,
  "resolve" | "reject"
>;

/**
 * What is found is kept in `cache`. Throws `gateway_unavailable` when too many digests wait, `billing_unavailable` when the database
 * stayed away.
 */
export function createLookup(
  find: (digests: readonly string[]) => Promise<FoundSecret[]>,
  cache: KeyCache,
  patienceMs = patienceMsDefault,
): Lookup {
  const waiting = new Map<string, Waiter>();
  let busy = false;

  async function work(): Promise<void> {
    busy = true;
    while (waiting.size > 0) {
      const asked = waiting.entries().take(batchMax).toArray();
      const readAtMs = performance.now();
      try {
        const found = new Map((await find(asked.map(([digest]) => digest))).map((one) => [one.digest, one]));
        for (const [digest, waiter] of asked) {
          const one = found.get(digest);
          // A key that changed meanwhile stays in the queue.
          if (!cache.keep(digest, one, readAtMs)) continue;
          waiting.delete(digest);
          waiter.resolve(one);
        }
      } catch (error) {
        const away = error instanceof Refusal && error.refusal === "billing_unavailable";
        for (const [digest, waiter] of away ? waiting : asked) {
          if (away && performance.now() - waiter.sinceMs < patienceMs) continue;
          waiting.delete(digest);
          waiter.reject(error);
        }
        if (away) await delay(retryMs);
      }
    }
    busy = false;
  }

  return (digest) => {
    const earlier = waiting.get(digest);
    if (earlier) return earlier.promise;
    if (waiting.size >= waitingMax) return Promise.reject(new Refusal("gateway_unavailable", { retryAfterMs: 1000 }));
    const { promise, resolve, reject } = Promise.withResolvers<FoundSecret | undefined>();
    waiting.set(digest, { sinceMs: performance.now(), promise, resolve, reject });
    if (!busy) void work();
    return promise;
  };
}
