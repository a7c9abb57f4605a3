// Many keys changed at once: the outcome of each, and that nothing else of them changes.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AccountRole,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  ChangeKeysRequestSchema,
  CreateKeyRequestSchema,
  type Key,
  type KeyResult,
  KeySettingsSchema,
  KeyState,
  KeyResult_Outcome as Outcome,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { CreateManagementKeyRequestSchema } from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { recordUses } from "../../gen/sql/keys.ts";
import { actorText } from "../../src/base/actors.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys } from "../../src/billing/billing.ts";
import {
  type Call,
  type Caller,
  environmentToken,
  type Person,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { type AuditEvent, intercept } from "../../src/contract/interceptor.ts";
import { createKeys } from "../../src/keys/keys.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { callBy } from "../support/calls.ts";
import { bearer, errorOf, startTestKeys } from "../support/keys.ts";
import { query } from "../support/query.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
beforeAll(async () => {
  fixture = await startTestKeys();
});
afterAll(() => fixture.drop());

const strongUntil = new Date("2100-01-01T00:00:00Z");

function person(personId: string, role: AccountRole, more: Partial<Person> = {}): Person {
  return {
    kind: "person",
    personId,
    sessionId: "ses_1",
    strongUntil,
    memberships: [{ accountId: "acc_a", role }],
    operator: OperatorRole.UNSPECIFIED,
    ...more,
  };
}

const owner = person("per_owner", AccountRole.OWNER);
const ana = person("per_ana", AccountRole.MEMBER);
const viewer = person("per_viewer", AccountRole.VIEWER);

function open(caller: Caller) {
  const events: AuditEvent[] = [];
  const service = intercept(serviceTypes.keys, fixture.keys.service, {
    authenticate: async () => caller,
    log: createLog("silent"),
    audit: { record: async (event) => void events.push(event) },
  });
  const call: Call = { signal: new AbortController().signal, requestHeader: new Headers() };
  return { service, call, events };
}

type Changes = Omit<MessageInitShape<typeof ChangeKeysRequestSchema>, "$typeName">;

async function changeBy(caller: Caller, request: Changes): Promise<KeyResult[]> {
  const { service, call } = open(caller);
  const answer = await service.changeKeys(create(ChangeKeysRequestSchema, request), call);
  return answer.results;
}

const outcomeNames = new Map<Outcome, string>(
  Object.entries(Outcome).map(([name, outcome]) => [outcome, name]),
);
const outcomesOf = (results: readonly KeyResult[]) =>
  results.map(({ outcome }) => outcomeNames.get(outcome) ?? "");

async function makeBy(caller: Caller, more: MessageInitShape<typeof KeySettingsSchema> = {}) {
  const { service, call } = open(caller);
  const { key, secret } = await service.createKey(
    create(CreateKeyRequestSchema, {
      accountId: "acc_a",
      family: 1,
      settings: { name: "k", ...more },
    }),
    call,
  );
  expect.assert(key);
  return { ...key, secret };
}

const asRead = ({ keyId, revision }: Pick<Key, "keyId" | "revision">) => ({ keyId, revision });
const read = async (keyId: string) => {
  const { key } = await fixture.client.getKey(keyId);
  expect.assert(key);
  return key;
};
/** The limits that are named. */
const limitTo = (
  settings: MessageInitShape<typeof KeySettingsSchema>,
  paths: string[],
): NonNullable<Changes["change"]> => ({
  case: "limits",
  value: { settings, updateMask: { paths } },
});
const pause = { case: "pause", value: true } as const;
const resume = { case: "resume", value: true } as const;
const revoke = { case: "revoke", value: true } as const;
const run = (name: string, text: string, values: unknown[] = []) =>
  query(fixture.database, { name: `test/${name}`, text }, values);

/** So many keys at once, as their owner would have made them. */
async function seed(accountId: string, prefix: string, keys: number, made = "now()") {
  await run(
    `seed ${made}`,
    `with made as (
       insert into keys (key_id, account_id, family, name, managed_by, created_at)
       select $2 || lpad(n::text, 5, '0'), $1, 'v1', 'Schlüssel ключ 鍵 ' || n,
         'person:per_owner', ${made}
       from generate_series(1, $3::int) n returning key_id
     ), secrets as (
       insert into key_secrets (digest, secret_id, key_id, shown)
       select sha256(key_id::bytea), 'sec_' || key_id, key_id, 'sk-gw1-hint' from made
     )
     insert into budgets (account_id, family, payer) select $1, 'v1', key_id from made`,
    [accountId, prefix, keys],
  );
}

describe("1,000 keys, of which some were changed elsewhere since they were read", () => {
  test("are paused but for those, which say what they are now, and a repeat changes nothing", async () => {
    await seed("acc_a", "key_p", 1000);
    const { keys } = await fixture.client.listKeys({
      accountId: "acc_a",
      onlyIds: true,
      pageSize: 1000,
      query: "鍵",
    });
    expect(keys).toHaveLength(1000);
    // Elsewhere: every hundredth gets another name, and one is revoked, one is paused.
    const renamed = keys.filter((_, index) => index % 100 === 7).map(({ keyId }) => keyId);
    for (const keyId of renamed)
      await fixture.client.updateKey({
        keyId,
        settings: { name: "x" },
        updateMask: { paths: ["name"] },
      });
    const [first, second] = keys;
    expect.assert(first && second);
    await fixture.client.revokeKey(first.keyId);
    await fixture.client.pauseKey(second.keyId);

    const { service, call, events } = open(owner);
    const request = create(ChangeKeysRequestSchema, { keys: keys.map(asRead), change: pause });
    const { results } = await service.changeKeys(request, call);
    expect(results.map(({ keyId }) => keyId)).toEqual(keys.map(({ keyId }) => keyId));
    const expected = keys.map(({ keyId }) => {
      if (keyId === first.keyId) return "GONE";
      if (keyId === second.keyId) return "ALREADY";
      return renamed.includes(keyId) ? "CONFLICT" : "CHANGED";
    });
    expect(outcomesOf(results)).toEqual(expected);
    const conflict = results.find(({ keyId }) => keyId === renamed[0]);
    expect([conflict?.key?.name, conflict?.key?.state, conflict?.revision]).toEqual([
      "x",
      KeyState.ACTIVE,
      conflict?.key?.revision,
    ]);
    expect(conflict?.key?.secrets).toEqual([]);
    const paused = await fixture.client.listKeys({
      accountId: "acc_a",
      states: [KeyState.PAUSED],
      onlyIds: true,
      pageSize: 1000,
    });
    expect(paused.keys).toHaveLength(1000 - 1 - renamed.length);
    // Each result has the revision under which the key is known from now on.
    const now = new Map(paused.keys.map((key) => [key.keyId, key.revision]));
    for (const { keyId, outcome, revision } of results)
      if (outcome === Outcome.CHANGED) expect(revision).toBe(now.get(keyId));

    expect(events).toHaveLength(1);
    expect([events[0]?.method, events[0]?.outcome, events[0]?.accountId]).toEqual([
      "ChangeKeys",
      "ok",
      "acc_a",
    ]);
    expect(events[0]?.facts).toMatchObject({ change: "pause", keys: "988" });

    const feed = () => run("feed", "select change_id from key_changes");
    const before = (await feed()).length;
    const again = await service.changeKeys(request, call);
    expect(outcomesOf(again.results)).toEqual(
      expected.map((one) => (one === "CHANGED" ? "ALREADY" : one)),
    );
    expect((await feed()).length).toBe(before);
  });
});

describe("a revocation of many keys", () => {
  test("is as immediate as that of one, on this node and in the feed of the others", async () => {
    const keys = [await makeBy(owner), await makeBy(owner), await makeBy(owner)];
    const [kept] = keys.splice(0, 1);
    for (const { secret } of keys)
      expect(await errorOf(fixture.keys.authenticate(bearer(secret)))).toBe("no error");
    const keyIds = keys.map(({ keyId }) => keyId);
    const feed = () =>
      run("feed of", "select key_id from key_changes where key_id = any($1)", [keyIds]);
    const before = (await feed()).length;
    const changed: string[] = [];
    const stop = fixture.keys.onChanged(({ keyId }) => changed.push(keyId));
    await changeBy(owner, { keys: keys.map(asRead), change: revoke });
    stop();
    expect(changed.sort()).toEqual(keyIds.sort());
    for (const { secret, keyId, secrets } of keys) {
      expect(await errorOf(fixture.keys.authenticate(bearer(secret)))).toBe("revoked_key");
      expect(await fixture.keys.refusalOf(keyId, secrets[0]?.secretId ?? "")).toBe("revoked_key");
    }
    expect((await feed()).length).toBe(before + keyIds.length);
    expect.assert(kept);
    expect((await read(kept.keyId)).state).toBe(KeyState.ACTIVE);
    expect(outcomesOf(await changeBy(owner, { keys: keys.map(asRead), change: revoke }))).toEqual([
      "ALREADY",
      "ALREADY",
    ]);
  });
});

describe("limits of many keys", () => {
  test("change where they are named, and nowhere else", async () => {
    const one = await makeBy(owner, { requestsPerMinute: 5, dailyCapMicrocredits: 7n });
    const two = await makeBy(owner, { monthlyCapMicrocredits: 9n, allowedModels: ["haiku"] });
    const change = limitTo({ dailyCapMicrocredits: 3n }, [
      "daily_cap_microcredits",
      "requests_per_minute",
    ]);
    expect(outcomesOf(await changeBy(owner, { keys: [one, two].map(asRead), change }))).toEqual([
      "CHANGED",
      "CHANGED",
    ]);
    const limitsOf = (key: Key) => [
      key.name,
      key.requestsPerMinute,
      key.dailyCapMicrocredits,
      key.weeklyCapMicrocredits,
      key.monthlyCapMicrocredits,
      key.allowedModels,
      key.limitedByOwner,
    ];
    expect(limitsOf(await read(one.keyId))).toEqual([
      "k",
      undefined,
      3n,
      undefined,
      undefined,
      [],
      true,
    ]);
    expect(limitsOf(await read(two.keyId))).toEqual([
      ...["k", undefined, 3n, undefined, 9n],
      ["model-haiku-4.5"],
      true,
    ]);
    expect(outcomesOf(await changeBy(owner, { keys: [one, two].map(asRead), change }))).toEqual([
      "ALREADY",
      "ALREADY",
    ]);
  });

  test("of any change are those that the method for one key would have set", async () => {
    const optional = fc.option(fc.bigInt({ min: 0n, max: 2n }), { nil: undefined });
    const caps = ["daily", "weekly", "monthly", "total"] as const;
    const values = fc.record({
      daily: optional,
      weekly: optional,
      monthly: optional,
      total: optional,
      atOnce: fc.option(fc.nat(2), { nil: undefined }),
      perMinute: fc.option(fc.nat(2), { nil: undefined }),
    });
    const fieldsOf = (of: typeof values extends fc.Arbitrary<infer V> ? V : never) =>
      Object.fromEntries(
        [
          ...caps.map((cap) => [`${cap}CapMicrocredits`, of[cap]] as const),
          ["requestsAtOnce", of.atOnce] as const,
          ["requestsPerMinute", of.perMinute] as const,
        ].filter(([, value]) => value !== undefined),
      );
    const namedIn = (fields: object, named: readonly string[]) =>
      Object.fromEntries(
        Object.entries(fields).filter(([name]) =>
          KeySettingsSchema.fields.some(
            (one) => one.localName === name && named.includes(one.name),
          ),
        ),
      );
    const paths = fc.subarray(
      [...caps.map((cap) => `${cap}_cap_microcredits`), "requests_at_once", "requests_per_minute"],
      { minLength: 1 },
    );
    await fc.assert(
      fc.asyncProperty(values, values, paths, async (before, next, named) => {
        const one = await makeBy(ana, fieldsOf(before));
        const other = await makeBy(ana, fieldsOf(before));
        const { service, call } = open(owner);
        await service.updateKey(
          create(UpdateKeyRequestSchema, {
            keyId: one.keyId,
            settings: { ...namedIn(fieldsOf(next), named) },
            updateMask: { paths: named },
          }),
          call,
        );
        await changeBy(owner, {
          keys: [{ keyId: other.keyId }],
          change: {
            case: "limits",
            value: { settings: namedIn(fieldsOf(next), named), updateMask: { paths: named } },
          },
        });
        const pick = async (keyId: string) => {
          const { budget, requestsPerMinute, limitedByOwner } = await read(keyId);
          return [budget?.limits, requestsPerMinute, limitedByOwner];
        };
        expect(await pick(other.keyId)).toEqual(await pick(one.keyId));
      }),
      { numRuns: 40 },
    );
  });

  test("that an owner set are not loosened by a member, whose other keys change", async () => {
    const bound = await makeBy(ana, { requestsPerMinute: 5 });
    await changeBy(owner, {
      keys: [{ keyId: bound.keyId }],
      change: {
        case: "limits",
        value: {
          settings: { requestsPerMinute: 4 },
          updateMask: { paths: ["requests_per_minute"] },
        },
      },
    });
    const free = await makeBy(ana, { requestsPerMinute: 5 });
    const others = await makeBy(owner, { requestsPerMinute: 5 });
    const results = await changeBy(ana, {
      keys: [bound, free, others].map(({ keyId }) => ({ keyId })),
      change: {
        case: "limits",
        value: {
          settings: { requestsPerMinute: 9 },
          updateMask: { paths: ["requests_per_minute"] },
        },
      },
    });
    expect(outcomesOf(results)).toEqual(["NOT_ALLOWED", "CHANGED", "NOT_ALLOWED"]);
    expect(results[0]?.message).toBe(
      "An owner has set the limits of this key. You may only tighten them.",
    );
    expect(results[2]?.message).toContain("only the keys that you manage");
    expect((await read(others.keyId)).requestsPerMinute).toBe(5);
  });

  test("that an owner sets bind a key that had them already", async () => {
    const { keyId } = await makeBy(ana, { requestsPerMinute: 4 });
    const four = limitTo({ requestsPerMinute: 4 }, ["requests_per_minute"]);
    expect(outcomesOf(await changeBy(ana, { keys: [{ keyId }], change: four }))).toEqual([
      "ALREADY",
    ]);
    expect((await read(keyId)).limitedByOwner).toBe(false);
    for (const outcome of ["CHANGED", "ALREADY"])
      expect(outcomesOf(await changeBy(owner, { keys: [{ keyId }], change: four }))).toEqual([
        outcome,
      ]);
    expect((await read(keyId)).limitedByOwner).toBe(true);
    const five = limitTo({ requestsPerMinute: 5 }, ["requests_per_minute"]);
    expect(outcomesOf(await changeBy(ana, { keys: [{ keyId }], change: five }))).toEqual([
      "NOT_ALLOWED",
    ]);
  });

  test("let keys live again that had expired, unless too many would live", async () => {
    const keys = [await makeBy(owner), await makeBy(owner)];
    await run(
      "expire",
      "update keys set expires_at = now() - interval '1 second' where key_id = any($1)",
      [keys.map(({ keyId }) => keyId)],
    );
    const expiresAt = timestampFromDate(new Date(Date.now() + 86_400_000));
    const { liveKeys } = await fixture.client.listKeys({ accountId: "acc_a" });
    const reviveUpTo = (keysMax: number) => {
      const { service } = createKeys({
        ...{ budgets: budgetsOfKeys, postgres: fixture.database, adminToken: "" },
        ...{ log: createLog("silent"), keysMax: () => keysMax, resolveModel: (name) => name },
      });
      const request = create(ChangeKeysRequestSchema, {
        keys: keys.map(({ keyId }) => ({ keyId })),
        change: limitTo({ expiresAt }, ["expires_at"]),
      });
      return service.changeKeys(request, callBy(owner, { accountId: "acc_a" }));
    };
    expect(await errorOf(reviveUpTo(liveKeys + 1))).toBe("too_many_keys");
    for (const { keyId } of keys) expect((await read(keyId)).state).toBe(KeyState.EXPIRED);
    const { results } = await reviveUpTo(liveKeys + 2);
    expect(outcomesOf(results)).toEqual(["CHANGED", "CHANGED"]);
    for (const { keyId } of keys) expect((await read(keyId)).state).toBe(KeyState.ACTIVE);
  });
});

describe("tags of many keys", () => {
  test("are set and removed, and others stay; the eleventh is refused for its key alone", async () => {
    const full = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`t${n}`, "v"]));
    const one = await makeBy(owner, { tags: { team: "a", env: "ci" } });
    const two = await makeBy(owner, { tags: full });
    const results = await changeBy(owner, {
      keys: [one, two].map(asRead),
      change: { case: "tags", value: { set: { team: "b", кто: "x" }, remove: ["env"] } },
    }).catch(() => undefined);
    // A name that no tag has.
    expect(results).toBe(undefined);
    const good = await changeBy(owner, {
      keys: [one, two].map(asRead),
      change: { case: "tags", value: { set: { team: "команда 組" }, remove: ["env", "none"] } },
    });
    expect(outcomesOf(good)).toEqual(["CHANGED", "NOT_ALLOWED"]);
    expect(good[1]?.message).toBe("A key has 10 tags at most.");
    expect((await read(one.keyId)).tags).toEqual({ team: "команда 組" });
    expect((await read(two.keyId)).tags).toEqual(full);
    const moved = await changeBy(owner, {
      keys: [two].map(asRead),
      change: { case: "tags", value: { set: { team: "z" }, remove: ["t3"] } },
    });
    expect(outcomesOf(moved)).toEqual(["CHANGED"]);
  });

  test("with names that every object has are removed as others are", async () => {
    const names = ["constructor", "toString", "valueOf"];
    const tags = Object.fromEntries(names.map((name) => [name, "x"]));
    const { keyId } = await makeBy(owner, { tags });
    const change = { case: "tags", value: { set: { a: "b" }, remove: names } } as const;
    for (const outcome of ["CHANGED", "ALREADY"])
      expect(outcomesOf(await changeBy(owner, { keys: [{ keyId }], change }))).toEqual([outcome]);
    expect((await read(keyId)).tags).toEqual({ a: "b" });
    await fixture.client.updateKey({ keyId, settings: { tags }, updateMask: { paths: ["tags"] } });
    await fixture.client.updateKey({
      keyId,
      settings: { tags: { a: "b" } },
      updateMask: { paths: ["tags"] },
    });
    expect((await read(keyId)).tags).toEqual({ a: "b" });
  });

  test("follow the form for one key, which replaces them all", async () => {
    const { keyId } = await makeBy(owner, { tags: { team: "a", env: "ci" } });
    await fixture.client.updateKey({
      keyId,
      settings: { tags: { team: "b", job: "x" } },
      updateMask: { paths: ["tags"] },
    });
    expect((await read(keyId)).tags).toEqual({ team: "b", job: "x" });
    await fixture.client.updateKey({ keyId, settings: {}, updateMask: { paths: ["tags"] } });
    expect((await read(keyId)).tags).toEqual({});
  });
});

