// Persons who manage keys: whose keys they may change, and what the audit learns of a change.

import { create, type Message } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  AuthenticateRequestSchema,
  CreateKeyRequestSchema,
  GetKeyRequestSchema,
  PauseKeyRequestSchema,
  ResumeKeyRequestSchema,
  RevokeKeyRequestSchema,
  RevokeSecretRequestSchema,
  RotateKeyRequestSchema,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { actorText } from "../../src/base/actors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type Call,
  type Caller,
  environmentToken,
  type Person,
  serviceTypes,
  toCaller,
} from "../../src/contract/contract.ts";
import { type AuditEvent, intercept } from "../../src/contract/interceptor.ts";
import { errorOf, startTestKeys } from "../support/keys.ts";
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

const ana = person("per_ana", AccountRole.MEMBER);
const ben = person("per_ben", AccountRole.MEMBER);
const viewer = person("per_viewer", AccountRole.VIEWER);
const owner = person("per_owner", AccountRole.OWNER);
const stranger = person("per_stranger", AccountRole.OWNER, {
  memberships: [{ accountId: "acc_b", role: AccountRole.OWNER }],
});
const operator = person("per_operator", AccountRole.UNSPECIFIED, {
  memberships: [],
  operator: OperatorRole.ADMIN,
});
const support = person("per_support", AccountRole.UNSPECIFIED, {
  memberships: [],
  operator: OperatorRole.SUPPORT,
});

/** The service behind its interceptor, called by `caller`, and the events that it leaves. */
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

async function createBy(caller: Caller, accountId = ""): Promise<string> {
  const { service, call } = open(caller);
  const request = create(CreateKeyRequestSchema, { accountId, family: 1, settings: { name: "k" } });
  return (await service.createKey(request, call)).key?.keyId ?? "";
}

const update = (keyId: string, key: object, paths: string[]) =>
  create(UpdateKeyRequestSchema, { keyId, settings: { ...key }, updateMask: { paths } });

test("a person creates keys in the only account, and each key names its creator", async () => {
  for (const [caller, creator] of [
    [ana, "person:per_ana"],
    [environmentToken, "token:ADMIN_TOKEN"],
    [{ kind: "internal", service: "bootstrap" }, "bootstrap"],
  ] as const) {
    const keyId = await createBy(caller, caller.kind === "person" ? "" : "acc_a");
    const { key } = await fixture.client.getKey(keyId);
    expect([key?.accountId, actorText(key?.createdBy)]).toEqual(["acc_a", creator]);
  }
});

describe("who may change a key", () => {
  const changes: Readonly<Record<string, (keyId: string) => [string, Message]>> = {
    update: (keyId) => ["updateKey", update(keyId, { name: "new" }, ["name"])],
    pause: (keyId) => ["pauseKey", create(PauseKeyRequestSchema, { keyId })],
    resume: (keyId) => ["resumeKey", create(ResumeKeyRequestSchema, { keyId })],
    rotate: (keyId) => ["rotateKey", create(RotateKeyRequestSchema, { keyId })],
    "revoke a secret": (keyId) => [
      "revokeSecret",
      create(RevokeSecretRequestSchema, { keyId, secretId: "sec_none" }),
    ],
    revoke: (keyId) => ["revokeKey", create(RevokeKeyRequestSchema, { keyId })],
  };
  const done = { "revoke a secret": "not_found secret_id" };

  for (const [name, changeOf] of Object.entries(changes)) {
    test.for<[string, Person, string]>([
      ["the member who created it", ana, "no error"],
      ["another member", ben, "not_permitted"],
      ["a viewer", viewer, "not_permitted"],
      ["an owner", owner, "no error"],
      ["an owner of another account", stranger, "not_found key_id"],
      ["an operator", operator, "no error"],
      ["a supporter", support, "not_permitted"],
    ])(`${name}: %s`, async ([, caller, expected]) => {
      const keyId = await createBy(ana);
      const { service, call } = open(caller);
      const [method, request] = changeOf(keyId);
      const run: unknown = Reflect.get(service, method);
      if (typeof run !== "function") return expect.unreachable(`no method ${method}`);
      const outcome = await errorOf(run.call(service, request, call));
      const isDone = expected === "no error" && name in done;
      expect(outcome).toBe(isDone ? done["revoke a secret"] : expected);
    });
  }

  test("a key of another account looks exactly like one that does not exist", async () => {
    const keyId = await createBy(ana);
    const { service, call } = open(stranger);
    const failureOf = (id: string) =>
      service.getKey(create(GetKeyRequestSchema, { keyId: id }), call).then(
        () => expect.unreachable(),
        (error: Error & { facts: object }) => [error.message, error.facts],
      );
    expect(await failureOf(keyId)).toEqual(await failureOf("key_none"));
  });
});

