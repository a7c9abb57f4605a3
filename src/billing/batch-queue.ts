// A lane turns a crowd of small writes into few transactions: one batch is in flight, the next is
// whatever queued meanwhile. There is no timer, so one request alone waits for nobody, and a
// thousand share one commit.

import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { ApiError } from "../base/errors.ts";

/**
 * What a lane does with a batch. Answers one outcome per item, in order. A thrown error concerns
 * the batch as a whole.
 */
export type RunBatch<Item, Outcome> = (items: readonly Item[]) => Promise<readonly Outcome[]>;

/**
 * What the failure of a batch means. `unsent`: there was no connection. `unsure`: a repeat of the
 * same batch may pass, whether or not this one was committed. `blocked`: something of one of its
 * items stands in the way for now, and the others may pass without it. `refused`: the database will
 * never take one of its items.
 */
export type Failure = "unsent" | "unsure" | "blocked" | "refused";

export type BatchQueueSettings<Item, Outcome> = {
  readonly batchMax: number;
  /** Beyond this many waiting items `submit` refuses before any work. */
  readonly queueMax: number;
  readonly classify: (error: unknown) => Failure;
  /** Items of one group are blocked together. */
  readonly groupOf: (item: Item) => string;
  /** Runs what was blocked, on a connection that nobody else waits for. */
  readonly runBlocked: RunBatch<Item, Outcome>;
  /** Hears why items are run apart from now on. */
  readonly onBlocked?: (error: unknown) => void;
  /** Hears of an item that was refused though a batch with it may have been committed. */
  readonly onGivenUp?: (item: Item) => void;
  /** Wait between repeats of a failed batch. */
  readonly pauseMs: number;
  /** How long an item may wait for the database before it is refused. Infinity: for ever. */
  readonly maxWaitMs: number;
};

type Waiting<Item, Outcome> = {
  readonly item: Item;
  readonly since: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
  /** A batch with it failed, and may have been committed all the same. */
  isUnsure: boolean;
};

/**
 * Items that have no answer yet: those whose batch is to be repeated, and those that something
 * blocks.
 */
type Unanswered<Item, Outcome> = {
  readonly again: readonly Waiting<Item, Outcome>[];
  readonly blocked: readonly Waiting<Item, Outcome>[];
  readonly reason?: unknown;
};

export class BatchQueue<Item, Outcome> {
  readonly #run: RunBatch<Item, Outcome>;
  readonly #settings: BatchQueueSettings<Item, Outcome>;
  readonly #queue: Waiting<Item, Outcome>[] = [];
  /** What is blocked, by group. It runs apart, group by group, so that nobody else waits for it. */
  readonly #blocked = new Map<string, Waiting<Item, Outcome>[]>();
  #working: Promise<void> | undefined;
  #workingApart: Promise<void> | undefined;
  #isStopped = false;
  #leftBehind = 0;

  constructor(run: RunBatch<Item, Outcome>, settings: BatchQueueSettings<Item, Outcome>) {
    this.#run = run;
    this.#settings = settings;
  }

  /**
   * Runs `item` in the next batch. Throws `gateway_unavailable` when too many wait,
   * `billing_unavailable` when patience ran out.
   */
  submit(item: Item): Promise<Outcome> {
    const apart =
      this.#blocked.size > 0 ? this.#blocked.get(this.#settings.groupOf(item)) : undefined;
    const queue = apart ?? this.#queue;
    if (this.#isStopped || queue.length >= this.#settings.queueMax) {
      return Promise.reject(new ApiError("gateway_unavailable", { retryAfterMs: 1000 }));
    }
    return new Promise((resolve, reject) => {
      queue.push({ item, since: performance.now(), resolve, reject, isUnsure: false });
      if (!apart) this.#working ??= this.#work();
    });
  }

  /**
   * Waits until nothing is queued, `withinMs` at most, and takes nothing more. Answers how many
   * were refused at the end.
   */
  async drain(withinMs: number): Promise<number> {
    const limit = new AbortController();
    const emptied = this.#emptied().then(() => limit.abort());
    await delay(withinMs, undefined, { signal: limit.signal }).catch(() => undefined);
    this.#isStopped = true;
    this.#refuseImpatient();
    await emptied;
    return this.#leftBehind;
  }

  async #emptied(): Promise<void> {
    while (this.#working || this.#workingApart)
      await Promise.all([this.#working, this.#workingApart]);
  }

  async #work(): Promise<void> {
    // Items of the same turn of the event loop share the first batch, and what that turn wrote to
    // clients leaves before it.
    await nextTurn();
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#settings.batchMax);
      const { again, blocked, reason } = await this.#deliver(batch, this.#run);
      if (blocked.length > 0) {
        this.#settings.onBlocked?.(reason);
        this.#setApart(blocked);
      }
      if (again.length > 0) {
        this.#queue.unshift(...again);
        await this.#pause();
      }
    }
    this.#working = undefined;
  }