describe("pauses of many keys", () => {
  test("of owners and of those who left stay for members, and the others are resumed", async () => {
    const [own, owners, left] = [await makeBy(ana), await makeBy(ana), await makeBy(ana)];
    await changeBy(ana, { keys: [own].map(asRead), change: pause });
    await changeBy(owner, { keys: [owners].map(asRead), change: pause });
    // As one does who is shut out.
    await run(
      "shut out",
      "update keys set paused = true, paused_by_owner = true where key_id = $1",
      [left.keyId],
    );
    const keys = [own, owners, left].map(({ keyId }) => ({ keyId }));
    const results = await changeBy(ana, { keys, change: resume });
    expect(outcomesOf(results)).toEqual(["CHANGED", "NOT_ALLOWED", "NOT_ALLOWED"]);
    expect(results[1]?.message).toContain("An owner has paused this key.");
    expect(outcomesOf(await changeBy(owner, { keys, change: resume }))).toEqual([
      "ALREADY",
      "CHANGED",
      "CHANGED",
    ]);
  });

  test("need a confirmation to end, as for one key, and none to begin", async () => {
    const key = await makeBy(owner);
    const late = person("per_owner", AccountRole.OWNER, { strongUntil: new Date(0) });
    const request = { keys: [{ keyId: key.keyId }] };
    expect(outcomesOf(await changeBy(late, { ...request, change: pause }))).toEqual(["CHANGED"]);
    expect(await errorOf(changeBy(late, { ...request, change: resume }))).toBe("confirm_identity");
    expect(await errorOf(changeBy(late, { ...request, change: revoke }))).toBe("confirm_identity");
    const raise = limitTo({}, ["requests_per_minute"]);
    await fixture.client.updateKey({
      keyId: key.keyId,
      settings: { requestsPerMinute: 3 },
      updateMask: { paths: ["requests_per_minute"] },
    });
    expect(await errorOf(changeBy(late, { ...request, change: raise }))).toBe("confirm_identity");
    const { requestsPerMinute, state: status } = await read(key.keyId);
    expect([requestsPerMinute, status]).toEqual([3, KeyState.PAUSED]);
  });
});