describe("a change by a person who has not confirmed who he is", () => {
  const weak = { ...ana, strongUntil: new Date(Date.now() - 1) };
  const soon = timestampFromDate(new Date("2100-01-01T00:00:00Z"));
  const late = timestampFromDate(new Date("2100-01-01T00:00:01Z"));
  const [haiku, opus] = ["model-haiku-4.5", "model-opus-4.6"];

  // What the key has, what it is to have, and whether that raises something.
  const changes: [string, object, object, boolean][] = [
    ["more requests a minute", { requestsPerMinute: 5 }, { requestsPerMinute: 6 }, true],
    ["as many requests a minute", { requestsPerMinute: 5 }, { requestsPerMinute: 5 }, false],
    ["fewer requests a minute", { requestsPerMinute: 5 }, { requestsPerMinute: 4 }, false],
    ["some where there were none", { requestsPerMinute: 0 }, { requestsPerMinute: 1 }, true],
    ["no more limit a minute", { requestsPerMinute: 0 }, {}, true],
    ["a first limit a minute", {}, { requestsPerMinute: 1_000_000 }, false],
    ["a higher cap", { monthlyCapMicrocredits: 5n }, { monthlyCapMicrocredits: 6n }, true],
    ["a lower cap", { monthlyCapMicrocredits: 5n }, { monthlyCapMicrocredits: 0n }, false],
    ["no more cap", { monthlyCapMicrocredits: 5n }, {}, true],
    ["a first cap", {}, { monthlyCapMicrocredits: 2n ** 53n }, false],
    ["a further model", { allowedModels: [haiku] }, { allowedModels: [haiku, opus] }, true],
    ["another model", { allowedModels: [haiku] }, { allowedModels: [opus] }, true],
    ["every model", { allowedModels: [haiku] }, {}, true],
    ["the same by its alias", { allowedModels: [haiku] }, { allowedModels: ["haiku"] }, false],
    ["fewer models", { allowedModels: [haiku, opus] }, { allowedModels: [opus] }, false],
    ["a first list", {}, { allowedModels: [haiku, opus] }, false],
    ["a later expiry", { expiresAt: soon }, { expiresAt: late }, true],
    ["an earlier expiry", { expiresAt: late }, { expiresAt: soon }, false],
    ["no more expiry", { expiresAt: late }, {}, true],
    ["a first expiry", {}, { expiresAt: late }, false],
    ["an account reader", {}, { accountReader: true }, true],
    ["no more account reader", { accountReader: true }, {}, false],
  ];
  const paths = {
    requestsPerMinute: "requests_per_minute",
    monthlyCapMicrocredits: "monthly_cap_microcredits",
    allowedModels: "allowed_models",
    expiresAt: "expires_at",
    accountReader: "account_reader",
  };

  test.for(changes)("%s: refused if it raises something", async ([, before, after, isRaise]) => {
    const strong = open(ana);
    const made = create(CreateKeyRequestSchema, { family: 1, settings: { name: "k", ...before } });
    const { key } = await strong.service.createKey(made, strong.call);
    const { service, call } = open(weak);
    const changed = Object.keys({ ...before, ...after });
    const request = update(
      key?.keyId ?? "",
      after,
      changed.map((name) => Reflect.get(paths, name)),
    );
    const outcome = await errorOf(service.updateKey(request, call));
    expect(outcome).toBe(isRaise ? "confirm_identity" : "no error");
    const { key: now } = await fixture.client.getKey(key?.keyId ?? "");
    if (isRaise) expect(now).toEqual(key);
    await strong.service.updateKey(request, strong.call);
  });

  test("is refused as a whole if one of its limits rises", async () => {
    const strong = open(ana);
    const limits = { requestsPerMinute: 5, monthlyCapMicrocredits: 5n };
    const made = create(CreateKeyRequestSchema, { family: 1, settings: { name: "k", ...limits } });
    const keyId = (await strong.service.createKey(made, strong.call)).key?.keyId ?? "";
    const { service, call } = open(weak);
    const both = { requestsPerMinute: 4, monthlyCapMicrocredits: 6n };
    const request = update(keyId, both, ["requests_per_minute", "monthly_cap_microcredits"]);
    expect(await errorOf(service.updateKey(request, call))).toBe("confirm_identity");
    const { key } = await fixture.client.getKey(keyId);
    expect(key).toMatchObject(limits);
  });

  test("is compared with what the key has at that moment, not with what it had", async () => {
    const keyId = await createBy(ana);
    const strong = open(ana);
    const cap = (micro: bigint) =>
      update(keyId, { monthlyCapMicrocredits: micro }, ["monthly_cap_microcredits"]);
    await strong.service.updateKey(cap(100n), strong.call);
    const { service, call } = open(weak);
    const lowered = Promise.withResolvers<void>();
    const lock =
      "select from pools p join keys k using (account_id, family) where k.key_id = $1 for update of p";
    const text = "update budgets set month_limit = 50 where payer = $1";
    const lowering = fixture.database.transaction(async (tx) => {
      await query(tx, { name: "test/lock", text: lock }, [keyId]);
      await query(tx, { name: "test/lower", text }, [keyId]);
      await lowered.promise;
    });
    // 80 is less than 100, and more than the 50 that are not committed yet.
    const outcome = errorOf(service.updateKey(cap(80n), call));
    await expect.poll(() => waiting()).toBe(1);
    lowered.resolve();
    await lowering;
    expect(await outcome).toBe("confirm_identity");
  });

  async function waiting(): Promise<number> {
    const [row] = await query<{ waiting: number }>(
      fixture.database,
      {
        name: "test/waiting",
        text: `select count(*)::int4 as waiting from pg_stat_activity
               where wait_event_type = 'Lock' and datname = current_database()`,
      },
      [],
    );
    return row?.waiting ?? 0;
  }

  test("resumes no key; what resumes nothing is free", async () => {
    const keyId = await createBy(ana);
    const { service, call, events } = open(weak);
    const resume = create(ResumeKeyRequestSchema, { keyId });
    expect(await errorOf(service.resumeKey(resume, call))).toBe("no error");
    await service.pauseKey(create(PauseKeyRequestSchema, { keyId }), call);
    expect(await errorOf(service.resumeKey(resume, call))).toBe("confirm_identity");
    expect((await fixture.client.getKey(keyId)).key?.pausedAt).toBeDefined();
    expect(events.at(-1)).toMatchObject({ method: "ResumeKey", outcome: "confirm_identity" });
    const strong = open(ana);
    const { key } = await strong.service.resumeKey(resume, strong.call);
    expect(key?.pausedAt).toBeUndefined();
  });

  test("is nothing to tokens, which confirm nothing", async () => {
    const keyId = await createBy(ana);
    const limited = update(keyId, { requestsPerMinute: 1 }, ["requests_per_minute"]);
    const { service, call } = open(environmentToken);
    await service.updateKey(limited, call);
    const more = update(keyId, { requestsPerMinute: 2 }, ["requests_per_minute"]);
    expect(await errorOf(service.updateKey(more, call))).toBe("no error");
  });
});

