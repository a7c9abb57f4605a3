// Several nodes on one database: each learns the changes of the others.

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { hintChannel } from "../../src/keys/keys.ts";
import { mintSecret } from "../../src/keys/secret.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import { connectRedis, hintsOn } from "../../src/redis/redis.ts";
import {
  bearer,
  countStatements,
  createNodeKeys,
  errorOf,
  keysClient,
  startTestKeys,
} from "../support/keys.ts";
import { redisBinary } from "../support/programs.ts";
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

test("a cached key costs no statement, also with a limit", async () => {
  const { database, client } = fixture;
  const node = startNode();
  const limits = createRateLimits({
    nodes: { id: () => "n", live: () => ["n"] },
    log: createLog("silent"),
  });
  const { secret } = await client.createKey({ accountId: "acc_a", requestsPerMinute: 1_000 });
  await node.authenticate(bearer(secret));
  const before = database.ran.length;
  for (let index = 0; index < 500; index++) {
    const caller = await node.authenticate(bearer(secret));
    expect.assert(caller.kind === "key");
    await limits.acquire(caller.key.keyId, caller.key.requestsPerMinute);
  }
  const ran = database.ran.slice(before).filter((name) => name !== "keys/read-changes");
  expect(ran).toStrictEqual([]);
});

test("a thousand callers with one key that is not cached cost one statement", async () => {
  const { client, database } = fixture;
  const { secret } = await client.createKey({ accountId: "acc_a" });
  const node = createNodeKeys(database);
  const before = database.ran.length;
  await Promise.all(Array.from({ length: 1_000 }, () => node.authenticate(bearer(secret))));
  expect(database.ran.slice(before)).toStrictEqual(["keys/find-secrets"]);
});

test("a flood of invented secrets costs few statements, and a repeated one costs none", async () => {
  const { client, database } = fixture;
  const node = createNodeKeys(database);
  const { secret } = await client.createKey({ accountId: "acc_a" });
  const before = database.ran.length;
  const flood = Array.from({ length: 5_000 }, () => mintSecret(Family.V1));
  const refused = Promise.all(flood.map((one) => errorOf(node.authenticate(bearer(one)))));
  // A real key works meanwhile.
  expect((await node.authenticate(bearer(secret))).kind).toBe("key");
  expect(new Set(await refused)).toStrictEqual(new Set(["invalid_key"]));
  expect.assert(database.ran.length - before <= 30, `${database.ran.length - before} statements`);
  const after = database.ran.length;
  for (const one of flood.slice(0, 100))
    expect(await errorOf(node.authenticate(bearer(one)))).toBe("invalid_key");
  expect(database.ran.length).toBe(after);
});

test("a change on one node is known on every other within a second, and reported there once", async () => {
  const { client } = fixture;
  const nodes = [startNode(), startNode(), startNode()];
  // Before the key is made: the feed may have it before the call has returned.
  let changed = nodes.map((): string[] => []);
  nodes.forEach((node, index) => {
    node.onChanged((change) => void changed[index]?.push(change.keyId));
  });
  const { key, secret } = await client.createKey({ accountId: "acc_a", requestsPerMinute: 5 });
  const keyId = key?.keyId ?? "";
  const reports = () => changed.map((ids) => ids.filter((id) => id === keyId).length);
  const limitAt = async (node: Keys) => {
    const caller = await node.authenticate(bearer(secret));
    return caller.kind === "key" ? caller.key.requestsPerMinute : undefined;
  };
  expect(await Promise.all(nodes.map(limitAt))).toStrictEqual([5, 5, 5]);
  // The feed has the new key, too.
  await vi.waitFor(() => expect(reports()).toStrictEqual([1, 1, 1]), { interval: 20 });
  changed = nodes.map(() => []);
  const writer = nodes[0];
  expect.assert(writer);
  await keysClient(writer).updateKey({
    key: { keyId, requestsPerMinute: 9 },
    updateMask: { paths: ["requests_per_minute"] },
  });
  expect(await limitAt(writer)).toBe(9);
  await vi.waitFor(
    async () => expect(await Promise.all(nodes.map(limitAt))).toStrictEqual([9, 9, 9]),
    {
      timeout: 1_000,
      interval: 20,
    },
  );
  await vi.waitFor(() => expect.assert(reports().every((times) => times > 0)), {
    timeout: 1_000,
    interval: 20,
  });
  // Two more reads repeat the same ten seconds. The writer reports its own change, and the feed it.
  await delay(1_100);
  expect(reports()).toStrictEqual([2, 1, 1]);
});

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

test("a change that commits later than younger ones is found too", async () => {
  const { client, database, url } = fixture;
  const node = startNode();
  const { key, secret } = await client.createKey({ accountId: "acc_a" });
  await node.authenticate(bearer(secret));
  const other = connectPostgres(url);
  try {
    await other.transaction(async (tx) => {
      const text = "insert into key_changes (change_id, key_id) values ('chg_late', $1)";
      await tx.query({ name: "test/late", text }, [key?.keyId]);
      await tx.query(
        { name: "test/late-key", text: "update keys set status = 'revoked' where key_id = $1" },
        [key?.keyId],
      );
      // Meanwhile the node reads the feed, several times and with younger changes in it.
      await client.revokeKey((await client.createKey({ accountId: "acc_a" })).key?.keyId ?? "");
      await delay(1_200);
    });
  } finally {
    await other.close();
  }
  await vi.waitFor(
    async () => expect(await errorOf(node.authenticate(bearer(secret)))).toBe("revoked_key"),
    {
      timeout: 1_000,
      interval: 20,
    },
  );
  expect.assert(database.ran.includes("keys/read-changes"));
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

test("without the database cached keys work, and changes fail with database_unavailable", async () => {
  const { client, url } = fixture;
  const { key, secret } = await client.createKey({ accountId: "acc_a" });
  const broken = { on: false };
  const postgres = connectPostgres(url);
  const node = createNodeKeys({
    ...countStatements(postgres),
    run: (statement, ...values) =>
      broken.on
        ? Promise.reject(new ApiError("database_unavailable"))
        : postgres.run(statement, ...values),
  });
  try {
    await node.authenticate(bearer(secret));
    broken.on = true;
    expect((await node.authenticate(bearer(secret))).kind).toBe("key");
    expect(await errorOf(keysClient(node).getKey("key_a"))).toBe("database_unavailable");
    // The revocation check retries until the database is back.
    const refusal = node.refusalOf(key?.keyId ?? "", key?.secrets[0]?.secretId ?? "");
    await delay(100);
    broken.on = false;
    expect(await refusal).toBe(undefined);
  } finally {
    await postgres.close();
  }
});

test("a database that hangs during a statement counts as unreachable after five seconds", async () => {
  const postgres = connectPostgres(fixture.url);
  const node = keysClient(createNodeKeys(postgres));
  const [backend] = await postgres.query<{ pid: number }>(
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
      const node = createNodeKeys(fixture.database, writer);
      const { key } = await keysClient(node).createKey({ accountId: "acc_a" });
      await keysClient(node).revokeKey(key?.keyId ?? "");
      await vi.waitFor(() => expect(hints).toStrictEqual([1, 1]));
    } finally {
      for (const redis of connections) await redis.close();
      await server.stop();
    }
  });
});
