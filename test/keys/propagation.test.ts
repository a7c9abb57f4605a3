// Several nodes on one database: each learns the changes of the others.

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { mintSecret } from "../../src/keys/secret.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import {
  bearer,
  countStatements,
  createNodeKeys,
  errorOf,
  keysClient,
  startTestKeys,
} from "../support/keys.ts";
import { query } from "../support/query.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
/** Of all nodes. It stands still, except in `soon` and `feedsRead`. */
const clock = new ManualClock({ creeps: true });
beforeAll(async () => {
  fixture = await startTestKeys({ clock });
});
afterAll(() => fixture.drop());

const running: Keys[] = [];
afterEach(async () => {
  for (const keys of running.splice(0)) await keys.stop();
});

function startNode(): Keys {
  const keys = createNodeKeys(fixture.database, { clock });
  keys.start();
  running.push(keys);
  return keys;
}

const soon = (check: () => void | Promise<void>) => passUntil(() => clock.advance(500), check);

/** Lets the feeds of the running nodes be read so often. */
async function feedsRead(times: number): Promise<void> {
  const reads = () => fixture.database.ran.filter((name) => name === "keys/read-changes").length;
  const before = reads();
  await passUntil(
    () => clock.advance(500),
    () => expect(reads() - before).toBeGreaterThanOrEqual(times * running.length),
  );
}

test("a cached key costs no statement, also with a limit", async () => {
  const { database, client } = fixture;
  const node = startNode();
  const limits = createRateLimits({
    nodes: { id: () => "n", live: () => ["n"] },
    log: createLog("silent"),
  });
  const { secret } = await client.createKey({
    accountId: "acc_a",
    settings: { requestsPerMinute: 1_000 },
  });
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

test("a change on one node is known on every other, and reported there once", async () => {
  const { client } = fixture;
  const nodes = [startNode(), startNode(), startNode()];
  // Before the key is made: the feed may have it before the call has returned.
  let changed = nodes.map((): string[] => []);
  nodes.forEach((node, index) => {
    node.onChanged((change) => void changed[index]?.push(change.keyId));
  });
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    settings: { requestsPerMinute: 5 },
  });
  const keyId = key?.keyId ?? "";
  const reports = () => changed.map((ids) => ids.filter((id) => id === keyId).length);
  const limitAt = async (node: Keys) => {
    const caller = await node.authenticate(bearer(secret));
    return caller.kind === "key" ? caller.key.requestsPerMinute : undefined;
  };
  expect(await Promise.all(nodes.map(limitAt))).toStrictEqual([5, 5, 5]);
  // The feed has the new key, too.
  await soon(() => expect(reports()).toStrictEqual([1, 1, 1]));
  changed = nodes.map(() => []);
  const writer = nodes[0];
  expect.assert(writer);
  await keysClient(writer).updateKey({
    keyId,
    settings: { requestsPerMinute: 9 },
    updateMask: { paths: ["requests_per_minute"] },
  });
  expect(await limitAt(writer)).toBe(9);
  await soon(async () => {
    expect(await Promise.all(nodes.map(limitAt))).toStrictEqual([9, 9, 9]);
    expect.assert(reports().every((times) => times > 0));
  });
  // Two more reads repeat the same ten seconds. The writer reports its own change, and the feed it.
  await feedsRead(2);
  expect(reports()).toStrictEqual([2, 1, 1]);
});

test("a revoked key fails on every node, and other keys of its account work", async () => {
  const { client } = fixture;
  const nodes = [startNode(), startNode(), startNode(), startNode()];
  const revoked = await client.createKey({ accountId: "acc_a" });
  const sibling = await client.createKey({ accountId: "acc_a" });
  for (const node of nodes)
    for (const { secret } of [revoked, sibling]) await node.authenticate(bearer(secret));
  await client.revokeKey(revoked.key?.keyId ?? "");
  await soon(async () => {
    const reasons = await Promise.all(
      nodes.map((node) => errorOf(node.authenticate(bearer(revoked.secret)))),
    );
    expect(new Set(reasons)).toStrictEqual(new Set(["revoked_key"]));
  });
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
      await query(tx, { name: "test/late", text }, [key?.keyId]);
      await query(
        tx,
        { name: "test/late-key", text: "update keys set status = 'revoked' where key_id = $1" },
        [key?.keyId],
      );
      // Meanwhile the node reads the feed, several times and with younger changes in it.
      await client.revokeKey((await client.createKey({ accountId: "acc_a" })).key?.keyId ?? "");
      await feedsRead(2);
    });
  } finally {
    await other.close();
  }
  await soon(async () =>
    expect(await errorOf(node.authenticate(bearer(secret)))).toBe("revoked_key"),
  );
  expect.assert(database.ran.includes("keys/read-changes"));
});

test("without the database cached keys work, and changes fail with database_unavailable", async () => {
  const { client, url } = fixture;
  const { key, secret } = await client.createKey({ accountId: "acc_a" });
  const broken = { on: false, calls: 0 };
  const postgres = connectPostgres(url);
  const node = createNodeKeys(
    {
      ...countStatements(postgres),
      run: (statement, ...values) => {
        if (!broken.on) return postgres.run(statement, ...values);
        broken.calls += 1;
        return Promise.reject(new ApiError("database_unavailable"));
      },
    },
    { clock },
  );
  try {
    await node.authenticate(bearer(secret));
    broken.on = true;
    expect((await node.authenticate(bearer(secret))).kind).toBe("key");
    expect(await errorOf(keysClient(node).getKey("key_a"))).toBe("database_unavailable");
    // The revocation check retries until the database is back.
    const before = broken.calls;
    const refusal = node.refusalOf(key?.keyId ?? "", key?.secrets[0]?.secretId ?? "");
    await vi.waitFor(() => expect(broken.calls).toBe(before + 1));
    await clock.advance(250);
    expect(broken.calls).toBe(before + 2);
    broken.on = false;
    await clock.advance(250);
    expect(await refusal).toBe(undefined);
  } finally {
    await postgres.close();
  }
});
