// Limits over several nodes and a real Redis that is running, slow, lying, killed, flushed or
// paused. Each test takes less than a minute, so all requests that it admits are in one window:
// their number never exceeds the limit while Redis answers, nor twice the limit where it fails.

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { createRateLimiter } from "../../src/rate-limits/limiter.ts";
import { createRateLimits, type RateLimits } from "../../src/rate-limits/rate-limits.ts";
import { connectRedis, type Redis } from "../../src/redis/redis.ts";
import { readDocument } from "../docs/documents.ts";
import { redisBinary } from "../support/programs.ts";
import { redisMissing, startRedis, startSlowRelay, type TestRedis } from "../support/redis.ts";

const log = createLog("silent");

type Node = { limits: RateLimits; redis: Redis; calls: { count: number } };

// Far above a round trip on a busy machine, for tests that are not about a slow Redis.
const generousMs = 500;

/** Nodes that list each other. Started together: Redis decides only when all have synced. */
async function startNodes(url: string, count: number, answerMsMax = generousMs): Promise<Node[]> {
  const ids = Array.from({ length: count }, (_, index) => `node_${index}`);
  const started = ids.map((id) => {
    const redis = connectRedis(url, log);
    const calls = { count: 0 };
    const counting: Redis = {
      ...redis,
      run: (script, keys, ...rest) => {
        if (keys[0]?.startsWith("{gateway:limits}:window:rpm:")) calls.count += 1;
        return redis.run(script, keys, ...rest);
      },
      get connected() {
        return redis.connected;
      },
    };
    return {
      redis,
      calls,
      limits: createRateLimits({
        redis: counting,
        nodes: { id: () => id, live: () => ids },
        log,
        answerMsMax,
      }),
    };
  });
  await Promise.all(started.map(({ limits }) => limits.start()));
  return started;
}

async function stopNodes(nodes: readonly Node[]): Promise<void> {
  for (const { limits, redis } of nodes) {
    await limits.stop();
    await redis.close();
  }
}

const states = (nodes: readonly Node[]) => nodes.map(({ limits }) => limits.state()).join(" ");
const untilAll = (nodes: readonly Node[], state: string) =>
  vi.waitFor(
    () =>
      expect.assert(
        nodes.every(({ limits }) => limits.state() === state),
        states(nodes),
      ),
    { interval: 10 },
  );

/** True when admitted. */
async function isAdmitted({ limits }: Node, keyId: string, limit: number): Promise<boolean> {
  try {
    await limits.acquire(keyId, limit);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.reason === "rate_limited") return false;
    throw error;
  }
}

/** Sends `count` requests to each node at once. Returns how many each node admitted. */
async function burst(
  nodes: readonly Node[],
  keyId: string,
  limit: number,
  count: number,
): Promise<number[]> {
  return Promise.all(
    nodes.map(async (node) => {
      const admitted = await Promise.all(
        Array.from({ length: count }, () => isAdmitted(node, keyId, limit)),
      );
      return admitted.filter(Boolean).length;
    }),
  );
}

const sum = (all: readonly number[]) => all.reduce((total, one) => total + one, 0);

