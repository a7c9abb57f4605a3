// Keeps the windows in Redis complete, so that Redis may decide.
//
// A node without an answer from Redis decides alone (`limiter.ts`), keeps its admissions as
// unsynced entries, and sends them when Redis answers again. Redis decides only while the synced
// mark exists: it is set when every live node has synced, and expires when no node sends a
// heartbeat for three seconds. So a Redis that was killed, flushed or paused admits nothing while
// it may have lost entries.

import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import { withTimeout } from "../base/timeout.ts";
import type { Redis } from "../redis/redis.ts";
import type { FallbackQuota, Nodes, Verdict } from "./sliding-window.ts";
import {
  type AcquireRequest,
  createWindowStore,
  type Entry,
  readVerdict,
  type WindowStore,
} from "./store.ts";

const heartbeatMs = { synced: 500, otherwise: 100 };
const warnEveryMs = 60_000;
/** How long a start waits for Redis to decide. */
const startMsMax = 1_000;

type Parts = {
  redis: Redis;
  nodes: Nodes;
  quotas: FallbackQuota;
  log: Log;
  /** Must never go back. */
  nowMs: () => number;
  /** Longest time that Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** All requests that this node admitted in the last minute. */
  admittedEntries: () => Iterable<Entry>;
  /** Another node admitted a request beyond its fallback quota. */
  onOverage: (name: string) => void;
};

