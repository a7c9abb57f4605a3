// People who leave: an account, with the keys that they manage, or altogether.

import { create, type Message } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { KeyAction } from "../../gen/gateway/common/v1/key_action_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  CreateKeyRequestSchema,
  GetKeyRequestSchema,
  KeyState,
  PauseKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type AuthenticatedCall,
  boundMethod,
  type Implementation,
  implement,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { bearer, createNodeKeys, errorOf } from "../support/keys.ts";
import {
  firstOwner,
  identify,
  join,
  type PeopleNode,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
  tokenOf,
} from "../support/people.ts";
import { query } from "../support/query.ts";
import { answerType, testService } from "../support/test-service.ts";

let people: TestPeople;
let node: PeopleNode;
let other: PeopleNode;
let owner: SignedIn;
let keys: Keys;
beforeAll(async () => {
  people = await startTestPeople();
  [node, other] = [people.node(), people.node()];
  owner = await firstOwner(node);
  keys = createNodeKeys(people.database);
  keys.start();
});
afterAll(async () => {
  await keys.stop();
  await people.stop();
});

const { VIEWER, MEMBER, OWNER } = AccountRole;
const { UNSPECIFIED, KEEP, REVOKE } = KeyAction;
// The promise is a second. Tests of a loaded machine wait for longer, and fail if it never comes.
const soon = { timeout: 10_000, interval: 20 };

const run = <Row>(name: string, text: string, values: unknown[] = []) =>
  query<Row>(people.database, { name: `test/${name}`, text }, values);
const idOf = ({ person }: SignedIn) => person.personId;
async function named(login: string, role: AccountRole = MEMBER, accountId = "acc_a") {
  // An account makes twenty invitations a day.
  await run("age-links", "update links set made_at = made_at - interval '2 days'");
  await run(
    "account",
    "insert into accounts (account_id, name) values ($1, $1) on conflict do nothing",
    [accountId],
  );
  return join(node, owner, accountId, role, login);
}

/** The keys service behind its interceptor, called with a session. */
function keysAs({ token }: SignedIn) {
  const log = createLog("silent");
  const service = intercept(serviceTypes.keys, keys.service, {
    authenticate: node.authenticate,
    log,
  });
  const requestHeader = new Headers({ authorization: `Session ${token}` });
  return { service, call: { signal: new AbortController().signal, requestHeader } };
}

async function makeKeys(person: SignedIn, count: number, accountId = "acc_a") {
  const { service, call } = keysAs(person);
  const made = [];
  for (let index = 0; index < count; index++) {
    const request = create(CreateKeyRequestSchema, {
      accountId,
      family: 1,
      settings: { name: "k" },
    });
    const { key, secret } = await service.createKey(request, call);
    made.push({ keyId: key?.keyId ?? "", secret });
  }
  return made;
}

async function readKey(keyId: string) {
  const { service, call } = keysAs(owner);
  const { key } = await service.getKey(create(GetKeyRequestSchema, { keyId }), call);
  return key;
}

const remove = (by: SignedIn, whom: SignedIn, more: object = {}) =>
  node.as(by.token).removeMember({ accountId: "acc_a", personId: idOf(whom), ...more });
const deletePerson = (by: SignedIn, whom: SignedIn = by) =>
  errorOf(node.as(by.token).deletePerson({ personId: idOf(whom), keys: KeyAction.KEEP }));