describe("keys that are not the caller's", () => {
  test("of another account look as keys that never were", async () => {
    const { service, call } = open(environmentToken);
    const { key } = await service.createKey(
      create(CreateKeyRequestSchema, { accountId: "acc_b", family: 1, settings: { name: "b" } }),
      call,
    );
    expect.assert(key);
    const own = await makeBy(owner);
    for (const change of [pause, revoke]) {
      const results = await changeBy(owner, {
        keys: [asRead(key), { keyId: "key_none" }, { keyId: "' or 1=1" }, asRead(own)],
        change,
      });
      expect(outcomesOf(results).slice(0, 3)).toEqual(["GONE", "GONE", "GONE"]);
      expect(results.slice(0, 3).map(({ revision, key: now }) => revision ?? now)).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
    }
    expect((await read(key.keyId)).state).toBe(KeyState.ACTIVE);
  });

  test("are no viewer's to change", async () => {
    const key = await makeBy(owner);
    for (const change of [pause, resume, revoke])
      expect(await errorOf(changeBy(viewer, { keys: [asRead(key)], change }))).toBe(
        "not_permitted",
      );
  });

  test("of a management key are its own, within its limits, and none that reads the account", async () => {
    const { service, call } = open(owner);
    const made = await service.createManagementKey(
      create(CreateManagementKeyRequestSchema, {
        accountId: "acc_a",
        settings: {
          name: "platform",
          scopes: [ManagementScope.KEYS],
          childLimits: { requestsPerMinute: 10 },
        },
      }),
      call,
    );
    const caller = await fixture.keys.authenticate(bearer(made.secret));
    const own = await makeBy(caller);
    const others = await makeBy(owner);
    const keys = [own, others].map(asRead);
    expect(outcomesOf(await changeBy(caller, { keys, change: pause }))).toEqual([
      "CHANGED",
      "NOT_ALLOWED",
    ]);
    const limit = (requestsPerMinute: number) =>
      limitTo({ requestsPerMinute }, ["requests_per_minute"]);
    const above = await changeBy(caller, { keys: [{ keyId: own.keyId }], change: limit(11) });
    expect(outcomesOf(above)).toEqual(["NOT_ALLOWED"]);
    expect(above[0]?.message).toContain("is above 10, the most for keys of this program");
    expect(
      outcomesOf(await changeBy(caller, { keys: [{ keyId: own.keyId }], change: limit(9) })),
    ).toEqual(["CHANGED"]);
    const reader = await makeBy(owner, { accountReader: true });
    await run("hand over", "update keys set managed_by = $2 where key_id = $1", [
      reader.keyId,
      actorText(own.managedBy),
    ]);
    const ofReader = [{ keyId: reader.keyId }];
    expect(outcomesOf(await changeBy(caller, { keys: ofReader, change: limit(9) }))).toEqual([
      "NOT_ALLOWED",
    ]);
    expect(outcomesOf(await changeBy(caller, { keys: ofReader, change: pause }))).toEqual([
      "CHANGED",
    ]);
  });
});

