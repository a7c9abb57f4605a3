// Credentials verified a moment ago. Pure but for the clock that is handed in.
//
// An entry is fresh for 5 s, may be used while a newer one is fetched until 30 s, and is gone after
// that, whatever happens to the database. A change of its key ends it at once. Secrets that do not
// exist are remembered apart, so that inventing them pushes out no real one.

import { BoundedMap } from "../base/bounded-map.ts";
import type { FoundSecret } from "./store.ts";

const freshMs = 5_000;
const hardMs = 30_000;
// Keys changed lately; beyond half of this everything counts as changed.
const changedMax = 200_000;

/**
 * What is known of a digest. `found` undefined: no such secret. `stale`: use it, and fetch a newer
 * one.
 */
export type Known = { found: FoundSecret | undefined; expired: boolean; stale: boolean };

type Entry = { found: FoundSecret; readAtMs: number };

export class KeyCache {
  readonly #nowMs: () => number;
  // Every reading sets its entry anew, so what is in use stays.
  readonly #found: BoundedMap<string, Entry>;
  readonly #absentAtMs: BoundedMap<string, number>;
  // When each change became known. An entry read before it is void, also one whose reading is still
  // under way.
  readonly #changedAtMs = new BoundedMap<string, number>(changedMax);
  #allChangedAtMs = Number.NEGATIVE_INFINITY;
  #forgotChangesAtMs: number;

  /** `nowMs` must never go back. */
  constructor(
    limits: { foundMax: number; absentMax: number },
    nowMs: () => number = () => performance.now(),
  ) {
    this.#found = new BoundedMap(limits.foundMax);
    this.#absentAtMs = new BoundedMap(limits.absentMax);
    this.#nowMs = nowMs;
    this.#forgotChangesAtMs = nowMs();
  }

  /** Undefined: not known, fetch it. */
  look(digest: string): Known | undefined {
    const nowMs = this.#nowMs();
    const entry = this.#found.get(digest);
    if (entry) {
      const ageMs = nowMs - entry.readAtMs;
      if (ageMs > hardMs || this.#changedSince(entry.found.keyId, entry.readAtMs)) return undefined;
      const { found } = entry;
      return {
        found,
        expired: found.expiresInMs !== undefined && found.expiresInMs <= ageMs,
        stale: ageMs > freshMs,
      };
    }
    const absentAtMs = this.#absentAtMs.get(digest);
    if (absentAtMs === undefined || nowMs - absentAtMs > hardMs) return undefined;
    return { found: undefined, expired: false, stale: false };
  }

  /**
   * Keeps what was read for `digest`. False: its key changed since the reading began, read again.
   */
  keep(digest: string, found: FoundSecret | undefined, readAtMs: number): boolean {
    if (!found) {
      this.#found.delete(digest);
      this.#absentAtMs.set(digest, readAtMs);
      return true;
    }
    if (this.#changedSince(found.keyId, readAtMs)) return false;
    this.#found.set(digest, { found, readAtMs });
    return true;
  }

  /** Forgets a key that changed. */
  change(keyId: string): void {
    const nowMs = this.#nowMs();
    // Entries that a change as old as this could void are gone by themselves.
    if (nowMs - this.#forgotChangesAtMs > 2 * hardMs) {
      this.#changedAtMs.forgetOlder();
      this.#forgotChangesAtMs = nowMs;
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
