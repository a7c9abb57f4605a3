// Limits through a Redis Cluster, and through sentinels that promote a replica.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { afterEach, describe, expect, test, vi } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { createRateLimits, type RateLimits } from "../../src/rate-limits/rate-limits.ts";
import { connectRedis, type Redis } from "../../src/redis/redis.ts";
import { createAuthority } from "../support/certificates.ts";
import { redisBinary } from "../support/programs.ts";
import { redisMissing } from "../support/redis.ts";
import {
  startRedisCluster,
  startRedisServer,
  startSentinels,
} from "../support/redis-topologies.ts";

const log = createLog("silent");
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** As NODE_EXTRA_CA_CERTS, until the test ends. */
function trust(authority: Buffer): void {
  const before = getCACertificates("default");
  setDefaultCACertificates([...before, authority.toString()]);
  cleanups.push(() => setDefaultCACertificates(before));
}

/** Processes whose limits are counted together. */
async function startNodes(url: string, names = ["node_1", "node_2"]): Promise<RateLimits[]> {
  const all = names.map((name) => {
    const redis = connectRedis(url, log);
    const limits = createRateLimits({
      redis,
      nodes: { id: () => name, live: () => names },
      log,
      // A busy machine must not decide the test.
      answerMsMax: 1_000,
    });
    cleanups.push(async () => {
      await limits.stop();
      await redis.close();
    });
    return limits;
  });
  await Promise.all(all.map((one) => one.start()));
  return all;
}

const decided = { interval: 50 };

/** The user that docs/operating/high-availability.md shows, for the file of a server. */
function documentedUser(): string {
  const text = readFileSync(
    join(import.meta.dirname, "../../docs/operating/high-availability.md"),
    "utf8",
  );
  const [, user = ""] = /```text\s+(user gateway [^`]*)```/.exec(text) ?? [];
  return user.replaceAll(/\s+/g, " ").trim();
}

/** A message of one connection reaches another one. */
async function expectHints(sender: Redis, receiver: Redis): Promise<void> {
  const received: string[] = [];
  receiver.subscribe("gateway:test", (message) => received.push(message));
  await vi.waitFor(() => {
    sender.publish("gateway:test", "hint");
    expect(received).toContain("hint");
  }, decided);
}

function everySynced(all: readonly RateLimits[]): Promise<void> {
  return vi.waitFor(() => {
    for (const limits of all) expect(limits.state()).toEqual("redis");
  }, decided);
}

/** True if the request is admitted. */
async function tries(limits: RateLimits | undefined, key: string, limit: number): Promise<boolean> {
  try {
    await limits?.acquire(key, limit);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.reason === "rate_limited") return false;
    throw error;
  }
}

describe.skipIf(!redisBinary)(redisBinary ? "with Redis" : redisMissing, () => {
  test("a cluster decides exactly, for every key on one of its servers", async () => {
    const cluster = await startRedisCluster();
    cleanups.push(() => cluster.stop());
    const nodes = await startNodes(cluster.url);
    await everySynced(nodes);
    for (const key of ["key_a", "key_b", "key_c"]) {
      const admitted = await Promise.all(
        Array.from({ length: 30 }, (_, index) => tries(nodes[index % 2], key, 10)),
      );
      expect(admitted.filter((one) => one)).toHaveLength(10);
    }
    // Windows, epoch, mark, nodes: one hash tag, one server.
    const sizes = await Promise.all([0, 1, 2].map((index) => cluster.call(index, "dbsize")));
    expect(sizes.filter((size) => Number(size) > 0)).toHaveLength(1);
  });

  for (const [name, start] of [
    ["one server", startRedisServer],
    ["a cluster", startRedisCluster],
    ["a primary known to sentinels", startSentinels],
  ] as const) {
    test(`${name} is reached over TLS with the documented rights, if Node trusts it`, async () => {
      const authority = createAuthority("of redis");
      const certificate = authority.issue("redis");
      const servers = await start({
        tls: { ...certificate, authority: authority.certificate },
        lines: [documentedUser()],
      });
      cleanups.push(() => servers.stop());
      const url = servers.url.replace("://", "://gateway:SECRET@");
      const stranger = connectRedis(url, log);
      cleanups.push(() => stranger.close());
      await delay(500);
      expect(stranger.connected).toBe(false);
      trust(authority.certificate);
      const [node] = await startNodes(url, ["node_1"]);
      await everySynced(node ? [node] : []);
      expect(await tries(node, "key_a", 1)).toBe(true);
      expect(await tries(node, "key_a", 1)).toBe(false);
      const [sender, receiver] = [connectRedis(url, log), connectRedis(url, log)];
      cleanups.push(
        () => sender.close(),
        () => receiver.close(),
      );
      await expectHints(sender, receiver);
    });
  }

  test("hints of one process reach the others through a cluster", async () => {
    const cluster = await startRedisCluster();
    const [sender, receiver] = [connectRedis(cluster.url, log), connectRedis(cluster.url, log)];
    cleanups.push(
      () => cluster.stop(),
      () => sender.close(),
      () => receiver.close(),
    );
    await expectHints(sender, receiver);
  });

  test("while sentinels promote a replica under load, the limit holds, and Redis decides again", {
    timeout: 900_000,
  }, async () => {
    const sentinels = await startSentinels();
    cleanups.push(() => sentinels.stop());
    const nodes = await startNodes(sentinels.url);
    await everySynced(nodes);
    const limit = 200;
    const admittedAtMs: number[] = [];
    let isOver = false;
    const loads = nodes.map(async (node) => {
      while (!isOver) {
        if (await tries(node, "key_a", limit)) admittedAtMs.push(performance.now());
        await delay(10);
      }
    });
    await vi.waitFor(() => expect(admittedAtMs.length).toBeGreaterThan(30), decided);
    sentinels.kill(0);
    // Sentinels that were delayed for two seconds promote nobody for half a minute.
    const promoted = { timeout: 360_000, interval: 100 };
    await vi.waitFor(async () => {
      expect(String(await sentinels.call(1, "role"))).toMatch(/^master/);
      for (const node of nodes) expect(node.state()).toEqual("redis");
    }, promoted);
    await vi.waitFor(() => expect(admittedAtMs.length).toBeGreaterThanOrEqual(limit), promoted);
    for (let index = 0; index < 50; index++)
      if (await tries(nodes[index % 2], "key_a", limit)) admittedAtMs.push(performance.now());
    isOver = true;
    await Promise.all(loads);
    // Two seconds less than a minute: these are the times of the answers, not of the decisions.
    const inMinute = admittedAtMs.map(
      (startMs) => admittedAtMs.filter((atMs) => atMs >= startMs && atMs < startMs + 58_000).length,
    );
    expect(Math.max(...inMinute)).toBeLessThanOrEqual(limit);
  });
});
