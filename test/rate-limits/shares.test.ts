// What processes that come and go may admit while Redis is away, on a clock that the test moves.

import assert from "node:assert/strict";
import { afterEach, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { createRateLimiter, type RateLimiter } from "../../src/rate-limits/limiter.ts";
import { connectRedis, type Redis } from "../../src/redis/redis.ts";

const log = createLog("silent");
const limit = 60;
const connections: Redis[] = [];
afterEach(async () => {
  for (const redis of connections.splice(0)) await redis.close();
});

/** Nodes that see who runs, and a Redis that is away. */
function startGateway() {
  let nowMs = 1_000_000;
  let live: readonly string[] = [];
  let looks = 0;
  return {
    looks: () => looks,
    /** The ledger shows the nodes that run from now on. */
    run(...ids: string[]): void {
      live = ids;
    },
    pass(ms: number): void {
      nowMs += ms;
    },
    node(id: string): RateLimiter {
      const redis = connectRedis("redis://127.0.0.1:1", log);
      connections.push(redis);
      const nodes = {
        id: () => id,
        live() {
          looks += 1;
          return live;
        },
      };
      return createRateLimiter({ redis, log, answerMsMax: 50, nowMs: () => nowMs, nodes });
    },
  };
}

/** How many of a hundred requests are admitted. */
async function admittedBy(pace: RateLimiter): Promise<number> {
  let count = 0;
  for (let index = 0; index < 100; index++)
    if ((await pace.acquire("rpm:key_a", limit)).admitted) count += 1;
  return count;
}

test("a process that stops takes its share with it for a minute: the others do not admit over what it used", async () => {
  const gateway = startGateway();
  gateway.run("node_a", "node_b");
  const [a, b] = [gateway.node("node_a"), gateway.node("node_b")];
  assert.equal(await admittedBy(b), 30);
  gateway.pass(30_000);
  assert.equal(await admittedBy(a), 30);
  gateway.run("node_b");
  gateway.pass(31_000);
  // What this one admitted has left the window, what the other did has not.
  assert.equal(await admittedBy(b), 30);
  gateway.run("node_b");
  gateway.pass(60_000);
  gateway.run("node_b");
  assert.equal(await admittedBy(b), 60);
});

test("a process that came while nobody asked has a share when somebody does, for a minute after it has gone again", async () => {
  const gateway = startGateway();
  gateway.run("node_a");
  const a = gateway.node("node_a");
  await a.redisSync?.start();
  try {
    gateway.run("node_a", "node_b");
    const b = gateway.node("node_b");
    assert.equal(await admittedBy(b), 30);
    const looks = gateway.looks();
    await vi.waitFor(() => assert.ok(gateway.looks() > looks));
    gateway.run("node_a");
    gateway.pass(30_000);
    assert.equal(await admittedBy(a), 30);
  } finally {
    await a.redisSync?.stop();
  }
});

test("processes that replace one another add no more than one share each, by all that ran in the last minute", async () => {
  const gateway = startGateway();
  gateway.run("node_a", "node_b");
  const [a, b] = [gateway.node("node_a"), gateway.node("node_b")];
  assert.deepEqual([await admittedBy(a), await admittedBy(b)], [30, 30]);
  gateway.pass(5_000);
  gateway.run("node_a", "node_b", "node_c");
  const c = gateway.node("node_c");
  assert.deepEqual([await admittedBy(a), await admittedBy(b), await admittedBy(c)], [0, 0, 20]);
  gateway.pass(5_000);
  gateway.run("node_b", "node_c");
  assert.deepEqual([await admittedBy(b), await admittedBy(c)], [0, 0]);
  gateway.pass(5_000);
  gateway.run("node_b", "node_c", "node_d");
  const d = gateway.node("node_d");
  assert.deepEqual([await admittedBy(b), await admittedBy(c), await admittedBy(d)], [0, 0, 20]);
  // A minute after the last has come, all know of all.
  gateway.pass(61_000);
  gateway.run("node_b", "node_c", "node_d");
  assert.deepEqual([await admittedBy(b), await admittedBy(c), await admittedBy(d)], [20, 20, 20]);
});

test("a process that starts alone serves at once", async () => {
  const gateway = startGateway();
  gateway.run("node_a");
  assert.equal(await admittedBy(gateway.node("node_a")), 60);
});
