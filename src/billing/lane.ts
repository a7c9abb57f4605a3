// A lane turns a crowd of small writes into few transactions: one batch is in flight, the next is whatever queued meanwhile. There is
// no timer, so one request alone waits for nobody, and a thousand share one commit.

import { setImmediate as nextTurn } from "node:timers/promises";
import { Refusal } from "../errors.ts";

/** What a lane does with a batch. Answers one outcome per item, in order. A thrown error concerns the batch as a whole. */
export type RunBatch<Item, Outcome> = (items: readonly Item[]) => Promise<readonly Outcome[]>;

export type LaneSettings = {
  readonly batchMax: number;
  /** Beyond this many waiting items `submit` refuses before any work. */
  readonly queueMax: number;
  /** Tells an error that a repeat of the same batch may cure: the connection broke, a lock or serialization conflict. */
  readonly isPassing: (error: unknown) => boolean;
  /** Wait between repeats of a failed batch. */
  readonly pauseMs: number;
  /** How long an item may wait for the database before it is refused. Infinity: for ever. */
  readonly patienceMs: number;
};

type Waiting<Item, Outcome> = {
  readonly item: Item;
  readonly since: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
};

export class Lane<Item, Outcome> {
  readonly #run: RunBatch<Item, Outcome>;
  readonly #settings: LaneSettings;
  #queue: Waiting<Item, Outcome>[] = [];
  #working: Promise<void> | undefined;
  #stopped = false;

  constructor(run: RunBatch<Item, Outcome>, settings: LaneSettings) {
    this.#run = run;
    this.#settings = settings;
  }

  /** Items that wait or run. */
  get length(): number {
    return this.#queue.length;
  }

  /** Runs `item` in the next batch. Throws `gateway_unavailable` when too many wait, `billing_unavailable` when patience ran out. */
  submit(item: Item): Promise<Outcome> {
    if (this.#stopped || this.#queue.length >= this.#settings.queueMax) {
      return Promise.reject(new Refusal("gateway_unavailable", { retryAfterMs: 1000 }));
    }
    return new Promise((resolve, reject) => {
      this.#queue.push({ item, since: performance.now(), resolve, reject });
      this.#working ??= this.#work();
    });
  }

  /** Waits until nothing is queued, then takes nothing more. */
  async drain(): Promise<void> {
    while (this.#working) await this.#working;
    this.#stopped = true;
  }

  async #work(): Promise<void> {
    // Items of the same turn of the event loop share the first batch, and what that turn wrote to clients leaves before it.
    await nextTurn();
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#settings.batchMax);
      if (!(await this.#settle(batch))) {
        this.#queue.unshift(...batch);
        await new Promise((resolve) => setTimeout(resolve, this.#settings.pauseMs));
        this.#refuseImpatient();
      }
    }
    this.#working = undefined;
  }

  // True when every item of the batch has its answer.
  async #settle(batch: readonly Waiting<Item, Outcome>[]): Promise<boolean> {
    try {
      const outcomes = await this.#run(batch.map(({ item }) => item));
      batch.forEach(({ resolve }, index) => {
        const outcome = outcomes[index];
        if (outcome !== undefined) resolve(outcome);
      });
      return true;
    } catch (error) {
      if (this.#settings.isPassing(error)) return false;
      // One item that the database refuses must not take its neighbours along.
      if (batch.length > 1) {
        for (const one of batch) if (!(await this.#settle([one]))) this.#queue.unshift(one);
      } else {
        batch[0]?.reject(error);
      }
      return true;
    }
  }

  #refuseImpatient(): void {
    const oldest = performance.now() - this.#settings.patienceMs;
    const impatient = this.#queue.filter(({ since }) => since < oldest);
    if (impatient.length === 0) return;
    this.#queue = this.#queue.filter(({ since }) => since >= oldest);
    for (const { reject } of impatient) reject(new Refusal("billing_unavailable", { retryAfterMs: 1000 }));
  }
}
