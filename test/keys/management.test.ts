// Management keys: made by owners, used by programs, and bounded on every side.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import {
  AccountRole,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState, type UpdateKeyRequestSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { ManagementKeySettingsSchema } from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type Caller,
  localClient,
  type Person,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { type AuditEvent, intercept } from "../../src/contract/interceptor.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { isManagementSecret, isSecret } from "../../src/keys/secret.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import {
  bearer,
  createNodeKeys,
  errorOf,
  type Fields,
  type NewKey,
  startTestKeys,
} from "../support/keys.ts";
import { query } from "../support/query.ts";

const { READ, KEYS, ALL_KEYS, BUY } = ManagementScope;
const clock = new ManualClock({ creeps: true });
let fixture: Awaited<ReturnType<typeof startTestKeys>>;
beforeAll(async () => {
  fixture = await startTestKeys({ clock });
});
afterAll(() => fixture.drop());

function person(role: AccountRole, more: Partial<Person> = {}): Person {
  return {
    ...{ kind: "person", personId: "per_owner", sessionId: "ses_1" },
    strongUntil: new Date("2100-01-01T00:00:00Z"),
    memberships: [{ accountId: "acc_a", role }],
    operator: OperatorRole.UNSPECIFIED,
    ...more,
  };
}
const owner = person(AccountRole.OWNER);

/** The service behind its interceptor, and the events that it leaves. */
function open(caller?: Caller, keys: Keys = fixture.keys) {
  const events: AuditEvent[] = [];
  const service = intercept(serviceTypes.keys, keys.service, {
    authenticate: caller ? async () => caller : keys.authenticate,
    audit: { record: async (event) => void events.push(event) },
    countChange: keys.countChange,
    log: createLog("silent"),
  });
  return { ...localClient(serviceTypes.keys, service), events };
}

type UpdateKey = MessageInitShape<typeof UpdateKeyRequestSchema>;
type Settings = Fields<typeof ManagementKeySettingsSchema>;
async function make(settings: Settings = {}, idempotencyKey = "", accountId = "acc_a") {
  const { managementKey, secret } = await open(owner).createManagementKey({
    ...{ accountId, idempotencyKey },
    settings: { name: "deploy", scopes: [KEYS], ...settings },
  });
  expect.assert(managementKey);
  const id = managementKey.managementKeyId;
  return { id, secret, key: managementKey, actor: `mgmt:${id}` };
}

/** Calls with a secret. */
const by = (secret: string, more: Record<string, string> = {}) => {
  const { events, ...service } = open();
  const options = { headers: { authorization: `Bearer ${secret}`, ...more } };
  const child = { accountId: "acc_a", family: Family.V1 };
  return {
    events,
    createKey: async (request: NewKey = {}) => {
      const settings = { name: "a child", ...request.settings };
      return (await service.createKey({ ...child, ...request, settings }, options)).key;
    },
    service,
    options,
  };
};
const identify = (secret: string, peer?: string, keys = fixture.keys) =>
  errorOf(keys.authenticate(bearer(secret), peer === undefined ? undefined : { peer }));
const statusOf = async (keyId: string) => (await fixture.client.getKey(keyId)).key?.state;
const run = (text: string, values: unknown[] = []) =>
  query(fixture.database, { name: `test/${crypto.randomUUID()}`, text }, values);

// An account has at most twenty.
afterEach(() => run("update management_keys set revoked_at = now() where revoked_at is null"));

async function isWaiting(): Promise<boolean> {
  const waiting = await run(`select from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`);
  return waiting.length > 0;
}

