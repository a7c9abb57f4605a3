// The logs of all nodes together, in Redis, and this node's part in keeping them complete.
//
// A node that gets no answer decides alone (`pace.ts`), owes Redis what it admits meanwhile, and hands it in when Redis answers again.
// The logs count as complete only when every node has done so, and stop to count when nobody says so for three seconds; so a Redis
// that was killed, flushed or stood still admits nothing on the strength of what it has forgotten.

import { randomId } from "../ids.ts";
import type { Log } from "../log.ts";
import { type Redis, script } from "../redis/redis.ts";

const scripts = {
  take: script(import.meta.url, "take"),
  takeBack: script(import.meta.url, "take-back"),
  handIn: script(import.meta.url, "hand-in"),
  join: script(import.meta.url, "join"),
};

const handInMsMax = 1_000;
const handInMax = 500;
const completeMs = 3_000;
const tickMs = { complete: 500, otherwise: 100 };
const warnEveryMs = 60_000;

const excessChannel = "gateway:limits:excess";
const keys = {
  log: (name: string) => `gateway:limits:log:${name}`,
  memory: "gateway:limits:memory",
  complete: "gateway:limits:complete",
  joined: "gateway:limits:joined",
  waiting: "gateway:limits:waiting",
};

/** The running processes of this gateway, as the ledger knows them. */
export type Nodes = { readonly id: () => string; readonly live: () => readonly string[] };

/** An admitted request in the log of one limit. */
export type Entry = { name: string; id: number; atMs: number };

/** What Redis decided. Undefined: it did not, decide alone. */
export type Answer = { admitted: boolean; used: number; waitMs: number } | undefined;

