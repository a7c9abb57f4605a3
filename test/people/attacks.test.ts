// What somebody could keep, gain or write who has no right to it any more, or never had it.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { OidcPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { closedPeople } from "../../src/config/catalog.ts";
import { Authenticator } from "../support/authenticator.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  join,
  type PeopleClient,
  type PeopleNode,
  publicUrl,
  redeem,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
  tokenOf,
} from "../support/people.ts";
import { query } from "../support/query.ts";

const { VIEWER, MEMBER, OWNER } = AccountRole;
const password = "correct horse battery";

let people: TestPeople;
let node: PeopleNode;
let root: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  node = people.node();
  root = await firstOwner(node, "root");
});
afterAll(() => people.stop());

async function ownerOf(accountId: string, login: string): Promise<SignedIn> {
  return redeem(
    node,
    (await node.as(root.token).createInvitation({ accountId, role: OWNER })).link,
    login,
  );
}

describe("the open invitations of an owner end", () => {
  const accountId = "acc_b";
  test.for<[string, (personId: string) => Promise<unknown>]>([
    ["who is removed", (personId) => node.as(root.token).removeMember({ accountId, personId })],
    [
      "who becomes a member",
      (personId) => node.as(root.token).updateMember({ accountId, personId, role: MEMBER }),
    ],
    [
      "who is disabled",
      (personId) =>
        node.as(root.token).updatePerson({
          personId,
          settings: { disabled: true },
          updateMask: { paths: ["disabled"] },
        }),
    ],
  ])("%s", async ([how, lose]) => {
    const name = how.replaceAll(" ", "-");
    await ownerOf(accountId, `stays-${name}`);
    const leaver = await ownerOf(accountId, name);
    const { link } = await node.as(leaver.token).createInvitation({ accountId, role: OWNER });
    await lose(leaver.person.personId);
    expect(await errorOf(redeem(node, link, `back-${name}`))).toBe("not_found token");
  });

  test("and those of others stay", async () => {
    const inviter = await ownerOf(accountId, "inviter");
    const leaver = await ownerOf(accountId, "leaver");
    const { link } = await node.as(inviter.token).createInvitation({ accountId, role: VIEWER });
    await node.as(root.token).removeMember({ accountId, personId: leaver.person.personId });
    expect(await errorOf(redeem(node, link, "newcomer"))).toBe("no error");
  });
});

test("the recovery links of an operator who loses the role end", async () => {
  const victim = await join(node, root, "acc_a", VIEWER, "victim");
  const rogue = await join(node, root, "acc_a", VIEWER, "rogue");
  const { personId } = rogue.person;
  const { ADMIN, SUPPORT } = OperatorRole;
  await node.as(root.token).updatePerson({
    personId,
    settings: { operatorRole: ADMIN },
    updateMask: { paths: ["operator_role"] },
  });
  const { token } = await signIn(node, rogue);
  const made = await node
    .as(token)
    .createSignInLink({ personId: victim.person.personId, reason: "locked out" });
  await node.as(root.token).updatePerson({
    personId,
    settings: { operatorRole: SUPPORT },
    updateMask: { paths: ["operator_role"] },
  });
  expect(await errorOf(redeem(node, made.link, ""))).toBe("not_found token");
});