describe("a new management key", () => {
  test("has a secret of its own form, of which only the digest is stored", async () => {
    const { key, secret, id } = await make({ scopes: [BUY, READ], maxKeys: 7 });
    expect(secret).toMatch(/^mk-gw2-[0-9A-Za-z]{49}$/);
    expect([isManagementSecret(secret), isSecret(secret)]).toEqual([true, false]);
    expect(isManagementSecret(`${secret.slice(0, -1)}!`)).toBe(false);
    expect(key).toMatchObject({
      ...{ name: "deploy", scopes: [READ, BUY], maxKeys: 7, liveKeys: 0 },
      ...{ createdBy: toActor("person:per_owner"), accountId: "acc_a" },
    });
    expect(key.secrets.map(({ hint }) => hint)).toEqual([
      `${secret.slice(0, 14)}…${secret.slice(-4)}`,
    ]);
    const rows = JSON.stringify(await run("select * from management_secrets"));
    expect(rows).not.toContain(secret.slice(12, 40));
    expect(await fixture.keys.authenticate(bearer(secret))).toEqual({
      ...{ kind: "management", managementKeyId: id, accountId: "acc_a", name: "deploy" },
      scopes: [READ, BUY],
    });
  });

  test.for<[string, Settings, string]>([
    ["without a name", { name: "" }, "invalid_request settings.name"],
    ["without a scope", { scopes: [] }, "invalid_request settings.scopes"],
    ["with a scope twice", { scopes: [KEYS, KEYS] }, "invalid_request settings.scopes[1]"],
    ["with too many keys", { maxKeys: 1001 }, "invalid_request settings.max_keys"],
    [
      "with a limit that no key has",
      { childLimits: { requestsPerMinute: 1_000_001 } },
      "invalid_request settings.child_limits.requests_per_minute",
    ],
    [
      "with addresses that are none",
      { allowedAddresses: ["10.0.0.1/8"] },
      "invalid_request settings.allowed_addresses[0]",
    ],
    [
      "that has expired",
      { expiresAt: timestampFromDate(new Date(0)) },
      "invalid_request settings.expires_at",
    ],
  ])("%s is refused", async ([, settings, expected]) => {
    expect(await errorOf(make(settings))).toBe(expected);
  });

  test("of another account is refused", async () => {
    expect(await errorOf(make({}, "", "acc_b"))).toBe("not_found account_id");
  });

  test("is for owners alone, who have confirmed who they are", async () => {
    const request = { accountId: "acc_a", settings: { name: "deploy", scopes: [KEYS] } };
    const unconfirmed = { ...owner, strongUntil: undefined };
    const operator = person(AccountRole.OWNER, {
      memberships: [],
      operator: OperatorRole.ADMIN,
    });
    for (const [caller, reason] of [
      [person(AccountRole.MEMBER), "not_permitted"],
      [operator, "not_permitted"],
      [unconfirmed, "confirm_identity"],
    ] as const)
      expect(await errorOf(open(caller).createManagementKey(request))).toBe(reason);
    const { secret } = await make({ scopes: [READ, KEYS, ALL_KEYS, BUY] });
    const { service, options } = by(secret);
    expect(await errorOf(service.createManagementKey(request, options))).toBe("not_permitted");
    expect(await errorOf(service.listManagementKeys({ accountId: "acc_a" }, options))).toBe(
      "not_permitted",
    );
  });

  test("is made once by fifty calls with one idempotency key, and all get its secret", async () => {
    const key = crypto.randomUUID();
    const all = await Promise.all(Array.from({ length: 50 }, () => make({ name: "once" }, key)));
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(new Set(all.map(({ secret }) => secret)).size).toBe(1);
    expect(await identify(all[0]?.secret ?? "")).toBe("no error");
    await run("update replays set ends_at = now() where method = 'CreateManagementKey'");
    const next = await make({ name: "once" }, key);
    expect(next.id).not.toBe(all[0]?.id);
    // One that could be guessed seals nothing.
    const short = [
      await make({ name: "short" }, "deploy-1"),
      await make({ name: "short" }, "deploy-1"),
    ];
    expect(new Set(short.map(({ id }) => id)).size).toBe(1);
    expect(short.map(({ secret }) => secret.length)).toEqual([56, 0]);
  });
});

