// Keys that pause, keys that expire, and when a secret was last used.

import { create } from "@bufbuild/protobuf";
import {
  type Timestamp,
  TimestampSchema,
  timestampDate,
  timestampFromDate,
} from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { hintOf, mintSecret } from "../../src/keys/secret.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { ManualClock } from "../support/clock.ts";
import {
  bearer,
  countStatements,
  createNodeKeys,
  errorOf,
  type KeysClient,
  startTestKeys,
} from "../support/keys.ts";
import { query } from "../support/query.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
let client: KeysClient;
beforeAll(async () => {
  fixture = await startTestKeys();
  client = fixture.client;
});
afterAll(() => fixture.drop());

const run = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(fixture.database, { name: `test/${name}`, text }, values);
const authenticate = (secret: string) => errorOf(fixture.keys.authenticate(bearer(secret)));
const inMs = (ms: number) => timestampFromDate(new Date(Date.now() + ms));
const hourMs = 3_600_000;

async function createKey(more: Parameters<KeysClient["createKey"]>[0] = {}) {
  const { key, secret } = await client.createKey({ accountId: "acc_a", ...more });
  expect.assert(key);
  return { keyId: key.keyId, secretId: key.secrets[0]?.secretId ?? "", key, secret };
}

/** Moves the expiry of a key into the past, as time does. */
const expire = (keyId: string) =>
  run("expire", "update keys set expires_at = now() - interval '1 second' where key_id = $1", [
    keyId,
  ]);
const update = (keyId: string, expiresAt?: Timestamp) =>
  client.updateKey({
    keyId,
    settings: { ...(expiresAt && { expiresAt }) },
    updateMask: { paths: ["expires_at"] },
  });
const statusOf = async (keyId: string) => (await client.getKey(keyId)).key?.state;

describe("a paused key", () => {
  test("is refused at once, keeps its limits, and works again when it is resumed", async () => {
    const { keyId, secret } = await createKey({ settings: { requestsPerMinute: 7 } });
    expect(await authenticate(secret)).toBe("no error");
    const { key } = await client.pauseKey(keyId);
    expect([key?.pausedAt !== undefined, key?.state, key?.requestsPerMinute]).toStrictEqual([
      true,
      KeyState.PAUSED,
      7,
    ]);
    expect(await authenticate(secret)).toBe("key_paused");
    const resumed = await client.resumeKey(keyId);
    expect([resumed.key?.pausedAt !== undefined, resumed.key?.state]).toStrictEqual([
      false,
      KeyState.ACTIVE,
    ]);
    expect(await authenticate(secret)).toBe("no error");
  });

  test("lets its active requests go on to their end", async () => {
    const { keyId, secretId } = await createKey();
    await client.pauseKey(keyId);
    expect(await fixture.keys.refusalOf(keyId, secretId)).toBe(undefined);
  });

  test("can be changed, rotated and revoked, and a new secret of it is paused, too", async () => {
    const { keyId } = await createKey();
    await client.pauseKey(keyId);
    const named = { keyId, settings: { name: "later" }, updateMask: { paths: ["name"] } };
    expect((await client.updateKey(named)).key?.pausedAt).toBeDefined();
    const { secret } = await client.rotateKey({ keyId });
    expect(await authenticate(secret)).toBe("key_paused");
    expect((await client.revokeKey(keyId)).key?.state).toBe(KeyState.REVOKED);
    expect(await authenticate(secret)).toBe("revoked_key");
  });

  const repeats: [string, "pauseKey" | "resumeKey", boolean][] = [
    ["pausing twice", "pauseKey", true],
    ["resuming a key that is not paused", "resumeKey", false],
  ];
  for (const [name, method, paused] of repeats) {
    test(`${name} has no effect, and tells no node`, async () => {
      const { keyId } = await createKey();
      if (paused) await client.pauseKey(keyId);
      const changes = () =>
        run("changes", "select change_id from key_changes where key_id = $1", [keyId]);
      const before = (await changes()).length;
      const { key } = await client[method](keyId);
      expect(key?.pausedAt !== undefined).toBe(paused);
      expect((await changes()).length).toBe(before);
    });
  }

  test("cannot be resumed or paused once it is revoked, and must exist", async () => {
    const { keyId } = await createKey();
    await client.pauseKey(keyId);
    await client.revokeKey(keyId);
    for (const method of ["pauseKey", "resumeKey"] as const) {
      expect(await errorOf(client[method](keyId))).toBe("key_not_active key_id");
      expect(await errorOf(client[method]("key_none"))).toBe("not_found key_id");
    }
    expect(await statusOf(keyId)).toBe(KeyState.REVOKED);
  });

  test("is revoked or paused when both happen at once, and never active", async () => {
    for (let round = 0; round < 10; round++) {
      const { keyId, secret } = await createKey();
      await Promise.all([
        errorOf(client.pauseKey(keyId)),
        client.revokeKey(keyId),
        errorOf(client.resumeKey(keyId)),
      ]);
      expect(await statusOf(keyId)).toBe(KeyState.REVOKED);
      expect(await authenticate(secret)).toBe("revoked_key");
    }
  });
});