describe("where operators have to use a passkey", () => {
  const url = "https://gateway.example.com";
  let strict: TestPeople;
  let gateway: PeopleNode;
  let boss: { token: string; personId: string; device: Authenticator };
  beforeAll(async () => {
    strict = await startTestPeople(url);
    const acme = { issuer: new URL("http://127.0.0.1:1/"), clientAuthentication: "basic" } as const;
    const more = { title: "ACME", clientId: "c", scope: "openid", answerMs: 1_000, groups: [] };
    const signUp = { mode: "closed", domains: [] } as const;
    const oidc = { acme: { ...acme, ...more, signUp, groupsClaim: "groups" } };
    gateway = strict.node({ settings: { ...closedPeople, oidc } });
    await gateway.installation.claimFirstAccount("acc_a");
    const linkToken = tokenOf(await gateway.installation.makeOwnerLink());
    const anyone = gateway.as(undefined);
    const { passkeyOptionsJson } = await anyone.beginPasskey({ linkToken });
    const device = new Authenticator(url);
    const passkeyAnswerJson = device.register(passkeyOptionsJson);
    const request = { token: linkToken, login: "boss", passkeyAnswerJson };
    const { grant, person } = await anyone.redeemLink(request);
    boss = { token: grant?.token ?? "", personId: person?.personId ?? "", device };
    await gateway.as(boss.token).setPassword({ password });
  });
  afterAll(() => strict.stop());

  /** Every change of a way in, and of what leads to one. */
  const changes: Readonly<Record<string, (client: PeopleClient) => Promise<unknown>>> = {
    CreatePasskey: async (client) => {
      const { passkeyOptionsJson } = await client.beginPasskey({});
      const answerJson = new Authenticator(url).register(passkeyOptionsJson);
      return client.createPasskey({ answerJson, name: "two" });
    },
    DeletePasskey: (client) => client.deletePasskey({ passkeyId: "pky_none" }),
    DeleteIdentity: (client) => client.deleteIdentity({ identityId: "idn_none" }),
    SetPassword: (client) => client.setPassword({ password }),
    SetEmail: (client) => client.setEmail({ email: "" }),
    BeginOidc: (client) => client.beginOidc({ provider: "acme", purpose: OidcPurpose.ADD }),
    CreateSignInLink: (client) =>
      client.createSignInLink({ personId: boss.personId, reason: "locked out" }),
  };
  /** What each of them meets that is let in. */
  const done: Readonly<Record<string, string>> = {
    DeletePasskey: "not_found passkey_id",
    DeleteIdentity: "not_found identity_id",
    BeginOidc: "gateway_unavailable",
  };
  const confirm = async (way: "password" | "passkey") => {
    const client = gateway.as(boss.token);
    if (way === "password") return client.confirmIdentity({ password });
    const { passkeyOptionsJson } = await client.beginSignIn({});
    return client.confirmIdentity({ passkeyAnswerJson: boss.device.sign(passkeyOptionsJson) });
  };

  for (const [name, change] of Object.entries(changes)) {
    test(`${name}: neither a session that a password began, nor one that it confirmed`, async () => {
      const { grant } = await gateway
        .as(undefined, `10.0.0.${Object.keys(changes).indexOf(name)}`)
        .signInWithPassword({ login: "boss", password });
      // Outside localhost such a session has no operator role.
      const refused = name === "CreateSignInLink" ? "not_permitted" : "confirm_identity";
      expect(await errorOf(change(gateway.as(grant?.token)))).toBe(refused);
      await confirm("password");
      expect(await errorOf(change(gateway.as(boss.token)))).toBe("confirm_identity");
      await confirm("passkey");
      expect(await errorOf(change(gateway.as(boss.token)))).toBe(done[name] ?? "no error");
    });
  }

  test("somebody who is no operator changes his ways in with a password", async () => {
    await confirm("passkey");
    const invited = await gateway
      .as(boss.token)
      .createInvitation({ accountId: "acc_a", role: VIEWER });
    const { grant } = await gateway
      .as(undefined)
      .redeemLink({ token: tokenOf(invited.link), login: "plain", password });
    expect(await errorOf(gateway.as(grant?.token).setPassword({ password }))).toBe("no error");
  });
});

const lockPerson = {
  name: "test/lock-person",
  text: "select login from people where person_id = $1 for update",
};
const lockMember = {
  name: "test/lock-member",
  text: "select role from members where person_id = $1 for update",
};
const countWaiting = {
  name: "test/count-waiting",
  text: "select count(*)::integer as waiting from pg_locks where not granted",
};

let changes = 0;