describe("its keys", () => {
  test("are managed by it, are counted, and are no readers of the account", async () => {
    const { secret, actor, id } = await make({ maxKeys: 2 });
    const { createKey, events } = by(secret);
    const first = await createKey();
    expect([actorText(first?.createdBy), actorText(first?.managedBy)]).toEqual([actor, actor]);
    expect(await errorOf(createKey({ settings: { accountReader: true } }))).toBe(
      "invalid_request settings.account_reader",
    );
    await createKey();
    expect(await errorOf(createKey())).toBe("too_many_keys");
    await fixture.client.revokeKey(first?.keyId ?? "");
    await createKey();
    const { managementKeys } = await open(owner).listManagementKeys({ accountId: "acc_a" });
    expect(managementKeys.find((one) => one.managementKeyId === id)?.liveKeys).toBe(2);
    expect(
      new Set(
        events.map((event) => `${event.actor} ${event.accountId} ${event.facts.managementKey}`),
      ),
    ).toEqual(new Set([`${actor} acc_a deploy`]));
  });

  test("get no limit above its own, and its own where they set none", async () => {
    const childLimits = { requestsPerMinute: 60, monthlyCapMicrocredits: 5_000n };
    const { secret } = await make({ childLimits });
    const { createKey, service, options } = by(secret);
    const plain = await createKey();
    expect(plain).toMatchObject(childLimits);
    const lower = await createKey({
      settings: { requestsPerMinute: 0, monthlyCapMicrocredits: 5_000n },
    });
    expect(lower).toMatchObject({ requestsPerMinute: 0, monthlyCapMicrocredits: 5_000n });
    const more = {
      ...{ dailyCapMicrocredits: 10n, weeklyCapMicrocredits: 20n, totalCapMicrocredits: 30n },
      requestsAtOnce: 2,
    };
    const other = by((await make({ childLimits: more })).secret);
    expect(await other.createKey()).toMatchObject(more);
    expect(await other.createKey({ settings: { requestsAtOnce: 1 } })).toMatchObject({
      ...{ ...more, requestsAtOnce: 1 },
    });
    for (const [limits, field] of [
      [{ dailyCapMicrocredits: 11n }, "daily_cap_microcredits"],
      [{ weeklyCapMicrocredits: 21n }, "weekly_cap_microcredits"],
      [{ totalCapMicrocredits: 31n }, "total_cap_microcredits"],
      [{ requestsAtOnce: 3 }, "requests_at_once"],
    ] as const)
      expect(await errorOf(other.createKey({ settings: limits }))).toBe(
        `invalid_request settings.${field}`,
      );
    expect(await errorOf(createKey({ settings: { requestsPerMinute: 61 } }))).toBe(
      "invalid_request settings.requests_per_minute",
    );
    expect(await errorOf(createKey({ settings: { monthlyCapMicrocredits: 5_001n } }))).toBe(
      "invalid_request settings.monthly_cap_microcredits",
    );
    const keyId = plain?.keyId ?? "";
    const update = (limits: object, ...paths: string[]) =>
      service.updateKey({ keyId, settings: { ...limits }, updateMask: { paths } }, options);
    expect(
      await errorOf(update({ monthlyCapMicrocredits: 5_001n }, "monthly_cap_microcredits")),
    ).toBe("invalid_request settings.monthly_cap_microcredits");
    expect(await errorOf(update({ accountReader: true }, "account_reader"))).toBe(
      "invalid_request settings.account_reader",
    );
    // A limit that is taken away is the ceiling again; one that is not named stays.
    await update({ requestsPerMinute: 5 }, "requests_per_minute");
    const { key } = await update({}, "monthly_cap_microcredits");
    expect(key).toMatchObject({ requestsPerMinute: 5, monthlyCapMicrocredits: 5_000n });
    // Owners may.
    const raised = await fixture.client.updateKey({
      keyId,
      settings: { requestsPerMinute: 1_000 },
      updateMask: { paths: ["requests_per_minute"] },
    });
    expect(raised.key?.requestsPerMinute).toBe(1_000);
  });

  test("are all that it may change, unless it has ALL_KEYS; those of others look absent", async () => {
    const own = await make();
    const all = await make({ scopes: [ALL_KEYS] });
    const { key } = await fixture.client.createKey({ accountId: "acc_a" });
    const foreign = await fixture.client.createKey({ accountId: "acc_b" });
    const child = await by(own.secret).createKey();
    const acts = (secret: string, keyId: string) => {
      const { service, options } = by(secret);
      const mask = { paths: ["name"] };
      return Promise.all(
        [
          service.updateKey({ keyId, settings: { name: "other" }, updateMask: mask }, options),
          service.rotateKey({ keyId }, options),
          service.pauseKey({ keyId }, options),
          service.resumeKey({ keyId }, options),
          service.revokeSecret({ keyId, secretId: "sec_none" }, options),
        ].map(errorOf),
      );
    };
    const may = ["no error", "no error", "no error", "no error", "not_found secret_id"];
    expect(await acts(own.secret, child?.keyId ?? "")).toEqual(may);
    expect(await acts(own.secret, key?.keyId ?? "")).toEqual(Array(5).fill("not_permitted"));
    for (const keyId of [child?.keyId ?? "", key?.keyId ?? ""])
      expect(await acts(all.secret, keyId)).toEqual(may);
    for (const { secret } of [own, all])
      expect(await acts(secret, foreign.key?.keyId ?? "")).toEqual(
        Array(5).fill("not_found key_id"),
      );
    const { service, options } = by(own.secret);
    expect(await errorOf(service.getKey({ keyId: child?.keyId ?? "" }, options))).toBe(
      "not_permitted",
    );
  });

  test("are changed by the scopes that it has then, not by those of a moment ago", async () => {
    const { id, secret } = await make({ scopes: [KEYS, ALL_KEYS] });
    const { key } = await fixture.client.createKey({ accountId: "acc_a" });
    const child = (await by(secret).createKey())?.keyId ?? "";
    const caller = await fixture.keys.authenticate(bearer(secret));
    const forgetful = open(caller);
    const acts = (keyId: string) =>
      Promise.all(
        [
          forgetful.updateKey({ keyId, settings: { name: "n" }, updateMask: { paths: ["name"] } }),
          forgetful.rotateKey({ keyId }),
          forgetful.pauseKey({ keyId }),
        ].map(errorOf),
      );
    const makeOne = () =>
      errorOf(
        forgetful.createKey({ accountId: "acc_a", family: Family.V1, settings: { name: "n" } }),
      );
    const rescope = (...scopes: ManagementScope[]) =>
      open(owner).updateManagementKey({
        managementKeyId: id,
        settings: { scopes },
        updateMask: { paths: ["scopes"] },
      });
    const [may, mayNot] = [Array(3).fill("no error"), Array(3).fill("not_permitted")];
    expect([await acts(child), await acts(key?.keyId ?? "")]).toEqual([may, may]);
    await rescope(KEYS);
    expect([await acts(child), await acts(key?.keyId ?? "")]).toEqual([may, mayNot]);
    expect(await makeOne()).toBe("no error");
    await rescope(ALL_KEYS);
    expect([await acts(child), await acts(key?.keyId ?? "")]).toEqual([may, may]);
    await rescope(READ, BUY);
    expect([await acts(child), await acts(key?.keyId ?? "")]).toEqual([mayNot, mayNot]);
    expect(await makeOne()).toBe("not_permitted");
  });

  test("that had expired are counted again when they live again", async () => {
    const { secret } = await make({ maxKeys: 2 });
    const { createKey, service, options } = by(secret);
    const ids = [await createKey(), await createKey()].map((key) => key?.keyId ?? "");
    const expire =
      "update keys set expires_at = now() - interval '1 second' where key_id = any($1)";
    await run(expire, [ids]);
    await createKey();
    const revive = (keyId: string, expiresAt?: Date) =>
      errorOf(
        service.updateKey(
          {
            keyId,
            settings: { ...(expiresAt && { expiresAt: timestampFromDate(expiresAt) }) },
            updateMask: { paths: ["expires_at"] },
          },
          options,
        ),
      );
    const outcomes = await Promise.all(ids.map((id) => revive(id)));
    expect(outcomes.toSorted()).toEqual(["no error", "too_many_keys"]);
    expect(await revive(ids[outcomes.indexOf("too_many_keys")] ?? "", new Date("2100-01-01"))).toBe(
      "too_many_keys",
    );
    // Another change of an expired one is free.
    const expired = ids[outcomes.indexOf("too_many_keys")] ?? "";
    const rename = { keyId: expired, settings: { name: "old" }, updateMask: { paths: ["name"] } };
    expect(await errorOf(service.updateKey(rename, options))).toBe("no error");
    // Those that live may get another end.
    expect(await revive(ids[outcomes.indexOf("no error")] ?? "", new Date("2100-01-01"))).toBe(
      "no error",
    );
  });

  test("keep the limits and the pause of an owner, which a program may only tighten", async () => {
    const own = await make();
    const all = await make({ scopes: [ALL_KEYS] });
    const child =
      (await by(own.secret).createKey({ settings: { requestsPerMinute: 5 } }))?.keyId ?? "";
    const theirs = (await fixture.client.createKey({ accountId: "acc_a" })).key?.keyId ?? "";
    const owning = open(owner);
    const limit = (
      service: { updateKey(request: UpdateKey): Promise<unknown> },
      keyId: string,
      to: number | null,
    ) => {
      const settings = to === null ? {} : { requestsPerMinute: to };
      return service.updateKey({ keyId, settings, updateMask: { paths: ["requests_per_minute"] } });
    };
    const as = ({ secret }: { secret: string }) => {
      const { service, options } = by(secret);
      return {
        limit: (keyId: string, to: number | null) =>
          errorOf(
            limit({ updateKey: (request) => service.updateKey(request, options) }, keyId, to),
          ),
        pause: (keyId: string) => errorOf(service.pauseKey({ keyId }, options)),
        resume: (keyId: string) => errorOf(service.resumeKey({ keyId }, options)),
      };
    };
    // What a program has set it may change, and so may another that has the scope.
    expect(await as(own).limit(child, 7)).toBe("no error");
    expect(await as(all).limit(child, 9)).toBe("no error");
    expect(await as(own).limit(child, null)).toBe("no error");
    for (const [keyId, programs] of [
      [child, [own, all]],
      [theirs, [all]],
    ] as const) {
      await limit(owning, keyId, 5);
      for (const program of programs) {
        const { limit: change, pause, resume } = as(program);
        expect(await change(keyId, 6)).toBe("not_permitted");
        expect(await change(keyId, null)).toBe("not_permitted");
        const { service, options } = by(program.secret);
        await expect(
          service.updateKey(
            { keyId, settings: {}, updateMask: { paths: ["requests_per_minute"] } },
            options,
          ),
        ).rejects.toThrow("An owner has set the limits of this key. You may only tighten them.");
        expect(await change(keyId, 4)).toBe("no error");
        // It stays an owner's.
        expect(await change(keyId, 5)).toBe("not_permitted");
        await change(keyId, 4);
        expect([await pause(keyId), await resume(keyId)]).toEqual(["no error", "no error"]);
        await owning.pauseKey({ keyId });
        expect([await pause(keyId), await resume(keyId)]).toEqual(["no error", "not_permitted"]);
        await owning.resumeKey({ keyId });
        // A pause of its own becomes an owner's.
        await pause(keyId);
        await owning.pauseKey({ keyId });
        expect(await resume(keyId)).toBe("not_permitted");
        await owning.resumeKey({ keyId });
        await limit(owning, keyId, 5);
      }
    }
  });

  test("that it pauses are resumed by no member, and what both pause by an owner alone", async () => {
    const member = open(person(AccountRole.MEMBER, { personId: "per_ana" }));
    const { service, options } = by((await make({ scopes: [ALL_KEYS] })).secret);
    const { key } = await member.createKey({
      accountId: "acc_a",
      family: Family.V1,
      settings: { name: "a" },
    });
    const keyId = key?.keyId ?? "";
    const resumes = async () => [
      await errorOf(member.resumeKey({ keyId })),
      await errorOf(service.resumeKey({ keyId }, options)),
    ];
    await service.pauseKey({ keyId }, options);
    expect(await resumes()).toEqual(["not_permitted", "no error"]);
    for (const [first, second] of [
      [service, member],
      [member, service],
    ] as const) {
      await first.pauseKey({ keyId }, first === service ? options : undefined);
      await second.pauseKey({ keyId }, second === service ? options : undefined);
      expect(await resumes()).toEqual(["not_permitted", "not_permitted"]);
      await open(owner).resumeKey({ keyId });
    }
  });

  test("have the ceilings of their maker, also for programs that may change every key", async () => {
    const one = await make({ childLimits: { requestsPerMinute: 10 } });
    const { service, options } = by((await make({ scopes: [ALL_KEYS] })).secret);
    const keyId =
      (await by(one.secret).createKey({ settings: { requestsPerMinute: 5 } }))?.keyId ?? "";
    const limit = (to?: number) => ({
      keyId,
      settings: { ...(to !== undefined && { requestsPerMinute: to }) },
      updateMask: { paths: ["requests_per_minute"] },
    });
    expect(await errorOf(service.updateKey(limit(11), options))).toBe(
      "invalid_request settings.requests_per_minute",
    );
    expect((await service.updateKey(limit(), options)).key?.requestsPerMinute).toBe(10);
    // None of them may look into the account, its maker does not matter.
    const theirs = (await fixture.client.createKey({ accountId: "acc_a" })).key?.keyId ?? "";
    for (const keyId of [theirs, (await by(one.secret).createKey())?.keyId ?? ""]) {
      const reader = {
        keyId,
        settings: { accountReader: true },
        updateMask: { paths: ["account_reader"] },
      };
      expect(await errorOf(service.updateKey(reader, options))).toBe(
        "invalid_request settings.account_reader",
      );
    }
    // Also when the maker is gone.
    await open(owner).revokeManagementKey({ managementKeyId: one.id, children: KeyAction.KEEP });
    expect(await errorOf(service.updateKey(limit(11), options))).toBe(
      "invalid_request settings.requests_per_minute",
    );
  });

  test("are bounded by what is so when they are made, however long a call waits", async () => {
    const { secret, id } = await make({ maxKeys: 1, childLimits: { requestsPerMinute: 10 } });
    const { createKey } = by(secret);
    const held = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const lowering = fixture.database.transaction(async (tx) => {
      const text = `update management_keys set child_limits = '{"requests_per_minute": 3}'
        where management_key_id = $1`;
      await query(tx, { name: "test/lower", text }, [id]);
      locked.resolve();
      await held.promise;
    });
    await locked.promise;
    const making = createKey({ settings: { requestsPerMinute: 5 } });
    const failure = errorOf(making);
    await expect.poll(isWaiting).toBe(true);
    held.resolve();
    await lowering;
    expect(await failure).toBe("invalid_request settings.requests_per_minute");
    expect((await createKey())?.requestsPerMinute).toBe(3);
  });

  test("are created once by an idempotency key, whose repeat is no other program's", async () => {
    const [one, other] = [await make(), await make()];
    const header = { "idempotency-key": crypto.randomUUID() };
    const ids = await Promise.all(
      [one, one, other].map(async ({ secret }) => (await by(secret, header).createKey())?.keyId),
    );
    expect(ids[0]).toBe(ids[1]);
    expect(ids[2]).not.toBe(ids[0]);
  });
});

