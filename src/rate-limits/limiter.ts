// At most so many requests in any 60 seconds, exactly, over all nodes.
//
// With Redis, its log of all nodes decides. While it does not answer, a node allows its share of
// the limit, less what it has admitted in the last minute, and less what others are known to have
// admitted beyond theirs: those tell when they do. So the nodes together stay within the limit in
// the very minute in which Redis goes away: any node i then admits only while
//   own(i) + excess of others < share(i),
// and every other node j has own(j) <= share(j) + excess(j).
// While Redis answers but may not know of all, both have to allow a request.

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

/** `allowed`: what the request was measured by. */
export type Acquired = Verdict & { quota: number };

export type RateLimiter = {
  /** Asks for one request under the limit called `name`. */
  acquire(name: string, limit: number): Promise<Acquired>;
  readonly redisSync: RedisSync | undefined;
};

type Limit = {
  own: SlidingWindow;
  /** What other nodes admitted beyond their shares. */
  overage: SlidingWindow;
  /** Asked of Redis and not answered yet. */
  pending: number;
};

export function createRateLimiter(parts: {
  redis?: Redis | undefined;
  nodes: Nodes;
  log: Log;
  /** How long Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** Must never go back. */
  nowMs?: () => number;
}): RateLimiter {
  const { redis, nodes, log, answerMsMax, nowMs = () => performance.now() } = parts;
  const limits = new Map<string, Limit>();
  const shares = new FallbackQuota(nodes, nowMs);
  let lastId = 0;
  let sweptAtMs = nowMs();

  function limitOf(name: string): Limit {
    let limit = limits.get(name);
    if (!limit) {
      limit = { own: new SlidingWindow(), overage: new SlidingWindow(), pending: 0 };
      limits.set(name, limit);
    }
    return limit;
  }

  function* admitted(): Generator<Entry> {
    for (const [name, { own }] of limits) {
      own.forget(nowMs());
      for (const { atMs, id } of own.entries()) yield { name, id, atMs };
    }
  }

  const redisSync =
    redis &&
    new RedisSync({
      ...{ redis, nodes, shares, log, nowMs, answerMsMax, admitted },
      onExcess: (name) => limitOf(name).overage.add(nowMs(), 0),
    });

  function acquireLocally(name: string, id: number, limit: number): Acquired {
    const { own, overage } = limitOf(name);
    const atMs = nowMs();
    const quota = redisSync ? shares.of(limit) : limit;
    const verdict = decide(own, overage, quota, atMs);
    if (verdict.admitted) {
      own.add(atMs, id);
      redisSync?.addUnsynced({ name, id, atMs });
    }
    return { ...verdict, quota };
  }

  async function acquireWithRedis(
    logs: RedisSync,
    name: string,
    id: number,
    limit: number,
  ): Promise<Acquired> {
    const entry = limitOf(name);
    entry.own.forget(nowMs());
    const share = shares.of(limit);
    const overage = entry.own.size + entry.pending >= share;
    if (logs.registering) {
      // What is asked of Redis counts as admitted until it has answered.
      const alone = decide(entry.own, entry.overage, share - entry.pending, nowMs());
      if (!alone.admitted) return { ...alone, quota: share };
    }
    entry.pending += 1;
    const verdict = await logs.acquire({ name, id, limit, overage });
    entry.pending -= 1;
    if (verdict) {
      if (verdict.admitted) entry.own.add(nowMs(), id);
      return { ...verdict, quota: limit };
    }
    const alone = acquireLocally(name, id, limit);
    if (!alone.admitted) logs.cancel({ name, id });
    return alone;
  }

  /** Forgets limits that nobody used for a minute, once a minute. */
  function sweep(): void {
    if (nowMs() - sweptAtMs < windowMs) return;
    sweptAtMs = nowMs();
    for (const [name, { own, overage, pending }] of limits) {
      own.forget(sweptAtMs);
      overage.forget(sweptAtMs);
      if (own.size === 0 && overage.size === 0 && pending === 0) limits.delete(name);
    }
  }

  return {
    redisSync,
    acquire(name, limit) {
      sweep();
      lastId += 1;
      if (redisSync?.synced || redisSync?.registering)
        return acquireWithRedis(redisSync, name, lastId, limit);
      return Promise.resolve(acquireLocally(name, lastId, limit));
    },
  };
}