test.for<[string, Changes, string]>([
  ["no key", { keys: [], change: pause }, "invalid_request keys"],
  ["a key without an id", { keys: [{}], change: pause }, "invalid_request keys[0].key_id"],
  [
    "1,001 keys",
    { keys: Array.from({ length: 1001 }, (_, n) => ({ keyId: `key_${n}` })), change: pause },
    "invalid_request keys",
  ],
  [
    "a key twice",
    { keys: [{ keyId: "key_x" }, { keyId: "key_x" }], change: pause },
    "invalid_request keys",
  ],
  ["no change", { keys: [{ keyId: "key_x" }] }, "invalid_request change"],
  [
    "a pause that is false",
    { keys: [{ keyId: "key_x" }], change: { case: "pause", value: false } },
    "invalid_request pause",
  ],
  [
    "no tag",
    { keys: [{ keyId: "key_x" }], change: { case: "tags", value: {} } },
    "invalid_request tags",
  ],
  [
    "a tag that is set and removed",
    {
      keys: [{ keyId: "key_x" }],
      change: { case: "tags", value: { set: { a: "b" }, remove: ["a"] } },
    },
    "invalid_request tags.remove",
  ],
  [
    "a name for all",
    {
      keys: [{ keyId: "key_x" }],
      change: {
        case: "limits",
        value: { settings: { name: "x" }, updateMask: { paths: ["name"] } },
      },
    },
    "invalid_request limits.update_mask",
  ],
  [
    "a limit beside the mask",
    {
      keys: [{ keyId: "key_x" }],
      change: {
        case: "limits",
        value: {
          settings: { requestsPerMinute: 1, dailyCapMicrocredits: 1n },
          updateMask: { paths: ["requests_per_minute"] },
        },
      },
    },
    "invalid_request limits.settings.daily_cap_microcredits",
  ],
  [
    "a limit that no key has",
    {
      keys: [{ keyId: "key_x" }],
      change: {
        case: "limits",
        value: { settings: { allowedModels: ["none"] }, updateMask: { paths: ["allowed_models"] } },
      },
    },
    "model_not_found limits.settings.allowed_models[0]",
  ],
])("a change with %s is refused with its field", async ([, request, expected]) => {
  expect(await errorOf(changeBy(owner, request))).toBe(expected);
});