test("it changes at most sixty things a minute", async () => {
  const { secret, id } = await make({ maxKeys: 1 });
  const { createKey, service, options } = by(secret);
  const keyId = (await createKey())?.keyId ?? "";
  await run(
    "update management_keys set calls = 58, calls_from = now() where management_key_id = $1",
    [id],
  );
  const pause = () => errorOf(service.pauseKey({ keyId }, options));
  expect([await pause(), await pause(), await pause()]).toEqual([
    ...["no error", "no error", "rate_limited"],
  ]);
  // Reading is not counted.
  expect(await errorOf(service.authenticate({}, options))).toBe("no error");
  await run(
    "update management_keys set calls_from = now() - interval '1 minute' where management_key_id = $1",
    [id],
  );
  expect(await pause()).toBe("no error");
});

test("an account has at most twenty", async () => {
  await run("insert into accounts (account_id, name) values ('acc_full', 'full')");
  const owning = { ...owner, memberships: [{ accountId: "acc_full", role: AccountRole.OWNER }] };
  const request = { accountId: "acc_full", settings: { name: "deploy", scopes: [KEYS] } };
  const made = await Promise.all(
    Array.from({ length: 22 }, () => errorOf(open(owning).createManagementKey(request))),
  );
  expect(made.filter((outcome) => outcome === "no error")).toHaveLength(20);
  expect(made.filter((outcome) => outcome === "limit_reached")).toHaveLength(2);
});

