import { createHash } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyOrder, KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { mintSecret } from "../../src/keys/secret.ts";
import { adminCall, adminToken, bearer, errorOf, startTestKeys } from "../support/keys.ts";
import { query } from "../support/query.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
beforeAll(async () => {
  fixture = await startTestKeys();
});
afterAll(() => fixture.drop());

const run = <Row>(text: string, values: unknown[] = []) =>
  query<Row>(
    fixture.database,
    { name: createHash("md5").update(text).digest("hex"), text },
    values,
  );

test("a created key has the requested members, with model ids, and its secret authenticates it", async () => {
  const { client, keys } = fixture;
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    family: Family.V2,
    settings: {
      name: "Ana’s editor",
      requestsPerMinute: 60,
      allowedModels: ["opus", "model-opus-4.6", "haiku"],
      monthlyCapMicrocredits: 5_000_000n,
    },
  });
  expect.assert(key);
  expect(key.allowedModels).toStrictEqual(["model-opus-4.6", "model-haiku-4.5"]);
  expect([
    key.accountId,
    key.family,
    key.name,
    key.state,
    key.requestsPerMinute,
    key.monthlyCapMicrocredits,
  ]).toStrictEqual(["acc_a", Family.V2, "Ana’s editor", KeyState.ACTIVE, 60, 5_000_000n]);
  expect(key.keyId).toMatch(/^key_[0-9a-f]{32}$/);
  expect([key.monthSpentMicrocredits, key.monthHeldMicrocredits, key.lastUsedAt]).toStrictEqual([
    0n,
    0n,
    undefined,
  ]);
  expect(key.secrets.length).toBe(1);
  expect(key.secrets[0]?.secretId ?? "").toMatch(/^sec_/);
  expect(key.secrets[0]?.hint).toBe(`${secret.slice(0, 14)}…${secret.slice(-4)}`);

  const caller = await keys.authenticate(bearer(secret));
  expect.assert(caller.kind === "key");
  expect([caller.key.keyId, caller.secret.secretId]).toStrictEqual([
    key.keyId,
    key.secrets[0]?.secretId,
  ]);
  expect([caller.key.requestsPerMinute, caller.key.monthlyCapMicrocredits]).toStrictEqual([
    60,
    5_000_000n,
  ]);
});

test("limits that are not set are absent, and a limit of zero stays zero", async () => {
  const { client, keys } = fixture;
  const free = await client.createKey({ accountId: "acc_a" });
  expect([free.key?.requestsPerMinute, free.key?.monthlyCapMicrocredits]).toStrictEqual([
    undefined,
    undefined,
  ]);
  const none = await client.createKey({
    accountId: "acc_a",
    settings: { requestsPerMinute: 0, monthlyCapMicrocredits: 0n },
  });
  const caller = await keys.authenticate(bearer(none.secret));
  expect.assert(caller.kind === "key");
  expect([caller.key.requestsPerMinute, caller.key.monthlyCapMicrocredits]).toStrictEqual([0, 0n]);
});

test("the first page counts the keys that may use each model, among 5,000", async () => {
  const { client } = fixture;
  await run("insert into accounts (account_id, name) values ('acc_many', 'many')");
  // Every fourth may use haiku alone, haiku and opus, what it likes, or nothing any more.
  await run(`with made as (
      insert into keys (key_id, account_id, family, name, created_by, managed_by, paused,
                        expires_at, allowed_models)
      select 'key_' || md5(n::text), 'acc_many', 'v1', 'service ' || n, '', '', n % 8 = 0,
             case when n % 4 = 3 then now() - interval '1 day' end,
             case n % 4 when 0 then '{model-haiku-4.5}' when 2 then '{}'
                        else '{model-haiku-4.5,model-opus-4.6}' end::text[]
        from generate_series(1, 5000) n
      returning key_id)
    insert into budgets (account_id, family, payer) select 'acc_many', 'v1', key_id from made`);
  const page = { accountId: "acc_many", pageSize: 1 };
  const first = await client.listKeys({ ...page, includeModelKeys: true });
  expect(first.keys.length).toBe(1);
  expect(first).toMatchObject({
    ...{ liveKeys: 3_750, anyModelKeys: 1_250 },
    modelKeys: { "model-haiku-4.5": 2_500, "model-opus-4.6": 1_250 },
  });
  const none = { modelKeys: {}, anyModelKeys: 0 };
  expect(await client.listKeys(page)).toMatchObject(none);
  const next = { ...page, includeModelKeys: true, pageToken: first.nextPageToken };
  expect(await client.listKeys(next)).toMatchObject(none);
});

