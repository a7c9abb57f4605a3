// What this node admitted by itself and Redis does not know of yet.

import type { Entry, LogStore } from "./store.ts";

export class Debt {
  readonly #store: LogStore;
  readonly #nowMs: () => number;
  #owed: Entry[] = [];
  #paying: Promise<void> | undefined;

  /** `nowMs` must never go back, and be the clock of the entries. */
  constructor(store: LogStore, nowMs: () => number) {
    this.#store = store;
    this.#nowMs = nowMs;
  }

  add(entry: Entry): void {
    this.#owed.push(entry);
  }

  /** Redis has begun anew: `entries` are owed, whatever was before. */
  reset(entries: Iterable<Entry>): void {
    this.#owed = [...entries];
  }

  /** Hands in all that is owed, also what is added meanwhile. Rejects when Redis does not take it; it is still owed then. */
  pay(): Promise<void> {
    // One at a time; it takes along what is added while it runs.
    this.#paying ??= this.#payAll().finally(() => {
      this.#paying = undefined;
    });
    return this.#paying;
  }

  async #payAll(): Promise<void> {
    while (this.#owed.length > 0) {
      const batch = this.#owed.splice(0);
      try {
        await this.#store.handIn(batch, this.#nowMs());
      } catch (error) {
        this.#owed = batch.concat(this.#owed);
        throw error;
      }
    }
  }
}