/** The outcome of an attempt that finds the person locked, and meanwhile changed by `text`. */
async function during(
  personId: string,
  attempt: () => Promise<unknown>,
  text: string,
  lock = lockPerson,
): Promise<string> {
  let isSettled = false;
  const outcome = await people.database.transaction(async (tx) => {
    await query(tx, lock, [personId]);
    const running = errorOf(attempt()).finally(() => {
      isSettled = true;
    });
    for (;;) {
      const [row] = await query<{ waiting: number }>(people.database, countWaiting, []);
      if (isSettled || (row?.waiting ?? 0) > 0) break;
    }
    await query(tx, { name: `test/change-${changes++}`, text }, [personId]);
    return { running };
  });
  return outcome.running;
}

describe("rights that are taken away meanwhile", () => {
  const toViewer = "update members set role = 'viewer' where person_id = $1";
  const toNobody = "update people set operator = 'none' where person_id = $1";
  const accountId = "acc_b";
  const { ADMIN } = OperatorRole;

  test("do not make an owner an owner again", async () => {
    const rogue = await ownerOf(accountId, "rogue-owner");
    const { personId } = rogue.person;
    const client = node.as(rogue.token);
    const update = () => client.updateMember({ accountId, personId, role: OWNER });
    expect(await during(personId, update, toViewer, lockMember)).toBe("not_permitted");
    expect((await client.getSession({})).accounts).toMatchObject([{ role: VIEWER }]);
  });

  test("neither invite nor remove anybody", async () => {
    const other = await ownerOf(accountId, "other-owner");
    const rogue = await ownerOf(accountId, "rogue-inviter");
    const { personId } = rogue.person;
    const client = node.as(rogue.token);
    const invite = () => client.createInvitation({ accountId, role: OWNER });
    expect(await during(personId, invite, toViewer, lockMember)).toBe("not_permitted");
    // The node has not heard of the change, and believes that he is an owner.
    const theirs = { accountId, personId: other.person.personId };
    expect(await errorOf(client.removeMember(theirs))).toBe("not_permitted");
    expect(await errorOf(client.removeMember({ accountId, personId }))).toBe("no error");
  });

  test.for<[string, (client: PeopleClient, personId: string) => Promise<unknown>]>([
    [
      "an operator again",
      (client, personId) =>
        client.updatePerson({
          personId,
          settings: { operatorRole: ADMIN },
          updateMask: { paths: ["operator_role"] },
        }),
    ],
    [
      "a link to another person",
      (client) => client.createSignInLink({ personId: root.person.personId, reason: "locked out" }),
    ],
    ["an invitation", (client) => client.createInvitation({ accountId, role: OWNER })],
  ])("do not make an operator %s", async ([what, act]) => {
    const rogue = await join(node, root, "acc_a", VIEWER, `gets-${what.replaceAll(" ", "-")}`);
    const { personId } = rogue.person;
    await node.as(root.token).updatePerson({
      personId,
      settings: { operatorRole: ADMIN },
      updateMask: { paths: ["operator_role"] },
    });
    const client = node.as((await signIn(node, rogue)).token);
    expect(await during(personId, () => act(client, personId), toNobody)).toBe("not_permitted");
  });
});

describe("a session that is ended meanwhile, by a recovery for example,", () => {
  const end = "update sessions set ended_at = now() where person_id = $1";

  test("adds no passkey, and leaves the password alone", async () => {
    const person = await join(node, root, "acc_a", VIEWER, "stolen");
    const { personId } = person.person;
    const client = node.as(person.token);
    const { passkeyOptionsJson } = await client.beginPasskey({});
    const answerJson = new Authenticator(publicUrl).register(passkeyOptionsJson);
    expect(
      await during(personId, () => client.createPasskey({ answerJson, name: "two" }), end),
    ).toBe("invalid_session");
    // The node has not heard of the end.
    expect(await errorOf(client.setPassword({ password }))).toBe("invalid_session");
    const [passkey] = (await node.as((await signIn(node, person)).token).getSession({})).passkeys;
    const passkeyId = passkey?.passkeyId ?? "";
    expect(await errorOf(client.deletePasskey({ passkeyId }))).toBe("invalid_session");
  });
});

