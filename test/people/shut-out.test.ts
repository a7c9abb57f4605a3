// People who are shut out do not go on by their keys: what becomes of the keys of somebody who is
// disabled, deleted, or loses an account by the groups of his company. On two nodes.

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import {
  AccountRole,
  ManagementScope,
  OperatorRole,
} from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  CreateKeyRequestSchema,
  KeyState,
  ListKeysRequestSchema,
  PauseKeyRequestSchema,
  ResumeKeyRequestSchema,
  RevokeKeyRequestSchema,
  RotateKeyRequestSchema,
  UpdateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  CreateManagementKeyRequestSchema,
  RevokeManagementKeyRequestSchema,
  RotateManagementKeyRequestSchema,
} from "../../gen/gateway/keys/v1/management_keys_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys } from "../../src/billing/billing.ts";
import { closedPeople } from "../../src/config/catalog.ts";
import type { Caller } from "../../src/contract/contract.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createKeys, type Keys } from "../../src/keys/keys.ts";
import { bearer, errorOf, keysClient } from "../support/keys.ts";
import { idpEnv, idpSettings, RedirectBrowser, startIdp, type TestIdp } from "../support/oidc.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  publicUrl,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";

const { VIEWER, MEMBER, OWNER } = AccountRole;
const { KEEP, REVOKE, PAUSE } = KeyAction;
const { ACTIVE, PAUSED, REVOKED } = KeyState;
// The promise is a second. Tests of a loaded machine wait for longer, and fail if it never comes.
const soon = { timeout: 10_000, interval: 20 };

let people: TestPeople;
let idp: TestIdp;
let node: PeopleNode;
/** Of the node, and of another one. */
let keys: Keys;
let elsewhere: Keys;
let owner: SignedIn;
beforeAll(async () => {
  idp = await startIdp({ redirectUris: [`${publicUrl}/console/oidc/acme/callback`] });
  people = await startTestPeople();
  [keys, elsewhere] = [createTestKeys(), createTestKeys()];
  const groups = [{ group: "team", member: { accountId: "acc_b", role: "member" } }] as const;
  const signUp = {
    mode: "open",
    domains: [],
    join: { accountId: "acc_a", role: "viewer" },
  } as const;
  const oidc = { acme: idpSettings(idp, { signUp, groups }) };
  node = people.node({
    env: idpEnv,
    settings: { ...closedPeople, oidc },
    keys: keys.managed,
  });
  owner = await firstOwner(node);
  keys.start();
  elsewhere.start();
});
afterAll(async () => {
  await keys.stop();
  await elsewhere.stop();
  await people.stop();
  await idp.stop();
});

function createTestKeys(): Keys {
  return createKeys({
    budgets: budgetsOfKeys,
    postgres: people.database,
    adminToken: "",
    resolveModel: (name) => name,
    checkManager: (...of) => node.ofAccount.checkManager(...of),
    log: createLog("silent"),
  });
}

const run = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(people.database, { name: `test/${name}`, text }, values);
const idOf = ({ person }: SignedIn) => person.personId;
const clientOf = ({ token }: SignedIn) => node.as(token);

let named = 0;
async function member(role: AccountRole = MEMBER, accountId = "acc_a"): Promise<SignedIn> {
  // An account makes twenty invitations a day.
  await run("age-links", "update links set made_at = made_at - interval '2 days'");
  return join(node, owner, accountId, role, `person-${++named}`);
}

/** A management key of an account that an owner makes, and whose secret he so has seen. */
async function manageAs(session: SignedIn, accountId: string) {
  const { service, call } = serviceAs(session);
  const settings = { name: "deploy", scopes: [ManagementScope.KEYS] };
  const request = { accountId, settings };
  const made = await service.createManagementKey(
    create(CreateManagementKeyRequestSchema, request),
    call,
  );
  return { id: made.managementKey?.managementKeyId ?? "", secret: made.secret };
}

/** Another secret of it, seen by this owner; the earlier ones go on for so many seconds. */
async function rotateAs(session: SignedIn, managementKeyId: string, seconds = 3_600n) {
  const { service, call } = serviceAs(session);
  const request = { managementKeyId, overlap: { seconds } };
  return (
    await service.rotateManagementKey(create(RotateManagementKeyRequestSchema, request), call)
  ).secret;
}

