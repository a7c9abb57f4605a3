// Admits at most so many requests in any 60 seconds, over all nodes.
//
// With Redis, its window of all nodes' requests decides. Without an answer from it, a node counts
// its own admissions of the last minute, and admits up to its fallback quota: the whole limit while
// it is alone. README.md says what the nodes together promise then.

import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import { type Entry, RedisWindows } from "./redis-windows.ts";
import {
  decide,
  FallbackQuota,
  type Nodes,
  SlidingWindow,
  type Verdict,
  windowMs,
} from "./sliding-window.ts";

export type Acquired = Verdict & {
  /** Names the request in `cancel`. */
  readonly id: number;
  /** The number that decided: the limit, or this node's fallback quota. */
  readonly quota: number;
};

export type RateLimiter = {
  /**
   * Requests one admission under the limit called `name`. Never rejects because of Redis. Rejects
   * with `gateway_unavailable` in a worker whose parent is gone.
   */
  acquire(name: string, limit: number): Promise<Acquired>;
  /** Returns the place of an admitted request, on all nodes. */
  cancel(name: string, id: number): void;
  /**
   * Milliseconds until one more request can fit, as far as this node knows. 0: it may fit now. Asks
   * nobody: other nodes' requests are known for a second after Redis refused one of this node.
   */
  knownWaitMs(name: string, limit: number): number;
  /** True without Redis while there are other nodes: each admits its share of every limit. */
  isDivided(): boolean;
  readonly redisWindows: RedisWindows | undefined;
};

/** The state of one limit on this node. */
type LimitState = {
  /** Requests that this node admitted, also those that Redis admitted for it. */
  readonly own: SlidingWindow;
  /** Requests sent to Redis that it has not answered yet. */
  pending: number;
  /** The last refusal by Redis: the limit that was full, and until when that is known. */
  full: { readonly limit: number; readonly untilMs: number } | undefined;
};

/**
 * How long a refusal by Redis, or by a parent process, is known: another node may return the place
 * of a request.
 */
export const knownFullMs = 1_000;

export function createRateLimiter(parts: {
  redis?: Redis | undefined;
  nodes: Nodes;
  log: Log;
  /** Longest time that Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** Must never go back. */
  nowMs?: () => number;
}): RateLimiter {
  const { redis, nodes, log, answerMsMax, nowMs = () => performance.now() } = parts;
  const limits = new Map<string, LimitState>();
  const quotas = new FallbackQuota(nodes, nowMs);
  let lastId = 0;
  let sweptAtMs = nowMs();

  function stateOf(name: string): LimitState {
    const known = limits.get(name);
    if (known) return known;
    const state = { own: new SlidingWindow(), pending: 0, full: undefined };
    limits.set(name, state);
    return state;
  }

  function* admittedEntries(): Generator<Entry> {
    for (const [name, { own }] of limits) {
      own.expire(nowMs());
      for (const { atMs, id } of own.entries()) yield { name, id, atMs };
    }
  }

  const isAlone = () => !quotas.isDivided();
  const redisWindows =
    redis && new RedisWindows({ redis, log, nowMs, answerMsMax, admittedEntries, isAlone });

  function acquireAlone(name: string, id: number, limit: number): Acquired {
    const { own } = stateOf(name);
    const atMs = nowMs();
    const quota = quotas.of(limit);
    const verdict = decide(own, quota, atMs);
    if (verdict.admitted) {
      own.add(atMs, id);
      redisWindows?.add({ name, id, atMs });
    }
    return { ...verdict, id, quota };
  }

  async function acquireFromRedis(
    windows: RedisWindows,
    name: string,
    id: number,
    limit: number,
  ): Promise<Acquired> {
    const state = stateOf(name);
    if (!windows.isSynced) {
      const quota = quotas.of(limit);
      // A request that Redis has not answered yet may be admitted: count it.
      const alone = decide(state.own, quota - state.pending, nowMs());
      if (!alone.admitted) return { ...alone, id, quota };
    }
    state.pending += 1;
    const verdict = await windows.acquire(name, id, limit);
    state.pending -= 1;
    if (verdict) {
      if (verdict.admitted) state.own.add(nowMs(), id);
      else if (verdict.waitMs !== undefined)
        state.full = { limit, untilMs: nowMs() + Math.min(verdict.waitMs, knownFullMs) };
      return { ...verdict, id, quota: limit };
    }
    const alone = acquireAlone(name, id, limit);
    if (!alone.admitted) windows.cancel(name, id);
    return alone;
  }

  /** Forgets the limits that were not used for a minute. Runs once a minute. */
  function sweep(): void {
    if (nowMs() - sweptAtMs < windowMs) return;
    sweptAtMs = nowMs();
    for (const [name, { own, pending }] of limits) {
      own.expire(sweptAtMs);
      if (own.size === 0 && pending === 0) limits.delete(name);
    }
  }

  return {
    redisWindows,
    isDivided: () => redisWindows === undefined && quotas.isDivided(),
    cancel(name, id) {
      const state = limits.get(name);
      state?.own.remove(id);
      if (state) state.full = undefined;
      redisWindows?.cancel(name, id);
    },
    knownWaitMs(name, limit) {
      const state = limits.get(name);
      if (!state) return 0;
      const atMs = nowMs();
      if (!redisWindows?.isSynced)
        return decide(state.own, quotas.of(limit), atMs).waitMs ?? knownFullMs;
      // Redis admitted these requests up to `answerMsMax` before this node counted them.
      const ownMs = (decide(state.own, limit, atMs).waitMs ?? knownFullMs) - answerMsMax;
      const { full } = state;
      return Math.max(0, ownMs, full && limit <= full.limit ? full.untilMs - atMs : 0);
    },
    acquire(name, limit) {
      sweep();
      lastId += 1;
      return redisWindows?.isReachable
        ? acquireFromRedis(redisWindows, name, lastId, limit)
        : Promise.resolve(acquireAlone(name, lastId, limit));
    },
  };
}
