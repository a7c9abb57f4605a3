// A node's share of every limit, which it goes by while Redis does not decide.

import { shareOf } from "./sliding-log.ts";

/** The running processes of this gateway, as the ledger knows them. */
export type Nodes = { readonly id: () => string; readonly live: () => readonly string[] };

export class Shares {
  readonly #nodes: Nodes;
  #live: readonly string[] = [];
  #self = "";
  #count = 1;
  #place = 0;

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  of(limit: number): number {
    this.#look();
    return shareOf(limit, this.#count, this.#place);
  }

  /** Worked out anew when the nodes change, not for every request. */
  #look(): void {
    const [live, self] = [this.#nodes.live(), this.#nodes.id()];
    if (live === this.#live && self === this.#self) return;
    const ids = [...new Set([...live, self])].sort();
    [this.#live, this.#self, this.#count, this.#place] = [live, self, ids.length, ids.indexOf(self)];
  }
}