describe("the expiry of a key", () => {
  test("is set with the key, changed, and cleared", async () => {
    const expiresAt = inMs(hourMs);
    const { keyId, key } = await createKey({ settings: { expiresAt } });
    expect(key.expiresAt).toStrictEqual(expiresAt);
    const later = inMs(2 * hourMs);
    expect((await update(keyId, later)).key?.expiresAt).toStrictEqual(later);
    expect((await update(keyId)).key?.expiresAt).toBe(undefined);
  });

  const wrong: [string, Timestamp][] = [
    ["in the past", timestampFromDate(new Date("2020-01-01T00:00:00Z"))],
    ["now", create(TimestampSchema, { seconds: BigInt(Math.floor(Date.now() / 1000)) })],
    ["after the year 9999", create(TimestampSchema, { seconds: 253_402_300_800n })],
    ["that is no date", create(TimestampSchema, { seconds: 2n ** 62n })],
  ];
  for (const [name, expiresAt] of wrong) {
    test(`${name} is refused, and changes nothing`, async () => {
      expect(await errorOf(createKey({ settings: { expiresAt } }))).toBe(
        "invalid_request settings.expires_at",
      );
      const { keyId } = await createKey();
      expect(await errorOf(update(keyId, expiresAt))).toBe("invalid_request settings.expires_at");
      expect((await client.getKey(keyId)).key?.expiresAt).toBe(undefined);
    });
  }

  test("ends the key with a reason of its own, until it is moved; requests may end", async () => {
    const { keyId, secretId, secret } = await createKey({ settings: { expiresAt: inMs(hourMs) } });
    await expire(keyId);
    const other = createNodeKeys(fixture.database);
    expect(await errorOf(other.authenticate(bearer(secret)))).toBe("key_expired");
    expect(await statusOf(keyId)).toBe(KeyState.EXPIRED);
    expect(await other.refusalOf(keyId, secretId)).toBe(undefined);
    await update(keyId, inMs(hourMs));
    expect(await authenticate(secret)).toBe("no error");
    expect(await statusOf(keyId)).toBe(KeyState.ACTIVE);
  });

  test("ends a key in the cache on time, without a statement", async () => {
    const { secret, keyId } = await createKey();
    await update(keyId, inMs(20_000));
    const { database } = fixture;
    const clock = new ManualClock();
    const keys = createNodeKeys(database, { clock });
    await keys.authenticate(bearer(secret));
    const before = database.ran.length;
    const reason = () => errorOf(keys.authenticate(bearer(secret)));
    // The entry is read again when it is older, and that refresh is not what ends it.
    await clock.advance(4_000);
    expect(await reason()).toBe("no error");
    clock.skip(16_000);
    expect(await reason()).toBe("key_expired");
    expect(database.ran.slice(before)).toStrictEqual([]);
  });

  test("comes before a pause, and after a revocation", async () => {
    const { keyId, secret } = await createKey();
    await client.pauseKey(keyId);
    await expire(keyId);
    const reason = () => errorOf(createNodeKeys(fixture.database).authenticate(bearer(secret)));
    expect([await reason(), await statusOf(keyId)]).toStrictEqual([
      "key_expired",
      KeyState.EXPIRED,
    ]);
    await client.revokeKey(keyId);
    expect([await reason(), await statusOf(keyId)]).toStrictEqual([
      "revoked_key",
      KeyState.REVOKED,
    ]);
  });

  test("is told apart from the end of a rotated secret", async () => {
    const { keyId, secret } = await createKey({ settings: { expiresAt: inMs(hourMs) } });
    await client.rotateKey({ keyId, overlap: { seconds: 0n, nanos: 0 } });
    expect(await authenticate(secret)).toBe("invalid_key");
  });
});