function serviceAs({ token }: SignedIn, from = node) {
  const log = createLog("silent");
  const service = intercept(serviceTypes.keys, keys.service, {
    authenticate: from.authenticate,
    log,
  });
  const requestHeader = new Headers({ authorization: `Session ${token}` });
  return { service, call: { signal: new AbortController().signal, requestHeader } };
}

/** The keys service, called with a session. `from`: authenticates it. */
function keysAs(session: SignedIn, from = node) {
  const { service, call } = serviceAs(session, from);
  return {
    make: async (accountId = "acc_a") => {
      const request = create(CreateKeyRequestSchema, {
        accountId,
        family: 1,
        settings: { name: "k" },
      });
      const { key, secret } = await service.createKey(request, call);
      return { keyId: key?.keyId ?? "", secret };
    },
    list: (accountId: string) =>
      service.listKeys(create(ListKeysRequestSchema, { accountId }), call),
    pause: (keyId: string) => service.pauseKey(create(PauseKeyRequestSchema, { keyId }), call),
    resume: (keyId: string) => service.resumeKey(create(ResumeKeyRequestSchema, { keyId }), call),
    rotate: (keyId: string) => service.rotateKey(create(RotateKeyRequestSchema, { keyId }), call),
    revoke: (keyId: string) => service.revokeKey(create(RevokeKeyRequestSchema, { keyId }), call),
    limit: (keyId: string, requestsPerMinute: number) =>
      service.updateKey(
        create(UpdateKeyRequestSchema, {
          keyId,
          settings: { requestsPerMinute },
          updateMask: { paths: ["requests_per_minute"] },
        }),
        call,
      ),
    rename: (keyId: string) =>
      service.updateKey(
        create(UpdateKeyRequestSchema, {
          keyId,
          settings: { name: "n" },
          updateMask: { paths: ["name"] },
        }),
        call,
      ),
  };
}

const read = async (keyId: string) => (await keysClient(keys).getKey(keyId)).key;
/** What a call with a secret meets at the other node. */
const outcomeOf = (secret: string) => errorOf(elsewhere.authenticate(bearer(secret)));

type Fate = { readonly keys?: KeyAction; readonly keysToPersonId?: string };
const disable = (person: SignedIn, fate: Fate = {}, by = owner) =>
  clientOf(by).updatePerson({
    personId: idOf(person),
    settings: { disabled: true },
    updateMask: { paths: ["disabled"] },
    ...fate,
  });
const remove = (person: SignedIn, fate: Fate = {}, by = owner) =>
  clientOf(by).deletePerson({ personId: idOf(person), ...fate });

