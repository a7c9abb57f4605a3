// The arithmetic of a rate limit, without I/O; the caller passes the clock. First sliding windows
// of admitted requests, then the fallback quota: the part of a limit that one node may admit while
// Redis does not decide.

/** Length of the window, in milliseconds. A request that is exactly this old counts no more. */
export const windowMs = 60_000;

/** Admission times and ids of requests, oldest first. Times must not go back. */
export class SlidingWindow {
  #atMs: number[] = [];
  #ids: number[] = [];
  #first = 0;

  /** Number of entries. Call `expire` first. */
  get size(): number {
    return this.#atMs.length - this.#first;
  }

  /** Removes the entries that are older than the window that ends now. */
  expire(nowMs: number): void {
    while (
      this.#first < this.#atMs.length &&
      (this.#atMs[this.#first] ?? nowMs) <= nowMs - windowMs
    )
      this.#first++;
    // Compacting moves every remaining entry. Done only when the gap is larger than the rest, it
    // costs each entry one move.
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

  /** Removes the entry with this id, if it is still in the window. */
  remove(id: number): void {
    const index = this.#ids.lastIndexOf(id);
    if (index < this.#first) return;
    this.#atMs.splice(index, 1);
    this.#ids.splice(index, 1);
  }

  /** Time of the entry at `index`, oldest first. Undefined beyond the end. */
  timeAt(index: number): number | undefined {
    return this.#atMs[this.#first + index];
  }

  *entries(): Generator<{ atMs: number; id: number }> {
    for (let index = this.#first; index < this.#atMs.length; index++) {
      yield { atMs: this.#atMs[index] ?? 0, id: this.#ids[index] ?? 0 };
    }
  }
}

export type Verdict = {
  readonly admitted: boolean;
  /** Requests in the window, without the one being decided. */
  readonly used: number;
  /**
   * Milliseconds until one more request fits, if no other is admitted before. Undefined when
   * waiting does not help.
   */
  readonly waitMs: number | undefined;
};

/** Decides whether one more request fits into a window. Expires its old entries. */
export function decide(window: SlidingWindow, limit: number, nowMs: number): Verdict {
  window.expire(nowMs);
  const used = window.size;
  if (used < limit) return { admitted: true, used, waitMs: 0 };
  if (limit <= 0) return { admitted: false, used, waitMs: undefined };
  const expiresAtMs = (window.timeAt(used - limit) ?? nowMs) + windowMs;
  return { admitted: false, used, waitMs: Math.max(0, expiresAtMs - nowMs) };
}

/**
 * The fallback quota of one node: an equal part of `limit`, where the first nodes take the
 * remainder. `rank` counts from 0 in the order of node ids.
 */
export function quotaOf(limit: number, nodeCount: number, rank: number): number {
  return Math.floor(limit / nodeCount) + (rank < limit % nodeCount ? 1 : 0);
}

/** The running processes of this gateway, as the ledger lists them. */
export type Nodes = {
  /** Id of this node. */
  readonly id: () => string;
  /** Ids of all live nodes. A new array after each reading of the ledger. */
  readonly live: () => readonly string[];
};

/**
 * Computes this node's fallback quota of any limit.
 *
 * The limit is divided by the nodes that were live at any time in the last minute, not only now:
 * the admissions of a node that stopped count for another minute, so the quotas of the others must
 * not grow earlier. All nodes that have run for a minute thus know every node that admitted
 * anything in that time, and stay within the limit together. A node that has just started knows no
 * earlier minute, and the others may not know it yet: it can exceed the limit by one quota of its
 * own, in its first minute.
 */
export class FallbackQuota {
  readonly #nodes: Nodes;
  readonly #nowMs: () => number;
  readonly #seenAtMs = new Map<string, number>();
  #live: readonly string[] = [];
  #self = "";
  #count = 1;
  #rank = 0;

  /** `nowMs` must never go back. */
  constructor(nodes: Nodes, nowMs: () => number) {
    this.#nodes = nodes;
    this.#nowMs = nowMs;
  }

  of(limit: number): number {
    this.refresh();
    return quotaOf(limit, this.#count, this.#rank);
  }

  /** True if other nodes were live within the last minute. */
  isDivided(): boolean {
    this.refresh();
    return this.#count > 1;
  }

  /**
   * Records which nodes are live. Call it regularly even without requests: otherwise a node that
   * starts and stops between two requests remains unknown.
   */
  refresh(): void {
    const [live, self] = [this.#nodes.live(), this.#nodes.id()];
    // Computed once per reading of the ledger, not for every request.
    if (live === this.#live && self === this.#self) return;
    const nowMs = this.#nowMs();
    // The nodes of the previous list may have been live until this moment.
    for (const id of [...this.#live, ...live, self]) this.#seenAtMs.set(id, nowMs);
    for (const [id, atMs] of this.#seenAtMs)
      if (atMs <= nowMs - windowMs) this.#seenAtMs.delete(id);
    const ids = [...this.#seenAtMs.keys()].sort();
    this.#live = live;
    this.#self = self;
    this.#count = ids.length;
    this.#rank = ids.indexOf(self);
  }
}
