// The logs in Redis, each a sorted set of the requests that all nodes admitted. The only file that
// runs this folder's scripts.

import { randomId } from "../base/ids.ts";
import { type Redis, script } from "../redis/redis.ts";
import type { Verdict } from "./sliding-window.ts";

const scripts = {
  take: script(import.meta.url, "take"),
  takeBack: script(import.meta.url, "take-back"),
  handIn: script(import.meta.url, "hand-in"),
  join: script(import.meta.url, "join"),
};

const overageChannel = "gateway:limits:excess";
const keys = {
  log: (name: string) => `gateway:limits:log:${name}`,
  memory: "gateway:limits:memory",
  complete: "gateway:limits:complete",
  joined: "gateway:limits:joined",
  waiting: "gateway:limits:waiting",
};

const syncMsMax = 1_000;
const syncMax = 500;
/** How long the logs count as complete after the last node said so. */
const completeMs = 3_000;

/** An admitted request in the log of one limit. */
export type Entry = { name: string; id: number; atMs: number };

/** `excess` tells the other nodes when the request is admitted. */
export type AcquireRequest = { name: string; id: number; limit: number; overage: boolean };

/** The memory of a server has a name, which is lost with it. */
type Registration = { epoch: string; complete: boolean };

export type LogStore = ReturnType<typeof createLogStore>;

/**
 * Every function that answers a promise rejects while Redis is away, and when it takes too long:
 * `answerMsMax` for a decision.
 */
export function createLogStore(redis: Redis, answerMsMax: number) {
  // Random per start: ids of requests and of nodes' messages never meet those of another process.
  const self = randomId("", 12);
  const member = (id: number) => `${self}:${id}`;

  function handInSome(name: string, entries: readonly Entry[], nowMs: number): Promise<unknown> {
    const args = entries.flatMap(({ id, atMs }) => [
      Math.max(0, nowMs - atMs).toFixed(3),
      member(id),
    ]);
    return redis.run(scripts.handIn, [keys.log(name)], args, syncMsMax);
  }

  return {
    /**
     * Asks for one request. `needed`: the logs have to be complete, or merely in the server's
     * memory, with what some nodes handed in. Answers what `readVerdict` reads, unread: every
     * request with a limit comes by here, and would pay for one promise more.
     */
    acquire(
      { name, id, limit, overage }: AcquireRequest,
      needed: "complete" | "memory",
    ): Promise<unknown> {
      const args = [limit, member(id), overageChannel, overage ? `${self} ${name}` : ""];
      return redis.run(scripts.take, [keys.log(name), keys[needed]], args, answerMsMax);
    },

    async cancel({ name, id }: { name: string; id: number }): Promise<void> {
      await redis.run(scripts.takeBack, [keys.log(name)], [member(id)], syncMsMax);
    },

    /** Adds what this node admitted by itself. Repeating it changes nothing. */
    async sync(entries: readonly Entry[], nowMs: number): Promise<void> {
      const ofName = Map.groupBy(entries, (entry) => entry.name);
      await Promise.all(
        [...ofName].flatMap(([name, all]) =>
          chunks(all).map((some) => handInSome(name, some, nowMs)),
        ),
      );
    },

    /**
     * Says that `node` is here and has handed in all that it admitted to the memory `handedTo`;
     * empty: to none.
     */
    async register(node: string, live: Iterable<string>, handedTo: string): Promise<Registration> {
      const args = [node, handedTo, randomId("", 12), completeMs, ...new Set([...live, node])];
      const answer = await redis.run(
        scripts.join,
        [keys.memory, keys.complete, keys.joined, keys.waiting],
        args,
        answerMsMax,
      );
      if (!Array.isArray(answer)) throw new Error("Redis gave an answer of another form");
      return { epoch: String(answer[0]), complete: answer[1] === 1 };
    },

    /**
     * Throws unless the server admits two of three requests at a limit of two, and says when the
     * third may come.
     */
    async check(): Promise<void> {
      const log = keys.log(`check:${self}`);
      const run = (one: keyof typeof scripts, logs: string[], args: (string | number)[]) =>
        redis.run(scripts[one], logs, args, syncMsMax);
      await run("handIn", [log], [0, member(0)]);
      // The log itself stands for the mark of completeness.
      const second = readVerdict(await run("take", [log, log], [2, member(1), overageChannel, ""]));
      const third = readVerdict(await run("take", [log, log], [2, member(2), overageChannel, ""]));
      await Promise.all([0, 1].map((id) => run("takeBack", [log], [member(id)])));
      const waitMs = third?.waitMs ?? 0;
      const works =
        second?.admitted && third && !third.admitted && waitMs > 50_000 && waitMs <= 60_000;
      if (!works) throw new Error("Redis failed the check of the limiter");
    },

    /**
     * Calls `listener` with the limit of which another node admitted one beyond its share. The
     * answer ends that.
     */
    onOverage(listener: (name: string) => void): () => void {
      return redis.subscribe(overageChannel, (message) => {
        const [node, name] = message.split(" ");
        if (node !== self && name !== undefined) listener(name);
      });
    },
  };
}

/**
 * What the answer to `take` says. Undefined: the logs are not what was needed, and nothing was
 * done.
 */
export function readVerdict(answer: unknown): Verdict | undefined {
  if (!Array.isArray(answer)) throw new Error("Redis gave an answer of another form");
  const [outcome, used, waitMs] = answer.map(Number);
  if (outcome === undefined || used === undefined || waitMs === undefined || outcome < 0)
    return undefined;
  const admitted = outcome === 1;
  // The script counts the request that it admits.
  return { admitted, used: admitted ? used - 1 : used, waitMs };
}

function chunks<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / syncMax) }, (_, index) =>
    all.slice(index * syncMax, (index + 1) * syncMax),
  );
}
