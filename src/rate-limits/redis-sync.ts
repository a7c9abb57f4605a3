// This node's part in keeping the logs in Redis complete, so that they may decide.
//
// A node that gets no answer decides alone (`pace.ts`), owes Redis what it admits meanwhile, and
// hands it in when Redis answers again. The logs count as complete only when every node has done
// so, and stop to count when nobody says so for three seconds; so a Redis that was killed, flushed
// or stood still admits nothing on the strength of what it has forgotten.

import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";
import type { Redis } from "../redis/redis.ts";
import type { FallbackQuota, Nodes, Verdict } from "./sliding-window.ts";
import {
  type AcquireRequest,
  createLogStore,
  type Entry,
  type LogStore,
  readVerdict,
} from "./store.ts";

const tickMs = { complete: 500, otherwise: 100 };
const warnEveryMs = 60_000;
/** How long a start waits for Redis to decide. */
const startMsMax = 1_000;

type Parts = {
  redis: Redis;
  nodes: Nodes;
  shares: FallbackQuota;
  log: Log;
  /** Must never go back. */
  nowMs: () => number;
  /** How long Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** All that this node has admitted and that still counts. */
  admitted: () => Iterable<Entry>;
  /** Another node admitted one beyond its share. */
  onExcess: (name: string) => void;
};

export class RedisSync {
  readonly #parts: Parts;
  readonly #store: LogStore;
  readonly #debt: UnsyncedEntries;
  #state: "away" | "joining" | "complete" = "away";
  readonly #entered = Promise.withResolvers<void>();
  /** The server's memory that has all of this node's entries. Empty: none does. */
  #handedTo = "";
  #checked = false;
  #warnedAtMs: number | undefined;
  #running = false;
  #timer: NodeJS.Timeout | undefined;
  #tick: Promise<void> = Promise.resolve();
  #endings: (() => void)[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#store = createLogStore(parts.redis, parts.answerMsMax);
    this.#debt = new UnsyncedEntries(this.#store, parts.nowMs);
  }

  /** True while Redis decides. */
  get synced(): boolean {
    return this.#state === "complete";
  }

  /** True while Redis answers, but does not know of all that other nodes have admitted. */
  get registering(): boolean {
    return this.#state === "joining";
  }

  /**
   * Asks for one request, while complete or joining. Undefined: Redis did not answer, decide alone.
   */
  async acquire(ask: AcquireRequest): Promise<Verdict | undefined> {
    try {
      const verdict = readVerdict(
        await this.#store.acquire(ask, this.synced ? "complete" : "memory"),
      );
      if (!verdict) this.#leave("the logs are not complete");
      return verdict;
    } catch (error) {
      this.#leave(reasonOf(error));
      return undefined;
    }
  }

  /** Undoes a `take` whose answer did not come and that was then refused. */
  cancel(entry: { name: string; id: number }): void {
    if (this.#parts.redis.connected) this.#store.cancel(entry).catch(() => undefined);
  }

  /** Hands in what this node admitted by itself, as soon as Redis takes it. */
  addUnsynced(entry: Entry): void {
    this.#debt.add(entry);
    if (this.#parts.redis.connected) this.#debt.flush().catch(() => undefined);
  }

  /**
   * Checks the server, joins the others, and stays. Resolves when Redis decides, or after a second
   * without it.
   */
  async start(): Promise<void> {
    const { redis, onExcess } = this.#parts;
    this.#running = true;
    this.#endings = [this.#store.onOverage(onExcess), redis.onConnected(() => this.#beginAnew())];
    this.#tickAfter(0);
    await withTimeout(this.#entered.promise, startMsMax, () => undefined);
    if (!this.synced) this.#warn(redis.connected ? "not ready" : "not connected");
  }

  async stop(): Promise<void> {
    this.#running = false;
    clearTimeout(this.#timer);
    for (const end of this.#endings) end();
    await this.#tick;
  }

  #tickAfter(ms: number): void {
    if (!this.#running) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#tick = this.#stay().finally(() =>
        this.#tickAfter(this.synced ? tickMs.complete : tickMs.otherwise),
      );
    }, ms);
    this.#timer.unref();
  }

  /**
   * A new connection: perhaps another server, or one that went back to an older memory under the
   * same name.
   */
  #beginAnew(): void {
    this.#handedTo = "";
    this.#checked = false;
    this.#tickAfter(0);
  }

  /** Says that this node is here and owes nothing; joins where it has not. */
  async #stay(): Promise<void> {
    this.#parts.shares.look();
    if (!this.#parts.redis.connected) return this.#leave("not connected");
    try {
      if (!this.#checked) await this.#store.check();
      this.#checked = true;
      if (await this.#join()) {
        this.#enter();
        // Admitted alone while the answer was on its way.
        await this.#debt.flush();
      } else {
        this.#state = "joining";
        this.#warn("other nodes have not handed in their part yet");
      }
    } catch (error) {
      this.#leave(reasonOf(error));
    }
  }

  /** True when the logs are complete. */
  async #join(): Promise<boolean> {
    if (this.#handedTo !== "") await this.#debt.flush();
    const { epoch, complete } = await this.#sayHere();
    if (epoch === this.#handedTo) return complete;
    this.#state = "joining";
    this.#debt.reset(this.#parts.admitted());
    await this.#debt.flush();
    this.#handedTo = epoch;
    const joined = await this.#sayHere();
    return joined.complete && joined.epoch === epoch;
  }

  #sayHere() {
    const { nodes } = this.#parts;
    return this.#store.register(nodes.id(), nodes.live(), this.#handedTo);
  }

  #enter(): void {
    if (this.synced) return;
    this.#state = "complete";
    if (this.#warnedAtMs !== undefined) this.#parts.log.info("limits: Redis decides again");
    this.#warnedAtMs = undefined;
    this.#entered.resolve();
  }

  #leave(reason: string): void {
    const left = this.synced;
    this.#state = "away";
    this.#warn(reason);
    // Sooner than the next tick of a node that was complete.
    if (left) this.#tickAfter(tickMs.otherwise);
  }

  #warn(reason: string): void {
    const nowMs = this.#parts.nowMs();
    if (this.#warnedAtMs !== undefined && nowMs - this.#warnedAtMs <= warnEveryMs) return;
    this.#warnedAtMs = nowMs;
    this.#parts.log.warn(
      { reason },
      "limits: Redis does not decide; each node allows its share of every limit",
    );
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// What this node admitted by itself and Redis does not know of yet.

export class UnsyncedEntries {
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

  /**
   * Hands in all that is owed, also what is added meanwhile. Rejects when Redis does not take it;
   * it is still owed then.
   */
  flush(): Promise<void> {
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
        await this.#store.sync(batch, this.#nowMs());
      } catch (error) {
        this.#owed = batch.concat(this.#owed);
        throw error;
      }
    }
  }
}
