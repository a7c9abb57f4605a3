// Which secrets are found, used, rotated and revoked, beside those of other keys. The time of the
// database stands still, so that rows stand exactly at the border of each condition.

import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import * as sql from "../../gen/sql/keys.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date();
const after = (ms: number) => new Date(now.getTime() + ms);
const [minute, hour] = [60_000, 3_600_000];

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());
beforeEach(async () => {
  for (const table of ["key_changes", "key_secrets", "budgets", "keys", "accounts"])
    await run(`delete from ${table}`);
  for (const account of ["acc_1", "acc_2"])
    await run("insert into accounts (account_id, name) values ($1, $1)", [account]);
});

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

type Key = {
  readonly accountId?: string;
  readonly family?: string;
  readonly status?: "active" | "revoked";
  readonly paused?: boolean;
  readonly expiresAt?: Date | null;
  readonly managedBy?: string;
};
async function key(keyId: string, more: Key = {}): Promise<string> {
  const { accountId = "acc_1", family = "v1", status = "active", paused = false } = more;
  const { expiresAt = null, managedBy = "" } = more;
  await run(
    `insert into keys (key_id, account_id, family, name, status, paused, expires_at, managed_by)
     values ($1, $2, $3, 'test', $4, $5, $6, $7)`,
    [keyId, accountId, family, status, paused, expiresAt, managedBy],
  );
  await budget(keyId, { accountId, family });
  return keyId;
}

const limitNames = ["day", "week", "month", "total", "running"] as const;
async function budget(
  payer: string,
  { accountId = "acc_1", family = "v1" }: Pick<Key, "accountId" | "family">,
  limit?: (typeof limitNames)[number],
): Promise<void> {
  const column = limit === undefined ? "" : `, ${limit}_limit`;
  await run(
    `insert into budgets (account_id, family, payer${column})
     values ($1, $2, $3${limit === undefined ? "" : ", 7"})
     on conflict (account_id, family, payer) do update set day = excluded.day
       ${limit === undefined ? "" : `, ${limit}_limit = 7`}`,
    [accountId, family, payer],
  );
}

type Secret = {
  readonly createdAt?: Date;
  readonly expiresAt?: Date | null;
  readonly revokedAt?: Date | null;
  readonly usedAt?: Date | null;
};
const digestOf = (secretId: string) => Buffer.from(`digest of ${secretId}`);
async function secret(keyId: string, secretId: string, more: Secret = {}): Promise<string> {
  const { createdAt = after(-hour), expiresAt = null, revokedAt = null, usedAt = null } = more;
  await run(
    `insert into key_secrets
       (digest, secret_id, key_id, shown, created_at, expires_at, revoked_at, last_used_at)
     values ($1, $2, $3, $2, $4, $5, $6, $7)`,
    [digestOf(secretId), secretId, keyId, createdAt, expiresAt, revokedAt, usedAt],
  );
  return secretId;
}

const find = async (...secretIds: string[]) => {
  const found = await postgres.run(sql.findSecrets, { digests: secretIds.map(digestOf) });
  const rows = new Map(found.map((row) => [row.secretId, row]));
  expect(found).toHaveLength(rows.size);
  return rows;
};

/** What has become of the secrets, by their ids, and which keys were announced. */
async function stored() {
  const rows = await run<{ id: string; expires: Date | null; revoked: Date | null }>(
    "select secret_id as id, expires_at as expires, revoked_at as revoked from key_secrets",
  );
  const changes = await run<{ change: string; key: string }>(
    "select change_id as change, key_id as key from key_changes",
  );
  return {
    secrets: Object.fromEntries(rows.map(({ id, expires, revoked }) => [id, [expires, revoked]])),
    changes: changes.map(({ change, key: of }) => [change, of]),
  };
}

