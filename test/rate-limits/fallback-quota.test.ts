// The requests that processes may admit while Redis is unavailable, while other processes start and
// stop, on a clock that the test moves.

import { afterEach, expect, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { createRateLimiter, type RateLimiter } from "../../src/rate-limits/limiter.ts";
import { connectRedis, type Redis } from "../../src/redis/redis.ts";

const log = createLog("silent");
const limit = 60;
const connections: Redis[] = [];
afterEach(async () => {
  for (const redis of connections.splice(0)) await redis.close();
});

/** Nodes that read one list of live nodes, without a reachable Redis. */
function startGateway() {
  let nowMs = 1_000_000;
  let live: readonly string[] = [];
  let reads = 0;
  return {
    /** How often the list of live nodes was read. */
    reads: () => reads,
    /** From now on the ledger lists these nodes. */
    setLive(...ids: string[]): void {
      live = ids;
    },
    advance(ms: number): void {
      nowMs += ms;
    },
    node(id: string): RateLimiter {
      const redis = connectRedis("redis://127.0.0.1:1", log);
      connections.push(redis);
      const nodes = {
        id: () => id,
        live() {
          reads += 1;
          return live;
        },
      };
      return createRateLimiter({ redis, log, answerMsMax: 50, nowMs: () => nowMs, nodes });
    },
  };
}

/** How many of a hundred requests are admitted. */
async function admittedBy(limiter: RateLimiter): Promise<number> {
  let count = 0;
  for (let index = 0; index < 100; index++)
    if ((await limiter.acquire("rpm:key_a", limit)).admitted) count += 1;
  return count;
}

test("the quota of a process that stopped stays reserved for a minute, since its requests still count", async () => {
  const gateway = startGateway();
  gateway.setLive("node_a", "node_b");
  const [a, b] = [gateway.node("node_a"), gateway.node("node_b")];
  expect(await admittedBy(b)).toBe(30);
  gateway.advance(30_000);
  expect(await admittedBy(a)).toBe(30);
  gateway.setLive("node_b");
  gateway.advance(31_000);
  // The requests of this node have expired, those of the other have not.
  expect(await admittedBy(b)).toBe(30);
  gateway.setLive("node_b");
  gateway.advance(60_000);
  gateway.setLive("node_b");
  expect(await admittedBy(b)).toBe(60);
});

test("a process that ran between two requests is known, and its quota is reserved for a minute after it stops", async () => {
  const gateway = startGateway();
  gateway.setLive("node_a");
  const a = gateway.node("node_a");
  await a.redisWindows?.start();
  try {
    gateway.setLive("node_a", "node_b");
    const b = gateway.node("node_b");
    expect(await admittedBy(b)).toBe(30);
    const reads = gateway.reads();
    await vi.waitFor(() => expect.assert(gateway.reads() > reads));
    gateway.setLive("node_a");
    gateway.advance(30_000);
    expect(await admittedBy(a)).toBe(30);
  } finally {
    await a.redisWindows?.stop();
  }
});

test("a process that starts adds at most one quota, computed from all that ran in the last minute", async () => {
  const gateway = startGateway();
  gateway.setLive("node_a", "node_b");
  const [a, b] = [gateway.node("node_a"), gateway.node("node_b")];
  expect([await admittedBy(a), await admittedBy(b)]).toStrictEqual([30, 30]);
  gateway.advance(5_000);
  gateway.setLive("node_a", "node_b", "node_c");
  const c = gateway.node("node_c");
  expect([await admittedBy(a), await admittedBy(b), await admittedBy(c)]).toStrictEqual([0, 0, 20]);
  gateway.advance(5_000);
  gateway.setLive("node_b", "node_c");
  expect([await admittedBy(b), await admittedBy(c)]).toStrictEqual([0, 0]);
  gateway.advance(5_000);
  gateway.setLive("node_b", "node_c", "node_d");
  const d = gateway.node("node_d");
  expect([await admittedBy(b), await admittedBy(c), await admittedBy(d)]).toStrictEqual([0, 0, 20]);
  // A minute after the last start, all nodes know each other.
  gateway.advance(61_000);
  gateway.setLive("node_b", "node_c", "node_d");
  expect([await admittedBy(b), await admittedBy(c), await admittedBy(d)]).toStrictEqual([
    20, 20, 20,
  ]);
});

test("a process that starts alone serves at once", async () => {
  const gateway = startGateway();
  gateway.setLive("node_a");
  expect(await admittedBy(gateway.node("node_a"))).toBe(60);
});