test("a secret is not stored, and only the response that creates it contains it", async () => {
  const { client } = fixture;
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    settings: { name: "kept" },
  });
  const stored = await run<{ all: string }>(
    "select (select json_agg(k)::text from keys k) || (select json_agg(s)::text from key_secrets s) as all",
  );
  const listed = await client.listKeys({ accountId: "acc_a" });
  const answers = [await client.getKey(key?.keyId ?? ""), listed];
  const text = JSON.stringify([stored, answers], (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  expect(text).toContain(key?.keyId);
  expect(text).not.toContain(secret.slice(12, -4));
});

test("the admin token authenticates the operator, a similar token does not", async () => {
  const { keys } = fixture;
  expect(await keys.authenticate(bearer(adminToken))).toStrictEqual(environmentToken);
  for (const token of [`${adminToken}x`, adminToken.slice(1), adminToken.toUpperCase()]) {
    expect(await errorOf(keys.authenticate(bearer(token)))).toBe("invalid_key");
  }
});

const badHeaders: [string, string | undefined, string][] = [
  ["no header", undefined, "missing_key"],
  ["an empty header", "  ", "missing_key"],
  ["a scheme alone", "Bearer ", "missing_key"],
  ["another scheme", "Basic dXNlcjpwYXNz", "invalid_key"],
  ["a list", `Bearer ${mintSecret(Family.V1)}, Bearer ${mintSecret(Family.V1)}`, "invalid_key"],
  ["ten kilobytes", `Bearer ${"x".repeat(10_240)}`, "invalid_key"],
  ["a mistyped secret", `Bearer ${mintSecret(Family.V1).slice(0, -1)}_`, "invalid_key"],
];
for (const [name, header, reason] of badHeaders) {
  test(`${name} fails with ${reason}, without a statement`, async () => {
    const { keys, database } = fixture;
    const before = database.ran.length;
    const headers = new Headers(header === undefined ? {} : { authorization: header });
    expect(await errorOf(keys.authenticate(headers))).toBe(reason);
    expect(database.ran.length).toBe(before);
  });
}

test("the scheme is case-insensitive, and blanks around the secret are trimmed", async () => {
  const { keys, client } = fixture;
  const { secret, key } = await client.createKey({ accountId: "acc_a" });
  const caller = await keys.authenticate(new Headers({ authorization: `bEARER   ${secret}  ` }));
  expect(caller).toMatchObject({ kind: "key", key: { keyId: key?.keyId } });
});

test("unknown and malformed secrets fail with one message; an expired and a revoked one say what they are", async () => {
  const { keys, client } = fixture;
  const { secret, key } = await client.createKey({ accountId: "acc_a" });
  await client.rotateKey({ keyId: key?.keyId ?? "", overlap: { seconds: 0n, nanos: 0 } });
  const revoked = await client.createKey({ accountId: "acc_a" });
  await client.revokeKey(revoked.key?.keyId ?? "");
  const messageFor = async (token: string) => {
    const error: unknown = await keys
      .authenticate(bearer(token))
      .catch((failure: unknown) => failure);
    return error instanceof Error ? error.message : "authenticated";
  };
  const [unknown, malformed, expired] = await Promise.all([
    messageFor(mintSecret(Family.V1)),
    messageFor("sk-gw2-1abc"),
    messageFor(secret),
  ]);
  expect(unknown).toBe("Incorrect API key provided.");
  expect(malformed).toBe(unknown);
  expect(expired).toMatch(/^Incorrect API key provided: .* expired after its key was rotated/);
  expect(await messageFor(revoked.secret)).toMatch(/revoked/);
});