  async #workApart(): Promise<void> {
    while (this.#blocked.size > 0) {
      for (const [group, queue] of this.#blocked) {
        if (!(await this.#passesApart(queue))) continue;
        this.#blocked.delete(group);
        if (queue.length === 0) continue;
        for (const one of queue) this.#queue.push(one);
        this.#working ??= this.#work();
      }
    }
    this.#workingApart = undefined;
  }

  // Of a batch that is blocked all groups are set apart, and most of them have nothing in their
  // way: one batch shows that.
  async #passesApart(queue: Waiting<Item, Outcome>[]): Promise<boolean> {
    const batch = queue.splice(0, this.#settings.batchMax);
    if (batch.length === 0) return true;
    const { again, blocked } = await this.#deliver(batch, this.#settings.runBlocked);
    if (again.length + blocked.length === 0) return true;
    queue.unshift(...again, ...blocked);
    await this.#pause();
    return queue.length === 0;
  }

  async #deliver(
    batch: readonly Waiting<Item, Outcome>[],
    run: RunBatch<Item, Outcome>,
  ): Promise<Unanswered<Item, Outcome>> {
    try {
      const outcomes = await run(batch.map(({ item }) => item));
      batch.forEach(({ resolve, reject }, index) => {
        const outcome = outcomes[index];
        if (outcome !== undefined) resolve(outcome);
        else reject(new Error("a batch answered fewer outcomes than it had items"));
      });
      return { again: [], blocked: [] };
    } catch (error) {
      const failure = this.#settings.classify(error);
      if (failure === "unsent") return { again: batch, blocked: [] };
      if (failure === "blocked") return { again: [], blocked: batch, reason: error };
      for (const one of batch) one.isUnsure = true;
      if (failure === "unsure") return { again: batch, blocked: [] };
      if (batch.length > 1) return await this.#deliverSingly(batch, run);
      for (const one of batch) this.#refuse(one, error);
      return { again: [], blocked: [] };
    }
  }

  // One item that the database refuses must not take its neighbours along.
  async #deliverSingly(
    batch: readonly Waiting<Item, Outcome>[],
    run: RunBatch<Item, Outcome>,
  ): Promise<Unanswered<Item, Outcome>> {
    const again: Waiting<Item, Outcome>[] = [];
    const blocked: Waiting<Item, Outcome>[] = [];
    let reason: unknown;
    for (const one of batch) {
      const unanswered = await this.#deliver([one], run);
      again.push(...unanswered.again);
      blocked.push(...unanswered.blocked);
      reason ??= unanswered.reason;
    }
    return { again, blocked, reason };
  }

  #setApart(blocked: readonly Waiting<Item, Outcome>[]): void {
    const groupOf = ({ item }: Waiting<Item, Outcome>) => this.#settings.groupOf(item);
    for (const one of blocked) {
      const queue = this.#blocked.get(groupOf(one)) ?? [];
      this.#blocked.set(groupOf(one), queue);
      queue.push(one);
    }
    // What else waits of these groups would meet the same.
    for (const one of takeOut(this.#queue, (waiting) => this.#blocked.has(groupOf(waiting)))) {
      this.#blocked.get(groupOf(one))?.push(one);
    }
    this.#workingApart ??= this.#workApart();
  }

  async #pause(): Promise<void> {
    await delay(this.#settings.pauseMs);
    this.#refuseImpatient();
  }

  #refuseImpatient(): void {
    const oldest = this.#isStopped
      ? Number.POSITIVE_INFINITY
      : performance.now() - this.#settings.maxWaitMs;
    for (const queue of [this.#queue, ...this.#blocked.values()]) {
      for (const one of takeOut(queue, ({ since }) => since < oldest)) {
        if (this.#isStopped) this.#leftBehind += 1;
        this.#refuse(one, new ApiError("billing_unavailable", { retryAfterMs: 1000 }));
      }
    }
  }

  #refuse({ item, isUnsure, reject }: Waiting<Item, Outcome>, error: unknown): void {
    if (isUnsure) this.#settings.onGivenUp?.(item);
    reject(error);
  }
}

/** Removes from `queue` what `matches`, and answers it. */
function takeOut<T>(queue: T[], matches: (one: T) => boolean): T[] {
  const taken = queue.filter(matches);
  if (taken.length === 0) return taken;
  const kept = queue.filter((one) => !matches(one));
  queue.length = 0;
  for (const one of kept) queue.push(one);
  return taken;
}