test("a secret is found by its digest, with its key's status and the sooner of their ends", async () => {
  const cases: [Key, Secret, string, number | null][] = [
    [{}, {}, "active", null],
    [{}, { expiresAt: after(hour) }, "active", hour],
    [{ expiresAt: after(1) }, { expiresAt: after(hour) }, "active", 1],
    [{ expiresAt: after(2 * hour) }, { expiresAt: after(hour) }, "active", hour],
    [{ expiresAt: now }, {}, "expired", 0],
    [{ expiresAt: after(-1), paused: true }, {}, "expired", -1],
    [{ paused: true }, { expiresAt: after(-hour) }, "paused", -hour],
    [{ status: "revoked", paused: true, expiresAt: now }, {}, "revoked", 0],
  ];
  for (const [index, [ofKey, ofSecret]] of cases.entries())
    await secret(await key(`key_${index}`, ofKey), `sec_${index}`, ofSecret);
  await run("update accounts set status = 'suspended' where account_id = 'acc_1'");
  const last = `sec_${cases.length - 1}`;
  const found = await find(...cases.map((_, index) => `sec_${index}`), "unknown");
  expect(found.size).toBe(cases.length);
  for (const [index, [, , status, ms]] of cases.entries()) {
    const row = found.get(`sec_${index}`);
    expect([row?.keyId, row?.status]).toEqual([`key_${index}`, status]);
    expect(row?.accountStatus).toBe("suspended");
    if (ms === null) expect(row?.expiresInMs).toBeNull();
    // It is measured from the real time, shortly after the one that stands still.
    else expect(Math.abs(Number(row?.expiresInMs) - ms)).toBeLessThan(hour / 2);
  }
  expect([...(await find(last)).keys()]).toEqual([last]);
});

test("a use is due when the last one is more than a minute old, and is recorded then", async () => {
  const uses = { a: null, b: after(-minute - 1), c: after(-minute), d: after(-minute + 1) };
  const keyId = await key("key_1");
  for (const [id, usedAt] of Object.entries(uses)) await secret(keyId, id, { usedAt });
  await secret(keyId, "other", { usedAt: after(-hour) });
  const ids = Object.keys(uses);
  const found = await find(...ids);
  expect(ids.filter((id) => found.get(id)?.useIsDue)).toEqual(["a", "b"]);
  await postgres.run(sql.recordUses, { secretIds: ids });
  const rows = await run<{ id: string; at: Date }>(
    "select secret_id as id, last_used_at as at from key_secrets order by 1",
  );
  expect(rows.map(({ id, at }) => [id, at])).toEqual([
    ["a", now],
    ["b", now],
    ["c", uses.c],
    ["d", uses.d],
    ["other", after(-hour)],
  ]);
});

test("a key is limited by its own budget, and by that of its manager in its pool", async () => {
  const manager = "person:per_1";
  const isLimited = async (id: string) => (await find(id)).get(id)?.isLimited;
  for (const limit of limitNames) {
    await secret(await key(`key_${limit}`), limit);
    await budget(`key_${limit}`, {}, limit);
    const row = (await find(limit)).get(limit);
    expect([row?.isLimited, row?.[`${limit}Limit`]].map(String)).toEqual(["true", "7"]);
  }
  await secret(await key("key_free", { managedBy: manager }), "free");
  await secret(await key("key_none"), "none");
  // Budgets of other pools, and of others.
  await budget(manager, { family: "v2" }, "day");
  await budget(manager, { accountId: "acc_2" }, "day");
  await budget("person:per_2", {}, "day");
  for (const payer of ["key_free", "key_none"]) {
    await budget(payer, { family: "v2" }, "day");
    await budget(payer, { accountId: "acc_2" }, "day");
  }
  await budget(manager, {});
  expect([await isLimited("free"), await isLimited("none")]).toEqual([false, false]);
  await budget(manager, {}, "day");
  expect([await isLimited("free"), await isLimited("none")]).toEqual([true, false]);
});