describe("the last use of a secret", () => {
  /** When the secrets of a key were used, newest secret first. */
  const usesOf = async (keyId: string) =>
    (await client.getKey(keyId)).key?.secrets.map(
      ({ lastUsedAt }) => lastUsedAt && timestampDate(lastUsedAt),
    );
  /** A node that uses a secret, and has written it. */
  async function useOn(secret: string, times = 1) {
    const node = createNodeKeys(fixture.database);
    const reason = await errorOf(node.authenticate(bearer(secret)));
    for (let more = 1; more < times; more++) await node.authenticate(bearer(secret));
    await node.stop();
    return reason;
  }
  const age = (keyId: string, interval: string) =>
    run("age", "update key_secrets set last_used_at = now() - $2::interval where key_id = $1", [
      keyId,
      interval,
    ]);

  test("is recorded for the secret that was used, by one statement for many", async () => {
    const { keyId, secret } = await createKey();
    const other = await createKey();
    await client.rotateKey({ keyId });
    expect(await usesOf(keyId)).toStrictEqual([undefined, undefined]);
    const before = Date.now();
    const node = createNodeKeys(fixture.database);
    fixture.database.ran.length = 0;
    for (let times = 0; times < 200; times++)
      await Promise.all([secret, other.secret].map((one) => node.authenticate(bearer(one))));
    await node.stop();
    expect(fixture.database.ran.filter((name) => name === "keys/record-uses")).toStrictEqual([
      "keys/record-uses",
    ]);
    const [newer, older] = (await usesOf(keyId)) ?? [];
    expect(newer).toBe(undefined);
    expect.assert(older && Math.abs(older.getTime() - before) < 60_000);
    expect.assert((await usesOf(other.keyId))?.[0]);
  });

  test("is written once a minute, whichever nodes use it", async () => {
    const { keyId, secret } = await createKey();
    await useOn(secret);
    await age(keyId, "59 seconds");
    const [recent] = (await usesOf(keyId)) ?? [];
    fixture.database.ran.length = 0;
    await Promise.all([useOn(secret, 10), useOn(secret, 10)]);
    expect(await usesOf(keyId)).toStrictEqual([recent]);
    expect.assert(!fixture.database.ran.includes("keys/record-uses"));

    // Both nodes read that it is due, and both write: the second write changes no row.
    await age(keyId, "61 seconds");
    await run("count", "create table counted (secret_id text)");
    const counting = `create function count_use() returns trigger language plpgsql as
      $$ begin insert into counted values (new.secret_id); return new; end $$`;
    await run("count-use", counting);
    const trigger = `create trigger count_use after update of last_used_at on key_secrets
      for each row execute function count_use()`;
    await run("trigger", trigger);
    try {
      const nodes = [0, 1, 2].map(() => createNodeKeys(fixture.database));
      await Promise.all(nodes.map((node) => node.authenticate(bearer(secret))));
      await Promise.all(nodes.map((node) => node.stop()));
      expect((await run("counted", "select secret_id from counted")).length).toBe(1);
    } finally {
      await run("untrigger", "drop trigger count_use on key_secrets");
    }
  });

  test("does not count calls that were refused", async () => {
    const paused = await createKey();
    await client.pauseKey(paused.keyId);
    const revoked = await createKey();
    await client.revokeKey(revoked.keyId);
    const expired = await createKey();
    await expire(expired.keyId);
    const refused: [typeof paused, string][] = [
      [paused, "key_paused"],
      [revoked, "revoked_key"],
      [expired, "key_expired"],
    ];
    for (const [{ keyId, secret }, reason] of refused) {
      expect(await useOn(secret)).toBe(reason);
      expect(await usesOf(keyId)).toStrictEqual([undefined]);
    }
  });

  test("costs a call nothing when it cannot be written", async () => {
    const { keyId, secret } = await createKey();
    const postgres = connectPostgres(fixture.url);
    const counted = countStatements(postgres);
    const node = createNodeKeys({
      ...counted,
      run: (statement, ...values) =>
        statement.name === "keys/record-uses"
          ? Promise.reject(new ApiError("database_unavailable"))
          : counted.run(statement, ...values),
    });
    expect(await errorOf(node.authenticate(bearer(secret)))).toBe("no error");
    await node.stop();
    await postgres.close();
    expect(await usesOf(keyId)).toStrictEqual([undefined]);
  });
});

