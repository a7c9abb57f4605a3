// The windows of several worker processes on one machine, without Redis. They are kept by the
// parent process, so they are exact for the machine. A worker asks in batches: one message for all
// requests of one turn of its event loop. While the ledger lists nodes of other parents, a parent
// counts as one node beside each of these, and admits its share: together never more than a limit
// that is at least as large as the number of parents.

import { BoundedMap } from "../base/bounded-map.ts";
import { shuttingDown } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { type Acquired, createRateLimiter, knownFullMs, type RateLimiter } from "./limiter.ts";

/** What a worker asks. Places are returned before others are acquired. */
export type WindowsRequest = {
  /** Names the request in its reply. */
  readonly id: number;
  readonly cancel: (readonly [name: string, id: number])[];
  readonly acquire: (readonly [name: string, limit: number])[];
  /** The nodes that the ledger lists, when they have changed. */
  live?: readonly string[];
};

export type WindowsReply = {
  readonly id: number;
  /** In the order of the request. */
  readonly acquired: readonly Acquired[];
  /** Other parents have nodes, too: this one admits its share. */
  readonly isDivided?: boolean;
};

export type AnswerWindows = (request: WindowsRequest) => Promise<WindowsReply>;

/**
 * Creates the windows, in the parent. `ownNodes`: every node of the ledger that a worker of this
 * parent is or was, oldest first. `nowMs` must never go back.
 */
export function createSharedWindows(
  log: Log,
  { ownNodes = new Set(), nowMs }: { ownNodes?: ReadonlySet<string>; nowMs?: () => number } = {},
): AnswerWindows {
  // The first node stands for all of them, also when it has ended.
  const self = () => ownNodes.values().next().value ?? "";
  let live: readonly string[] = [];
  const limiter = createRateLimiter({
    nodes: { id: self, live: () => live },
    answerMsMax: 0,
    log,
    ...(nowMs && { nowMs }),
  });
  return async ({ id, cancel, acquire, live: listed }) => {
    if (listed) live = [self(), ...listed.filter((nodeId) => !ownNodes.has(nodeId))];
    for (const [name, place] of cancel) limiter.cancel(name, place);
    const acquired = acquire.map(([name, limit]) => limiter.acquire(name, limit));
    return { id, acquired: await Promise.all(acquired), isDivided: limiter.isDivided() };
  };
}

/** The limiter of a worker. `acquire` rejects with `gateway_unavailable` after `close`. */
export type SharedLimiter = RateLimiter & {
  /** Tells the parent which nodes the ledger lists, whenever `isDivided` or `acquire` is called. */
  follow(liveNodes: () => readonly string[]): void;
  /** Takes a reply of the parent. */
  receive(reply: WindowsReply): void;
  /** The parent is gone: it answers nothing any more. */
  close(): void;
};

const knownMax = 20_000;

type Batch = WindowsRequest & { readonly waiting: PromiseWithResolvers<Acquired>[] };

/** Creates the limiter of a worker, which sends its requests with `send`. */
export function createSharedLimiter(
  send: (request: WindowsRequest) => void,
  nowMs: () => number = () => performance.now(),
): SharedLimiter {
  /** The last refusal under each limit: the limit that was full, and until when that is known. */
  const known = new BoundedMap<string, { limit: number; untilMs: number }>(knownMax);
  const sent = new Map<number, Batch["waiting"]>();
  let lastId = 0;
  let batch: Batch | undefined;
  let isClosed = false;
  let liveNodes: () => readonly string[] = () => told;
  let told: readonly string[] = [];
  let isDivided = false;

  function tellNodes(): void {
    const live = liveNodes();
    if (live === told || isClosed) return;
    told = live;
    openBatch().live = live;
  }

  function openBatch(): Batch {
    if (batch) return batch;
    lastId += 1;
    batch = { id: lastId, cancel: [], acquire: [], waiting: [] };
    setImmediate(flush);
    return batch;
  }

  function flush(): void {
    if (!batch || isClosed) return;
    const { waiting, ...request } = batch;
    batch = undefined;
    sent.set(request.id, waiting);
    send(request);
  }

  return {
    redisWindows: undefined,
    follow(nodes) {
      liveNodes = nodes;
    },
    isDivided() {
      tellNodes();
      return isDivided;
    },
    async acquire(name, limit) {
      if (isClosed) throw shuttingDown();
      tellNodes();
      const { acquire, waiting } = openBatch();
      const answer = Promise.withResolvers<Acquired>();
      acquire.push([name, limit]);
      waiting.push(answer);
      const acquired = await answer.promise;
      if (!acquired.admitted && acquired.waitMs !== undefined)
        known.set(name, { limit, untilMs: nowMs() + Math.min(acquired.waitMs, knownFullMs) });
      return acquired;
    },
    cancel(name, id) {
      known.delete(name);
      if (!isClosed) openBatch().cancel.push([name, id]);
    },
    knownWaitMs(name, limit) {
      const full = known.get(name);
      return full && limit <= full.limit ? Math.max(0, full.untilMs - nowMs()) : 0;
    },
    receive({ id, acquired, isDivided: isNowDivided = false }) {
      isDivided = isNowDivided;
      const waiting = sent.get(id);
      sent.delete(id);
      waiting?.forEach((one, index) => {
        const answer = acquired[index];
        if (answer) one.resolve(answer);
        else one.reject(shuttingDown());
      });
    },
    close() {
      isClosed = true;
      for (const waiting of [batch?.waiting ?? [], ...sent.values()])
        for (const one of waiting) one.reject(shuttingDown());
      sent.clear();
    },
  };
}
