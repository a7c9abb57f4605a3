// Group commit: many small writes share few transactions. One batch is in flight; the next batch is
// everything that was queued in the meantime. There is no timer, so a lone item waits for no other,
// and a thousand concurrent items share one commit. A batch runs on a connection of its own, which
// says of an error whether its transaction may have been committed.

import { setImmediate as nextTick } from "node:timers/promises";
import { DatabaseError } from "pg";
import { type Clock, pause, systemClock, withTimeout } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Result } from "../postgres/pipeline.ts";
import {
  type Connection,
  isBlocked,
  isConflict,
  isUniqueViolation,
  isUnreachable,
  type Postgres,
} from "../postgres/postgres.ts";
import type { Query, RowsOf } from "../postgres/statement.ts";

/**
 * Runs a batch and returns one outcome per item, in order. A thrown error is an error of the whole
 * batch, which `classify` classifies. `isRepeat`: an earlier batch with some of the items may have
 * been committed.
 */
type RunBatch<Item, Outcome> = (
  items: readonly Item[],
  isRepeat: boolean,
) => Promise<readonly Outcome[]>;

/**
 * The class of a batch error:
 * - `unsent`: there was no connection. Repeat the batch.
 * - `unconfirmed`: the batch may or may not have been committed. Repeat it.
 * - `blocked`: an item waits for something that is locked. Run the batch's groups separately.
 * - `rejected`: the database will never accept one of the items. Run the items one by one.
 */
export type Failure = "unsent" | "unconfirmed" | "blocked" | "rejected";

export type BatchQueueSettings<Item, Outcome> = {
  readonly batchMax: number;
  /** With this many items queued, `submit` fails at once. */
  readonly queueMax: number;
  readonly classify: (error: unknown) => Failure;
  /** Items of one group are blocked together. */
  readonly groupOf: (item: Item) => string;
  /** Runs batches of blocked groups, on a connection that other items do not wait for. */
  readonly runBlocked: RunBatch<Item, Outcome>;
  /** Called with the error when groups become blocked. */
  readonly onBlocked?: (error: unknown) => void;
  /** Called once, with the last error, when batches have failed for a second. */
  readonly onStalled?: (error: unknown) => void;
  /** Called with the first success after that. */
  readonly onResumed?: () => void;
  /** Called for each failed item that may have been committed nevertheless. */
  readonly onUnconfirmed?: (item: Item) => void;
  /** Pause before a failed batch is repeated. */
  readonly pauseMs: number;
  /** How long an item waits for the database before it fails. Infinity: no limit. */
  readonly maxWaitMs: number;
  readonly clock?: Clock | undefined;
  /** Called with each batch that succeeded, and the class of each one that failed. */
  readonly metrics?:
    | { onBatch(ms: number, items: number): void; onFailure(failure: Failure): void }
    | undefined;
};

type QueuedItem<Item, Outcome> = {
  readonly item: Item;
  readonly queuedAtMs: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
  /** A batch with this item failed and may have been committed nevertheless. */
  isUnconfirmed: boolean;
};

/** Items of a failed batch that still need an outcome. */
type Unfinished<Item, Outcome> = {
  readonly repeat: readonly QueuedItem<Item, Outcome>[];
  readonly blocked: readonly QueuedItem<Item, Outcome>[];
  readonly blockedBy?: unknown;
};

/** How long a success shows that the database serves this queue. */
const servedMsMax = 5_000;
/** Failures that last for less are conflicts, or a server that was started again. */
const stalledMsMin = 1_000;
/** How long a drain that is over waits for the batches that the database has. */
const inFlightMsMax = 1_000;

export class BatchQueue<Item, Outcome> {
  readonly #run: RunBatch<Item, Outcome>;
  readonly #settings: BatchQueueSettings<Item, Outcome>;
  readonly #clock: Clock;
  readonly #queue: QueuedItem<Item, Outcome>[] = [];
  /** Queues of the blocked groups. They run separately, so that other groups do not wait. */
  readonly #blocked = new Map<string, QueuedItem<Item, Outcome>[]>();
  #running: Promise<void> | undefined;
  #runningBlocked: Promise<void> | undefined;
  /** The batches that run now. */
  readonly #inFlight = new Set<readonly QueuedItem<Item, Outcome>[]>();
  #succeededAtMs = Number.NEGATIVE_INFINITY;
  /** The first failure of the database since the last success. */
  #failedAtMs: number | undefined;
  #isStallReported = false;
  #isStopped = false;
  #failedAtStop = 0;

