// The windows of several worker processes on one machine, without Redis. They are kept by the
// parent process, so they are exact for the machine. A worker asks in batches: one message for all
// requests of one turn of its event loop.

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
};

export type WindowsReply = {
  readonly id: number;
  /** In the order of the request. */
  readonly acquired: readonly Acquired[];
};

export type AnswerWindows = (request: WindowsRequest) => Promise<WindowsReply>;

/** Creates the windows, in the parent. `nowMs` must never go back. */
export function createSharedWindows(log: Log, nowMs?: () => number): AnswerWindows {
  const limiter = createRateLimiter({
    nodes: { id: () => "parent", live: () => ["parent"] },
    answerMsMax: 0,
    log,
    ...(nowMs && { nowMs }),
  });
  return async ({ id, cancel, acquire }) => {
    for (const [name, place] of cancel) limiter.cancel(name, place);
    const acquired = acquire.map(([name, limit]) => limiter.acquire(name, limit));
    return { id, acquired: await Promise.all(acquired) };
  };
}

/** The limiter of a worker. `acquire` rejects with `gateway_unavailable` after `close`. */
export type SharedLimiter = RateLimiter & {
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
    if (waiting.length > 0) sent.set(request.id, waiting);
    send(request);
  }

  return {
    redisSync: undefined,
    isDivided: () => false,
    async acquire(name, limit) {
      if (isClosed) throw shuttingDown();
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
    receive({ id, acquired }) {
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