describe("a change", () => {
  const update = (id: string, settings: object, ...paths: string[]) =>
    open(owner).updateManagementKey({
      managementKeyId: id,
      settings: { ...settings },
      updateMask: { paths },
    });

  test("is followed by every node within a second", async () => {
    const { id, secret } = await make({ scopes: [READ], allowedAddresses: ["192.0.2.0/24"] });
    const node = createNodeKeys(fixture.database, { clock });
    node.start();
    onTestFinished(() => node.stop());
    const soon = (peer: string, reason: string) =>
      passUntil(
        () => clock.advance(500),
        async () => expect(await identify(secret, peer, node)).toBe(reason),
      );
    await soon("192.0.2.1", "no error");
    await soon("198.51.100.1", "address_not_allowed");
    await expect(
      fixture.keys.authenticate(bearer(secret), { peer: "198.51.100.1" }),
    ).rejects.toThrow("This management key may not be used from 198.51.100.1.");
    const { managementKey } = await update(
      ...[
        id,
        { allowedAddresses: ["198.51.100.1"], scopes: [KEYS] },
        "allowed_addresses",
        "scopes",
      ],
    );
    expect(managementKey).toMatchObject({ scopes: [KEYS], allowedAddresses: ["198.51.100.1"] });
    await soon("192.0.2.1", "address_not_allowed");
    await soon("198.51.100.1", "no error");
    await open(owner).revokeManagementKey({ managementKeyId: id });
    await soon("198.51.100.1", "revoked_key");
    expect(await errorOf(update(id, { name: "late" }, "name"))).toBe(
      "key_not_active management_key_id",
    );
  });

  test("names what it changes, and is only for its own account", async () => {
    const { id } = await make({ childLimits: { requestsPerMinute: 5 } });
    const changed = await update(id, { name: "new", maxKeys: 3 }, "name", "max_keys");
    expect(changed.managementKey).toMatchObject({
      ...{ name: "new", maxKeys: 3, scopes: [KEYS], childLimits: { requestsPerMinute: 5 } },
    });
    const cleared = await update(id, {}, "child_limits");
    expect(cleared.managementKey?.childLimits?.requestsPerMinute).toBeUndefined();
    for (const [paths, field] of [
      [[], "update_mask"],
      [["secrets"], "update_mask"],
      [["*"], "update_mask"],
      [["max_keys"], "settings.max_keys"],
      [["scopes"], "settings.scopes"],
    ] as const)
      expect(await errorOf(update(id, {}, ...paths))).toBe(`invalid_request ${field}`);
    expect(await errorOf(update(id, { name: "new", maxKeys: 3 }, "name"))).toBe(
      "invalid_request settings.max_keys",
    );
    const stranger = { ...owner, memberships: [{ accountId: "acc_b", role: AccountRole.OWNER }] };
    const { rotateManagementKey, revokeManagementKey } = open(stranger);
    for (const call of [rotateManagementKey, revokeManagementKey])
      expect(await errorOf(call({ managementKeyId: id }))).toBe("not_found management_key_id");
  });

  test("a rotation lets the earlier secret live for the overlap, and for no longer than it had", async () => {
    const secretsOf = async (managementKeyId: string) => {
      const all = await open(owner).listManagementKeys({ accountId: "acc_a" });
      return all.managementKeys.find((one) => one.managementKeyId === managementKeyId)?.secrets;
    };
    const { id, secret } = await make();
    const rotate = async (seconds: bigint) =>
      (await open(owner).rotateManagementKey({ managementKeyId: id, overlap: { seconds } })).secret;
    const second = await rotate(3_600n);
    expect([await identify(secret), await identify(second)]).toEqual(["no error", "no error"]);
    const third = await rotate(0n);
    expect(await Promise.all([secret, second, third].map((one) => identify(one)))).toEqual([
      ...["invalid_key", "invalid_key", "no error"],
    ]);
    expect((await secretsOf(id))?.map(({ expiresAt }) => expiresAt !== undefined)).toEqual([
      ...[false, true, true],
    ]);
    // A longer overlap later brings none of them back, and lengthens none.
    await rotate(3_600n);
    const before = await secretsOf(id);
    await rotate(604_800n);
    expect((await secretsOf(id))?.slice(2)).toEqual(before?.slice(1));
    const all = [secret, second, third].map((one) => identify(one));
    expect(await Promise.all(all)).toEqual(["invalid_key", "invalid_key", "no error"]);
    // A new secret is listed before anybody has used it.
    const { key } = await make();
    expect(key.secrets.map(({ lastUsedAt }) => lastUsedAt)).toEqual([undefined]);
  });

  test("one that expires is refused, and its keys go on", async () => {
    const expiresAt = timestampFromDate(new Date("2100-01-01T00:00:00Z"));
    const { id, secret } = await make({ expiresAt });
    const child = await by(secret).createKey();
    await run(
      "update management_keys set expires_at = now() - interval '1 second' where management_key_id = $1",
      [id],
    );
    expect(await identify(secret, undefined, createNodeKeys(fixture.database))).toBe("key_expired");
    expect(await statusOf(child?.keyId ?? "")).toBe(KeyState.ACTIVE);
    // Also by a node that has not heard of it.
    const known = { kind: "management", managementKeyId: id, accountId: "acc_a" } as const;
    const { createKey } = open({ ...known, name: "deploy", scopes: [KEYS] });
    expect(await errorOf(createKey({ settings: { name: "late" }, family: Family.V1 }))).toBe(
      "revoked_key",
    );
  });
});

