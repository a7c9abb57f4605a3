// Admits at most so many requests in any 60 seconds, exactly, over all nodes.
//
// With Redis, its window of all nodes' requests decides. While Redis is unavailable, a node admits
// requests up to its fallback quota, counting its own admissions of the last minute and the
// overage: the requests that other nodes admitted beyond their own quota, which they publish. So
// the nodes together stay within the limit also in the minute in which Redis fails: any node i then
// admits only while
//   own(i) + overage of the others < quota(i),
// and every other node j has own(j) <= quota(j) + overage(j).
// While Redis answers but not all nodes have synced with it, both rules must admit a request.
// Without Redis at all, a node admits its fallback quota: the whole limit while it is alone.

import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import { RedisSync } from "./redis-sync.ts";
import {
  decide,
  FallbackQuota,
  type Nodes,
  SlidingWindow,
  type Verdict,
  windowMs,
} from "./sliding-window.ts";
import type { Entry } from "./store.ts";

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
  readonly redisSync: RedisSync | undefined;
};

/** The state of one limit on this node. */
type LimitState = {
  /** Requests that this node admitted, also those that Redis admitted for it. */
  readonly own: SlidingWindow;
  /** Requests that other nodes admitted beyond their fallback quotas. */
  readonly overage: SlidingWindow;
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
    let state = limits.get(name);
    if (!state) {
      state = {
        own: new SlidingWindow(),
        overage: new SlidingWindow(),
        pending: 0,
        full: undefined,
      };
      limits.set(name, state);
    }
    return state;
  }

  function* admittedEntries(): Generator<Entry> {
    for (const [name, { own }] of limits) {
      own.expire(nowMs());
      for (const { atMs, id } of own.entries()) yield { name, id, atMs };
    }
  }

  const redisSync =
    redis &&
    new RedisSync({
      redis,
      nodes,
      quotas,
      log,
      nowMs,
      answerMsMax,
      admittedEntries,
      onOverage: (name) => stateOf(name).overage.add(nowMs(), 0),
    });

  function acquireAlone(name: string, id: number, limit: number): Acquired {
    const { own, overage } = stateOf(name);
    const atMs = nowMs();
    const quota = quotas.of(limit);
    const verdict = decide(own, overage, quota, atMs);
    if (verdict.admitted) {
      own.add(atMs, id);
      redisSync?.addUnsynced({ name, id, atMs });
    }
    return { ...verdict, id, quota };
  }

  async function acquireFromRedis(
    sync: RedisSync,
    name: string,
    id: number,
    limit: number,
  ): Promise<Acquired> {
    const state = stateOf(name);
    state.own.expire(nowMs());
    const quota = quotas.of(limit);
    const isOverage = state.own.size + state.pending >= quota;
    if (sync.isRegistering) {
      // A request that Redis has not answered yet may be admitted: count it.
      const alone = decide(state.own, state.overage, quota - state.pending, nowMs());
      if (!alone.admitted) return { ...alone, id, quota };
    }
    state.pending += 1;
    const verdict = await sync.acquire({ name, id, limit, isOverage });
    state.pending -= 1;
    if (verdict) {
      if (verdict.admitted) state.own.add(nowMs(), id);
      else if (verdict.waitMs !== undefined)
        state.full = { limit, untilMs: nowMs() + Math.min(verdict.waitMs, knownFullMs) };
      return { ...verdict, id, quota: limit };
    }
    const alone = acquireAlone(name, id, limit);
    if (!alone.admitted) sync.cancel({ name, id });
    return alone;
  }

  function cancel(name: string, id: number): void {
    const state = limits.get(name);
    if (state) {
      state.own.remove(id);
      state.full = undefined;
    }
    redisSync?.cancel({ name, id });
  }

  function knownWaitMs(name: string, limit: number): number {
    const state = limits.get(name);
    if (!state) return 0;
    const atMs = nowMs();
    if (!redisSync?.isSynced) {
      return decide(state.own, state.overage, quotas.of(limit), atMs).waitMs ?? knownFullMs;
    }
    // Redis admitted these requests up to `answerMsMax` before this node counted them.
    const ownMs = (decide(state.own, undefined, limit, atMs).waitMs ?? knownFullMs) - answerMsMax;
    const { full } = state;
    return Math.max(0, ownMs, full && limit <= full.limit ? full.untilMs - atMs : 0);
  }

  /** Forgets the limits that were not used for a minute. Runs once a minute. */
  function sweep(): void {
    if (nowMs() - sweptAtMs < windowMs) return;
    sweptAtMs = nowMs();
    for (const [name, { own, overage, pending }] of limits) {
      own.expire(sweptAtMs);
      overage.expire(sweptAtMs);
      if (own.size === 0 && overage.size === 0 && pending === 0) limits.delete(name);
    }
  }

  return {
    redisSync,
    isDivided: () => redisSync === undefined && quotas.isDivided(),
    cancel,
    knownWaitMs,
    acquire(name, limit) {
      sweep();
      lastId += 1;
      if (redisSync?.isSynced || redisSync?.isRegistering)
        return acquireFromRedis(redisSync, name, lastId, limit);
      return Promise.resolve(acquireAlone(name, lastId, limit));
    },
  };
}