describe("a sign-in that began before", () => {
  test("the password changed fails", async () => {
    const person = await join(node, root, "acc_a", VIEWER, "races");
    await node.as(person.token).setPassword({ password });
    const other = await join(node, root, "acc_a", VIEWER, "races-too");
    await node.as(other.token).setPassword({ password: `${password} of another` });
    const attempt = () => node.as(undefined).signInWithPassword({ login: "races", password });
    const text = `update passwords p set hash = o.hash from passwords o
      where p.person_id = $1 and o.person_id = '${other.person.personId}'`;
    const { personId } = person.person;
    expect(await during(personId, attempt, text)).toBe("sign_in_failed");
  });

  test("the person was disabled fails", async () => {
    const person = await join(node, root, "acc_a", VIEWER, "disabled-meanwhile");
    const { personId } = person.person;
    const text = "update people set disabled_at = now() where person_id = $1";
    expect(await during(personId, () => signIn(node, person), text)).toBe("sign_in_failed");
  });
});

test("a session that was left open lets no disabled person in", async () => {
  const person = await join(node, root, "acc_a", VIEWER, "left-open");
  const disable = {
    name: "test/disable",
    text: "update people set disabled_at = now() where person_id = $1",
  };
  await query(people.database, disable, [person.person.personId]);
  // Another node has not read the session yet.
  expect(await errorOf(people.node().as(person.token).getSession({}))).toBe("invalid_session");
});

describe("audit events", () => {
  test("of a stranger are in no account that he names", async () => {
    const stranger = await ownerOf("acc_b", "stranger");
    const { personId } = root.person;
    const call = node.as(stranger.token).removeMember({ accountId: "acc_a", personId });
    expect(await errorOf(call)).toBe("not_found account_id");
    const actor = toActor(`person:${stranger.person.personId}`);
    const { events } = await node.as(root.token).listAuditEvents({ accountId: "acc_a", actor });
    expect(events).toEqual([]);
    const query = { allAccounts: true, actor, method: "RemoveMember" };
    const all = await node.as(root.token).listAuditEvents(query);
    expect(all.events).toMatchObject([
      { reason: Reason.NOT_FOUND, accountId: "", facts: { accountId: "acc_a" } },
    ]);
  });

  test("name the session, the invitation, the passkey and the state that changed", async () => {
    const admin = node.as(root.token);
    const newest = async (method: string) =>
      (await admin.listAuditEvents({ allAccounts: true, method, pageSize: 1 })).events[0]?.facts;
    const { invitation, link } = await admin.createInvitation({ accountId: "acc_a", role: VIEWER });
    const invitationId = invitation?.invitationId ?? "";
    expect(await newest("CreateInvitation")).toMatchObject({ invitationId, role: "VIEWER" });
    await admin.revokeInvitation({ accountId: "acc_a", invitationId });
    expect(await newest("RevokeInvitation")).toMatchObject({ invitationId });

    const person = await join(node, root, "acc_a", VIEWER, "ids");
    const second = await signIn(node, person);
    const client = node.as(second.token);
    const { sessionId } = await node.as(person.token).getSession({});
    await client.revokeSession({ sessionId });
    expect(await newest("RevokeSession")).toMatchObject({ sessionId });
    await client.setPassword({ password });
    const passkeyId = (await client.getSession({})).passkeys[0]?.passkeyId ?? "";
    await client.deletePasskey({ passkeyId });
    expect(await newest("DeletePasskey")).toMatchObject({ passkeyId });
    await admin.updatePerson({
      personId: person.person.personId,
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    expect(await newest("UpdatePerson")).toMatchObject({ oldDisabled: "false", disabled: "true" });
    // The token of the link is in none of them.
    expect(JSON.stringify(await newest("CreateInvitation"))).not.toContain(tokenOf(link));
  });
});