test("a rotated key keeps its id and limits; both secrets work during the overlap", async () => {
  const { keys, client } = fixture;
  const first = await client.createKey({ accountId: "acc_a", settings: { requestsPerMinute: 7 } });
  const keyId = first.key?.keyId ?? "";
  const before = Date.now();
  const second = await client.rotateKey({ keyId });
  expect(second.secret).not.toBe(first.secret);
  expect(second.secret.slice(0, 8)).toBe(first.secret.slice(0, 8));
  for (const secret of [first.secret, second.secret]) {
    const caller = await keys.authenticate(bearer(secret));
    expect.assert(caller.kind === "key");
    expect([caller.key.keyId, caller.key.requestsPerMinute]).toStrictEqual([keyId, 7]);
  }
  const [newer, older] = second.key?.secrets ?? [];
  expect(newer?.expiresAt).toBe(undefined);
  expect.assert(older?.expiresAt);
  const overlapMs = timestampDate(older.expiresAt).getTime() - before;
  expect.assert(overlapMs > 23.9 * 3_600_000 && overlapMs < 24.1 * 3_600_000);

  // A later rotation with a long overlap does not prolong the first secret.
  const third = await client.rotateKey({ keyId, overlap: { seconds: 604_800n, nanos: 0 } });
  const oldest = third.key?.secrets.at(-1);
  expect(oldest?.expiresAt).toStrictEqual(older.expiresAt);
  expect(third.key?.secrets.length).toBe(3);
});

test("one secret of a key can be revoked, and the other remains valid", async () => {
  const { keys, client } = fixture;
  const first = await client.createKey({ accountId: "acc_a" });
  const keyId = first.key?.keyId ?? "";
  const second = await client.rotateKey({ keyId });
  const secretId = first.key?.secrets[0]?.secretId ?? "";
  const { key } = await client.revokeSecret(keyId, secretId);
  expect.assert(key?.secrets.find((one) => one.secretId === secretId)?.revokedAt);
  expect(await errorOf(keys.authenticate(bearer(first.secret)))).toBe("revoked_key");
  await keys.authenticate(bearer(second.secret));
  expect([
    await keys.refusalOf(keyId, secretId),
    await keys.refusalOf(keyId, key?.secrets[0]?.secretId ?? ""),
  ]).toStrictEqual(["revoked_key", undefined]);
  await client.revokeSecret(keyId, secretId);
  expect(await errorOf(client.revokeSecret(keyId, "sec_none"))).toBe("not_found secret_id");
  const other = await client.createKey({ accountId: "acc_b" });
  expect(await errorOf(client.revokeSecret(other.key?.keyId ?? "", secretId))).toBe(
    "not_found secret_id",
  );
});

test("a revoked key does not authenticate, its active requests must end, and it cannot change", async () => {
  const { keys, client } = fixture;
  const { key, secret } = await client.createKey({ accountId: "acc_a" });
  const keyId = key?.keyId ?? "";
  await keys.authenticate(bearer(secret));
  const revoked = await client.revokeKey(keyId);
  expect(revoked.key?.state).toBe(KeyState.REVOKED);
  expect.assert(revoked.key?.revokedAt);
  expect(await errorOf(keys.authenticate(bearer(secret)))).toBe("revoked_key");
  expect(await keys.refusalOf(keyId, key?.secrets[0]?.secretId ?? "")).toBe("revoked_key");
  expect((await client.revokeKey(keyId)).key).toStrictEqual(revoked.key);
  expect(await errorOf(client.rotateKey({ keyId }))).toBe("key_not_active key_id");
  const update = { keyId, settings: { name: "late" }, updateMask: { paths: ["name"] } };
  expect(await errorOf(client.updateKey(update))).toBe("key_not_active key_id");
});