describe.for([
  ["disabled", disable],
  ["deleted", remove],
] as const)("somebody who manages keys and is %s", ([name, shutOut]) => {
  test("stays who he is until it is said what becomes of them", async () => {
    const ana = await member();
    const [one, other] = [await keysAs(ana).make(), await keysAs(ana).make()];
    const failure = await shutOut(ana).catch((error: unknown) => error);
    expect(failure).toMatchObject({
      reason: "invalid_request",
      message: "keys: say what becomes of the 2 keys of this person",
      facts: {
        field: "keys",
        allowed: ["KEY_ACTION_PAUSE", "KEY_ACTION_REVOKE", "KEY_ACTION_KEEP"],
      },
    });
    expect((await clientOf(ana).getSession({})).person?.personId).toBe(idOf(ana));
    for (const { keyId } of [one, other]) expect((await read(keyId))?.state).toBe(ACTIVE);
  });

  test.for([
    [PAUSE, PAUSED, "key_paused"],
    [REVOKE, REVOKED, "revoked_key"],
    [KEEP, ACTIVE, "no error"],
  ] as const)(
    "has them after %i in state %i, on every node: %s",
    async ([fate, status, outcome]) => {
      const ana = await member();
      // He manages keys of two accounts, and leaves one of somebody else alone.
      await clientOf(owner).createInvitation({ accountId: "acc_b", role: MEMBER });
      await run(
        "second",
        "insert into members (account_id, person_id, role) values ('acc_b', $1, 'member')",
        [idOf(ana)],
      );
      const again = await signIn(node, ana);
      const made = [await keysAs(again).make(), await keysAs(again).make("acc_b")];
      const theirs = await keysAs(await member()).make();
      for (const { secret } of made) expect(await outcomeOf(secret)).toBe("no error");
      await shutOut(ana, { keys: fate });
      for (const { keyId, secret } of made) {
        expect((await read(keyId))?.state).toBe(status);
        await vi.waitFor(async () => expect(await outcomeOf(secret)).toBe(outcome), soon);
      }
      expect((await read(theirs.keyId))?.state).toBe(ACTIVE);
      const managers = await Promise.all(
        made.map(async ({ keyId }) => actorText((await read(keyId))?.managedBy)),
      );
      // Who keeps them in his account manages them from now on.
      const stays = name === "disabled" && fate !== KEEP;
      const manager = stays ? `person:${idOf(ana)}` : "";
      const next = fate === KEEP ? `person:${idOf(owner)}` : manager;
      expect(managers).toEqual([next, manager]);
      // The owners of each account see it.
      for (const accountId of ["acc_a", "acc_b"]) {
        const method = name === "disabled" ? "UpdatePerson" : "DeletePerson";
        const { events } = await clientOf(owner).listAuditEvents({ accountId, method });
        const word = { [PAUSE]: "PAUSE", [REVOKE]: "REVOKE", [KEEP]: "KEEP" }[fate];
        expect(events[0]).toMatchObject({
          actor: toActor(`person:${idOf(owner)}`),
          facts: { personId: idOf(ana), keys: `${word} 1` },
        });
      }
    },
  );

  test("leaves them to another member, if that is one who may manage keys in each account", async () => {
    const [ana, ben, viewer] = [await member(), await member(), await member(VIEWER)];
    const { keyId, secret } = await keysAs(ana).make();
    const stranger = await member(MEMBER, "acc_b");
    for (const keysToPersonId of [idOf(viewer), idOf(stranger), idOf(ana), "per_none"])
      expect(await errorOf(shutOut(ana, { keys: KEEP, keysToPersonId }))).toBe(
        "invalid_request keys_to_person_id",
      );
    const paused = shutOut(ana, { keys: PAUSE, keysToPersonId: idOf(ben) });
    expect(await errorOf(paused)).toBe("invalid_request keys_to_person_id");
    expect((await clientOf(ana).getSession({})).person?.personId).toBe(idOf(ana));
    const managerElsewhere = async () => {
      const caller = await elsewhere.authenticate(bearer(secret));
      return caller.kind === "key" ? actorText(caller.key.managedBy) : undefined;
    };
    expect(await managerElsewhere()).toBe(`person:${idOf(ana)}`);
    await shutOut(ana, { keys: KEEP, keysToPersonId: idOf(ben) });
    expect(actorText((await read(keyId))?.managedBy)).toBe(`person:${idOf(ben)}`);
    // Every node learns who manages the key: whose budget it has depends on it.
    await vi.waitFor(
      async () => expect(await managerElsewhere()).toBe(`person:${idOf(ben)}`),
      soon,
    );
  });

  test("needs no word if there are none but revoked ones", async () => {
    const ana = await member();
    const { keyId } = await keysAs(ana).make();
    await keysClient(keys).revokeKey(keyId);
    expect(await errorOf(shutOut(ana))).toBe("no error");
  });

  test("makes and resumes no key while it happens", async () => {
    const ana = await member();
    const paused = await keysAs(ana).make();
    await keysAs(ana).pause(paused.keyId);
    await keysAs(ana).make();
    const locked = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    const text = "select from people where person_id = $1 for share";
    const holding = people.database.transaction(async (tx) => {
      await query(tx, { name: "test/hold", text }, [idOf(ana)]);
      locked.resolve();
      await held.promise;
    });
    await locked.promise;
    // It waits for the person, and what he begins meanwhile waits for it.
    const shutting = errorOf(shutOut(ana, { keys: PAUSE }));
    await expect.poll(waiting).toBe(1);
    const changes = [
      keysAs(ana).make(),
      keysAs(ana).resume(paused.keyId),
      keysAs(ana).rotate(paused.keyId),
      keysAs(ana).rename(paused.keyId),
    ].map(errorOf);
    await expect.poll(waiting).toBe(5);
    held.resolve();
    await holding;
    expect(await shutting).toBe("no error");
    expect(await Promise.all(changes)).toEqual(Array(4).fill("not_permitted"));
    const [row] = await run<{ live: number }>(
      "live",
      `select count(*)::int4 as live from keys
        where created_by = $1 and status = 'active' and not paused`,
      [`person:${idOf(ana)}`],
    );
    expect(row?.live).toBe(0);
  });
});