test("a program changes the keys whose makers allow it, and says why not the others", async () => {
  const { service, call } = open(owner);
  const program = async (scopes: ManagementScope[], requestsPerMinute?: number) => {
    const { secret } = await service.createManagementKey(
      create(CreateManagementKeyRequestSchema, {
        accountId: "acc_a",
        settings: {
          ...{ name: "one of two", scopes },
          ...(requestsPerMinute !== undefined && { childLimits: { requestsPerMinute } }),
        },
      }),
      call,
    );
    return fixture.keys.authenticate(bearer(secret));
  };
  const tight = await makeBy(await program([ManagementScope.KEYS], 10));
  const wide = await makeBy(await program([ManagementScope.KEYS], 90));
  const persons = await makeBy(owner);
  const caller = await program([ManagementScope.KEYS, ManagementScope.ALL_KEYS]);
  const keys = [tight, wide, persons].map(({ keyId }) => ({ keyId }));
  const results = await changeBy(caller, {
    keys,
    change: limitTo({ requestsPerMinute: 50 }, ["requests_per_minute"]),
  });
  expect(outcomesOf(results)).toEqual(["NOT_ALLOWED", "CHANGED", "CHANGED"]);
  expect(results[0]?.message).toContain("is above 10, the most for keys of this program");
  const perMinute = await Promise.all(keys.map(async ({ keyId }) => read(keyId)));
  expect(perMinute.map(({ requestsPerMinute }) => requestsPerMinute)).toEqual([10, 50, 50]);
});

