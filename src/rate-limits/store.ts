// The windows in Redis: per limit, a sorted set of the requests that all nodes admitted. The only
// file that runs this folder's scripts.

import { randomId } from "../base/ids.ts";
import { type Redis, script } from "../redis/redis.ts";
import type { Verdict } from "./sliding-window.ts";

const scripts = {
  acquire: script(import.meta.url, "acquire"),
  cancel: script(import.meta.url, "cancel"),
  sync: script(import.meta.url, "sync"),
  register: script(import.meta.url, "register"),
};

// One hash tag for all: a decision reads several keys, which a cluster must keep on one server.
const tag = "{gateway:limits}";
const overageChannel = `${tag}:overage`;
const keys = {
  window: (name: string) => `${tag}:window:${name}`,
  epoch: `${tag}:epoch`,
  synced: `${tag}:synced`,
  nodes: `${tag}:nodes`,
  waitingSince: `${tag}:waiting-since`,
};

const syncMsMax = 1_000;
const syncBatchMax = 500;
/** How long the synced mark lives after the last heartbeat of any node. */
const syncedMs = 3_000;

/** An admitted request in the window of the limit `name`. */
export type Entry = { readonly name: string; readonly id: number; readonly atMs: number };

export type AcquireRequest = {
  readonly name: string;
  readonly id: number;
  readonly limit: number;
  /** The request is beyond this node's fallback quota: if admitted, publish it. */
  readonly isOverage: boolean;
};

/** `epoch`: a random id that a server without data receives, and loses with its data. */
type Registration = { readonly epoch: string; readonly isSynced: boolean };

export type WindowStore = ReturnType<typeof createWindowStore>;

/**
 * Every function that returns a promise rejects while Redis is unavailable or too slow. A decision
 * may take `answerMsMax` milliseconds.
 */
export function createWindowStore(redis: Redis, answerMsMax: number) {
  // Random per start, so that request ids and messages differ from those of other processes.
  const processId = randomId("", 12);
  const memberOf = (id: number) => `${processId}:${id}`;

  function syncBatch(name: string, entries: readonly Entry[], nowMs: number): Promise<unknown> {
    const args = entries.flatMap(({ id, atMs }) => [
      Math.max(0, nowMs - atMs).toFixed(3),
      memberOf(id),
    ]);
    return redis.run(scripts.sync, [keys.window(name)], args, syncMsMax);
  }

  return {
    /**
     * Requests one admission. `required`: the key that must exist, either the synced mark or, while
     * nodes still register, any epoch. Resolves with the raw answer for `readVerdict`: every
     * limited request runs this, and parsing here would cost it one more promise.
     */
    acquire(
      { name, id, limit, isOverage }: AcquireRequest,
      required: "synced" | "epoch",
    ): Promise<unknown> {
      const message = isOverage ? `${processId} ${name}` : "";
      const args = [limit, memberOf(id), overageChannel, message];
      return redis.run(scripts.acquire, [keys.window(name), keys[required]], args, answerMsMax);
    },

    async cancel({ name, id }: { name: string; id: number }): Promise<void> {
      await redis.run(scripts.cancel, [keys.window(name)], [memberOf(id)], syncMsMax);
    },

    /** Adds requests that this node admitted without Redis. Idempotent. */
    async sync(entries: readonly Entry[], nowMs: number): Promise<void> {
      const byName = Map.groupBy(entries, (entry) => entry.name);
      await Promise.all(
        [...byName].flatMap(([name, all]) =>
          chunks(all).map((batch) => syncBatch(name, batch, nowMs)),
        ),
      );
    },

    /** The heartbeat of `node`. `syncedEpoch`: the epoch to which it has synced; empty: none. */
    async register(
      node: string,
      live: Iterable<string>,
      syncedEpoch: string,
    ): Promise<Registration> {
      const newEpoch = randomId("", 12);
      const answer = await redis.run(
        scripts.register,
        [keys.epoch, keys.synced, keys.nodes, keys.waitingSince],
        [node, syncedEpoch, newEpoch, syncedMs, ...new Set([...live, node])],
        answerMsMax,
      );
      if (!Array.isArray(answer)) throw unexpectedAnswer();
      return { epoch: String(answer[0]), isSynced: answer[1] === 1 };
    },

    /**
     * Checks that the server runs the scripts correctly: at a limit of two, it admits two of three
     * requests and gives the time of the third. Throws otherwise.
     */
    async check(): Promise<void> {
      const window = keys.window(`check:${processId}`);
      const run = (name: keyof typeof scripts, scriptKeys: string[], args: (string | number)[]) =>
        redis.run(scripts[name], scriptKeys, args, syncMsMax);
      // The window itself serves as the key that must exist.
      const acquire = async (id: number) =>
        readVerdict(await run("acquire", [window, window], [2, memberOf(id), overageChannel, ""]));
      await run("sync", [window], [0, memberOf(0)]);
      const second = await acquire(1);
      const third = await acquire(2);
      await Promise.all([0, 1].map((id) => run("cancel", [window], [memberOf(id)])));
      const waitMs = third?.waitMs ?? 0;
      const works =
        second?.admitted && third && !third.admitted && waitMs > 50_000 && waitMs <= 60_000;
      if (!works) throw new Error("Redis failed the self-check of the rate limiter");
    },

    /**
     * Calls `listener` with the name of a limit when another node admitted a request beyond its
     * fallback quota. Returns a function that unsubscribes.
     */
    onOverage(listener: (name: string) => void): () => void {
      return redis.subscribe(overageChannel, (message) => {
        const [sender, name] = message.split(" ");
        if (sender !== processId && name !== undefined) listener(name);
      });
    },
  };
}

/** Parses the answer to `acquire`. Undefined: the required key was absent, nothing was done. */
export function readVerdict(answer: unknown): Verdict | undefined {
  if (!Array.isArray(answer)) throw unexpectedAnswer();
  const [outcome, used, waitMs] = answer.map(Number);
  if (outcome === undefined || used === undefined || waitMs === undefined || outcome < 0)
    return undefined;
  const admitted = outcome === 1;
  // The script counts the request that it admits.
  return { admitted, used: admitted ? used - 1 : used, waitMs };
}

function unexpectedAnswer(): Error {
  return new Error("Redis returned an unexpected answer");
}

function chunks<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / syncBatchMax) }, (_, index) =>
    all.slice(index * syncBatchMax, (index + 1) * syncBatchMax),
  );
}