async function waiting(): Promise<number> {
  const [row] = await run<{ waiting: number }>(
    "waiting",
    `select count(*)::int4 as waiting from pg_stat_activity
      where wait_event_type = 'Lock' and datname = current_database()`,
  );
  return row?.waiting ?? 0;
}

test("a node that has not heard of it lets him change no key", async () => {
  const ana = await member();
  const { keyId } = await keysAs(ana).make();
  // His session, as this node remembers it.
  const caller = await node.authenticate(new Headers({ authorization: `Session ${ana.token}` }));
  const forgetful = { ...node, authenticate: async () => caller };
  await disable(ana, { keys: PAUSE });
  const changes = keysAs(ana, forgetful);
  expect(await errorOf(changes.make())).toBe("not_permitted");
  expect(await errorOf(changes.resume(keyId))).toBe("not_permitted");
  expect(await errorOf(changes.rotate(keyId))).toBe("not_permitted");
  expect((await read(keyId))?.state).toBe(PAUSED);
});

describe("a node that has not heard of a change of a role", () => {
  /** Two members, and what they may do as a node remembers it that misses what follows. */
  async function remembering(role: AccountRole) {
    const [ana, ben] = [await member(role), await member()];
    const caller = await node.authenticate(new Headers({ authorization: `Session ${ana.token}` }));
    const forgetful = keysAs(ana, { ...node, authenticate: async () => caller });
    const [own, theirs] = [await forgetful.make(), await keysAs(ben).make()];
    return { ana, forgetful, own: own.keyId, theirs: theirs.keyId };
  }
  const become = (person: SignedIn, role: AccountRole) =>
    clientOf(owner).updateMember({ accountId: "acc_a", personId: idOf(person), role });

  test("lets a viewer, who was a member, change no key", async () => {
    const { ana, forgetful, own } = await remembering(MEMBER);
    await become(ana, VIEWER);
    for (const act of ["pause", "rotate", "rename"] as const)
      expect(await errorOf(forgetful[act](own))).toBe("not_permitted");
    expect(await errorOf(forgetful.make())).toBe("not_permitted");
  });

  test("judges a member, who was an owner, by what a member may do", async () => {
    const { ana, forgetful, own, theirs } = await remembering(OWNER);
    expect(await errorOf(forgetful.limit(theirs, 5))).toBe("no error");
    await keysAs(owner).limit(own, 5);
    await keysAs(owner).pause(own);
    await become(ana, MEMBER);
    // Not those of others,
    for (const act of ["pause", "rotate", "rename", "revoke"] as const)
      expect(await errorOf(forgetful[act](theirs))).toBe("not_permitted");
    expect(await errorOf(forgetful.limit(theirs, 1))).toBe("not_permitted");
    // and of his own what an owner set no more than tightened.
    expect(await errorOf(forgetful.limit(own, 6))).toBe("not_permitted");
    expect(await errorOf(forgetful.limit(own, 4))).toBe("no error");
    expect(await errorOf(forgetful.resume(own))).toBe("not_permitted");
    // What he makes is limited by himself.
    const { keyId } = await forgetful.make();
    await forgetful.limit(keyId, 5);
    expect((await read(keyId))?.limitedByOwner).toBe(false);
    // He is an owner again.
    await become(ana, OWNER);
    expect(await errorOf(forgetful.limit(theirs, 6))).toBe("no error");
  });

  test("lets an owner do at once what a member may not", async () => {
    const { ana, forgetful, theirs } = await remembering(MEMBER);
    expect(await errorOf(forgetful.limit(theirs, 5))).toBe("not_permitted");
    await become(ana, OWNER);
    expect(await errorOf(forgetful.limit(theirs, 5))).toBe("no error");
    expect((await read(theirs))?.limitedByOwner).toBe(true);
  });

  test("judges an operator, who gave the role up or lost it, by the role in the account", async () => {
    const { ana, own, theirs } = await remembering(MEMBER);
    const { ADMIN, UNSPECIFIED } = OperatorRole;
    const makeOperator = (operator: OperatorRole) =>
      clientOf(owner).updatePerson({
        personId: idOf(ana),
        settings: { operatorRole: operator },
        updateMask: { paths: ["operator_role"] },
      });
    await makeOperator(ADMIN);
    const again = await signIn(node, ana);
    const caller = await node.authenticate(
      new Headers({ authorization: `Session ${again.token}` }),
    );
    expect.assert(caller.kind === "person" && caller.operator === ADMIN);
    const as = (one: Caller) =>
      keysAs(again, { ...node, authenticate: async () => one }).limit(theirs, 5);
    expect(await errorOf(as(caller))).toBe("no error");
    expect(await errorOf(as({ ...caller, operator: UNSPECIFIED }))).toBe("not_permitted");
    await makeOperator(UNSPECIFIED);
    expect(await errorOf(as(caller))).toBe("not_permitted");
    expect((await read(own))?.limitedByOwner).toBe(false);
  });
});