describe("a revoked one", () => {
  const revoke = (managementKeyId: string, children?: KeyAction) =>
    open(owner).revokeManagementKey({
      managementKeyId,
      ...(children !== undefined && { children }),
    });

  test.for<[KeyAction, KeyState, number]>([
    [KeyAction.KEEP, KeyState.ACTIVE, 0],
    [KeyAction.PAUSE, KeyState.PAUSED, 2],
    [KeyAction.REVOKE, KeyState.REVOKED, 2],
  ])("has its keys treated by %s", async ([children, status, stopped]) => {
    const { id, secret } = await make();
    const { createKey, service, options } = by(secret);
    const ids = [await createKey(), await createKey()].map((key) => key?.keyId ?? "");
    expect(await errorOf(revoke(id))).toBe("invalid_request children");
    expect(await identify(secret)).toBe("no error");
    const { keys, managementKey } = await revoke(id, children);
    expect([keys, managementKey?.revokedAt !== undefined]).toEqual([stopped, true]);
    expect(await identify(secret)).toBe("revoked_key");
    expect(await Promise.all(ids.map(statusOf))).toEqual([status, status]);
    expect(await errorOf(service.createKey({ settings: { name: "late" } }, options))).toBe(
      "revoked_key",
    );
    // What was kept may still be revoked.
    expect((await revoke(id, KeyAction.REVOKE)).keys).toBe(children === KeyAction.REVOKE ? 0 : 2);
  });

  test("needs no word about keys that it has not, and creates none meanwhile", async () => {
    const none = await make();
    expect((await revoke(none.id)).keys).toBe(0);
    const { id, secret } = await make();
    const { createKey } = by(secret);
    const made = Array.from({ length: 8 }, () => createKey().catch(() => undefined));
    await revoke(id, KeyAction.REVOKE);
    const ids = (await Promise.all(made)).flatMap((key) => key?.keyId ?? []);
    expect(new Set(await Promise.all(ids.map(statusOf)))).not.toContain(KeyState.ACTIVE);
  });

  test("a suspended or closed account shuts its management keys out", async () => {
    await run("insert into accounts (account_id, name) values ('acc_gone', 'gone')");
    const owning = { ...owner, memberships: [{ accountId: "acc_gone", role: AccountRole.OWNER }] };
    const { managementKey, secret } = await open(owning).createManagementKey({
      accountId: "acc_gone",
      settings: { name: "deploy", scopes: [READ] },
    });
    expect(await identify(secret)).toBe("no error");
    const { ofAccount } = fixture.keys;
    await run("update accounts set status = 'suspended' where account_id = 'acc_gone'");
    ofAccount.publish(
      await fixture.database.transaction((tx) => ofAccount.announce(tx, "acc_gone")),
    );
    expect(await identify(secret)).toBe("account_suspended");
    const revoked = await fixture.database.transaction((tx) => ofAccount.revokeAll(tx, "acc_gone"));
    expect(revoked).toEqual([managementKey?.managementKeyId]);
    ofAccount.publish(revoked);
    expect(await identify(secret)).toBe("revoked_key");
  });

  test("the end of an account waits for a program that changes a key, which goes on", async () => {
    await run("insert into accounts (account_id, name) values ('acc_ends', 'ends')");
    const owning = { ...owner, memberships: [{ accountId: "acc_ends", role: AccountRole.OWNER }] };
    const { managementKey } = await open(owning).createManagementKey({
      accountId: "acc_ends",
      settings: { name: "deploy", scopes: [KEYS] },
    });
    const made = await open(owning).createKey({
      accountId: "acc_ends",
      family: Family.V1,
      settings: { name: "a child" },
    });
    const { transaction } = fixture.database;
    const program = new Client({ connectionString: fixture.url });
    onTestFinished(() => program.end());
    await program.connect();
    await program.query("begin");
    const values = [managementKey?.managementKeyId];
    const share = "select from management_keys where management_key_id = $1 for share";
    await program.query(share, values);
    const revoked = transaction((tx) => fixture.keys.ofAccount.revokeAll(tx, "acc_ends"));
    await vi.waitFor(async () => expect(await lockWaits()).toBe(1));
    await program.query("select from keys where key_id = $1 for update nowait", [made.key?.keyId]);
    await program.query("commit");
    expect(await revoked).toHaveLength(2);
  });
});

/** How many statements wait for locks. */
async function lockWaits(): Promise<number> {
  const text = `select 1 from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`;
  return (await run(text)).length;
}

test("the feed names the management key that created a key", async () => {
  const { secret, actor } = await make({ name: "deploy-bot" });
  const key = await by(secret).createKey();
  const events = await fixture.keys.listEvents(new Date(Date.now() - 60_000), 1_000);
  expect(events.find(({ keyId }) => keyId === key?.keyId)).toMatchObject({
    ...{ createdBy: actor, manager: "deploy-bot" },
  });
});