export type SharedLogs = {
  /** True while Redis decides. */
  readonly complete: boolean;
  /** Asks for one request; `excess` tells the other nodes when it is admitted. */
  take(ask: { name: string; id: number; limit: number; excess: boolean }): Promise<Answer>;
  /** Undoes a `take` whose answer did not come and that was then refused. */
  takeBack(entry: { name: string; id: number }): void;
  /** Hands in what this node admitted by itself, as soon as Redis takes it. */
  owe(entry: Entry): void;
  /** Checks the server, joins the others, and stays. Resolves when Redis decides, or after a second without it. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

export function createSharedLogs(parts: {
  redis: Redis;
  nodes: Nodes;
  log: Log;
  nowMs: () => number;
  answerMsMax: number;
  /** All that this node has admitted and that still counts. */
  admitted: () => Iterable<Entry>;
  /** Another node admitted one beyond its share. */
  onExcess: (name: string) => void;
}): SharedLogs {
  const { redis, nodes, log, nowMs, answerMsMax, admitted, onExcess } = parts;
  // Random per start: ids of requests and of nodes' messages never meet those of another process.
  const self = randomId("", 12);
  let state: "away" | "joining" | "complete" = "away";
  // The server's memory that has all of this node's entries. Empty: none does.
  let handedTo = "";
  let checked = false;
  let owed: Entry[] = [];
  let handing: Promise<void> | undefined;
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  let warned = false;
  let timer: NodeJS.Timeout | undefined;
  let running = false;
  let ticking: Promise<void> = Promise.resolve();
  const endings: (() => void)[] = [];
  let onComplete = () => {};

  const member = (id: number) => `${self}:${id}`;

  function leave(reason: string): void {
    const left = state === "complete";
    state = "away";
    if (nowMs() - warnedAtMs > warnEveryMs) {
      warnedAtMs = nowMs();
      warned = true;
      log.warn({ reason }, "limits: Redis does not decide; each node allows its share of every limit");
    }
    if (left) tickAfter(tickMs.otherwise);
  }

  function enter(): void {
    if (state === "complete") return;
    state = "complete";
    if (warned) log.info("limits: Redis decides again");
    warned = false;
    warnedAtMs = Number.NEGATIVE_INFINITY;
    onComplete();
  }

  async function handIn(): Promise<void> {
    while (owed.length > 0) {
      const batch = owed.splice(0);
      try {
        const ofName = Map.groupBy(batch, (entry) => entry.name);
        await Promise.all([...ofName].flatMap(([name, entries]) => chunks(entries).map((some) => handInSome(name, some))));
      } catch (error) {
        owed = batch.concat(owed);
        throw error;
      }
    }
  }

  function handInSome(name: string, entries: readonly Entry[]): Promise<unknown> {
    const args = entries.flatMap(({ id, atMs }) => [Math.max(0, nowMs() - atMs).toFixed(3), member(id)]);
    return redis.run(scripts.handIn, [keys.log(name)], args, handInMsMax);
  }

  /** One at a time. */
  function handInAll(): Promise<void> {
    handing ??= handIn().finally(() => {
      handing = undefined;
    });
    return handing;
  }

  async function join(): Promise<{ memory: string; complete: boolean }> {
    const live = new Set([...nodes.live(), nodes.id()]);
    const args = [nodes.id(), handedTo, randomId("", 12), completeMs, ...live];
    const answer = await redis.run(scripts.join, [keys.memory, keys.complete, keys.joined, keys.waiting], args, answerMsMax);
    if (!Array.isArray(answer)) throw new Error("Redis gave an answer of another form");
    return { memory: String(answer[0]), complete: answer[1] === 1 };
  }

  async function tick(): Promise<void> {
    if (!redis.connected) return leave("not connected");
    try {
      if (!checked) await check();
      checked = true;
      if (handedTo !== "") await handInAll();
      let { memory, complete } = await join();
      if (memory !== handedTo) {
        state = "joining";
        owed = [...admitted()];
        await handInAll();
        handedTo = memory;
        ({ memory, complete } = await join());
      }
      if (complete && memory === handedTo) {
        enter();
        // Admitted alone while the answer was on its way.
        await handInAll();
      } else {
        leave("other nodes have not handed in their part yet");
        state = "joining";
      }
    } catch (error) {
      leave(error instanceof Error ? error.message : String(error));
    }
  }

  function tickAfter(ms: number): void {
    if (!running) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      ticking = tick().finally(() => tickAfter(state === "complete" ? tickMs.complete : tickMs.otherwise));
    }, ms);
    timer.unref();
  }

  /** Throws unless the server admits two of three requests at a limit of two, and says when the third may come. */
  async function check(): Promise<void> {
    const name = `check:${self}`;
    const run = (one: keyof typeof scripts, logs: string[], args: (string | number)[]) =>
      redis.run(scripts[one], logs, args, handInMsMax);
    await run("handIn", [keys.log(name)], [0, member(0)]);
    // The log itself stands for the mark of completeness.
    const both = [keys.log(name), keys.log(name)];
    const second = readTake(await run("take", both, [2, member(1), excessChannel, ""]));
    const third = readTake(await run("take", both, [2, member(2), excessChannel, ""]));
    await Promise.all([0, 1].map((id) => run("takeBack", [keys.log(name)], [member(id)])));
    const works = second?.admitted && third && !third.admitted && third.waitMs > 50_000 && third.waitMs <= 60_000;
    if (!works) throw new Error("Redis failed the check of the limiter");
  }

  return {
    get complete() {
      return state === "complete";
    },

    async take({ name, id, limit, excess }) {
      const args = [limit, member(id), excessChannel, excess ? `${self} ${name}` : ""];
      try {
        const answer = readTake(await redis.run(scripts.take, [keys.log(name), keys.complete], args, answerMsMax));
        if (!answer) leave("the logs are not complete");
        return answer;
      } catch (error) {
        leave(error instanceof Error ? error.message : String(error));
        return undefined;
      }
    },

    takeBack({ name, id }) {
      if (!redis.connected) return;
      redis.run(scripts.takeBack, [keys.log(name)], [member(id)], handInMsMax).catch(() => undefined);
    },

    owe(entry) {
      owed.push(entry);
      if (redis.connected) handInAll().catch(() => undefined);
    },

    async start() {
      running = true;
      const entered = new Promise<void>((resolve) => {
        onComplete = resolve;
      });
      endings.push(
        redis.subscribe(excessChannel, (message) => {
          const [node, name] = message.split(" ");
          if (node !== self && name !== undefined) onExcess(name);
        }),
        redis.onConnected(() => {
          // Perhaps another server, or one that went back to an older memory under the same name.
          handedTo = "";
          checked = false;
          tickAfter(0);
        }),
      );
      tickAfter(0);
      await Promise.race([entered, new Promise<void>((resolve) => setTimeout(resolve, 1_000).unref())]);
      if (state !== "complete") leave(redis.connected ? "not ready" : "not connected");
    },

    async stop() {
      running = false;
      clearTimeout(timer);
      for (const end of endings) end();
      await ticking;
    },
  };
}

function readTake(answer: unknown): Answer {
  if (!Array.isArray(answer)) throw new Error("Redis gave an answer of another form");
  const [verdict, used, waitMs] = answer.map(Number);
  if (verdict === undefined || used === undefined || waitMs === undefined || verdict < 0) return undefined;
  return { admitted: verdict === 1, used, waitMs };
}

function chunks<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / handInMax) }, (_, index) =>
    all.slice(index * handInMax, (index + 1) * handInMax),
  );
}