test("the limits that somebody gets with a role are announced to the keys that he manages", async () => {
  const setDefault = (limits: string | null) =>
    run("default", "update accounts set default_member_limits = $1 where account_id = 'acc_a'", [
      limits,
    ]);
  const ana = await member(OWNER);
  const { secret } = await keysAs(ana).make();
  const isLimited = async () => {
    const caller = await elsewhere.authenticate(bearer(secret));
    return caller.kind === "key" && caller.isLimited;
  };
  expect(await isLimited()).toBe(false);
  await setDefault('{"dailyMicrocredits": "7"}');
  try {
    await clientOf(owner).updateMember({ accountId: "acc_a", personId: idOf(ana), role: MEMBER });
    await vi.waitFor(async () => expect(await isLimited()).toBe(true), soon);
  } finally {
    await setDefault(null);
  }
});

test("enabling resumes nothing, and the answer names the keys that stay paused", async () => {
  const ana = await member();
  const { keyId } = await keysAs(ana).make();
  const other = await keysAs(ana).make();
  await keysAs(ana).pause(other.keyId);
  const disabled = await disable(ana, { keys: PAUSE });
  const labels = [keyId, other.keyId].map((id) => ({
    ...{ keyId: id, name: "k", hint: expect.stringContaining("…") },
  }));
  expect(disabled.keys).toMatchObject(labels);
  const enabled = await clientOf(owner).updatePerson({
    personId: idOf(ana),
    settings: { disabled: false },
    updateMask: { paths: ["disabled"] },
  });
  expect(enabled.keys).toMatchObject(labels);
  expect((await read(keyId))?.state).toBe(PAUSED);
  const back = await signIn(node, ana);
  // Who shut him out paused them, also the one that he had paused: an owner resumes them.
  for (const id of [keyId, other.keyId])
    expect(await errorOf(keysAs(back).resume(id))).toBe("not_permitted");
  await keysAs(owner).resume(keyId);
  expect((await read(keyId))?.state).toBe(ACTIVE);
});

test("a change of the operator role alone asks for no keys", async () => {
  const ana = await member();
  const { keyId } = await keysAs(ana).make();
  const operator = OperatorRole.SUPPORT;
  const { keys: named } = await clientOf(owner).updatePerson({
    personId: idOf(ana),
    settings: { operatorRole: operator },
    updateMask: { paths: ["operator_role"] },
  });
  expect(named).toEqual([]);
  expect((await read(keyId))?.state).toBe(ACTIVE);
});

test("the keys that an operator made in the account of others stop, too", async () => {
  const olga = await member(VIEWER);
  await clientOf(owner).updatePerson({
    personId: idOf(olga),
    settings: { operatorRole: OperatorRole.ADMIN },
    updateMask: { paths: ["operator_role"] },
  });
  const operator = await signIn(node, olga);
  const { keyId } = await keysAs(operator).make("acc_b");
  expect(await errorOf(remove(olga))).toBe("invalid_request keys");
  await remove(olga, { keys: PAUSE });
  expect(await read(keyId)).toMatchObject({ state: PAUSED });
  expect((await read(keyId))?.managedBy).toBeUndefined();
});

test("a member who is removed may have his keys paused, and left to the owners", async () => {
  const ana = await member();
  const { keyId } = await keysAs(ana).make();
  const personId = idOf(ana);
  await clientOf(owner).removeMember({ accountId: "acc_a", personId, keys: PAUSE });
  expect(await read(keyId)).toMatchObject({ state: PAUSED });
  expect((await read(keyId))?.managedBy).toBeUndefined();
});

const demote = (person: SignedIn) =>
  clientOf(owner).updateMember({ accountId: "acc_a", personId: idOf(person), role: MEMBER });
