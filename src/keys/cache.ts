// Secrets that were looked up a moment ago. No I/O; the caller passes the clock.
//
// An entry is fresh for 5 s. It is stale until 30 s: still used while it is refreshed. Then it is
// gone, even if the database is down. A change of its key invalidates it at once. Unknown secrets
// are cached apart, so that a flood of invented ones evicts no real one.

import { BoundedMap } from "../base/bounded-map.ts";
import type { FoundSecret } from "./store.ts";

const freshMs = 5_000;
const staleMs = 30_000;
// Recently changed keys. When more than half as many changed, all keys count as changed.
const changedMax = 200_000;

type Cached = {
  /** Undefined: no such secret exists. */
  found: FoundSecret | undefined;
  isExpired: boolean;
  /** Use the entry, and refresh it. */
  isStale: boolean;
};

type Entry = { found: FoundSecret; readAtMs: number };

export class KeyCache {
  readonly #nowMs: () => number;
  // Every read sets its entry again, so entries in use are not evicted.
  readonly #found: BoundedMap<string, Entry>;
  readonly #unknownAtMs: BoundedMap<string, number>;
  // When each change became known. An entry that was read before its change is invalid, also one
  // whose read has not finished yet.
  readonly #changedAtMs = new BoundedMap<string, number>(changedMax);
  #allChangedAtMs = Number.NEGATIVE_INFINITY;
  #agedChangesAtMs: number;

  /** `nowMs` must never go back. */
  constructor(
    limits: { foundMax: number; unknownMax: number },
    nowMs: () => number = () => performance.now(),
  ) {
    this.#found = new BoundedMap(limits.foundMax);
    this.#unknownAtMs = new BoundedMap(limits.unknownMax);
    this.#nowMs = nowMs;
    this.#agedChangesAtMs = nowMs();
  }

  /** Undefined: not cached, look it up. */
  get(digest: string): Cached | undefined {
    const nowMs = this.#nowMs();
    const entry = this.#found.get(digest);
    if (entry) {
      const ageMs = nowMs - entry.readAtMs;
      if (ageMs > staleMs || this.#changedSince(entry.found.keyId, entry.readAtMs))
        return undefined;
      const { found } = entry;
      return {
        found,
        isExpired: found.expiresInMs !== undefined && found.expiresInMs <= ageMs,
        isStale: ageMs > freshMs,
      };
    }
    const unknownAtMs = this.#unknownAtMs.get(digest);
    if (unknownAtMs === undefined || nowMs - unknownAtMs > staleMs) return undefined;
    return { found: undefined, isExpired: false, isStale: false };
  }

  /**
   * Stores the result of a read that began at `readAtMs`. False: the key changed meanwhile, read
   * again.
   */
  set(digest: string, found: FoundSecret | undefined, readAtMs: number): boolean {
    if (!found) {
      this.#found.delete(digest);
      this.#unknownAtMs.set(digest, readAtMs);
      return true;
    }
    if (this.#changedSince(found.keyId, readAtMs)) return false;
    this.#found.set(digest, { found, readAtMs });
    return true;
  }

  /** Invalidates all entries of a key that changed. */
  invalidate(keyId: string): void {
    const nowMs = this.#nowMs();
    // Older changes concern only entries that are gone by now.
    if (nowMs - this.#agedChangesAtMs > 2 * staleMs) {
      this.#changedAtMs.dropOlder();
      this.#agedChangesAtMs = nowMs;
    }
    if (this.#changedAtMs.size >= changedMax / 2) {
      this.#changedAtMs.clear();
      this.#allChangedAtMs = nowMs;
    }
    this.#changedAtMs.set(keyId, nowMs);
  }

  #changedSince(keyId: string, readAtMs: number): boolean {
    return (
      readAtMs <=
      Math.max(this.#allChangedAtMs, this.#changedAtMs.get(keyId) ?? Number.NEGATIVE_INFINITY)
    );
  }
}