test("a change of limits leaves the old and the new ones in the audit", async () => {
  const keyId = await createBy(ana);
  const { service, call, events } = open(ana);
  const limits = { requestsPerMinute: 60, allowedModels: ["haiku"], monthlyCapMicrocredits: 5n };
  const paths = ["requests_per_minute", "allowed_models", "monthly_cap_microcredits", "name"];
  await service.updateKey(update(keyId, { ...limits, name: "sk-gw2-1pasted" }, paths), call);
  await service.updateKey(update(keyId, {}, ["requests_per_minute"]), call);
  expect(events.map(({ facts }) => facts)).toMatchObject([
    {
      keyId,
      accountId: "acc_a",
      oldRequestsPerMinute: "unlimited",
      requestsPerMinute: "60",
      oldAllowedModels: "all",
      allowedModels: "model-haiku-4.5",
      oldMonthlyCapMicrocredits: "unlimited",
      monthlyCapMicrocredits: "5",
    },
    { oldRequestsPerMinute: "60", requestsPerMinute: "unlimited" },
  ]);
  expect(JSON.stringify(events)).not.toContain("sk-gw2");
});

test("an expiry and a pause leave their audit events", async () => {
  const { service, call, events } = open(ana);
  const at = new Date("2100-01-01T00:00:00Z");
  const { key } = await service.createKey(
    create(CreateKeyRequestSchema, {
      family: 1,
      settings: { name: "k", expiresAt: timestampFromDate(at) },
    }),
    call,
  );
  const keyId = key?.keyId ?? "";
  await service.updateKey(update(keyId, {}, ["expires_at"]), call);
  await service.pauseKey(create(PauseKeyRequestSchema, { keyId }), call);
  expect(events).toMatchObject([
    { method: "CreateKey", facts: { keyId, expiresAt: at.toISOString() } },
    { method: "UpdateKey", facts: { expiresAt: "never", oldExpiresAt: at.toISOString() } },
    { method: "PauseKey", accountId: "acc_a", facts: { keyId } },
  ]);
});

