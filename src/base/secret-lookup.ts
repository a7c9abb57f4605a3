// Looks secrets up in the database, many with one statement. Calls that arrive while a statement
// runs share the next one, and calls for the same secret share a result. So a flood of invented
// secrets costs one statement for hundreds of them, and hardly delays the real ones.
//
// Not on the batch queue of the ledger: look-ups share a batch item per digest, repeat an item
// whose owner changed during the read, fill spare room with stale entries, and start without a tick
// of delay. The queue would need a setting for each of these, and its groups, single retries and
// unconfirmed commits would go unused.

import { type Clock, pause, systemClock } from "./clock.ts";
import { ApiError } from "./errors.ts";
import type { Found, SecretCache } from "./secret-cache.ts";

const batchMax = 256;
const waitingMax = 10_000;
// How long callers wait for an unreachable database. A restart of it takes a second or two.
const maxWaitMsDefault = 10_000;
const retryMs = 250;
// A refresh is not urgent: this delay lets it share a statement with others.
const refreshAfterMs = 100;

export type SecretLookup<F> = {
  /**
   * Finds a secret and caches the result; undefined if it does not exist. Throws
   * `gateway_unavailable` when too many digests wait, and `database_unavailable` when the database
   * stayed unreachable.
   */
  find(digest: string): Promise<F | undefined>;
  /** Reads a cached secret again, soon. */
  refresh(digest: string): void;
};

type Waiter<F> = { sinceMs: number } & PromiseWithResolvers<F | undefined>;

/** `clock`: that of the cache. */
export function createSecretLookup<F extends Found>(
  findAll: (digests: readonly string[]) => Promise<F[]>,
  cache: SecretCache<F>,
  { maxWaitMs = maxWaitMsDefault, clock = systemClock }: { maxWaitMs?: number; clock?: Clock } = {},
): SecretLookup<F> {
  const waiting = new Map<string, Waiter<F>>();
  const stale = new Set<string>();
  let isBusy = false;
  let isRefreshDue = false;

  async function work(): Promise<void> {
    isBusy = true;
    do {
      const wanted = waiting.keys().take(batchMax).toArray();
      const refreshed = stale
        .keys()
        .take(batchMax - wanted.length)
        .toArray();
      for (const digest of refreshed) stale.delete(digest);
      try {
        await readBatch([...new Set([...wanted, ...refreshed])]);
      } catch (error) {
        const isUnreachable = error instanceof ApiError && error.reason === "database_unavailable";
        rejectWaiters(isUnreachable ? [...waiting.keys()] : wanted, isUnreachable, error);
        if (isUnreachable) await pause(clock, retryMs);
      }
    } while (waiting.size > 0);
    isBusy = false;
    if (stale.size > 0) scheduleRefresh();
  }

  async function readBatch(digests: readonly string[]): Promise<void> {
    const readAtMs = clock.now();
    const found = new Map((await findAll(digests)).map((one) => [one.digest, one]));
    for (const digest of digests) {
      const secret = found.get(digest);
      // The owner changed during the read: the callers wait for the next one.
      if (!cache.set(digest, secret, readAtMs)) continue;
      waiting.get(digest)?.resolve(secret);
      waiting.delete(digest);
    }
  }

  /** If the database is unreachable, rejects only the callers that have waited long enough. */
  function rejectWaiters(digests: readonly string[], isUnreachable: boolean, error: unknown): void {
    for (const digest of digests) {
      const waiter = waiting.get(digest);
      if (!waiter || (isUnreachable && clock.now() - waiter.sinceMs < maxWaitMs)) continue;
      waiting.delete(digest);
      waiter.reject(error);
    }
  }

  function scheduleRefresh(): void {
    if (isRefreshDue) return;
    isRefreshDue = true;
    clock.after(refreshAfterMs, () => {
      isRefreshDue = false;
      if (!isBusy) void work();
    });
  }

  return {
    find(digest) {
      const earlier = waiting.get(digest);
      if (earlier) return earlier.promise;
      if (waiting.size >= waitingMax)
        return Promise.reject(new ApiError("gateway_unavailable", { retryAfterMs: 1000 }));
      const waiter = Promise.withResolvers<F | undefined>();
      waiting.set(digest, { sinceMs: clock.now(), ...waiter });
      if (!isBusy) void work();
      return waiter.promise;
    },
    refresh(digest) {
      if (stale.size >= waitingMax) return;
      stale.add(digest);
      if (!isBusy) scheduleRefresh();
    },
  };
}
