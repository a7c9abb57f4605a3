// Persons who manage keys: whose keys they may change, and what the audit learns of a change.

import { create, type Message } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  AuthenticateRequestSchema,
  CreateKeyRequestSchema,
  GetKeyRequestSchema,
  KeysService,
  PauseKeyRequestSchema,
  ResumeKeyRequestSchema,
  RevokeKeyRequestSchema,
  RevokeSecretRequestSchema,
  RotateKeyRequestSchema,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type Call,
  type Caller,
  environmentToken,
  type Person,
  toCaller,
} from "../../src/contract/contract.ts";
import { type AuditEvent, intercept } from "../../src/contract/interceptor.ts";
import { errorOf, startTestKeys } from "../support/keys.ts";

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
  const service = intercept(KeysService, fixture.keys.service, {
    authenticate: async () => caller,
    log: createLog("silent"),
    audit: { record: async (event) => void events.push(event) },
  });
  const call: Call = { signal: new AbortController().signal, requestHeader: new Headers() };
  return { service, call, events };
}

async function createBy(caller: Caller, accountId = ""): Promise<string> {
  const { service, call } = open(caller);
  const request = create(CreateKeyRequestSchema, { accountId, family: 1, name: "k" });
  return (await service.createKey(request, call)).key?.keyId ?? "";
}

const update = (keyId: string, key: object, paths: string[]) =>
  create(UpdateKeyRequestSchema, { key: { keyId, ...key }, updateMask: { paths } });

test("a person creates keys in the only account, and each key names its creator", async () => {
  for (const [caller, creator] of [
    [ana, "person:per_ana"],
    [environmentToken, "token:ADMIN_TOKEN"],
    [{ kind: "internal", service: "first-start" }, "first-start"],
  ] as const) {
    const keyId = await createBy(caller, caller.kind === "person" ? "" : "acc_a");
    const { key } = await fixture.client.getKey(keyId);
    expect([key?.accountId, key?.createdBy]).toEqual(["acc_a", creator]);
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

describe("an account reader", () => {
  const setReader = (keyId: string, accountReader: boolean) =>
    update(keyId, { accountReader }, ["account_reader"]);

  test("is made by a person who has confirmed, and shows it", async () => {
    const keyId = await createBy(ana);
    const unconfirmed = open({ ...ana, strongUntil: undefined });
    const change = unconfirmed.service.updateKey(setReader(keyId, true), unconfirmed.call);
    expect(await errorOf(change)).toBe("confirm_identity");
    const { service, call } = open(ana);
    const { key } = await service.updateKey(setReader(keyId, true), call);
    expect(key?.accountReader).toBe(true);
  });

  test("is unmade without a confirmation", async () => {
    const keyId = await createBy(ana);
    await open(ana).service.updateKey(setReader(keyId, true), open(ana).call);
    const { service, call } = open({ ...ana, strongUntil: undefined });
    const { key } = await service.updateKey(setReader(keyId, false), call);
    expect(key?.accountReader).toBe(false);
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
    create(CreateKeyRequestSchema, { family: 1, name: "k", expiresAt: timestampFromDate(at) }),
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