test("a failed change belongs to the account of its key in the audit", async () => {
  const keyId = await createBy(ana);
  const { service, call, events } = open(ben);
  await errorOf(service.revokeKey(create(RevokeKeyRequestSchema, { keyId }), call));
  expect(events).toMatchObject([
    { actor: "person:per_ben", accountId: "acc_a", outcome: "not_permitted", facts: { keyId } },
  ]);
});

test("Authenticate describes a session, and its description is the same caller", async () => {
  const { service, call } = open(owner);
  const answer = await service.authenticate(create(AuthenticateRequestSchema), call);
  expect(toCaller(answer)).toMatchObject({ ...owner, memberships: [{ accountId: "acc_a" }] });
});

describe("a key whose limits an owner has set", () => {
  const limits = {
    ...{ dailyCapMicrocredits: 10n, weeklyCapMicrocredits: 20n, monthlyCapMicrocredits: 30n },
    ...{ totalCapMicrocredits: 40n, requestsAtOnce: 5, requestsPerMinute: 6 },
    allowedModels: ["model-opus-4.6", "model-haiku-4.5"],
    expiresAt: timestampFromDate(new Date("2099-01-01T00:00:00Z")),
  };
  const paths: Readonly<Record<keyof typeof limits, string>> = {
    dailyCapMicrocredits: "daily_cap_microcredits",
    weeklyCapMicrocredits: "weekly_cap_microcredits",
    monthlyCapMicrocredits: "monthly_cap_microcredits",
    totalCapMicrocredits: "total_cap_microcredits",
    requestsAtOnce: "requests_at_once",
    requestsPerMinute: "requests_per_minute",
    allowedModels: "allowed_models",
    expiresAt: "expires_at",
  };
  const names = [
    "dailyCapMicrocredits",
    "weeklyCapMicrocredits",
    "monthlyCapMicrocredits",
  ] as const;
  const amounts = [
    ...names,
    "totalCapMicrocredits",
    "requestsAtOnce",
    "requestsPerMinute",
  ] as const;
  const all = Object.values(paths);

  const change = async (caller: Caller, keyId: string, key: object, mask: string[]) => {
    const { service, call } = open(caller);
    return errorOf(service.updateKey(update(keyId, key, mask), call));
  };
  const stored = async (keyId: string) => (await fixture.client.getKey(keyId)).key;

  test("is tightened by a member in each of them, and never loosened", async () => {
    const keyId = await createBy(ana);
    expect((await stored(keyId))?.limitedByOwner).toBe(false);
    expect(await change(owner, keyId, limits, all)).toBe("no error");
    expect(await stored(keyId)).toMatchObject({ ...limits, limitedByOwner: true });
    for (const name of amounts) {
      const more = typeof limits[name] === "bigint" ? limits[name] + 1n : limits[name] + 1;
      for (const key of [{ [name]: more }, {}])
        expect(await change(ana, keyId, key, [paths[name]])).toBe("not_permitted");
    }
    for (const key of [{ allowedModels: [] }, { allowedModels: ["opus", "haiku", "opus"] }])
      expect(await change(ana, keyId, key, ["allowed_models"])).toBe(
        key.allowedModels.length === 0 ? "not_permitted" : "no error",
      );
    for (const key of [{}, { expiresAt: timestampFromDate(new Date("2099-01-01T00:00:01Z")) }])
      expect(await change(ana, keyId, key, ["expires_at"])).toBe("not_permitted");
    expect(await change(ana, keyId, { accountReader: true }, ["account_reader"])).toBe(
      "not_permitted",
    );
    // All at once, of which one is loosened.
    const mixed = { ...limits, dailyCapMicrocredits: 1n, weeklyCapMicrocredits: 21n };
    expect(await change(ana, keyId, mixed, all)).toBe("not_permitted");
    expect(await stored(keyId)).toMatchObject(limits);

    const tight = { dailyCapMicrocredits: 1n, allowedModels: ["model-haiku-4.5"] };
    const mask = ["daily_cap_microcredits", "allowed_models"];
    expect(await change(ana, keyId, tight, mask)).toBe("no error");
    // What he tightened is an owner's, too.
    expect(await stored(keyId)).toMatchObject({ ...limits, ...tight, limitedByOwner: true });
    expect(await change(ana, keyId, { dailyCapMicrocredits: 10n }, mask.slice(0, 1))).toBe(
      "not_permitted",
    );
    expect(await change(operator, keyId, limits, all)).toBe("no error");
  });

  test("stays so when it is rotated, and what a member limits himself stays his", async () => {
    const keyId = await createBy(ana);
    expect(await change(ana, keyId, { dailyCapMicrocredits: 5n }, [all[0] ?? ""])).toBe("no error");
    expect((await stored(keyId))?.limitedByOwner).toBe(false);
    expect(await change(ana, keyId, { dailyCapMicrocredits: 6n }, [all[0] ?? ""])).toBe("no error");
    expect(await change(owner, keyId, { name: "named" }, ["name"])).toBe("no error");
    expect((await stored(keyId))?.limitedByOwner).toBe(false);
    expect(await change(owner, keyId, { dailyCapMicrocredits: 7n }, [all[0] ?? ""])).toBe(
      "no error",
    );
    const { service, call } = open(ana);
    await service.rotateKey(create(RotateKeyRequestSchema, { keyId }), call);
    expect(await change(ana, keyId, { dailyCapMicrocredits: 8n }, [all[0] ?? ""])).toBe(
      "not_permitted",
    );
  });

  test("may be made with limits, whose maker they are", async () => {
    for (const [caller, isOwners] of [
      [ana, false],
      [owner, true],
    ] as const) {
      const { service, call } = open(caller);
      const asked = create(CreateKeyRequestSchema, {
        accountId: "acc_a",
        family: 1,
        settings: { name: "k", ...limits },
      });
      const { key } = await service.createKey(asked, call);
      expect(key).toMatchObject({ ...limits, limitedByOwner: isOwners });
    }
  });
});