describe("a list of keys", () => {
  const accountId = "acc_b";
  const ids = new Map<string, string>();
  let secret = "";
  beforeAll(async () => {
    for (const name of ["Editor of Ana", "editor of Ben", "100% job_1", "job", "x"]) {
      const made = await createKey({ accountId, settings: { name } });
      ids.set(name, made.keyId);
      if (name === "job") secret = made.secret;
    }
    const idOf = (name: string) => ids.get(name) ?? "";
    await client.pauseKey(idOf("Editor of Ana"));
    await client.pauseKey(idOf("100% job_1"));
    await expire(idOf("100% job_1"));
    await client.revokeKey(idOf("x"));
  });

  const { UNSPECIFIED, ACTIVE, PAUSED, EXPIRED, REVOKED } = KeyState;
  const all = ["Editor of Ana", "editor of Ben", "100% job_1", "job", "x"];
  const cases: [string, { status?: KeyState; query?: () => string }, string[]][] = [
    ["without a filter has all", {}, all],
    ["of every status has all", { status: UNSPECIFIED }, all],
    ["of active keys", { status: ACTIVE }, ["editor of Ben", "job"]],
    ["of paused keys", { status: PAUSED }, ["Editor of Ana"]],
    ["of expired keys", { status: EXPIRED }, ["100% job_1"]],
    ["of revoked keys", { status: REVOKED }, ["x"]],
    ["by part of a name", { query: () => "EDITOR" }, ["Editor of Ana", "editor of Ben"]],
    ["by a name with the signs of patterns", { query: () => "0% job_" }, ["100% job_1"]],
    ["by a sign of patterns alone", { query: () => "_" }, ["100% job_1"]],
    ["by id", { query: () => ids.get("job") ?? "-" }, ["job"]],
    ["by the end of a secret", { query: () => secret.slice(-4) }, ["job"]],
    ["by the hint of a secret", { query: () => hintOf(secret) }, ["job"]],
    ["by a whole secret", { query: () => secret }, ["job"]],
    ["by another secret", { query: () => mintSecret(Family.V1) }, []],
    ["by name and status", { query: () => "editor", status: PAUSED }, ["Editor of Ana"]],
    ["that none matches", { query: () => "nobody" }, []],
  ];
  for (const [name, { status, query }, expected] of cases) {
    test(`${name}, in pages of one`, async () => {
      const found: string[] = [];
      let pageToken = "";
      do {
        const page = await client.listKeys({
          accountId,
          pageSize: 1,
          pageToken,
          ...(status !== undefined && { state: status }),
          query: query?.() ?? "",
        });
        found.push(...page.keys.map((key) => key.name));
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      expect(found).toStrictEqual(expected);
    });
  }

  test("has no keys of another account, and refuses a text of more than 200 characters", async () => {
    const query = ids.get("job") ?? "";
    expect((await client.listKeys({ accountId: "acc_a", query })).keys).toStrictEqual([]);
    const long = client.listKeys({ accountId, query: "x".repeat(201) });
    expect(await errorOf(long)).toBe("invalid_request query");
  });
});
