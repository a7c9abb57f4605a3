// The windows in Redis: per limit, a sorted set of the requests that all nodes admitted. The only
// file that runs this folder's scripts.
//
// A node without an answer from Redis decides alone (`limiter.ts`). It keeps what it admitted, and
// sends it when Redis answers again. A Redis that lost its data has another epoch: then a node
// sends all its requests of the last minute. For a second after that others may not have done the
// same, so Redis and the fallback quota both must admit a request.

import { withTimeout } from "../base/clock.ts";
import { randomId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import { type Redis, script } from "../redis/redis.ts";
import type { Verdict } from "./sliding-window.ts";

const scripts = {
  acquire: script(import.meta.url, "acquire"),
  cancel: script(import.meta.url, "cancel"),
  sync: script(import.meta.url, "sync"),
  join: script(import.meta.url, "join"),
};

// One hash tag for all: a decision reads several keys, which a cluster must keep on one server.
const tag = "{gateway:limits}";
const epochKey = `${tag}:epoch`;
const windowKey = (name: string) => `${tag}:window:${name}`;

const heartbeatMs = { synced: 500, otherwise: 100 };
const syncMsMax = 1_000;
const syncBatchMax = 500;
const warnEveryMs = 60_000;
/** The longest wait of a start for Redis to decide. */
const startMsMax = 1_500;
/** Several heartbeats: by then every node that reaches Redis has sent its requests. */
const joiningMs = 1_000;

/** An admitted request in the window of the limit `name`. */
export type Entry = { readonly name: string; readonly id: number; readonly atMs: number };

type Parts = {
  redis: Redis;
  log: Log;
  /** Must never go back. */
  nowMs: () => number;
  /** Longest time that Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** All requests that this node admitted in the last minute. */
  admittedEntries: () => Iterable<Entry>;
  /** Asked at each heartbeat. True: no other node is or was live in the last minute. */
  isAlone: () => boolean;
};

export class RedisWindows {
  readonly #parts: Parts;
  // Random per start, so that request ids differ from those of other processes.
  readonly #processId = randomId("", 12);
  /** The epoch of Redis to which this node has sent its requests. Empty: none. */
  #epoch = "";
  #isReachable = false;
  #hasJoined = false;
  /** From then on Redis decides alone. */
  #aloneAtMs = 0;
  /** Admitted requests that Redis does not have yet, by their ids. */
  readonly #unsynced = new Map<number, Entry>();
  #flushing: Promise<void> | undefined;
  readonly #firstSynced = Promise.withResolvers<void>();
  #isServerChecked = false;
  #warnedAtMs: number | undefined;
  #unsubscribe = () => {};
  readonly #heartbeats = new Task({
    run: () => this.#heartbeat(),
    everyMs: () => (this.isSynced ? heartbeatMs.synced : heartbeatMs.otherwise),
    // A heartbeat reports its failures itself, and so do requests.
    report: { failed() {} },
  });

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** True while Redis answers and has the requests of this node. */
  get isReachable(): boolean {
    return this.#isReachable;
  }

  /** True while Redis decides. */
  get isSynced(): boolean {
    return this.#isReachable && this.#parts.nowMs() >= this.#aloneAtMs;
  }

  /** Requests one admission from Redis. Undefined: Redis did not decide. */
  async acquire(name: string, id: number, limit: number): Promise<Verdict | undefined> {
    const { redis, answerMsMax } = this.#parts;
    try {
      const args = [limit, this.#memberOf(id), this.#epoch];
      const answer = await redis.run(
        scripts.acquire,
        [windowKey(name), epochKey],
        args,
        answerMsMax,
      );
      const verdict = readVerdict(answer);
      if (!verdict) this.#setUnavailable("it lost its data");
      return verdict;
    } catch (error) {
      this.#setUnavailable(reasonOf(error));
      return undefined;
    }
  }

  /** Removes a request, whether Redis has it or not. */
  cancel(name: string, id: number): void {
    this.#unsynced.delete(id);
    if (this.#parts.redis.connected)
      this.#run("cancel", name, [this.#memberOf(id)]).catch(() => undefined);
  }

  /** Sends an admission of this node to Redis, now or as soon as Redis accepts it. */
  add(entry: Entry): void {
    this.#unsynced.set(entry.id, entry);
    if (this.#parts.redis.connected) this.#flush().catch(() => undefined);
  }

  /** Begins. Resolves when Redis decides, or after a time if it does not; it may later. */
  async start(): Promise<void> {
    const { redis } = this.#parts;
    // A connection may lead to another server, or to one that restored older data.
    this.#unsubscribe = redis.onConnected(() => {
      this.#epoch = "";
      this.#isReachable = false;
      this.#isServerChecked = false;
      this.#heartbeats.wake();
    });
    this.#heartbeats.start();
    await withTimeout(this.#firstSynced.promise, startMsMax, () => undefined);
    if (!this.isSynced) this.#warn(redis.connected ? "not ready" : "not connected");
  }

  async stop(): Promise<void> {
    this.#unsubscribe();
    await this.#heartbeats.stop();
  }

  async #heartbeat(): Promise<void> {
    const { redis, nowMs, answerMsMax, admittedEntries, isAlone } = this.#parts;
    const waitsForNobody = isAlone();
    if (!redis.connected) return this.#setUnavailable("not connected");
    try {
      if (!this.#isServerChecked) await this.#check();
      this.#isServerChecked = true;
      const answer = await redis.run(scripts.join, [epochKey], [randomId("", 12)], answerMsMax);
      const [epoch, ageMs] = Array.isArray(answer) ? answer : [];
      if (typeof epoch !== "string" || !(Number(ageMs) >= 0)) throw unexpectedAnswer();
      if (epoch !== this.#epoch)
        for (const entry of admittedEntries()) this.#unsynced.set(entry.id, entry);
      await this.#flush();
      if (epoch !== this.#epoch || !this.#isReachable) {
        // A node that comes back cannot know which of its peers have done so. One that starts can:
        // a Redis that has been there for long has their requests.
        const age = this.#hasJoined ? 0 : Number(ageMs);
        this.#aloneAtMs = nowMs() + (waitsForNobody ? 0 : Math.max(0, joiningMs - age));
      }
      this.#epoch = epoch;
      this.#hasJoined = true;
      this.#isReachable = true;
      this.#report();
    } catch (error) {
      this.#setUnavailable(reasonOf(error));
    }
  }

  /** Sends all entries, also those added meanwhile. If Redis fails, rejects and keeps them. */
  #flush(): Promise<void> {
    this.#flushing ??= this.#flushAll().finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  async #flushAll(): Promise<void> {
    while (this.#unsynced.size > 0) {
      const batch = [...this.#unsynced.values()].slice(0, syncBatchMax);
      const nowMs = this.#parts.nowMs();
      const sent = [...Map.groupBy(batch, ({ name }) => name)].map(([name, entries]) => {
        const ages = entries.flatMap(({ id, atMs }) => [
          Math.max(0, nowMs - atMs).toFixed(3),
          this.#memberOf(id),
        ]);
        return this.#run("sync", name, ages);
      });
      await Promise.all(sent);
      for (const { id } of batch) this.#unsynced.delete(id);
    }
  }

  /**
   * Checks that the server runs the scripts: at a limit of two, it admits two of three requests and
   * gives the time of the third. Throws otherwise.
   */
  async #check(): Promise<void> {
    const name = `check:${this.#processId}`;
    const probe = `${windowKey(name)}:epoch`;
    const { redis } = this.#parts;
    const [epoch] = [await redis.run(scripts.join, [probe], ["check"], syncMsMax)].flat();
    const acquire = async (id: number) => {
      const args = [2, this.#memberOf(id), String(epoch)];
      return readVerdict(
        await redis.run(scripts.acquire, [windowKey(name), probe], args, syncMsMax),
      );
    };
    await this.#run("sync", name, [0, this.#memberOf(0)]);
    const [second, third] = [await acquire(1), await acquire(2)];
    await Promise.all([0, 1].map((id) => this.#run("cancel", name, [this.#memberOf(id)])));
    const waitMs = third?.waitMs ?? 0;
    const isRight = second?.admitted && third?.admitted === false;
    if (!isRight || waitMs <= 50_000 || waitMs > 60_000)
      throw new Error("Redis failed the self-check of the rate limiter");
  }

  #run(name: "sync" | "cancel", limit: string, args: (string | number)[]): Promise<unknown> {
    return this.#parts.redis.run(scripts[name], [windowKey(limit)], args, syncMsMax);
  }

  #memberOf(id: number): string {
    return `${this.#processId}:${id}`;
  }

  #report(): void {
    if (!this.isSynced) {
      this.#warn("it may lack requests of other nodes");
      return;
    }
    if (this.#warnedAtMs !== undefined)
      this.#parts.log.info("rate limits: enforced through Redis again");
    this.#warnedAtMs = undefined;
    this.#firstSynced.resolve();
  }

  #setUnavailable(reason: string): void {
    const wasReachable = this.#isReachable;
    this.#isReachable = false;
    this.#warn(reason);
    // The pending heartbeat was scheduled at the slower interval.
    if (wasReachable) this.#heartbeats.wake();
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

/** The answer of `acquire`. Undefined: the epoch is another one. Throws for what is no answer. */
function readVerdict(answer: unknown): Verdict | undefined {
  const [outcome, used, waitMs] = Array.isArray(answer) ? answer.map(Number) : [];
  if (outcome === -1) return undefined;
  if ((outcome !== 0 && outcome !== 1) || !(Number(used) >= 0) || !(Number(waitMs) >= 0))
    throw unexpectedAnswer();
  const admitted = outcome === 1;
  // The script counts the request that it admits.
  return { admitted, used: Number(used) - outcome, waitMs: Number(waitMs) };
}

function unexpectedAnswer(): Error {
  return new Error("Redis returned an unexpected answer");
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * Redis does not answer, and each process enforces its share of every limit; bring Redis back
     */
    limits_degraded: true;
  }
}