const dismiss = (person: SignedIn, fate: Fate = {}) =>
  clientOf(owner).removeMember({ accountId: "acc_a", personId: idOf(person), ...fate });

test.for([
  ["disabled", disable, "UpdatePerson"],
  ["deleted", remove, "DeletePerson"],
  ["removed", dismiss, "RemoveMember"],
  ["made a member", demote, "UpdateMember"],
] as const)(
  "an owner who is %s cannot go on with a secret of a management key, others can",
  async ([name, act, method]) => {
    const ana = await member(OWNER);
    const made = await manageAs(ana, "acc_a");
    const theirs = await manageAs(owner, "acc_a");
    const seen = [await rotateAs(ana, theirs.id), await rotateAs(ana, made.id)];
    const all = [made.secret, ...seen, theirs.secret];
    for (const secret of all) expect(await outcomeOf(secret)).toBe("no error");
    if (name !== "made a member") {
      expect(await errorOf(act(ana))).toBe("invalid_request keys");
      for (const secret of all) expect(await outcomeOf(secret)).toBe("no error");
    }
    // Also where keys are kept: it has the rights of an owner.
    await act(ana, { keys: KEEP });
    for (const secret of [made.secret, ...seen])
      await vi.waitFor(async () => expect(await outcomeOf(secret)).toBe("invalid_key"), soon);
    expect(await outcomeOf(theirs.secret)).toBe("no error");
    // The key goes on with a secret that he has not seen.
    expect(await outcomeOf(await rotateAs(owner, made.id))).toBe("no error");
    const { events } = await clientOf(owner).listAuditEvents({ accountId: "acc_a", method });
    expect(events[0]?.facts.endedKeys?.split(" ").toSorted()).toEqual(
      [made.id, theirs.id].toSorted(),
    );
  },
);

test("an owner who can use no management key any more is asked nothing", async () => {
  const ana = await member(OWNER);
  const [revoked, ended, first] = [
    await manageAs(ana, "acc_a"),
    await manageAs(ana, "acc_a"),
    await manageAs(owner, "acc_a"),
  ];
  const { service, call } = serviceAs(owner);
  const { id: managementKeyId } = revoked;
  const request = create(RevokeManagementKeyRequestSchema, { managementKeyId });
  await service.revokeManagementKey(request, call);
  await rotateAs(owner, ended.id, 0n);
  expect(await errorOf(dismiss(ana))).toBe("no error");
  expect(await outcomeOf(first.secret)).toBe("no error");
});

test("who shuts an owner out learns which management keys he could use", async () => {
  const ana = await member(OWNER);
  const { id } = await manageAs(ana, "acc_a");
  const secret = await rotateAs(ana, id);
  const { keys: named } = await disable(ana, { keys: PAUSE });
  const hint = `${secret.slice(0, 14)}…${secret.slice(-4)}`;
  expect(named).toMatchObject([{ keyId: id, name: "deploy", hint }]);
});

test("an owner of two accounts who leaves one keeps what he made in the other", async () => {
  const ana = await member(OWNER);
  const text = "insert into members (account_id, person_id, role) values ('acc_b', $1, 'owner')";
  await run("second-owner", text, [idOf(ana)]);
  const again = await signIn(node, ana);
  const [here, there] = [await manageAs(again, "acc_a"), await manageAs(again, "acc_b")];
  await dismiss(ana, { keys: PAUSE });
  expect([await outcomeOf(here.secret), await outcomeOf(there.secret)]).toEqual([
    ...["invalid_key", "no error"],
  ]);
});

