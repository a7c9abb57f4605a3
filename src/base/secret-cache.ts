// Secrets that were looked up a moment ago: those of keys, and those of sessions. No I/O; the
// caller passes the clock.
//
// An entry is fresh for a while. Then it is stale: still used while it is refreshed. Then it is
// gone, even if the database is down. A change of its owner invalidates it at once. Unknown secrets
// are cached apart, so that a flood of invented ones evicts no real one.

import { BoundedMap } from "./bounded-map.ts";

// Recently changed owners. When more than half as many changed, all owners count as changed.
const changedMax = 200_000;

/** What a look-up found. */
export type Found = {
  readonly digest: string;
  /** Whose secret it is: a key or a person. */
  readonly ownerId: string;
  /** Milliseconds from the read, by the database's clock. Undefined: does not expire. */
  readonly expiresInMs: number | undefined;
};

export type CacheLimits = {
  readonly foundMax: number;
  readonly unknownMax: number;
  /** Age from which an entry is refreshed. */
  readonly freshMs: number;
  /** Age from which it is not used. */
  readonly staleMs: number;
};

type Cached<F> = {
  /** Undefined: no such secret exists. */
  found: F | undefined;
  isExpired: boolean;
  /** Use the entry, and refresh it. */
  isStale: boolean;
};

type Entry<F> = { found: F; readAtMs: number };

export class SecretCache<F extends Found> {
  readonly #nowMs: () => number;
  // Every read sets its entry again, so entries in use are not evicted.
  readonly #limits: CacheLimits;
  readonly #found: BoundedMap<string, Entry<F>>;
  readonly #unknownAtMs: BoundedMap<string, number>;
  // When each change became known. An entry that was read before its change is invalid, also one
  // whose read has not finished yet.
  readonly #changedAtMs = new BoundedMap<string, number>(changedMax);
  #allChangedAtMs = Number.NEGATIVE_INFINITY;
  #agedChangesAtMs: number;

  /** `nowMs` must never go back. */
  constructor(limits: CacheLimits, nowMs: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#found = new BoundedMap(limits.foundMax);
    this.#unknownAtMs = new BoundedMap(limits.unknownMax);
    this.#nowMs = nowMs;
    this.#agedChangesAtMs = nowMs();
  }

  /** Undefined: not cached, look it up. */
  get(digest: string): Cached<F> | undefined {
    const { freshMs, staleMs } = this.#limits;
    const nowMs = this.#nowMs();
    const entry = this.#found.get(digest);
    if (entry) {
      const ageMs = nowMs - entry.readAtMs;
      if (ageMs > staleMs || this.#changedSince(entry.found.ownerId, entry.readAtMs))
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
    if (this.#changedSince(digest, unknownAtMs)) return undefined;
    return { found: undefined, isExpired: false, isStale: false };
  }

  /**
   * Stores the result of a read that began at `readAtMs`. False: the owner changed meanwhile, read
   * again.
   */
  set(digest: string, found: F | undefined, readAtMs: number): boolean {
    if (!found) {
      this.#found.delete(digest);
      this.#unknownAtMs.set(digest, readAtMs);
      return true;
    }
    if (this.#changedSince(found.ownerId, readAtMs)) return false;
    this.#found.set(digest, { found, readAtMs });
    return true;
  }

  /**
   * Invalidates all entries of an owner that changed. Or what is known of the digest of a secret
   * that works from now on.
   */
  invalidate(ownerId: string): void {
    const nowMs = this.#nowMs();
    // Older changes concern only entries that are gone by now.
    if (nowMs - this.#agedChangesAtMs > 2 * this.#limits.staleMs) {
      this.#changedAtMs.dropOlder();
      this.#agedChangesAtMs = nowMs;
    }
    if (this.#changedAtMs.size >= changedMax / 2) {
      this.#changedAtMs.clear();
      this.#allChangedAtMs = nowMs;
    }
    this.#changedAtMs.set(ownerId, nowMs);
  }

  #changedSince(ownerId: string, readAtMs: number): boolean {
    return (
      readAtMs <=
      Math.max(this.#allChangedAtMs, this.#changedAtMs.get(ownerId) ?? Number.NEGATIVE_INFINITY)
    );
  }
}