test("keys of two programs live again together, as many of each as it may have", async () => {
  const { service, call } = open(owner);
  const program = async (scopes: ManagementScope[]) => {
    const { secret } = await service.createManagementKey(
      create(CreateManagementKeyRequestSchema, {
        accountId: "acc_a",
        settings: { name: "with one key", scopes, maxKeys: 1 },
      }),
      call,
    );
    return fixture.keys.authenticate(bearer(secret));
  };
  const [one, other] = [
    await program([ManagementScope.KEYS]),
    await program([ManagementScope.KEYS]),
  ];
  const keys = [await makeBy(one), await makeBy(other)].map(({ keyId }) => ({ keyId }));
  const expire = (keyIds: readonly string[]) =>
    run(
      "expire for programs",
      "update keys set expires_at = now() - interval '1 second' where key_id = any($1)",
      [keyIds],
    );
  const caller = await program([ManagementScope.KEYS, ManagementScope.ALL_KEYS]);
  const expiresAt = timestampFromDate(new Date(Date.now() + 86_400_000));
  const change = limitTo({ expiresAt }, ["expires_at"]);
  await expire(keys.map(({ keyId }) => keyId));
  expect(outcomesOf(await changeBy(caller, { keys, change }))).toEqual(["CHANGED", "CHANGED"]);
  await expire([keys[1]?.keyId ?? ""]);
  await makeBy(other);
  expect(await errorOf(changeBy(caller, { keys, change }))).toBe("too_many_keys");
});

