// Finds secrets in the database, many with one statement. Whoever asks while a statement runs goes
// into the next one, and those who ask for the same secret share an answer. So a flood of invented
// secrets costs one statement for hundreds of them, and hardly delays the real ones.
//
// Not on the batch queue of the ledger: look-ups share a batch item per digest, repeat an item
// whose key changed during the read, fill spare room with stale entries, and start without a tick
// of delay. The queue would need a setting for each of these, and its groups, single retries and
// unconfirmed commits would go unused.

import { setTimeout as delay } from "node:timers/promises";
import { ApiError } from "../base/errors.ts";
import type { KeyCache } from "./cache.ts";
import type { FoundSecret } from "./store.ts";

const batchMax = 256;
const waitingMax = 10_000;
// While the database is away, callers wait this long before they are told: a restart of it takes a
// second or two.
const patienceMsDefault = 10_000;
const retryMs = 250;
// What is known and only gets old waits for company.
const refreshAfterMs = 100;

export type Lookup = {
  /**
   * What is found is kept in the cache too. Throws `gateway_unavailable` when too many digests
   * wait, `billing_unavailable` when the database stayed away.
   */
  find(digest: string): Promise<FoundSecret | undefined>;
  /** Reads an entry of the cache anew, soon. */
  refresh(digest: string): void;
};

type Waiter = { sinceMs: number; promise: Promise<FoundSecret | undefined> } & Pick<
  PromiseWithResolvers<FoundSecret | undefined>,
  "resolve" | "reject"
>;

export function createLookup(
  findAll: (digests: readonly string[]) => Promise<FoundSecret[]>,
  cache: KeyCache,
  patienceMs = patienceMsDefault,
): Lookup {
  const waiting = new Map<string, Waiter>();
  const stale = new Set<string>();
  let busy = false;
  let isRefreshDue = false;

  async function work(): Promise<void> {
    busy = true;
    do {
      const asked = waiting.keys().take(batchMax).toArray();
      const also = stale
        .keys()
        .take(batchMax - asked.length)
        .toArray();
      for (const digest of also) stale.delete(digest);
      const readAtMs = performance.now();
      try {
        const digests = [...new Set([...asked, ...also])];
        const found = new Map((await findAll(digests)).map((one) => [one.digest, one]));
        for (const digest of digests) {
          const one = found.get(digest);
          // For a key that changed meanwhile whoever waits goes on waiting.
          if (!cache.keep(digest, one, readAtMs)) continue;
          waiting.get(digest)?.resolve(one);
          waiting.delete(digest);
        }
      } catch (error) {
        const away = error instanceof ApiError && error.reason === "billing_unavailable";
        for (const [digest, waiter] of away ? waiting : waitersOf(asked)) {
          if (away && performance.now() - waiter.sinceMs < patienceMs) continue;
          waiting.delete(digest);
          waiter.reject(error);
        }
        if (away) await delay(retryMs);
      }
    } while (waiting.size > 0);
    busy = false;
    if (stale.size > 0) refreshSoon();
  }

  const waitersOf = (digests: readonly string[]): [string, Waiter][] =>
    digests.flatMap((digest) => {
      const waiter = waiting.get(digest);
      return waiter ? [[digest, waiter]] : [];
    });

  function refreshSoon(): void {
    if (isRefreshDue) return;
    isRefreshDue = true;
    setTimeout(() => {
      isRefreshDue = false;
      if (!busy) void work();
    }, refreshAfterMs).unref();
  }

  return {
    find(digest) {
      const earlier = waiting.get(digest);
      if (earlier) return earlier.promise;
      if (waiting.size >= waitingMax)
        return Promise.reject(new ApiError("gateway_unavailable", { retryAfterMs: 1000 }));
      const { promise, resolve, reject } = Promise.withResolvers<FoundSecret | undefined>();
      waiting.set(digest, { sinceMs: performance.now(), promise, resolve, reject });
      if (!busy) void work();
      return promise;
    },
    refresh(digest) {
      if (stale.size >= waitingMax) return;
      stale.add(digest);
      if (!busy) refreshSoon();
    },
  };
}
