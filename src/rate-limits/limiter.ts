// At most so many requests in any 60 seconds, exactly, over all nodes.
//
// With Redis, its log of all nodes decides. While it does not answer, a node allows its share of the limit, less what it has admitted in
// the last minute, and less what others are known to have admitted beyond theirs: those tell when they do. So the nodes together stay
// within the limit in the very minute in which Redis goes away: any node i then admits only while
//   own(i) + excess of others < share(i),   and every other node j has own(j) <= share(j) + excess(j).
// While Redis answers but may not know of all, both have to allow a request.

import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import { SharedLogs } from "./redis-sync.ts";
import { decide, type Nodes, Shares, SlidingLog, type Verdict, windowMs } from "./sliding-window.ts";
import type { Entry } from "./store.ts";

/** `allowed`: what the request was measured by. */
export type Taken = Verdict & { allowed: number };

export type Pace = {
  /** Asks for one request under the limit called `name`. */
  take(name: string, limit: number): Promise<Taken>;
  readonly shared: SharedLogs | undefined;
};

type Limit = {
  own: SlidingLog;
  /** What other nodes admitted beyond their shares. */
  excess: SlidingLog;
  /** Asked of Redis and not answered yet. */
  asked: number;
};

export function createPace(parts: {
  redis?: Redis | undefined;
  nodes: Nodes;
  log: Log;
  /** How long Redis may take for a decision, in milliseconds. */
  answerMsMax: number;
  /** Must never go back. */
  nowMs?: () => number;
}): Pace {
  const { redis, nodes, log, answerMsMax, nowMs = () => performance.now() } = parts;
  const limits = new Map<string, Limit>();
  const shares = new Shares(nodes, nowMs);
  let lastId = 0;
  let sweptAtMs = nowMs();

  function limitOf(name: string): Limit {
    let limit = limits.get(name);
    if (!limit) {
      limit = { own: new SlidingLog(), excess: new SlidingLog(), asked: 0 };
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

  const shared =
    redis &&
    new SharedLogs({
      ...{ redis, nodes, shares, log, nowMs, answerMsMax, admitted },
      onExcess: (name) => limitOf(name).excess.add(nowMs(), 0),
    });

  function takeAlone(name: string, id: number, limit: number): Taken {
    const { own, excess } = limitOf(name);
    const atMs = nowMs();
    const allowed = shared ? shares.of(limit) : limit;
    const verdict = decide(own, excess, allowed, atMs);
    if (verdict.admitted) {
      own.add(atMs, id);
      shared?.owe({ name, id, atMs });
    }
    return { ...verdict, allowed };
  }

  async function takeTogether(logs: SharedLogs, name: string, id: number, limit: number): Promise<Taken> {
    const entry = limitOf(name);
    entry.own.forget(nowMs());
    const share = shares.of(limit);
    const excess = entry.own.size + entry.asked >= share;
    if (logs.joining) {
      // What is asked of Redis counts as admitted until it has answered.
      const alone = decide(entry.own, entry.excess, share - entry.asked, nowMs());
      if (!alone.admitted) return { ...alone, allowed: share };
    }
    entry.asked += 1;
    const verdict = await logs.take({ name, id, limit, excess });
    entry.asked -= 1;
    if (verdict) {
      if (verdict.admitted) entry.own.add(nowMs(), id);
      return { ...verdict, allowed: limit };
    }
    const alone = takeAlone(name, id, limit);
    if (!alone.admitted) logs.takeBack({ name, id });
    return alone;
  }

  /** Forgets limits that nobody used for a minute, once a minute. */
  function sweep(): void {
    if (nowMs() - sweptAtMs < windowMs) return;
    sweptAtMs = nowMs();
    for (const [name, { own, excess, asked }] of limits) {
      own.forget(sweptAtMs);
      excess.forget(sweptAtMs);
      if (own.size === 0 && excess.size === 0 && asked === 0) limits.delete(name);
    }
  }

  return {
    shared,
    take(name, limit) {
      sweep();
      lastId += 1;
      if (shared?.complete || shared?.joining) return takeTogether(shared, name, lastId, limit);
      return Promise.resolve(takeAlone(name, lastId, limit));
    },
  };
}