test("an update changes the members of its mask, clears absent ones, and takes effect here at once", async () => {
  const { keys, client } = fixture;
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    settings: { name: "before", requestsPerMinute: 5, monthlyCapMicrocredits: 9n },
  });
  const keyId = key?.keyId ?? "";
  await keys.authenticate(bearer(secret));
  await client.updateKey({
    keyId,
    settings: { requestsPerMinute: 8, allowedModels: ["haiku"] },
    updateMask: { paths: ["requests_per_minute", "allowed_models", "monthly_cap_microcredits"] },
  });
  const caller = await keys.authenticate(bearer(secret));
  expect.assert(caller.kind === "key");
  const { name, requestsPerMinute, allowedModels, monthlyCapMicrocredits } = caller.key;
  expect([name, requestsPerMinute, allowedModels, monthlyCapMicrocredits]).toStrictEqual([
    "before",
    8,
    ["model-haiku-4.5"],
    undefined,
  ]);
});

test("the keys of an account are listed, oldest first, in pages", async () => {
  const { client } = fixture;
  const created: string[] = [];
  for (let index = 0; index < 5; index++)
    created.push((await client.createKey({ accountId: "acc_b" })).key?.keyId ?? "");
  const listed: string[] = [];
  let pageToken = "";
  do {
    const page = await client.listKeys({ accountId: "acc_b", pageSize: 2, pageToken });
    expect.assert(page.keys.length <= 2);
    listed.push(...page.keys.map((key) => key.keyId));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  expect(listed.slice(-5)).toStrictEqual(created);
  expect(listed).toStrictEqual(listed.toSorted());
  expect(
    await client.listKeys({ accountId: "acc_nobody" }).then((page) => page.keys),
  ).toStrictEqual([]);
});

test("keys are listed in each order, both ways, by status and in pages", async () => {
  const { client } = fixture;
  const accountId = "acc_orders";
  await run("insert into accounts (account_id, name) values ($1, 'Orders')", [accountId]);
  const made: { keyId: string; name: string; spent: number; used: number; status: KeyState }[] = [];
  for (const [index, name] of ["delta", "Alpha", "charlie", "Bravo", "alpha", "echo"].entries()) {
    const { key } = await client.createKey({ accountId, settings: { name } });
    const keyId = key?.keyId ?? "";
    const [spent, used] = [(index * 7) % 4, index % 3];
    const at = used === 0 ? null : new Date(Date.UTC(2026, 0, used));
    await run(
      `update budgets set day = (now() at time zone 'utc')::date, spent = $2, last_used_at = $3
       where payer = $1`,
      [keyId, spent, at],
    );
    if (index === 2) await client.pauseKey(keyId);
    if (index === 3) await client.revokeKey(keyId);
    const status = index === 2 ? KeyState.PAUSED : index === 3 ? KeyState.REVOKED : KeyState.ACTIVE;
    made.push({ keyId, name, spent, used, status });
  }
  type Made = (typeof made)[number];
  const by = (valueIn: (key: Made) => number | string, sign: number) => (a: Made, b: Made) => {
    const [x, y] = [valueIn(a), valueIn(b)];
    if (x === y) return (a.keyId < b.keyId ? -1 : 1) * sign;
    return (x < y ? -1 : 1) * sign;
  };
  const orders: [KeyOrder, (key: Made) => number | string, number][] = [
    [KeyOrder.UNSPECIFIED, ({ keyId }) => keyId, 1],
    [KeyOrder.MONTH_SPENT, ({ spent }) => spent, -1],
    [KeyOrder.NAME, ({ name }) => name.toLowerCase(), 1],
    [KeyOrder.LAST_USED, ({ used }) => used, -1],
  ];
  const choices: readonly KeyState[][] = [[], [KeyState.ACTIVE, KeyState.PAUSED]];
  for (const statuses of choices)
    for (const [order, valueIn, sign] of orders)
      for (const reversed of [false, true]) {
        const found: string[] = [];
        let pageToken = "";
        do {
          const request = { accountId, order, reversed, states: statuses, pageSize: 2, pageToken };
          const page = await client.listKeys(request);
          found.push(...page.keys.map(({ name }) => name));
          pageToken = page.nextPageToken;
        } while (pageToken !== "");
        const wanted = made
          .filter(({ status }) => statuses.length === 0 || statuses.includes(status))
          .toSorted(by(valueIn, reversed ? -sign : sign));
        expect([order, reversed, found]).toEqual([order, reversed, wanted.map((one) => one.name)]);
      }
  const { nextPageToken } = await client.listKeys({ accountId, order: 2, pageSize: 1 });
  const other = client.listKeys({ accountId, order: 1, pageToken: nextPageToken });
  expect(await errorOf(other)).toBe("invalid_request page_token");
});

test("a listed key shows the usage of the month and its last use, read from its budget", async () => {
  const { client } = fixture;
  const { key, secret } = await client.createKey({ accountId: "acc_b" });
  const keyId = key?.keyId ?? "";
  await run(
    `update budgets set day = (now() at time zone 'utc')::date, spent = 9700, month_base = 9000,
       held = 30, last_used_at = '2026-05-04T03:02:01Z' where payer = $1`,
    [keyId],
  );
  const page = await client.listKeys({ accountId: "acc_b", pageSize: 1000 });
  const listed = page.keys.find((one) => one.keyId === keyId);
  expect([listed?.monthSpentMicrocredits, listed?.monthHeldMicrocredits]).toStrictEqual([
    700n,
    30n,
  ]);
  expect.assert(listed?.lastUsedAt);
  expect(timestampDate(listed.lastUsedAt).toISOString()).toBe("2026-05-04T03:02:01.000Z");

  const caller = await fixture.keys.authenticate(bearer(secret));
  const described = await client.authenticate({ includeUsage: true }, { ...adminCall, caller });
  expect([described.key?.monthSpentMicrocredits, described.key?.secrets]).toStrictEqual([700n, []]);
});

test("a caller sees its key and the secret it used, without a statement; the admin has no key", async () => {
  const { client, keys, database } = fixture;
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    settings: { name: "mine" },
  });
  const caller = await keys.authenticate(bearer(secret));
  const before = database.ran.length;
  const described = await client.authenticate({}, { ...adminCall, caller });
  expect([
    described.admin,
    described.key?.name,
    described.key?.secrets,
    described.secret?.secretId,
  ]).toStrictEqual([undefined, "mine", [], key?.secrets[0]?.secretId]);
  const admin = await client.authenticate({}, adminCall);
  expect([admin.admin?.name, admin.key, admin.secret]).toStrictEqual([
    "ADMIN_TOKEN",
    undefined,
    undefined,
  ]);
  expect(database.ran.length).toBe(before);
});

