// Several nodes on one database, in real seconds: how soon each learns the changes of the others,
// and what a database that hangs costs. (propagation.test.ts has the rest.)

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { hintChannel } from "../../src/keys/keys.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { connectRedis, hintsOn } from "../../src/redis/redis.ts";
import { bearer, createNodeKeys, errorOf, keysClient, startTestKeys } from "../support/keys.ts";
import { redisBinary } from "../support/programs.ts";
import { query } from "../support/query.ts";
import { redisMissing, startRedis } from "../support/redis.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
beforeAll(async () => {
  fixture = await startTestKeys();
});
afterAll(() => fixture.drop());

const running: Keys[] = [];
afterEach(async () => {
  for (const keys of running.splice(0)) await keys.stop();
});

function startNode(): Keys {
  const keys = createNodeKeys(fixture.database);
  keys.start();
  running.push(keys);
  return keys;
}

test("a revoked key fails on every node within a second, and other keys of its account work", async () => {
  const { client } = fixture;
  const nodes = [startNode(), startNode(), startNode(), startNode()];
  const revoked = await client.createKey({ accountId: "acc_a" });
  const sibling = await client.createKey({ accountId: "acc_a" });
  for (const node of nodes)
    for (const { secret } of [revoked, sibling]) await node.authenticate(bearer(secret));
  await client.revokeKey(revoked.key?.keyId ?? "");
  await vi.waitFor(
    async () => {
      const reasons = await Promise.all(
        nodes.map((node) => errorOf(node.authenticate(bearer(revoked.secret)))),
      );
      expect(new Set(reasons)).toStrictEqual(new Set(["revoked_key"]));
    },
    { timeout: 1_000, interval: 20 },
  );
  for (const node of nodes)
    expect((await node.authenticate(bearer(sibling.secret))).kind).toBe("key");
});

test("under load a rotation fails no request: the old and the new secret work on every node", async () => {
  const { client } = fixture;
  const nodes = [startNode(), startNode()];
  const first = await client.createKey({ accountId: "acc_a" });
  const keyId = first.key?.keyId ?? "";
  let secrets = [first.secret];
  let failed = 0;
  let served = 0;
  let loading = true;
  const load = nodes.map(async (node) => {
    while (loading) {
      const results = await Promise.allSettled(
        secrets.map((secret) => node.authenticate(bearer(secret))),
      );
      failed += results.filter((one) => one.status === "rejected").length;
      served += results.length;
      await delay(2);
    }
  });
  for (let round = 0; round < 5; round++) {
    const { secret } = await client.rotateKey({ keyId });
    secrets = [...secrets, secret];
    await delay(300);
  }
  loading = false;
  await Promise.all(load);
  expect.assert(served > 100);
  expect(failed).toBe(0);
});

test("a database that hangs during a statement counts as unreachable after five seconds", async () => {
  const postgres = connectPostgres(fixture.url);
  const node = keysClient(createNodeKeys(postgres));
  const [backend] = await query<{ pid: number }>(
    postgres,
    { name: "test/pid", text: "select pg_backend_pid() as pid" },
    [],
  );
  expect.assert(backend);
  process.kill(backend.pid, "SIGSTOP");
  try {
    const sinceMs = performance.now();
    expect(await errorOf(node.revokeKey("key_a"))).toBe("database_unavailable");
    const tookMs = performance.now() - sinceMs;
    expect.assert(tookMs > 4_900 && tookMs < 7_000, `${tookMs} ms`);
    // On another connection.
    expect(await errorOf(node.revokeKey("key_a"))).toBe("not_found key_id");
  } finally {
    process.kill(backend.pid, "SIGCONT");
    await postgres.close();
  }
});

describe.skipIf(!redisBinary)(redisBinary ? "with Redis" : redisMissing, () => {
  test("a change on one node sends a hint to all others", async () => {
    const server = await startRedis();
    const connections = [0, 1, 2].map(() => connectRedis(server.url, createLog("silent")));
    try {
      const [writer, ...readers] = connections;
      const hints = readers.map(() => 0);
      readers.forEach((redis, index) => {
        hintsOn(redis, hintChannel).listen(() => {
          hints[index] = (hints[index] ?? 0) + 1;
        });
      });
      await vi.waitFor(async () => {
        const [, listeners] = [
          await server.command("pubsub", "numsub", "gateway:keys-changed"),
        ].flat();
        expect(listeners).toBe(2);
        expect.assert(connections.every((redis) => redis.connected));
      });
      const node = createNodeKeys(fixture.database, { redis: writer });
      const { key } = await keysClient(node).createKey({ accountId: "acc_a" });
      await keysClient(node).revokeKey(key?.keyId ?? "");
      await vi.waitFor(() => expect(hints).toStrictEqual([1, 1]));
    } finally {
      for (const redis of connections) await redis.close();
      await server.stop();
    }
  });
});