test("losing an account by groups pauses the keys there, and leaves them to the owners", async () => {
  const come = async (groups: readonly string[]) => {
    idp.people.set("gina", { email: "gina@acme.com", email_verified: true, groups });
    idp.person = "gina";
    const { authorizationUrl, flow } = await node.as(undefined).beginOidc({ provider: "acme" });
    const back = await new RedirectBrowser().follow(
      authorizationUrl,
      ({ origin }) => origin === publicUrl,
    );
    const query = back.search.slice(1);
    const request = { provider: "acme", flow: flow?.token ?? "", query };
    const { grant, person } = await node.as(undefined).finishOidc(request);
    return { ...owner, token: grant?.token ?? "", person: person ?? owner.person };
  };
  const gina = await come(["team"]);
  const made = await keysAs(owner).make("acc_b");
  const manage = "update keys set managed_by = $2 where key_id = $1";
  await run("manage", manage, [made.keyId, `person:${idOf(gina)}`]);
  const program = await manageAs(await member(OWNER, "acc_b"), "acc_b");
  await run("seen", "update management_secrets set made_by = $2 where management_key_id = $1", [
    program.id,
    `person:${idOf(gina)}`,
  ]);
  expect(await outcomeOf(made.secret)).toBe("no error");
  await come(["team"]);
  expect((await read(made.keyId))?.state).toBe(ACTIVE);
  await come([]);
  expect(await read(made.keyId)).toMatchObject({ state: PAUSED });
  expect((await read(made.keyId))?.managedBy).toBeUndefined();
  await vi.waitFor(async () => expect(await outcomeOf(made.secret)).toBe("key_paused"), soon);
  await vi.waitFor(async () => expect(await outcomeOf(program.secret)).toBe("invalid_key"), soon);
  const query = { accountId: "acc_b", method: "FinishOidc" };
  const { events } = await clientOf(owner).listAuditEvents(query);
  expect(events[0]?.facts).toMatchObject({
    personId: idOf(gina),
    oldRole: "MEMBER",
    keys: "PAUSE 2",
    pausedKeys: `${made.keyId} ${program.id}`,
  });
});

test("people make sixty keys an hour in an account, and as many live ones as it may have", async () => {
  const bounded = createKeys({
    budgets: budgetsOfKeys,
    postgres: people.database,
    adminToken: "admin",
    resolveModel: (name) => name,
    checkManager: (...of) => node.ofAccount.checkManager(...of),
    keysMax: () => 70,
    log: createLog("silent"),
  });
  const before = keys;
  keys = bounded;
  try {
    await run("account", "insert into accounts (account_id, name) values ('acc_keys', 'keys')");
    const ana = await member(OWNER, "acc_keys");
    const make = () => keysAs(ana).make("acc_keys");
    const outcomes = await Promise.all(Array.from({ length: 64 }, () => errorOf(make())));
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(60);
    const failure = await make().catch((error: unknown) => error);
    expect(failure).toMatchObject({
      reason: "too_many_keys",
      facts: { limit: { name: "keys_per_hour", limit: 60n, used: 60n } },
    });
    const age = "update keys set created_at = created_at - interval '1 hour' where account_id = $1";
    await run("age-keys", age, ["acc_keys"]);
    for (let count = 60; count < 70; count++) await make();
    expect(await make().catch((error: unknown) => error)).toMatchObject({
      reason: "too_many_keys",
      facts: { limit: { name: "live_keys", limit: 70n, used: 70n } },
    });
    const { liveKeys, maxLiveKeys: liveKeysMax } = await keysAs(ana).list("acc_keys");
    expect([liveKeys, liveKeysMax]).toEqual([70, 70]);
    // A revoked and an expired one make room.
    const text = `with two as (select key_id from keys where account_id = $1 limit 2)
      update keys set status = 'revoked', revoked_at = now()
       where key_id in (select key_id from two)`;
    await run("revoke-two", text, ["acc_keys"]);
    expect(await errorOf(make())).toBe("no error");
    expect(await errorOf(make())).toBe("no error");
    expect(await errorOf(make())).toBe("too_many_keys");
    // An expired one that lives again is counted as a new one.
    const { keys: listed } = await keysAs(ana).list("acc_keys");
    const [live = "", other = ""] = (listed ?? []).flatMap(({ keyId, state: status }) =>
      status === ACTIVE ? [keyId] : [],
    );
    await run("expire", "update keys set expires_at = now() where key_id = $1", [live]);
    expect(await errorOf(make())).toBe("no error");
    const { service, call } = serviceAs(ana);
    const revive = create(UpdateKeyRequestSchema, {
      keyId: live,
      settings: {},
      updateMask: { paths: ["expires_at"] },
    });
    expect(await errorOf(service.updateKey(revive, call))).toBe("too_many_keys");
    await keysClient(bounded).revokeKey(other);
    expect(await errorOf(service.updateKey(revive, call))).toBe("no error");
    // The programs of the operator are not bounded.
    const admin = keysClient(bounded);
    expect(await errorOf(admin.createKey({ accountId: "acc_keys" }))).toBe("no error");
  } finally {
    keys = before;
    await bounded.stop();
  }
});