test("the error of an invalid request names its field, and nothing is stored", async () => {
  const { client } = fixture;
  const accountId = "acc_a";
  const { key } = await client.createKey({ accountId });
  const keyId = key?.keyId ?? "";
  const count = async () => (await run<{ count: bigint }>("select count(*) from keys"))[0]?.count;
  const before = await count();
  const update = (changes: object, paths: string[]) =>
    client.updateKey({ keyId, settings: { ...changes }, updateMask: { paths } });
  const cases: [Promise<unknown>, string][] = [
    [client.createKey({ accountId: "acc_nobody" }), "not_found account_id"],
    [client.createKey({ accountId: "acc\u0000" }), "invalid_request account_id"],
    [client.createKey({ accountId, family: Family.UNSPECIFIED }), "invalid_request family"],
    [
      client.createKey({ accountId, settings: { requestsPerMinute: 1_000_001 } }),
      "invalid_request settings.requests_per_minute",
    ],
    [
      client.createKey({ accountId, settings: { monthlyCapMicrocredits: -1n } }),
      "invalid_request settings.monthly_cap_microcredits",
    ],
    [
      client.createKey({ accountId, settings: { monthlyCapMicrocredits: 2n ** 53n + 1n } }),
      "invalid_request settings.monthly_cap_microcredits",
    ],
    [
      client.createKey({ accountId, settings: { name: "x".repeat(201) } }),
      "invalid_request settings.name",
    ],
    [
      client.createKey({ accountId, settings: { name: "a\u0000b" } }),
      "invalid_request settings.name",
    ],
    [
      client.createKey({ accountId, settings: { name: "\ud800" } }),
      "invalid_request settings.name",
    ],
    [
      client.createKey({ accountId, settings: { allowedModels: ["opus", "gpt"] } }),
      "model_not_found settings.allowed_models[1]",
    ],
    [
      client.createKey({ accountId, settings: { allowedModels: Array<string>(101).fill("opus") } }),
      "invalid_request settings.allowed_models",
    ],
    [client.getKey("key_unknown"), "not_found key_id"],
    [client.getKey("'; drop table keys; --"), "not_found key_id"],
    [client.revokeKey("key_unknown"), "not_found key_id"],
    [client.rotateKey({ keyId: "key_unknown" }), "not_found key_id"],
    [
      client.rotateKey({ keyId, overlap: { seconds: 604_800n, nanos: 1 } }),
      "invalid_request overlap",
    ],
    [client.rotateKey({ keyId, overlap: { seconds: -1n, nanos: 0 } }), "invalid_request overlap"],
    [client.rotateKey({ keyId, overlap: { seconds: 0n, nanos: -1 } }), "invalid_request overlap"],
    [update({}, []), "invalid_request update_mask"],
    [update({}, ["status"]), "invalid_request update_mask"],
    [update({}, ["*"]), "invalid_request update_mask"],
    [update({}, ["key_id"]), "invalid_request update_mask"],
    [
      update({ name: "new", requestsPerMinute: 1 }, ["name"]),
      "invalid_request settings.requests_per_minute",
    ],
    [
      update({ requestsPerMinute: 1_000_001 }, ["requests_per_minute"]),
      "invalid_request settings.requests_per_minute",
    ],
    [
      update({ monthlyCapMicrocredits: -2n }, ["monthly_cap_microcredits"]),
      "invalid_request settings.monthly_cap_microcredits",
    ],
    [
      update({ allowedModels: ["?"] }, ["allowed_models"]),
      "model_not_found settings.allowed_models[0]",
    ],
    [client.updateKey({ updateMask: { paths: ["name"] } }), "invalid_request key_id"],
    [
      client.updateKey({
        keyId: "key_unknown",
        settings: { name: "n" },
        updateMask: { paths: ["name"] },
      }),
      "not_found key_id",
    ],
    [update({ name: "" }, ["name"]), "invalid_request settings.name"],
    [client.listKeys({ accountId: "acc_a", pageSize: 1001 }), "invalid_request page_size"],
    [client.listKeys({ accountId: "acc_a", pageToken: "acc_a" }), "invalid_request page_token"],
  ];
  const got = await Promise.all(cases.map(([call]) => errorOf(call)));
  expect(got).toStrictEqual(cases.map(([, expected]) => expected));
  expect(await count()).toBe(before);
  expect(
    (
      await client.createKey({
        accountId,
        settings: { name: "😀".repeat(200), monthlyCapMicrocredits: 2n ** 53n },
      })
    ).key?.name.length,
  ).toBe(400);
});