describe("a change of limits of keys of many managers", () => {
  /** The statements of a change of keys of so many managers, and how often people are checked. */
  async function statementsFor(caller: Caller, managers: number, prefix: string) {
    await seed("acc_a", prefix, 60);
    await run(
      "managers",
      `with made as (
         insert into management_keys (management_key_id, account_id, name, scopes, most_keys,
             created_by)
         select $1 || 'm' || n, 'acc_a', 'm', '{keys}', 9, 'test'
           from generate_series(0, $2::int - 1) n
       )
       update keys set managed_by = 'mgmt:' || $1 || 'm' || (right(key_id, 5)::int % $2::int)
        where key_id like $1 || '%'`,
      [prefix, managers],
    );
    const ran: string[] = [];
    const keys = createKeys({
      ...{ budgets: budgetsOfKeys, adminToken: "", log: createLog("silent") },
      resolveModel: (name) => name,
      async checkManager() {
        ran.push("checkManager");
        return "owner";
      },
      postgres: {
        ...fixture.database,
        transaction: (work) =>
          fixture.database.transaction((tx) => {
            const note: Runner["run"] = (statement, ...values) => {
              ran.push(statement.name);
              return tx.run(statement, ...values);
            };
            return work({ run: note });
          }),
      },
    });
    const service = intercept(serviceTypes.keys, keys.service, {
      authenticate: async () => caller,
      log: createLog("silent"),
      audit: { record: async () => {} },
    });
    const request = create(ChangeKeysRequestSchema, {
      keys: Array.from({ length: 60 }, (_, n) => ({
        keyId: `${prefix}${String(n + 1).padStart(5, "0")}`,
      })),
      change: limitTo({ dailyCapMicrocredits: 5n }, ["daily_cap_microcredits"]),
    });
    const { results } = await service.changeKeys(request, open(caller).call);
    expect(new Set(outcomesOf(results))).toEqual(new Set(["CHANGED"]));
    return ran;
  }

  test("by a person runs the statements of one manager, and checks the person once", async () => {
    const one = await statementsFor(owner, 1, "key_one");
    expect(one.filter((name) => name === "checkManager")).toHaveLength(1);
    expect(await statementsFor(owner, 10, "key_many")).toEqual(one);
  });

  test("by a program runs the statements of one manager", async () => {
    const { service, call } = open(owner);
    const { secret } = await service.createManagementKey(
      create(CreateManagementKeyRequestSchema, {
        accountId: "acc_a",
        settings: { name: "all", scopes: [ManagementScope.KEYS, ManagementScope.ALL_KEYS] },
      }),
      call,
    );
    const caller = await fixture.keys.authenticate(bearer(secret));
    const one = await statementsFor(caller, 1, "key_pone");
    expect(await statementsFor(caller, 10, "key_pmany")).toEqual(one);
  });
});

