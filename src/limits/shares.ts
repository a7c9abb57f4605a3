// A node's share of every limit, which it goes by while Redis does not decide.
//
// Shares are by the nodes of the last minute, not of this moment: what a node admitted before it stopped counts as long as that, and the
// shares of those that stay must not grow over it. So all nodes that have run for a minute know of all that admitted anything in that
// time, and stay within the limit together. A node that has just started knows of no minute before, and nobody else may have counted
// with it yet: it can add one share of its own, in its first minute.

import { shareOf, windowMs } from "./sliding-log.ts";

/** The running processes of this gateway, as the ledger knows them. `live` answers another list after each look at the ledger. */
export type Nodes = { readonly id: () => string; readonly live: () => readonly string[] };

export class Shares {
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
    return shareOf(limit, this.#count, this.#place);
  }

  /** Notices who came and who left. For times without requests too: who comes and goes in one would not be known after it. */
  look(): void {
    const [live, self] = [this.#nodes.live(), this.#nodes.id()];
    // Worked out anew when the ledger was looked at, not for every request.
    if (live === this.#live && self === this.#self) return;
    const nowMs = this.#nowMs();
    // For all that is known, the nodes of the list before were there until now.
    for (const id of [...this.#live, ...live, self]) this.#seenAtMs.set(id, nowMs);
    for (const [id, atMs] of this.#seenAtMs) if (atMs <= nowMs - windowMs) this.#seenAtMs.delete(id);
    const ids = [...this.#seenAtMs.keys()].sort();
    [this.#live, this.#self, this.#count, this.#place] = [live, self, ids.length, ids.indexOf(self)];
  }
}