describe("a pause", () => {
  const acts = (caller: Caller, keyId: string) => {
    const { service, call } = open(caller);
    return {
      pause: () => errorOf(service.pauseKey(create(PauseKeyRequestSchema, { keyId }), call)),
      resume: () => errorOf(service.resumeKey(create(ResumeKeyRequestSchema, { keyId }), call)),
    };
  };
  const shown = async (keyId: string) => {
    const { key } = await fixture.client.getKey(keyId);
    return { paused: key?.pausedAt !== undefined, pausedByOwner: key?.pausedByOwner };
  };

  test("of a member is resumed by him", async () => {
    const keyId = await createBy(ana);
    expect(await acts(ana, keyId).pause()).toBe("no error");
    expect(await shown(keyId)).toEqual({ paused: true, pausedByOwner: false });
    expect(await acts(ana, keyId).resume()).toBe("no error");
    expect(await shown(keyId)).toEqual({ paused: false, pausedByOwner: false });
  });

  test.for([
    ["an owner", owner],
    ["an operator", operator],
    ["an admin token", environmentToken],
  ] as const)("of %s is resumed by no member, also if he pauses too", async ([, caller]) => {
    const keyId = await createBy(ana);
    const [theirs, his] = [acts(caller, keyId), acts(ana, keyId)];
    expect(await theirs.pause()).toBe("no error");
    expect(await shown(keyId)).toEqual({ paused: true, pausedByOwner: true });
    expect(await his.resume()).toBe("not_permitted");
    expect(await his.pause()).toBe("no error");
    expect(await his.resume()).toBe("not_permitted");
    expect(await shown(keyId)).toEqual({ paused: true, pausedByOwner: true });
    expect(await acts(owner, keyId).resume()).toBe("no error");
    expect(await shown(keyId)).toEqual({ paused: false, pausedByOwner: false });
    // What he pauses then is his own.
    expect([await his.pause(), await his.resume()]).toEqual(["no error", "no error"]);
    // And an owner takes over what he has paused.
    expect([await his.pause(), await theirs.pause()]).toEqual(["no error", "no error"]);
    expect(await his.resume()).toBe("not_permitted");
  });
});
