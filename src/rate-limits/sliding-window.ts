// Times of the last minute, and what they decide. Pure: the caller brings the clock.

/** Length of the window, in milliseconds: what happened this long ago counts no more. */
export const windowMs = 60_000;

/** What was admitted, oldest first. Times must not go back. */
export class SlidingWindow {
  #atMs: number[] = [];
  #ids: number[] = [];
  #first = 0;

  /** Entries, after `forget`. */
  get size(): number {
    return this.#atMs.length - this.#first;
  }

  /** Forgets what has left the window that ends now. */
  forget(nowMs: number): void {
    while (
      this.#first < this.#atMs.length &&
      (this.#atMs[this.#first] ?? nowMs) <= nowMs - windowMs
    )
      this.#first++;
    // Moving the rest costs as much as it has entries; done when the gap is larger, it costs each
    // entry one move.
    if (this.#first > 32 && this.#first * 2 > this.#atMs.length) {
      this.#atMs = this.#atMs.slice(this.#first);
      this.#ids = this.#ids.slice(this.#first);
      this.#first = 0;
    }
  }

  add(atMs: number, id: number): void {
    this.#atMs.push(atMs);
    this.#ids.push(id);
  }

  /** Time of the entry at `place`, oldest first. Undefined beyond the end. */
  at(place: number): number | undefined {
    return this.#atMs[this.#first + place];
  }

  *entries(): Generator<{ atMs: number; id: number }> {
    for (let place = this.#first; place < this.#atMs.length; place++) {
      yield { atMs: this.#atMs[place] ?? 0, id: this.#ids[place] ?? 0 };
    }
  }
}

/**
 * `used` does not count the request that is judged. `waitMs` until one more would be admitted if
 * nothing else is; undefined when time frees nothing.
 */
export type Verdict = { admitted: boolean; used: number; waitMs: number | undefined };

/**
 * Whether one more fits at most `limit` entries of two logs together. Forgets what has left the
 * window.
 */
export function decide(
  own: SlidingWindow,
  others: SlidingWindow | undefined,
  limit: number,
  nowMs: number,
): Verdict {
  own.forget(nowMs);
  others?.forget(nowMs);
  const used = own.size + (others?.size ?? 0);
  if (used < limit) return { admitted: true, used, waitMs: 0 };
  if (limit <= 0) return { admitted: false, used, waitMs: undefined };
  const leavesAtMs = oldest(own, others, used - limit) + windowMs;
  return { admitted: false, used, waitMs: Math.max(0, leavesAtMs - nowMs) };
}

/** Time of the entry at `place` in the merge of two logs. */
function oldest(own: SlidingWindow, others: SlidingWindow | undefined, place: number): number {
  let [mine, theirs, atMs] = [0, 0, 0];
  for (let step = 0; step <= place; step++) {
    const a = own.at(mine) ?? Number.POSITIVE_INFINITY;
    const b = others?.at(theirs) ?? Number.POSITIVE_INFINITY;
    atMs = Math.min(a, b);
    if (a <= b) mine++;
    else theirs++;
  }
  return atMs;
}

/**
 * One node's part of a limit: an equal share, and the remainder to the first ones. `place` counts
 * from 0 in the order of ids.
 */
export function quotaOf(limit: number, nodes: number, place: number): number {
  return Math.floor(limit / nodes) + (place < limit % nodes ? 1 : 0);
}

// A node's share of every limit, which it goes by while Redis does not decide.
//
// Shares are by the nodes of the last minute, not of this moment: what a node admitted before it
// stopped counts as long as that, and the shares of those that stay must not grow over it. So all
// nodes that have run for a minute know of all that admitted anything in that time, and stay within
// the limit together. A node that has just started knows of no minute before, and nobody else may
// have counted with it yet: it can add one share of its own, in its first minute.

/**
 * The running processes of this gateway, as the ledger knows them. `live` answers another list
 * after each look at the ledger.
 */
export type Nodes = { readonly id: () => string; readonly live: () => readonly string[] };

export class FallbackQuota {
  readonly #nodes: Nodes;
  readonly #nowMs: () => number;
  readonly #seenAtMs = new Map<string, number>();
  #live: readonly string[] = [];
  #self = "";
  #count = 1;
  #place = 0;

  /** `nowMs` must never go back. */
  constructor(nodes: Nodes, nowMs: () => number) {
    this.#nodes = nodes;
    this.#nowMs = nowMs;
  }

  of(limit: number): number {
    this.look();
    return quotaOf(limit, this.#count, this.#place);
  }

  /**
   * Notices who came and who left. For times without requests too: who comes and goes in one would
   * not be known after it.
   */
  look(): void {
    const [live, self] = [this.#nodes.live(), this.#nodes.id()];
    // Worked out anew when the ledger was looked at, not for every request.
    if (live === this.#live && self === this.#self) return;
    const nowMs = this.#nowMs();
    // For all that is known, the nodes of the list before were there until now.
    for (const id of [...this.#live, ...live, self]) this.#seenAtMs.set(id, nowMs);
    for (const [id, atMs] of this.#seenAtMs)
      if (atMs <= nowMs - windowMs) this.#seenAtMs.delete(id);
    const ids = [...this.#seenAtMs.keys()].sort();
    [this.#live, this.#self, this.#count, this.#place] = [
      live,
      self,
      ids.length,
      ids.indexOf(self),
    ];
  }
}