test("every way to change a key counts a revision, and its use none", async () => {
  const key = await makeBy(owner);
  const { keyId } = key;
  const revisions: number[] = [key.revision];
  const { client } = fixture;
  for (const act of [
    () => client.updateKey({ keyId, settings: { name: "n" }, updateMask: { paths: ["name"] } }),
    () => client.pauseKey(keyId),
    () => client.resumeKey(keyId),
    () =>
      changeBy(owner, { keys: [{ keyId }], change: { case: "tags", value: { set: { a: "b" } } } }),
    () => client.rotateKey({ keyId }),
    // As by every request.
    () => fixture.keys.authenticate(bearer(key.secret)),
    () => fixture.database.run(recordUses, { secretIds: key.secrets.map((one) => one.secretId) }),
    () => client.revokeKey(keyId),
  ]) {
    await act();
    revisions.push((await read(keyId)).revision);
  }
  expect(revisions).toEqual([0, 1, 2, 3, 4, 4, 4, 4, 5]);
});

test("two changes of the same keys at once both end, and each key is changed by one", async () => {
  await seed("acc_a", "key_r", 60);
  const keys = Array.from({ length: 60 }, (_, n) => ({
    keyId: `key_r${String(n + 1).padStart(5, "0")}`,
    revision: 0,
  }));
  const tag = (value: string) => ({ case: "tags", value: { set: { who: value } } }) as const;
  const [one, other] = await Promise.all([
    changeBy(owner, { keys, change: tag("one") }),
    changeBy(owner, { keys: keys.toReversed(), change: tag("other") }),
  ]);
  const count = (results: readonly KeyResult[], outcome: Outcome) =>
    results.filter((result) => result.outcome === outcome).length;
  expect(count(one, Outcome.CHANGED) + count(other, Outcome.CHANGED)).toBe(60);
  expect(count(one, Outcome.CONFLICT) + count(other, Outcome.CONFLICT)).toBe(60);
});