describe.skipIf(!redisBinary)(redisBinary ? "with Redis" : redisMissing, () => {
  let server: TestRedis;
  let nodes: Node[] = [];
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());
  beforeEach(() => server.flush());
  afterEach(async () => {
    await stopNodes(nodes);
    nodes = [];
  });

  test("four nodes together admit exactly the limit, with one Redis call per request", async () => {
    nodes = await startNodes(server.url, 4);
    expect(states(nodes)).toBe("redis redis redis redis");
    expect(sum(await burst(nodes, "key_a", 50, 40))).toBe(50);
    expect(nodes.map(({ calls }) => calls.count)).toStrictEqual([40, 40, 40, 40]);
  });

  test("one node may use the whole limit, and another node then admits nothing", async () => {
    nodes = await startNodes(server.url, 2);
    const [first, second] = nodes;
    expect.assert(first && second);
    expect([
      await burst([first], "key_a", 20, 30),
      await burst([second], "key_a", 20, 5),
    ]).toStrictEqual([[20], [0]]);
    const error: unknown = await second.limits
      .acquire("key_a", 20)
      .catch((thrown: unknown) => thrown);
    expect.assert(error instanceof ApiError);
    expect.assert(error.facts.retryAfterMs !== undefined && error.facts.retryAfterMs > 50_000);
    expect([error.facts.limit?.used, error.facts.limit?.limit]).toStrictEqual([20n, 20n]);
  });

  test("a place that one node returns is free for another node, and only one request takes it", async () => {
    nodes = await startNodes(server.url, 2);
    const [first, second] = nodes;
    expect.assert(first && second);
    const place = await first.limits.acquire("key_a", 1);
    expect(await isAdmitted(second, "key_a", 1)).toBe(false);
    expect(() => second.limits.check("key_a", 1)).toThrow(
      expect.objectContaining({ reason: "rate_limited" }),
    );
    place?.cancel();
    await vi.waitFor(async () => expect(await isAdmitted(second, "key_a", 1)).toBe(true));
    expect(await isAdmitted(first, "key_a", 1)).toBe(false);
  });

  test("a node that was refused tries again as soon as it has returned a place", async () => {
    nodes = await startNodes(server.url, 1);
    const [node] = nodes;
    expect.assert(node);
    const place = await node.limits.acquire("key_a", 1);
    expect(await isAdmitted(node, "key_a", 1)).toBe(false);
    const refused = expect.objectContaining({ reason: "rate_limited" });
    expect(() => node.limits.check("key_a", 1)).toThrow(refused);
    place?.cancel();
    expect(() => node.limits.check("key_a", 1)).not.toThrow();
  });

  test("a place that was returned while Redis was away never reaches Redis", async () => {
    await server.kill();
    try {
      nodes = await startNodes(server.url, 1);
      const [node] = nodes;
      expect.assert(node);
      const place = await node.limits.acquire("key_a", 2);
      await node.limits.acquire("key_a", 2);
      place?.cancel();
    } finally {
      await server.restart();
    }
    await untilAll(nodes, "redis");
    expect(await server.command("zcard", "{gateway:limits}:window:rpm:key_a")).toBe(1);
  });

  test("failed requests count over all nodes", async () => {
    nodes = await startNodes(server.url, 2);
    const [first, second] = nodes;
    expect.assert(first && second);
    for (let index = 0; index < 60; index++)
      await (index % 2 === 0 ? first : second).limits.recordFailed("key_a", 1, 10);
    for (const { limits } of nodes) {
      // The request after the last that fits shows a node that the window is full.
      await limits.recordFailed("key_a", 1, 10);
      expect(limits.tooManyFailed("key_a", 1)?.reason).toBe("too_many_failed");
    }
  });

  test("an admission carries what remains over all nodes; a key without a limit does not call Redis", async () => {
    nodes = await startNodes(server.url, 2);
    const [first, second] = nodes;
    expect.assert(first && second);
    expect((await first.limits.acquire("key_a", 5))?.rateLimit.remaining).toBe(4);
    expect((await second.limits.acquire("key_a", 5))?.rateLimit.remaining).toBe(3);
    for (let index = 0; index < 100; index++) await first.limits.acquire("key_free", undefined);
    expect([first.calls.count, second.calls.count]).toStrictEqual([1, 1]);
  });

  test("a request that is sixty seconds old by the clock of Redis no longer counts, and the wait is exact", async () => {
    nodes = await startNodes(server.url, 1);
    const [node] = nodes;
    expect.assert(node);
    const time = await server.command("time");
    expect.assert(Array.isArray(time));
    const nowMs = Number(time[0]) * 1000 + Number(time[1]) / 1000;
    const entries = [-60_000, -59_000, -58_500].flatMap((agoMs, index) => [
      (nowMs + agoMs).toFixed(3),
      `other:${index}`,
    ]);
    await server.command("zadd", "{gateway:limits}:window:rpm:key_a", ...entries);
    expect(await burst([node], "key_a", 3, 3)).toStrictEqual([1]);
    const error: unknown = await node.limits.acquire("key_a", 3).catch((thrown: unknown) => thrown);
    expect.assert(error instanceof ApiError && error.facts.retryAfterMs !== undefined);
    expect.assert(error.facts.retryAfterMs > 0 && error.facts.retryAfterMs <= 1_000);
    await delay(error.facts.retryAfterMs + 2);
    expect(await isAdmitted(node, "key_a", 3)).toBe(true);
    expect(await isAdmitted(node, "key_a", 3)).toBe(false);
  });

  test("refused requests leave nothing in Redis, and a window expires a minute after its last request", async () => {
    nodes = await startNodes(server.url, 1);
    await burst(nodes, "key_a", 4, 50);
    expect(await server.command("zcard", "{gateway:limits}:window:rpm:key_a")).toBe(4);
    const life = Number(await server.command("pttl", "{gateway:limits}:window:rpm:key_a"));
    expect.assert(life > 55_000 && life <= 61_000);
  });

  test("a Redis that answers in 20 ms still decides, and the limit holds", async () => {
    const relay = await startSlowRelay(server.port, 10);
    try {
      nodes = await startNodes(`redis://127.0.0.1:${relay.port}`, 2);
      await untilAll(nodes, "redis");
      const [first] = nodes;
      expect.assert(first);
      expect(await burst([first], "key_a", 10, 15)).toStrictEqual([10]);
      expect(sum(await burst(nodes, "key_a", 10, 15))).toBe(0);
    } finally {
      await stopNodes(nodes);
      nodes = [];
      await relay.stop();
    }
  });

  test("with a Redis slower than the bound each node admits its quota, and no request waits longer", async () => {
    const relay = await startSlowRelay(server.port, 200);
    try {
      nodes = await startNodes(`redis://127.0.0.1:${relay.port}`, 3, 50);
      expect(states(nodes)).toBe("degraded degraded degraded");
      expect(await burst(nodes, "key_a", 11, 15)).toStrictEqual([4, 4, 3]);
    } finally {
      await stopNodes(nodes);
      nodes = [];
      await relay.stop();
    }
  });

  test("killed before any request: each node admits its quota, the lowest ids the remainder", async () => {
    nodes = await startNodes(server.url, 4);
    await server.kill();
    await untilAll(nodes, "degraded").finally(() => server.restart());
    expect(await burst(nodes, "key_a", 10, 10)).toStrictEqual([3, 3, 2, 2]);
    await untilAll(nodes, "redis");
    expect(sum(await burst(nodes, "key_a", 10, 10))).toBe(0);
  });

  const outages: { name: string; begin: () => Promise<void>; end: () => Promise<void> }[] = [
    { name: "killed", begin: () => server.kill(), end: () => server.restart() },
    { name: "killed and replaced at once", begin: () => server.restart(), end: async () => {} },
    { name: "flushed", begin: () => server.flush(), end: async () => {} },
    { name: "paused", begin: async () => server.pause(), end: async () => server.resume() },
  ];

  for (const { name, begin, end } of outages) {
    test(`${name} after one node used the whole limit: never more than twice the limit`, async () => {
      nodes = await startNodes(server.url, 3);
      const [first, ...others] = nodes;
      expect.assert(first);
      expect(await burst([first], "key_a", 30, 40)).toStrictEqual([30]);
      try {
        await begin();
        // The others have their quotas; this node has used its own.
        expect(await burst(others, "key_a", 30, 20)).toStrictEqual([10, 10]);
        expect(sum(await burst([first], "key_a", 30, 20))).toBe(0);
      } finally {
        await end();
      }
      await untilAll(nodes, "redis");
      expect(sum(await burst(nodes, "key_a", 30, 20))).toBe(0);
    });

    test(`${name} halfway: requests are admitted meanwhile, and all together stay within the limit`, async () => {
      nodes = await startNodes(server.url, 3);
      const limit = 90;
      const before = sum(await burst(nodes, "key_a", limit, 10));
      expect(before).toBe(30);
      let during = 0;
      try {
        await begin();
        during = sum(await burst(nodes, "key_a", limit, 10));
      } finally {
        await end();
      }
      expect.assert(during > 0);
      await untilAll(nodes, "redis");
      const after = sum(await burst(nodes, "key_a", limit, 100));
      // Not fewer either: synced requests are counted once.
      expect(before + during + after).toBe(limit);
    });

    test(`${name} under random arrivals: the limit is used, and never twice`, async () => {
      nodes = await startNodes(server.url, 3);
      const limit = 60;
      let admitted = 0;
      let arriving = true;
      const arrivals = nodes.map(async (node, index) => {
        while (arriving) {
          // One node has half of the traffic.
          await delay(Math.random() * (index === 0 ? 20 : 40));
          if (await isAdmitted(node, "key_a", limit)) admitted += 1;
        }
      });
      await delay(300);
      try {
        await begin();
        await delay(700);
      } finally {
        await end();
      }
      await untilAll(nodes, "redis");
      await delay(1_000);
      arriving = false;
      await Promise.all(arrivals);
      await burst(nodes, "key_a", limit, 60);
      expect(admitted).toBeLessThanOrEqual(2 * limit);
      expect(admitted).toBeGreaterThanOrEqual(limit / 2);
    });
  }

  test("after a long pause Redis decides only when every node has synced again", async () => {
    nodes = await startNodes(server.url, 3);
    expect(sum(await burst(nodes, "key_a", 30, 3))).toBe(9);
    server.pause();
    try {
      expect(sum(await burst(nodes.slice(0, 2), "key_a", 30, 5)) > 0).toBeTruthy();
      // The synced mark lives for three seconds.
      await delay(3_300);
    } finally {
      server.resume();
    }
    await untilAll(nodes, "degraded");
    await untilAll(nodes, "redis");
    const stored = Number(await server.command("zcard", "{gateway:limits}:window:rpm:key_a"));
    expect(sum(await burst(nodes, "key_a", 30, 40))).toBe(30 - stored);
  });

  test("a node that starts without Redis admits its quota at once, and syncs when Redis starts", async () => {
    await server.kill();
    try {
      nodes = await startNodes(server.url, 2);
      expect(await burst(nodes, "key_a", 9, 9)).toStrictEqual([5, 4]);
    } finally {
      await server.restart();
    }
    await untilAll(nodes, "redis");
    expect(sum(await burst(nodes, "key_a", 12, 12))).toBe(3);
  });

  test("a Redis that may not run scripts fails the self-check: one clear warning, and fallback quotas", async () => {
    await server.command(
      "acl",
      "setuser",
      "weak",
      "on",
      ">weak-password",
      "+@all",
      "-eval",
      "-evalsha",
      "~*",
      "&*",
    );
    const warnings: string[] = [];
    const watched = createLog("warn");
    const warn = vi
      .spyOn(watched, "warn")
      .mockImplementation((...args: unknown[]) => void warnings.push(JSON.stringify(args)));
    const redis = connectRedis(`redis://weak:weak-password@127.0.0.1:${server.port}`, watched);
    const limits = createRateLimits({
      redis,
      nodes: { id: () => "node_0", live: () => ["node_0"] },
      log: watched,
    });
    try {
      await limits.start();
      expect(limits.state()).toBe("degraded");
      expect((await limits.acquire("key_a", 3))?.rateLimit.remaining).toBe(2);
      expect(warnings.length).toBe(1);
      expect(warnings[0] ?? "").toMatch(/not enforced through Redis/);
      expect.assert(!warnings.join().includes("weak-password"));
    } finally {
      warn.mockRestore();
      await limits.stop();
      await redis.close();
    }
  });

  test("the rights that the documents name are enough", async () => {
    const text = readDocument("docs/operating/high-availability.md");
    const [, rights = ""] = /user gateway on >SECRET ([^`]*)```/.exec(text) ?? [];
    const own = rights.split(/\s+/).filter((right) => right !== "" && !right.includes("cluster"));
    await server.command("acl", "setuser", "gateway", "reset", "on", ">SECRET", ...own);
    nodes = await startNodes(`redis://gateway:SECRET@127.0.0.1:${server.port}`, 2);
    expect(states(nodes)).toBe("redis redis");
    expect(sum(await burst(nodes, "key_a", 5, 10))).toBe(5);
  });

  test("for a second after Redis lost its data, it and the quota both must admit", async () => {
    nodes = await startNodes(server.url, 2);
    const [first, second] = nodes;
    expect.assert(first && second);
    expect(await burst([first], "key_a", 30, 20)).toStrictEqual([20]);
    await server.flush();
    await untilAll(nodes, "degraded");
    // Redis has the 20 of the first node again; the quota of that node is used.
    expect(await burst([first], "key_a", 30, 20)).toStrictEqual([0]);
    expect(await burst([second], "key_a", 40, 40)).toStrictEqual([20]);
    await untilAll(nodes, "redis");
    expect(sum(await burst(nodes, "key_a", 30, 20))).toBe(0);
  });

  test("in that second, requests that Redis has not answered count against the quota", async () => {
    const redis = connectRedis(server.url, log);
    // The second does not end: the clock stands still.
    const limiter = createRateLimiter({
      ...{ redis, log, answerMsMax: generousMs, nowMs: () => 1_000 },
      nodes: { id: () => "node_0", live: () => ["node_0", "node_1"] },
    });
    try {
      await limiter.redisWindows?.start();
      expect.assert(limiter.redisWindows?.isReachable && !limiter.redisWindows.isSynced);
      const asked = Array.from({ length: 20 }, () => limiter.acquire("rpm:key_a", 10));
      const admitted = (await Promise.all(asked)).filter((one) => one.admitted);
      expect(admitted.map(({ quota }) => quota)).toStrictEqual(Array(5).fill(10));
      expect((await limiter.acquire("rpm:key_a", 10)).admitted).toBe(false);
    } finally {
      await limiter.redisWindows?.stop();
      await redis.close();
    }
  });

  test("killed again while nodes come back: never more than twice the limit", async () => {
    nodes = await startNodes(server.url, 3);
    const limit = 30;
    let admitted = sum(await burst(nodes, "key_a", limit, 8));
    for (let outage = 0; outage < 3; outage++) {
      await server.restart();
      await untilAll(nodes, "degraded");
      admitted += sum(await burst(nodes, "key_a", limit, 40));
    }
    await untilAll(nodes, "redis");
    admitted += sum(await burst(nodes, "key_a", limit, 40));
    expect(admitted).toBeGreaterThanOrEqual(limit);
    expect(admitted).toBeLessThanOrEqual(2 * limit);
  });

  test("a node that the ledger lists and that is dead delays nobody", async () => {
    nodes = await startNodes(server.url, 1);
    await stopNodes(nodes);
    nodes = [];
    const redis = connectRedis(server.url, log);
    const ids = ["node_0", "node_1"];
    const limits = createRateLimits({ redis, nodes: { id: () => "node_1", live: () => ids }, log });
    nodes = [{ redis, limits, calls: { count: 0 } }];
    await limits.start();
    expect(limits.state()).toBe("redis");
  });

  test.each([
    ["OK"],
    [[1]],
    [["one", "two", "three"]],
    [[1, -5, 0]],
    [[0, 3, "soon"]],
    [[7, 1, 0]],
    [[1, 1, 0]],
  ])("a Redis that answers %j to everything is not believed", async (answer) => {
    const redis: Redis = {
      ...connectRedis(server.url, log),
      connected: true,
      run: async () => answer,
    };
    const ids = ["node_0", "node_1"];
    const limits = createRateLimits({ redis, nodes: { id: () => "node_0", live: () => ids }, log });
    nodes = [{ redis, limits, calls: { count: 0 } }];
    await limits.start();
    expect(limits.state()).toBe("degraded");
    expect(await burst(nodes, "key_a", 10, 20)).toStrictEqual([5]);
  });
});