test("of the secrets of a key, the newest twenty are listed and every one that is valid", async () => {
  const [one, other] = [await key("key_1"), await key("key_2")];
  const ends: [string, Secret][] = [
    ["valid", {}],
    ["ending", { expiresAt: after(1) }],
    ["ended", { expiresAt: now }],
    ["revoked", { revokedAt: now }],
    ["both", { revokedAt: now, expiresAt: after(hour) }],
  ];
  for (const [id, more] of ends) await secret(one, id, { ...more, createdAt: after(-hour) });
  // Those of one moment are in the order of their ids.
  const newest = Array.from({ length: 20 }, (_, index) => `n${String(index).padStart(2, "0")}`);
  for (const [index, id] of newest.entries())
    await secret(one, id, { createdAt: after(-minute + Math.floor(index / 2)), revokedAt: now });
  await secret(other, "its own", { revokedAt: now });
  await secret(await key("key_3"), "of another");
  const rows = await postgres.run(sql.readSecrets, { keyIds: [other, one] });
  expect(rows.map(({ keyId, secretId }) => [keyId, secretId])).toEqual([
    ...newest.toReversed().map((id) => [one, id]),
    ...[
      [one, "valid"],
      [one, "ending"],
    ],
    [other, "its own"],
  ]);
});

test("secrets of an active key live until they are revoked, also past their end", async () => {
  for (const [keyId, more] of Object.entries({
    key_1: {},
    key_2: { status: "revoked" } as const,
  })) {
    await key(keyId, more);
    await secret(keyId, `${keyId} good`);
    await secret(keyId, `${keyId} ended`, { expiresAt: after(-hour) });
    await secret(keyId, `${keyId} revoked`, { revokedAt: after(-hour) });
  }
  await run("update accounts set status = 'suspended' where account_id = 'acc_1'");
  const live = async (keyId: string) =>
    (await postgres.run(sql.readLiveSecrets, { keyId })).map((row) => Object.values(row));
  expect((await live("key_1")).sort()).toEqual([
    ["key_1 ended", "suspended"],
    ["key_1 good", "suspended"],
  ]);
  expect(await live("key_2")).toEqual([]);
  const has = async (keyId: string, secretId: string) =>
    (await postgres.run(sql.hasSecret, { keyId, secretId }))?.secretId;
  expect(await has("key_1", "key_1 revoked")).toBe("key_1 revoked");
  expect(await has("key_2", "key_1 revoked")).toBeUndefined();
  expect(await has("key_1", "unknown")).toBeUndefined();
});

test("a rotation ends the earlier secrets of its key alone, and none later than they would", async () => {
  for (const keyId of ["key_1", "key_2"]) {
    await key(keyId);
    await secret(keyId, `${keyId} endless`);
    await secret(keyId, `${keyId} sooner`, { expiresAt: after(999) });
    await secret(keyId, `${keyId} later`, { expiresAt: after(1_001) });
    await secret(keyId, `${keyId} revoked`, { revokedAt: after(-1) });
  }
  await secret(await key("key_gone", { status: "revoked" }), "gone");
  const rotate = (keyId: string) =>
    postgres.run(sql.rotateKey, {
      ...{ keyId, overlapMs: 1_000, digest: digestOf(`new ${keyId}`), secretId: `new ${keyId}` },
      ...{ hint: "hint", changeId: `change ${keyId}` },
    });
  const before = await stored();
  for (const keyId of ["key_1", "key_gone", "unknown"]) await rotate(keyId);
  const { secrets, changes } = await stored();
  expect(changes).toEqual([["change key_1", "key_1"]]);
  expect(secrets).toEqual({
    ...before.secrets,
    "key_1 endless": [after(1_000), null],
    "key_1 later": [after(1_000), null],
    "new key_1": [null, null],
  });
  expect((await find("new key_1")).get("new key_1")).toMatchObject({
    ...{ keyId: "key_1", hint: "hint" },
  });
});

test("one secret of its key is revoked, once", async () => {
  for (const keyId of ["key_1", "key_2"]) {
    await key(keyId);
    for (const name of ["a", "b"]) await secret(keyId, `${keyId} ${name}`);
  }
  await secret("key_1", "revoked", { revokedAt: after(-hour) });
  const before = await stored();
  const revoke = (keyId: string, secretId: string) =>
    postgres.run(sql.revokeSecret, { keyId, secretId, changeId: `${keyId} ${secretId}` });
  await revoke("key_2", "key_1 a");
  await revoke("key_1", "revoked");
  expect(await stored()).toEqual(before);
  await revoke("key_1", "key_1 a");
  expect(await stored()).toEqual({
    secrets: { ...before.secrets, "key_1 a": [null, now] },
    changes: [["key_1 key_1 a", "key_1"]],
  });
});