export class RedisSync {
  readonly #parts: Parts;
  readonly #store: WindowStore;
  readonly #unsynced: UnsyncedEntries;
  #state: "unavailable" | "registering" | "synced" = "unavailable";
  readonly #firstSynced = Promise.withResolvers<void>();
  /** The epoch of Redis that has all entries of this node. Empty: none. */
  #syncedEpoch = "";
  #isServerChecked = false;
  #warnedAtMs: number | undefined;
  readonly #heartbeats = new Task({
    run: () => this.#heartbeat(),
    everyMs: () => (this.isSynced ? heartbeatMs.synced : heartbeatMs.otherwise),
    // A heartbeat reports its failures itself, and so do requests.
    report: { failed() {} },
  });
  #unsubscribers: (() => void)[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#store = createWindowStore(parts.redis, parts.answerMsMax);
    this.#unsynced = new UnsyncedEntries(this.#store, parts.nowMs);
  }

  /** True while Redis decides. */
  get isSynced(): boolean {
    return this.#state === "synced";
  }

  /** True while Redis answers, but other nodes have not synced with it yet. */
  get isRegistering(): boolean {
    return this.#state === "registering";
  }

  /**
   * Requests one admission from Redis, while synced or registering. Undefined: Redis did not
   * decide.
   */
  async acquire(request: AcquireRequest): Promise<Verdict | undefined> {
    try {
      const verdict = readVerdict(
        await this.#store.acquire(request, this.isSynced ? "synced" : "epoch"),
      );
      if (!verdict) this.#setUnavailable("the synced mark expired, or Redis lost its data");
      return verdict;
    } catch (error) {
      this.#setUnavailable(reasonOf(error));
      return undefined;
    }
  }

  /**
   * Removes a request from Redis: one whose place was returned, or one that this node refused after
   * Redis did not answer in time. While Redis is unavailable its entry stays for the rest of its
   * minute.
   */
  cancel(entry: { name: string; id: number }): void {
    this.#unsynced.remove(entry.id);
    if (this.#parts.redis.connected) this.#store.cancel(entry).catch(() => undefined);
  }

  /** Sends an admission of this node to Redis, now or as soon as Redis accepts it. */
  addUnsynced(entry: Entry): void {
    this.#unsynced.add(entry);
    if (this.#parts.redis.connected) this.#unsynced.flush().catch(() => undefined);
  }

  /**
   * Begins to send heartbeats. Resolves when Redis decides, or after a second if it does not; it
   * may later.
   */
  async start(): Promise<void> {
    const { redis, onOverage } = this.#parts;
    this.#unsubscribers = [
      this.#store.onOverage(onOverage),
      redis.onConnected(() => this.#startOver()),
    ];
    this.#heartbeats.start();
    await withTimeout(this.#firstSynced.promise, startMsMax, () => undefined);
    if (!this.isSynced) this.#warn(redis.connected ? "not ready" : "not connected");
  }

  async stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribers) unsubscribe();
    await this.#heartbeats.stop();
  }

  /**
   * Handles a new connection. It may lead to another server, or to one that restored older data
   * with the same epoch.
   */
  #startOver(): void {
    this.#syncedEpoch = "";
    this.#isServerChecked = false;
    this.#heartbeats.wake();
  }

  async #heartbeat(): Promise<void> {
    this.#parts.quotas.refresh();
    if (!this.#parts.redis.connected) return this.#setUnavailable("not connected");
    try {
      if (!this.#isServerChecked) await this.#store.check();
      this.#isServerChecked = true;
      if (await this.#syncAndRegister()) {
        this.#setSynced();
        // Requests that this node admitted alone while the answer was under way.
        await this.#unsynced.flush();
      } else {
        this.#state = "registering";
        this.#warn("other nodes have not synced yet");
      }
    } catch (error) {
      this.#setUnavailable(reasonOf(error));
    }
  }

  /** True when all nodes have synced. */
  async #syncAndRegister(): Promise<boolean> {
    if (this.#syncedEpoch !== "") await this.#unsynced.flush();
    const { epoch, isSynced } = await this.#register();
    if (epoch === this.#syncedEpoch) return isSynced;
    // A new epoch has none of our entries: send them all.
    this.#state = "registering";
    this.#unsynced.replace(this.#parts.admittedEntries());
    await this.#unsynced.flush();
    this.#syncedEpoch = epoch;
    const again = await this.#register();
    return again.isSynced && again.epoch === epoch;
  }

  #register() {
    const { nodes } = this.#parts;
    return this.#store.register(nodes.id(), nodes.live(), this.#syncedEpoch);
  }

  #setSynced(): void {
    if (this.isSynced) return;
    this.#state = "synced";
    if (this.#warnedAtMs !== undefined)
      this.#parts.log.info("rate limits: enforced through Redis again");
    this.#warnedAtMs = undefined;
    this.#firstSynced.resolve();
  }

  #setUnavailable(reason: string): void {
    const wasSynced = this.isSynced;
    this.#state = "unavailable";
    this.#warn(reason);
    // The pending heartbeat was scheduled at the slower interval.
    if (wasSynced) this.#heartbeats.wake();
  }

  #warn(reason: string): void {
    const nowMs = this.#parts.nowMs();
    if (this.#warnedAtMs !== undefined && nowMs - this.#warnedAtMs <= warnEveryMs) return;
    this.#warnedAtMs = nowMs;
    this.#parts.log.warn(
      { code: "limits_degraded", reason },
      "rate limits: not enforced through Redis; each node admits its fallback quota",
    );
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Requests that this node admitted and that Redis does not have yet. */
class UnsyncedEntries {
  readonly #store: WindowStore;
  readonly #nowMs: () => number;
  /** By request id. */
  #entries = new Map<number, Entry>();
  /** Ids that were removed while their entries were being sent. */
  readonly #removed = new Set<number>();
  #flushing: Promise<void> | undefined;

  /** `nowMs` must never go back, and be the clock of the entries. */
  constructor(store: WindowStore, nowMs: () => number) {
    this.#store = store;
    this.#nowMs = nowMs;
  }

  add(entry: Entry): void {
    this.#entries.set(entry.id, entry);
  }

  remove(id: number): void {
    this.#entries.delete(id);
    if (this.#flushing) this.#removed.add(id);
  }

  replace(entries: Iterable<Entry>): void {
    this.#entries = new Map(Array.from(entries, (entry) => [entry.id, entry]));
  }

  /** Sends all entries, also those added meanwhile. If Redis fails, rejects and keeps them. */
  flush(): Promise<void> {
    this.#flushing ??= this.#flushAll().finally(() => {
      this.#flushing = undefined;
      this.#removed.clear();
    });
    return this.#flushing;
  }

  async #flushAll(): Promise<void> {
    while (this.#entries.size > 0) {
      const batch = [...this.#entries.values()];
      this.#entries.clear();
      try {
        await this.#store.sync(batch, this.#nowMs());
      } catch (error) {
        for (const entry of batch)
          if (!this.#removed.has(entry.id)) this.#entries.set(entry.id, entry);
        throw error;
      }
    }
  }
}