describe("a member who is removed", () => {
  test("stays until it is said what becomes of his keys, and the error says how many", async () => {
    const ana = await named("ana");
    await makeKeys(ana, 2);
    const failure = await remove(owner, ana).catch((error: unknown) => error);
    expect(failure).toMatchObject({
      reason: "invalid_request",
      message: "keys: say what becomes of the 2 keys of this person",
      facts: {
        field: "keys",
        allowed: ["KEY_ACTION_PAUSE", "KEY_ACTION_REVOKE", "KEY_ACTION_KEEP"],
      },
    });
    expect(await errorOf(node.as(ana.token).listMembers({ accountId: "acc_a" }))).toBe(
      "not_permitted",
    );
  });

  test("needs no word about keys without one that is not revoked", async () => {
    const none = await named("none");
    expect(await errorOf(remove(owner, none))).toBe("no error");
    const revoked = await named("revoked");
    const [key] = await makeKeys(revoked, 1);
    await run(
      "revoke",
      "update keys set status = 'revoked', revoked_at = now() where key_id = $1",
      [key?.keyId],
    );
    expect(await remove(owner, revoked)).toMatchObject({ keys: 0 });
    expect((await readKey(key?.keyId ?? ""))?.managedBy).toBeUndefined();
  });

  test("who has limits leaves them only with his keys, unless an owner keeps these", async () => {
    const ben = await named("limited");
    const [key] = await makeKeys(ben, 1);
    await run(
      "limit",
      `insert into budgets (account_id, "family", payer, day_limit) values ('acc_a', 'v1', $1, 5)`,
      [`person:${idOf(ben)}`],
    );
    const keep = { keys: KEEP };
    expect(await errorOf(remove(ben, ben, keep))).toBe("invalid_request keys");
    expect(await deletePerson(ben)).toBe("invalid_request keys");
    expect(await remove(owner, ben, keep)).toMatchObject({ keys: 1 });
    expect(actorText((await readKey(key?.keyId ?? ""))?.managedBy)).toBe(`person:${idOf(owner)}`);
  });

  /** Who manages a kept key, by name. */
  test.for<[string, "owner" | "himself" | "operator", string | undefined, string]>([
    ["the owner who removes him", "owner", undefined, "owner"],
    ["a member whom the owner names", "owner", "heir", "heir"],
    ["a member whom he names when he leaves", "himself", "heir", "heir"],
    ["nobody but the owners, if he names none", "himself", undefined, ""],
    ["nobody but the owners, if an operator of no account removes him", "operator", undefined, ""],
  ])("leaves his keys to %s", async ([title, by, to, manager]) => {
    const login = title.replaceAll(/\W/g, "-");
    const ben = await named(login);
    const heir = await named(`heir-${login}`);
    const operator = await named(`operator-${login}`, VIEWER, "acc_b");
    await node.as(owner.token).updatePerson({
      personId: idOf(operator),
      settings: { operatorRole: OperatorRole.ADMIN },
      updateMask: { paths: ["operator_role"] },
    });
    const [key] = await makeKeys(ben, 1);
    const callers = { owner, himself: ben, operator: await signIn(node, operator) };
    const keysToPersonId = to === undefined ? "" : idOf(heir);
    const answer = await remove(callers[by], ben, { keys: KEEP, keysToPersonId });
    expect(answer.keys).toBe(1);
    const kept = await readKey(key?.keyId ?? "");
    const managers = new Map([
      ["owner", `person:${idOf(owner)}`],
      ["heir", `person:${idOf(heir)}`],
      ["", ""],
    ]);
    expect(kept).toMatchObject({
      state: KeyState.ACTIVE,
      createdBy: toActor(`person:${idOf(ben)}`),
    });
    expect(actorText(kept?.managedBy)).toBe(managers.get(manager));
    expect(await errorOf(keys.authenticate(bearer(key?.secret ?? "")))).toBe("no error");
    // The heir may change it now, and only he among the members.
    const pause = (person: SignedIn) => {
      const { service, call } = keysAs(person);
      const request = create(PauseKeyRequestSchema, { keyId: key?.keyId ?? "" });
      return errorOf(service.pauseKey(request, call));
    };
    expect(await pause(heir)).toBe(manager === "heir" ? "no error" : "not_permitted");
    expect(await pause(owner)).toBe("no error");
  });

  test("leaves his keys to nobody who could not manage them", async () => {
    const cleo = await named("cleo");
    const [viewer, stranger] = [await named("looks", VIEWER), await named("b", MEMBER, "acc_b")];
    const disabled = await named("disabled");
    await node.as(owner.token).updatePerson({
      personId: idOf(disabled),
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    await makeKeys(cleo, 1);
    for (const heir of [viewer, stranger, disabled, cleo]) {
      const request = { keys: KEEP, keysToPersonId: idOf(heir) };
      expect(await errorOf(remove(owner, cleo, request))).toBe("invalid_request keys_to_person_id");
    }
    for (const how of [REVOKE, UNSPECIFIED]) {
      const request = { keys: how, keysToPersonId: idOf(owner) };
      expect(await errorOf(remove(owner, cleo, request))).toBe("invalid_request keys_to_person_id");
    }
    expect(await remove(owner, cleo, { keys: KEEP })).toMatchObject({ keys: 1 });
  });

  test("takes his keys with him, on every node, and nobody else's", async () => {
    const dan = await named("dan");
    const far = createNodeKeys(people.database);
    far.start();
    try {
      const [one, two] = await makeKeys(dan, 2);
      const [others] = await makeKeys(owner, 1);
      const [elsewhere] = await makeKeys(owner, 1, "acc_b");
      await run("elsewhere", "update keys set managed_by = $2 where key_id = $1", [
        elsewhere?.keyId,
        `person:${idOf(dan)}`,
      ]);
      const secrets = [one, two, others, elsewhere].map((key) => key?.secret ?? "");
      for (const secret of secrets) await far.authenticate(bearer(secret));
      expect(await remove(owner, dan, { keys: REVOKE })).toMatchObject({ keys: 2 });
      const reasons = (on: Keys) =>
        Promise.all(secrets.map((secret) => errorOf(on.authenticate(bearer(secret)))));
      const expected = ["revoked_key", "revoked_key", "no error", "no error"];
      await vi.waitFor(async () => expect(await reasons(far)).toEqual(expected), soon);
      const { events } = await node
        .as(owner.token)
        .listAuditEvents({ accountId: "acc_a", method: "RemoveMember", pageSize: 1 });
      expect(events[0]?.facts).toMatchObject({
        personId: idOf(dan),
        keys: "REVOKE 2",
      });
      const ids = events[0]?.facts.revokedKeys?.split(" ");
      expect(ids?.sort()).toEqual([one?.keyId, two?.keyId].sort());
    } finally {
      await far.stop();
    }
  });
});

describe("a person who is deleted", () => {
  /** Everything that the tables of people hold, as text. */
  async function everything(): Promise<string> {
    const tables = await run<{ name: string }>(
      "tables",
      `select table_name::text as name from information_schema.tables
        where table_schema = 'public' and table_name <> 'spent_challenges'`,
    );
    const rows = await Promise.all(
      tables.map(({ name }) =>
        run(`all-${name}`, `select '${name}' as name, to_jsonb(t) as row from ${name} t`),
      ),
    );
    return JSON.stringify(rows);
  }

  test("leaves nothing but an id: no login, name, way in, session or link", async () => {
    const login = "zoltan@example.com";
    const { link } = await node
      .as(owner.token)
      .createInvitation({ accountId: "acc_a", role: MEMBER });
    const anyone = node.as(undefined, "203.0.113.77");
    const password = "correct horse battery";
    const { grant, person } = await anyone.redeemLink({
      token: tokenOf(link),
      login,
      name: "Zoltan Example",
      password,
    });
    const zoltan = { ...owner, token: grant?.token ?? "", person: person ?? owner.person };
    await node.as(owner.token).createInvitation({ accountId: "acc_b", role: VIEWER, login });
    await run(
      "identity",
      `with known as (update people set email = login, email_verified_at = now()
         where login = $1 returning person_id)
       insert into identities (issuer, subject, identity_id, person_id)
         select 'https://issuer.example.com', 'zoltan', 'idn_1', person_id from known`,
      [login],
    );
    await run(
      "mail",
      `insert into mails (mail_id, kind, address, facts, ends_at)
         values ('mail_1', 'recovered', $1, '{}', now())`,
      [login],
    );
    await node.as(owner.token).createSignInLink({ personId: idOf(zoltan), reason: "locked out" });
    const [key] = await makeKeys(zoltan, 1);
    await identify(other, zoltan.token);
    expect(await everything()).toContain("Zoltan");

    expect(await deletePerson(zoltan)).toBe("no error");
    const left = await everything();
    expect(left).toContain(idOf(zoltan));
    expect(left).not.toMatch(/zoltan/i);
    const tables = ["sessions", "passwords", "passkeys", "identities", "members", "links"];
    for (const table of tables) {
      const rows = await run(`of-${table}`, `select 1 from ${table} where person_id = $1`, [
        idOf(zoltan),
      ]);
      expect(rows).toEqual([]);
    }
    expect(await errorOf(anyone.signInWithPassword({ login, password }))).toBe("sign_in_failed");
    for (const one of [node, other])
      await vi.waitFor(
        async () => expect(await errorOf(identify(one, zoltan.token))).toBe("invalid_session"),
        soon,
      );
    // The key works, and its account's owners manage it.
    expect(await readKey(key?.keyId ?? "")).toMatchObject({
      state: KeyState.ACTIVE,
      createdBy: toActor(`person:${idOf(zoltan)}`),
    });
    expect((await readKey(key?.keyId ?? ""))?.managedBy).toBeUndefined();
    expect(await errorOf(keys.authenticate(bearer(key?.secret ?? "")))).toBe("no error");
    // The owners of the account see that he left, and who it was to them.
    const { events } = await node
      .as(owner.token)
      .listAuditEvents({ accountId: "acc_a", method: "DeletePerson" });
    expect(events[0]).toMatchObject({
      actor: toActor(`person:${idOf(zoltan)}`),
      ...{ succeeded: true, reason: Reason.UNSPECIFIED },
      facts: { personId: idOf(zoltan) },
    });
    const { people: found } = await node.as(owner.token).listPeople({});
    expect(found.map(({ personId }) => personId)).not.toContain(idOf(zoltan));
    // The login is free again.
    expect((await named(login)).person.login).toBe(login);
  });

  test("is deleted by himself or an operator admin, once", async () => {
    const [fay, gus, helper] = [await named("fay"), await named("gus"), await named("helper")];
    const support = OperatorRole.SUPPORT;
    await node.as(owner.token).updatePerson({
      personId: idOf(helper),
      settings: { operatorRole: support },
      updateMask: { paths: ["operator_role"] },
    });
    const supporter = await signIn(node, helper);
    for (const by of [fay, supporter]) expect(await deletePerson(by, gus)).toBe("not_permitted");
    expect(await deletePerson(owner, gus)).toBe("no error");
    expect(await deletePerson(owner, gus)).toBe("not_found person_id");
    const nobody = { ...gus, person: { ...gus.person, personId: "per_none" } };
    expect(await deletePerson(owner, nobody)).toBe("not_found person_id");
    // Nothing brings him back.
    const client = node.as(owner.token);
    const personId = idOf(gus);
    expect(await errorOf(client.createSignInLink({ personId, reason: "locked out" }))).toBe(
      "not_found person_id",
    );
    expect(
      await errorOf(
        client.updatePerson({
          personId,
          settings: { disabled: false },
          updateMask: { paths: ["disabled"] },
        }),
      ),
    ).toBe("not_found person_id");
    expect(await errorOf(signIn(node, gus))).toBe("sign_in_failed");
  });

  test("has confirmed it within the last 15 minutes", async () => {
    const ida = await named("ida");
    await run("weaken", "update sessions set strong_until = now() where person_id = $1", [
      idOf(ida),
    ]);
    const late = people.node();
    const request = { personId: idOf(ida) };
    expect(await errorOf(late.as(ida.token).deletePerson(request))).toBe("confirm_identity");
  });

  test("is not the last owner of an account who may sign in, nor the last operator", async () => {
    expect(await deletePerson(owner)).toBe("last_one");
    const jo = await named("jo", OWNER, "acc_b");
    const failure = await node
      .as(jo.token)
      .deletePerson({ personId: idOf(jo) })
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ reason: "last_one" });
    expect(String(failure)).toContain("account b");
    expect(await deletePerson(owner, jo)).toBe("last_one");
    const kim = await named("kim", OWNER, "acc_b");
    await node.as(owner.token).updatePerson({
      personId: idOf(kim),
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    expect(await deletePerson(jo)).toBe("last_one");
    await node.as(owner.token).updatePerson({
      personId: idOf(kim),
      settings: { disabled: false },
      updateMask: { paths: ["disabled"] },
    });
    expect(await deletePerson(jo)).toBe("no error");
    expect(await deletePerson(owner, kim)).toBe("last_one");
  });

  test("may be an operator as long as another one stays", async () => {
    const fresh = await startTestPeople();
    try {
      const one = fresh.node();
      const first = await firstOwner(one);
      const second = await join(one, first, "acc_a", OWNER, "second");
      const remove = (who: SignedIn) =>
        errorOf(one.as(who.token).deletePerson({ personId: idOf(who) }));
      expect(await remove(first)).toBe("last_one");
      const settings = { operatorRole: OperatorRole.ADMIN };
      const updateMask = { paths: ["operator_role"] };
      const admin = { personId: idOf(second), settings, updateMask };
      await one.as(first.token).updatePerson(admin);
      expect(await remove(first)).toBe("no error");
    } finally {
      await fresh.stop();
    }
  });

  test("may be the last owner of an account that is closed, and may leave it, too", async () => {
    const [ned, ola] = [
      await named("ned", OWNER, "acc_closed"),
      await named("ola", OWNER, "acc_left"),
    ];
    const leave = () =>
      errorOf(node.as(ola.token).removeMember({ accountId: "acc_left", personId: idOf(ola) }));
    expect([await deletePerson(ned), await leave()]).toEqual(["last_one", "last_one"]);
    await run("close", "update accounts set status = 'suspended' where account_id like 'acc_%'");
    expect([await deletePerson(ned), await leave()]).toEqual(["last_one", "last_one"]);
    await run(
      "closed",
      `update accounts set status = case when account_id in ('acc_closed', 'acc_left')
         then 'closed' else 'active' end`,
    );
    expect([await deletePerson(ned), await leave()]).toEqual(["no error", "no error"]);
    // The keys of a closed account are revoked; what he was to it stays in its events.
    const { events } = await node
      .as(owner.token)
      .listAuditEvents({ accountId: "acc_closed", method: "DeletePerson" });
    expect(events).toHaveLength(1);
  });

  test("loses the links that he made, and those to him", async () => {
    const lea = await named("lea", OWNER);
    const { link } = await node.as(lea.token).createInvitation({ accountId: "acc_a", role: OWNER });
    const recovery = await node
      .as(owner.token)
      .createSignInLink({ personId: idOf(lea), reason: "locked out" });
    expect(await deletePerson(lea)).toBe("no error");
    for (const address of [link, recovery.link]) {
      const request = { token: tokenOf(address), login: "back", password: "long enough here" };
      expect(await errorOf(node.as(undefined).redeemLink(request))).toBe("not_found token");
    }
  });

  test("loses the stream that he reads on another node", async () => {
    const max = await named("max");
    type Methods = Implementation<typeof testService, AuthenticatedCall>;
    async function* watch(_: Message, { signal }: AuthenticatedCall) {
      yield create(answerType);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      throw signal.reason;
    }
    const methods = implement<Methods>(testService, () => watch);
    const service = intercept(testService, methods, {
      authenticate: other.authenticate,
      onCallerChange: other.onCallerChange,
      log: createLog("silent"),
    });
    const desc = testService.methods.find(({ localName }) => localName === "watch");
    const method = desc && boundMethod(service, desc);
    if (method?.kind !== "stream") return expect.unreachable();
    const request = Object.assign(create(method.desc.input), { accountId: "acc_a" });
    const requestHeader = new Headers({ authorization: `Session ${max.token}` });
    const stream = method
      .run(request, { signal: new AbortController().signal, requestHeader })
      [Symbol.asyncIterator]();
    expect((await stream.next()).done).toBe(false);
    const ended = errorOf(stream.next());
    expect(await deletePerson(max)).toBe("no error");
    expect(await ended).toBe("invalid_session");
  });

  test.for<[string, string]>([
    ["owners of an account", "select 1 from members where account_id = 'acc_a' and role = 'owner'"],
    ["operators", "select 1 from people where operator = 'admin' and disabled_at is null"],
  ])("is one of the last two %s, if both delete themselves at once", async ([who, left]) => {
    const world = await startTestPeople();
    try {
      const one = world.node();
      const first = await firstOwner(one);
      const second = await join(one, first, "acc_a", OWNER, "second");
      const two = [first, second];
      if (who === "operators") {
        const operator = OperatorRole.ADMIN;
        await one.as(first.token).updatePerson({
          personId: idOf(second),
          settings: { operatorRole: operator },
          updateMask: { paths: ["operator_role"] },
        });
        two[1] = await signIn(one, second);
        // So that only the rule of operators holds them.
        await query(world.database, { name: "test/free", text: "delete from members" }, []);
      } else {
        const text = "update people set operator = 'none' where login = 'owner'";
        const third = await join(one, first, "acc_b", VIEWER, "third");
        const operator = OperatorRole.ADMIN;
        await one.as(first.token).updatePerson({
          personId: idOf(third),
          settings: { operatorRole: operator },
          updateMask: { paths: ["operator_role"] },
        });
        await query(world.database, { name: "test/no-operator", text }, []);
      }
      const nodes = [one, world.node()];
      const outcomes = await Promise.all(
        two.map(({ token, person }, index) =>
          errorOf((nodes[index] ?? one).as(token).deletePerson({ personId: person.personId })),
        ),
      );
      expect(outcomes.sort()).toEqual(["last_one", "no error"]);
      expect(await query(world.database, { name: "test/left", text: left }, [])).toHaveLength(1);
    } finally {
      await world.stop();
    }
  });
});

describe("an owner who is disabled", () => {
  test("is no owner whom the account could keep: the last one who may sign in stays", async () => {
    const nina = await named("nina", OWNER);
    const inA = { accountId: "acc_a", personId: idOf(owner) };
    const client = node.as(owner.token);
    await client.updatePerson({
      personId: idOf(nina),
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    expect(await errorOf(client.updateMember({ ...inA, role: MEMBER }))).toBe("last_one");
    expect(await errorOf(client.removeMember(inA))).toBe("last_one");
    expect(await errorOf(remove(owner, nina))).toBe("no error");
  });
});

test("a removed passkey ends the sessions that it began, but not the one that removes it", async () => {
  const olga = await named("olga");
  const password = "correct horse battery";
  await node.as(olga.token).setPassword({ password });
  const byPassword = await node.as(undefined).signInWithPassword({ login: "olga", password });
  const stolen = await signIn(node, olga);
  const client = node.as(olga.token);
  await identify(other, stolen.token);
  const { passkeys } = await client.getSession({});
  await client.deletePasskey({ passkeyId: passkeys[0]?.passkeyId ?? "" });
  expect(await errorOf(identify(node, stolen.token))).toBe("invalid_session");
  await vi.waitFor(
    async () => expect(await errorOf(identify(other, stolen.token))).toBe("invalid_session"),
    soon,
  );
  for (const token of [olga.token, byPassword.grant?.token ?? ""])
    expect(await errorOf(identify(node, token))).toBe("no error");
});