  constructor(run: RunBatch<Item, Outcome>, settings: BatchQueueSettings<Item, Outcome>) {
    this.#run = run;
    this.#settings = settings;
    this.#clock = settings.clock ?? systemClock;
  }

  /**
   * Runs `item` in the next batch. Throws `gateway_unavailable` when the queue is full or stopped,
   * and `billing_unavailable` after `maxWaitMs`.
   */
  submit(item: Item): Promise<Outcome> {
    const blockedQueue =
      this.#blocked.size > 0 ? this.#blocked.get(this.#settings.groupOf(item)) : undefined;
    const queue = blockedQueue ?? this.#queue;
    if (this.#isStopped) this.#failedAtStop += 1;
    if (this.#isStopped || queue.length >= this.#settings.queueMax) {
      return Promise.reject(new ApiError("gateway_unavailable", { retryAfterMs: 1000 }));
    }
    return new Promise((resolve, reject) => {
      queue.push({ item, queuedAtMs: this.#clock.now(), resolve, reject, isUnconfirmed: false });
      if (!blockedQueue) this.#running ??= this.#runQueue();
    });
  }

  /** How long nothing has succeeded although items wait or have failed; 0 while all is well. */
  get stalledMs(): number {
    const nowMs = this.#clock.now();
    const queues = [...this.#inFlight, this.#queue, ...this.#blocked.values()];
    const waiting = queues.flatMap(([first]) => (first ? [first.queuedAtMs] : []));
    if (this.#failedAtMs !== undefined) waiting.push(this.#failedAtMs);
    const sinceMs = Math.max(this.#succeededAtMs, Math.min(...waiting));
    return Math.max(0, nowMs - sinceMs);
  }

  /** Whether a batch has succeeded within the last seconds. */
  get servedLately(): boolean {
    return this.#clock.now() - this.#succeededAtMs < servedMsMax;
  }

  /** Items that wait, or are in a batch. */
  get size(): number {
    const queues = [...this.#inFlight, this.#queue, ...this.#blocked.values()];
    return queues.reduce((sum, queue) => sum + queue.length, 0);
  }

  /**
   * True after a failure of the database that no batch of the common queue follows up: only a trial
   * can find out whether it is over.
   */
  get needsTrial(): boolean {
    return this.#failedAtMs !== undefined && this.#running === undefined;
  }

  /** A batch, or a trial, succeeded. */
  noteSuccess(): void {
    this.#succeededAtMs = this.#clock.now();
    this.#failedAtMs = undefined;
    if (this.#isStallReported) this.#settings.onResumed?.();
    this.#isStallReported = false;
  }

  #noteFailure(error: unknown): void {
    this.#failedAtMs ??= this.#clock.now();
    if (this.#isStallReported || this.#clock.now() - this.#failedAtMs < stalledMsMin) return;
    this.#isStallReported = true;
    this.#settings.onStalled?.(error);
  }

  /**
   * Waits up to `withinMs` until the queue is empty, then stops it. Returns how many items failed
   * because of that, also those that came after it, or are in a batch that the database does not
   * answer.
   */
  async drain(withinMs: number): Promise<number> {
    const timeout = new AbortController();
    const emptied = this.#emptied().then(() => timeout.abort());
    await pause(this.#clock, withinMs, timeout.signal);
    this.#isStopped = true;
    this.#failExpired();
    await withTimeout(emptied, inFlightMsMax, () => undefined);
    return [...this.#inFlight].reduce((sum, { length }) => sum + length, this.#failedAtStop);
  }

  async #emptied(): Promise<void> {
    while (this.#running || this.#runningBlocked)
      await Promise.all([this.#running, this.#runningBlocked]);
  }

  async #runQueue(): Promise<void> {
    // Items of the same tick of the event loop share the first batch, and responses that the tick
    // wrote to clients leave before it.
    await nextTick();
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#settings.batchMax);
      const { repeat, blocked, blockedBy } = await this.#runBatch(batch, this.#run);
      if (blocked.length > 0) {
        this.#settings.onBlocked?.(blockedBy);
        this.#block(blocked);
      }
      if (repeat.length > 0) {
        this.#queue.unshift(...repeat);
        await this.#pause();
      }
    }
    this.#running = undefined;
  }

  async #runBlockedGroups(): Promise<void> {
    while (this.#blocked.size > 0) {
      for (const [group, queue] of this.#blocked) {
        if (!(await this.#tryUnblock(queue))) continue;
        this.#blocked.delete(group);
        if (queue.length === 0) continue;
        for (const queued of queue) this.#queue.push(queued);
        this.#running ??= this.#runQueue();
      }
    }
    this.#runningBlocked = undefined;
  }

  // All groups of a blocked batch become blocked, though most wait for nothing. One batch per group
  // finds out: true when the group may return to the common queue.
  async #tryUnblock(queue: QueuedItem<Item, Outcome>[]): Promise<boolean> {
    const batch = queue.splice(0, this.#settings.batchMax);
    if (batch.length === 0) return true;
    const { repeat, blocked } = await this.#runBatch(batch, this.#settings.runBlocked);
    if (repeat.length + blocked.length === 0) return true;
    queue.unshift(...repeat, ...blocked);
    await this.#pause();
    return false;
  }

  async #runBatch(
    batch: readonly QueuedItem<Item, Outcome>[],
    run: RunBatch<Item, Outcome>,
  ): Promise<Unfinished<Item, Outcome>> {
    const { metrics } = this.#settings;
    this.#inFlight.add(batch);
    const startMs = metrics ? this.#clock.now() : 0;
    try {
      const isRepeat = batch.some(({ isUnconfirmed }) => isUnconfirmed);
      const items = batch.map(({ item }) => item);
      const outcomes = await run(items, isRepeat);
      this.noteSuccess();
      metrics?.onBatch(this.#clock.now() - startMs, batch.length);
      batch.forEach(({ resolve, reject }, index) => {
        const outcome = outcomes[index];
        if (outcome !== undefined) resolve(outcome);
        else reject(new Error("a batch returned fewer outcomes than it has items"));
      });
      return { repeat: [], blocked: [] };
    } catch (error) {
      const failure = this.#settings.classify(error);
      metrics?.onFailure(failure);
      if (failure !== "rejected") this.#noteFailure(error);
      if (failure === "unsent") return { repeat: batch, blocked: [] };
      if (failure === "blocked") return { repeat: [], blocked: batch, blockedBy: error };
      for (const queued of batch) queued.isUnconfirmed = true;
      if (failure === "unconfirmed") return { repeat: batch, blocked: [] };
      if (batch.length > 1) return await this.#runOneByOne(batch, run);
      for (const queued of batch) this.#fail(queued, error);
      return { repeat: [], blocked: [] };
    } finally {
      this.#inFlight.delete(batch);
    }
  }

  // A rejected item must not fail the other items of its batch.
  async #runOneByOne(
    batch: readonly QueuedItem<Item, Outcome>[],
    run: RunBatch<Item, Outcome>,
  ): Promise<Unfinished<Item, Outcome>> {
    const repeat: QueuedItem<Item, Outcome>[] = [];
    const blocked: QueuedItem<Item, Outcome>[] = [];
    let blockedBy: unknown;
    for (const queued of batch) {
      const unfinished = await this.#runBatch([queued], run);
      repeat.push(...unfinished.repeat);
      blocked.push(...unfinished.blocked);
      blockedBy ??= unfinished.blockedBy;
    }
    return { repeat, blocked, blockedBy };
  }

  #block(items: readonly QueuedItem<Item, Outcome>[]): void {
    const groupOf = ({ item }: QueuedItem<Item, Outcome>) => this.#settings.groupOf(item);
    for (const queued of items) {
      const queue = this.#blocked.get(groupOf(queued)) ?? [];
      this.#blocked.set(groupOf(queued), queue);
      queue.push(queued);
    }
    // Queued items of these groups would be blocked too.
    for (const queued of remove(this.#queue, (other) => this.#blocked.has(groupOf(other)))) {
      this.#blocked.get(groupOf(queued))?.push(queued);
    }
    this.#runningBlocked ??= this.#runBlockedGroups();
  }

  async #pause(): Promise<void> {
    await pause(this.#clock, this.#settings.pauseMs);
    this.#failExpired();
  }

  #failExpired(): void {
    const oldestMs = this.#isStopped
      ? Number.POSITIVE_INFINITY
      : this.#clock.now() - this.#settings.maxWaitMs;
    for (const queue of [this.#queue, ...this.#blocked.values()]) {
      for (const queued of remove(queue, ({ queuedAtMs }) => queuedAtMs < oldestMs)) {
        if (this.#isStopped) this.#failedAtStop += 1;
        this.#fail(queued, new ApiError("billing_unavailable", { retryAfterMs: 1000 }));
      }
    }
  }

  #fail({ item, isUnconfirmed, reject }: QueuedItem<Item, Outcome>, error: unknown): void {
    if (isUnconfirmed) this.#settings.onUnconfirmed?.(item);
    reject(error);
  }
}

/** Removes the items that `matches` from `queue`, in place, and returns them. */
function remove<T>(queue: T[], matches: (item: T) => boolean): T[] {
  const removed = queue.filter(matches);
  if (removed.length === 0) return removed;
  const rest = queue.filter((item) => !matches(item));
  queue.length = 0;
  for (const item of rest) queue.push(item);
  return removed;
}

const begin: Query = [{ name: "billing/begin", text: "begin" }, []];
const commit: Query = [{ name: "billing/commit", text: "commit" }, []];
const rollback: Query = [{ name: "billing/rollback", text: "rollback" }, []];

/** What a transaction writes after its reads. */
export type Decided<Outcome> = { readonly writes: readonly Query[]; readonly outcome: Outcome };

/** A transaction in two round trips. */
export type Decision<Outcome> = {
  readonly reads: readonly Query[];
  /** `results`: of the reads. */
  decide(results: readonly Result[]): Decided<Outcome>;
};

/** A transaction in one round trip: no query depends on the rows of another. */
export type Sequence<Outcome> = {
  readonly queries: readonly Query[];
  outcome(results: readonly Result[]): Outcome;
};

/** `decide` gets the rows of the reads. */
export function decision<const Reads extends readonly Query[], Outcome>(
  reads: Reads,
  decide: (rows: RowsOf<Reads>) => Decided<Outcome>,
): Decision<Outcome> {
  return { reads, decide: (results) => decide(rowsOf(results)) };
}

/** `outcome` gets the rows of the queries. */
export function sequence<const Queries extends readonly Query[], Outcome>(
  queries: Queries,
  outcome: (rows: RowsOf<Queries>) => Outcome,
): Sequence<Outcome> {
  return { queries, outcome: (results) => outcome(rowsOf(results)) };
}

/** The one place where results get the types of their queries, which read them. */
function rowsOf<Queries extends readonly Query[]>(results: readonly Result[]): RowsOf<Queries> {
  return results.map(({ rows }) => rows) as never;
}

// Several times the server's own time limits for the statements of a batch.
const batchMsMax = 5_000;
/** How long to wait for the server when the connection is closed. */
const closeMsMax = 1_000;

/**
 * A database connection for one batch queue. It is opened again after it broke or the server did
 * not respond in time.
 */
export class BatchConnection {
  readonly #postgres: Postgres;
  readonly #clock: Clock;
  readonly #prepare: ((connection: Connection) => Promise<void>) | undefined;
  #connection: Connection | undefined;

  /** `prepare` is called with each new connection, before its first batch. */
  constructor(
    postgres: Postgres,
    {
      prepare,
      clock = systemClock,
    }: { prepare?: (connection: Connection) => Promise<void>; clock?: Clock } = {},
  ) {
    this.#postgres = postgres;
    this.#clock = clock;
    this.#prepare = prepare;
  }

  /**
   * Connects if necessary, calls `build` and runs its batch. Throws the error of the first
   * statement that failed, and an error when the server answered the commit with a rollback.
   */
  run<Outcome>(build: () => Decision<Outcome> | Sequence<Outcome>): Promise<Outcome> {
    return this.#use(async (connection) => {
      const batch = build();
      if ("queries" in batch) {
        const [, ...results] = await this.#commit(connection, [begin, ...batch.queries]);
        return batch.outcome(results);
      }
      const [, ...results] = await connection.send([begin, ...batch.reads]);
      const { writes, outcome } = batch.decide(results);
      await this.#commit(connection, writes);
      return outcome;
    });
  }

  /** Runs the queries and takes back what they wrote. Throws as `run` does. */
  async rehearse(queries: readonly Query[]): Promise<void> {
    await this.#use((connection) => connection.send([begin, ...queries, rollback]));
  }

  async #use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#connection === undefined || this.#connection.lost) {
      this.#connection?.destroy();
      this.#connection = await this.#connect();
    }
    const connection = this.#connection;
    const cancelTimer = this.#clock.after(batchMsMax, () => connection.destroy());
    try {
      return await work(connection);
    } catch (error) {
      await connection.send([rollback]).catch(() => undefined);
      throw connection.lost
        ? new ConnectionLost("the connection broke during a batch", { cause: error })
        : error;
    } finally {
      cancelTimer();
    }
  }

  // Any reason counts (file descriptors, ports, certificates, passwords, a proxy): the batch was
  // not sent.
  async #connect(): Promise<Connection> {
    let connection: Connection | undefined;
    let cancelTimer = () => {};
    try {
      connection = await this.#postgres.connect();
      cancelTimer = this.#clock.after(batchMsMax, () => connection?.destroy());
      await this.#prepare?.(connection);
      return connection;
    } catch (cause) {
      connection?.destroy();
      throw new NotConnected("cannot connect to the ledger", { cause });
    } finally {
      cancelTimer();
    }
  }

  async #commit(connection: Connection, queries: readonly Query[]): Promise<Result[]> {
    const results = await connection.send([...queries, commit]);
    if (results.pop()?.command !== "COMMIT") throw new RolledBack();
    return results;
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    // Without a timeout, a server that does not respond delays this until the system's own one.
    const cancelTimer = this.#clock.after(closeMsMax, () => connection?.destroy());
    await connection?.end().catch(() => undefined);
    cancelTimer();
  }
}

class NotConnected extends Error {}
class ConnectionLost extends Error {}
class RolledBack extends Error {}

// SQLSTATEs that may be gone at the repeat:
// - 25P02 in_failed_sql_transaction.
// - 25006 read_only_sql_transaction: the server is becoming the primary one, or was it until now.
// - 0A000 feature_not_supported and 26000 invalid_sql_statement_name: a migration changed the
//   columns of a prepared statement, or a proxy switched to a server that never prepared it. The
//   repeat prepares it again.
// - Classes 53 insufficient resources, 57 operator intervention, 58 system error.
const transientStates = /^(25P02|25006|0A000|26000|53...|57...|58...)$/;

/** True when a repeat of the same batch may succeed. */
export function isTransient(error: unknown): boolean {
  if (
    error instanceof NotConnected ||
    error instanceof ConnectionLost ||
    error instanceof RolledBack
  )
    return true;
  if (isConflict(error) || isUnreachable(error)) return true;
  return error instanceof DatabaseError && transientStates.test(error.code ?? "");
}

/**
 * Classifies the error of an admission batch. After a unique violation, the repeat reads the
 * transaction that took the same request id.
 */
export function classifyAdmissionError(error: unknown): Failure {
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  return isTransient(error) || isUniqueViolation(error) ? "unconfirmed" : "rejected";
}

// Classes 22 data exception and 23 integrity constraint violation: a value is at fault.
const valueStates = /^2[23]/;

// The month of a charge has no partition yet. A violated check has the name of its constraint.
function lacksPartition(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23514" && error.constraint === undefined;
}

/**
 * Classifies the error of a settlement batch. Every settlement must be made, so an item is rejected
 * only when its own values are at fault.
 */
export function classifySettlementError(error: unknown): Failure {
  if (lacksPartition(error)) return "blocked";
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  if (isTransient(error)) return "unconfirmed";
  return error instanceof DatabaseError && !valueStates.test(error.code ?? "")
    ? "blocked"
    : "rejected";
}
