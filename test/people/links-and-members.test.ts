// One-time links, the members of accounts, all people, and the log of administrative acts.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { Authenticator } from "../support/authenticator.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  identify,
  join,
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

let people: TestPeople;
let node: PeopleNode;
let owner: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  node = people.node();
  owner = await firstOwner(node);
});
afterAll(() => people.stop());

const password = "correct horse battery";
const { VIEWER, MEMBER, OWNER } = AccountRole;

async function invitation(accountId = "acc_a", role: AccountRole = VIEWER): Promise<string> {
  return (await node.as(owner.token).createInvitation({ accountId, role })).link;
}

const redeemWith = (link: string, login: string, address?: string) =>
  node.as(undefined, address).redeemLink({ token: tokenOf(link), login, password });

describe("a link", () => {
  test("has its secret in the fragment, which the database does not have", async () => {
    const link = new URL(await invitation());
    expect(link.pathname + link.search).toBe("/console/welcome");
    const find = { name: "test/find", text: "select digest from links where link_id like $1" };
    const rows = await query<{ digest: Buffer }>(people.database, find, ["lnk_%"]);
    const texts = rows.map(({ digest }) => digest.toString("base64url"));
    expect(texts).not.toContain(link.hash.slice(1));
  });

  test("is redeemed once, whichever of fifty redemptions comes first", async () => {
    const link = await invitation();
    // Of a network of their own, since those that fail make it wait.
    const race = (index: number) => errorOf(redeemWith(link, `racer-${index}`, "198.51.100.1"));
    const outcomes = await Promise.all(Array.from({ length: 50 }, (_, index) => race(index)));
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(1);
    // One password of a link is hashed at a time.
    const others = new Set(["not_found token", "auth_rate_limited"]);
    expect(outcomes.filter((one) => !others.has(one))).toEqual(["no error"]);
    const { people: found } = await node.as(owner.token).listPeople({ query: "racer-" });
    expect(found).toHaveLength(1);
  });

  test.for<[string, (link: string) => Promise<string>]>([
    ["wrong", async () => `${publicUrl}/console/welcome#${"x".repeat(43)}`],
    ["empty but for a letter", async () => `${publicUrl}/console/welcome#x`],
    [
      "used",
      async (link) => {
        await redeemWith(link, "used-link");
        return link;
      },
    ],
    [
      "expired",
      async (link) => {
        const text = "update links set ends_at = now() where used_at is null";
        await query(people.database, { name: "test/expire", text }, []);
        return link;
      },
    ],
    [
      "revoked",
      async (link) => {
        const client = node.as(owner.token);
        const { invitations } = await client.listInvitations({ accountId: "acc_a" });
        const invitationId = invitations[0]?.invitationId ?? "";
        await client.revokeInvitation({ accountId: "acc_a", invitationId });
        return link;
      },
    ],
  ])("that is %s looks like every other bad one", async ([, spoil]) => {
    const link = await spoil(await invitation());
    expect(await errorOf(redeemWith(link, "too-late"))).toBe("not_found token");
    const linkToken = tokenOf(link);
    expect(await errorOf(node.as(undefined).beginPasskey({ linkToken }))).toBe("not_found token");
  });

  test("stays good when its redemption fails", async () => {
    const link = await invitation();
    const token = tokenOf(link);
    const anyone = node.as(undefined);
    expect(await errorOf(redeemWith(link, "OWNER"))).toBe("login_taken login");
    expect(await errorOf(redeemWith(link, "two words"))).toBe("invalid_request login");
    expect(await errorOf(anyone.redeemLink({ token, login: "late" }))).toBe(
      "invalid_request password",
    );
    expect(await errorOf(anyone.redeemLink({ token, login: "late", password: "short" }))).toBe(
      "invalid_request password",
    );
    const { passkeyOptionsJson } = await anyone.beginPasskey({ linkToken: token });
    const foreign = new Authenticator("https://evil.example.com").register(passkeyOptionsJson);
    expect(
      await errorOf(anyone.redeemLink({ token, login: "late", passkeyAnswerJson: foreign })),
    ).toBe("sign_in_failed");
    expect(await errorOf(redeemWith(link, "late"))).toBe("no error");
  });

  test("to another account makes a signed-in person a member of two", async () => {
    const person = await redeem(node, await invitation("acc_a", MEMBER), "two");
    const token = tokenOf(await invitation("acc_b", OWNER));
    const { grant } = await node.as(person.token).redeemLink({ token });
    expect(grant).toBeUndefined();
    const { accounts } = await node.as(person.token).getSession({});
    expect(accounts).toMatchObject([
      { accountId: "acc_a", role: MEMBER },
      { accountId: "acc_b", role: OWNER },
    ]);
    // Two accounts: a call has to name one.
    const client = node.as(person.token);
    expect(await errorOf(client.listMembers({}))).toBe("invalid_request account_id");
    expect(await errorOf(client.listMembers({ accountId: "acc_a" }))).toBe("not_permitted");
    expect(await errorOf(client.listMembers({ accountId: "acc_b" }))).toBe("no error");
  });

  test("does not lower the role of a member", async () => {
    const token = tokenOf(await invitation("acc_a", VIEWER));
    await node.as(owner.token).redeemLink({ token });
    const { accounts } = await node.as(owner.token).getSession({});
    expect(accounts).toMatchObject([{ accountId: "acc_a", role: OWNER }]);
  });
});

describe("a recovery link", () => {
  test("replaces all ways in, ends all sessions, and is told to the person's accounts", async () => {
    const person = await redeem(node, await invitation(), "lost");
    const { personId } = person.person;
    const first = await node.as(owner.token).createSignInLink({ personId, reason: "locked out" });
    const { link } = await node
      .as(owner.token)
      .createSignInLink({ personId, reason: "locked out" });
    // A new link ends the one before.
    expect(await errorOf(redeemWith(first.link, ""))).toBe("not_found token");
    const { grant } = await redeemWith(link, "ignored");
    expect(await errorOf(identify(node, person.token))).toBe("invalid_session");
    expect(await errorOf(signIn(node, person))).toBe("sign_in_failed");
    const session = await node.as(grant?.token).getSession({});
    expect(session).toMatchObject({ person: { login: "lost" }, passkeys: [], hasPassword: true });
    const { events } = await node
      .as(owner.token)
      .listAuditEvents({ accountId: "acc_a", method: "RedeemLink" });
    expect(events[0]).toMatchObject({
      actor: toActor(`person:${personId}`),
      facts: { purpose: "recovery", personId },
    });
  });

  test("is not for owners: they could become a person in other accounts", async () => {
    const boss = await redeem(node, await invitation("acc_b", OWNER), "boss");
    const worker = await join(node, boss, "acc_b", VIEWER, "worker");
    const { personId } = worker.person;
    expect(
      await errorOf(node.as(boss.token).createSignInLink({ personId, reason: "locked out" })),
    ).toBe("not_permitted");
  });

  test("of a disabled person lets nobody in", async () => {
    const person = await redeem(node, await invitation(), "banned");
    const { personId } = person.person;
    const { link } = await node
      .as(owner.token)
      .createSignInLink({ personId, reason: "locked out" });
    await node.as(owner.token).updatePerson({
      personId,
      settings: { disabled: true },
      updateMask: { paths: ["disabled"] },
    });
    expect(await errorOf(identify(node, person.token))).toBe("invalid_session");
    expect(await errorOf(signIn(node, person))).toBe("sign_in_failed");
    expect(await errorOf(redeemWith(link, ""))).toBe("not_found token");
    await node.as(owner.token).updatePerson({
      personId,
      settings: { disabled: false },
      updateMask: { paths: ["disabled"] },
    });
    expect(await errorOf(signIn(node, person))).toBe("no error");
  });
});

describe("members", () => {
  test("are invited by owners and operators, and by nobody else", async () => {
    const viewer = await redeem(node, await invitation("acc_a", VIEWER), "invites-viewer");
    const invite = (client: typeof viewer, accountId: string) =>
      errorOf(node.as(client.token).createInvitation({ accountId, role: VIEWER }));
    expect(await invite(viewer, "acc_a")).toBe("not_permitted");
    expect(await invite(viewer, "acc_b")).toBe("not_permitted");
    expect(await invite(owner, "acc_b")).toBe("no error");
    expect(await invite(owner, "acc_none")).toBe("not_found account_id");
  });

  test("of another account look absent to an owner", async () => {
    const boss = await redeem(node, await invitation("acc_b", OWNER), "absent");
    const client = node.as(boss.token);
    const { personId } = owner.person;
    expect(await errorOf(client.listMembers({ accountId: "acc_a" }))).toBe("not_found account_id");
    const theirs = { accountId: "acc_a", personId };
    expect(await errorOf(client.removeMember(theirs))).toBe("not_found account_id");
    const foreign = { accountId: "acc_b", personId };
    expect(await errorOf(client.removeMember(foreign))).toBe("not_found person_id");
    expect(await errorOf(client.updateMember({ ...foreign, role: VIEWER }))).toBe(
      "not_found person_id",
    );
  });

  test.each(["is a member", "is removed"])(
    "an owner who %s keeps the invitations that he made elsewhere, and those alone",
    async (what) => {
      const login = what.replaceAll(" ", "-");
      const boss = await redeem(node, await invitation("acc_a", OWNER), login);
      const client = node.as(boss.token);
      await client.redeemLink({ token: tokenOf(await invitation("acc_b", OWNER)) });
      const links: string[] = [];
      for (const accountId of ["acc_a", "acc_b"])
        links.push((await client.createInvitation({ accountId, role: VIEWER })).link);
      const whom = { accountId: "acc_a", personId: boss.person.personId };
      const operator = node.as(owner.token);
      if (what === "is removed") await operator.removeMember(whom);
      else await operator.updateMember({ ...whom, role: MEMBER });
      const outcomes: string[] = [];
      for (const [index, link] of links.entries())
        outcomes.push(await errorOf(redeemWith(link, `${login}-${index}`)));
      expect(outcomes).toEqual(["not_found token", "no error"]);
      // An account makes twenty invitations a day.
      await query(people.database, { name: "test/forget-all", text: "delete from links" }, []);
    },
  );

  test("can leave, and the last owner cannot", async () => {
    const person = await redeem(node, await invitation("acc_a", MEMBER), "leaves");
    const own = { accountId: "acc_a", personId: person.person.personId };
    const others = { accountId: "acc_a", personId: owner.person.personId };
    expect(await errorOf(node.as(person.token).removeMember(others))).toBe("not_permitted");
    expect(await errorOf(node.as(person.token).removeMember(own))).toBe("no error");
    expect((await node.as(person.token).getSession({})).accounts).toEqual([]);
    expect(await errorOf(node.as(owner.token).removeMember(others))).toBe("last_one");
    expect(await errorOf(node.as(owner.token).updateMember({ ...others, role: MEMBER }))).toBe(
      "last_one",
    );
  });

  test("two owners who remove each other leave one", async () => {
    const url = await startTestPeople();
    try {
      const one = url.node();
      const first = await firstOwner(one);
      const second = await join(one, first, "acc_a", OWNER, "second");
      const remove = (who: SignedIn, whom: SignedIn) =>
        errorOf(
          one.as(who.token).removeMember({ accountId: "acc_a", personId: whom.person.personId }),
        );
      await Promise.all([remove(first, second), remove(second, first)]);
      const count = {
        name: "test/owners",
        text: "select person_id from members where account_id = 'acc_a' and role = 'owner'",
      };
      expect(await query(url.database, count, [])).toHaveLength(1);
    } finally {
      await url.stop();
    }
  });

  test("an account makes twenty invitations a day", async () => {
    const boss = await redeem(node, await invitation("acc_b", OWNER), "many");
    const text = "delete from links where account_id = 'acc_b'";
    await query(people.database, { name: "test/forget", text }, []);
    const invite = () =>
      errorOf(node.as(boss.token).createInvitation({ accountId: "acc_b", role: VIEWER }));
    const outcomes = await Promise.all(Array.from({ length: 25 }, invite));
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(20);
    expect(outcomes.filter((one) => one === "rate_limited")).toHaveLength(5);
    expect(
      await errorOf(node.as(owner.token).createInvitation({ accountId: "acc_a", role: VIEWER })),
    ).toBe("no error");
    await query(people.database, { name: "test/forget", text }, []);
  });
});

describe("operators", () => {
  test("list people, and support only looks", async () => {
    const helper = await redeem(node, await invitation(), "helper");
    const { personId } = helper.person;
    await node.as(owner.token).updatePerson({
      personId,
      settings: { operatorRole: OperatorRole.SUPPORT },
      updateMask: { paths: ["operator_role"] },
    });
    // The change of the operator role ended the session.
    expect(await errorOf(identify(node, helper.token))).toBe("invalid_session");
    const { token } = await signIn(node, helper);
    expect((await node.as(token).listPeople({ query: "HELP" })).people).toMatchObject([
      { login: "helper", operatorRole: OperatorRole.SUPPORT },
    ]);
    expect(
      await errorOf(
        node.as(token).updatePerson({
          personId,
          settings: { disabled: true },
          updateMask: { paths: ["disabled"] },
        }),
      ),
    ).toBe("not_permitted");
    const page = await node.as(token).listPeople({ pageSize: 1 });
    expect(page.people).toHaveLength(1);
    const next = await node.as(token).listPeople({ pageSize: 1, pageToken: page.nextPageToken });
    expect(next.people[0]?.login).not.toBe(page.people[0]?.login);
  });

  test("the last one who may change everything stays", async () => {
    const { personId } = owner.person;
    const client = node.as(owner.token);
    for (const [path, settings] of [
      ["disabled", { disabled: true }],
      ["operator_role", { operatorRole: OperatorRole.SUPPORT }],
    ] as const)
      expect(
        await errorOf(client.updatePerson({ personId, settings, updateMask: { paths: [path] } })),
      ).toBe("last_one");
    expect(await errorOf(client.updatePerson({ personId }))).toBe("invalid_request update_mask");
    expect(
      await errorOf(
        client.updatePerson({
          personId: "per_none",
          settings: { disabled: true },
          updateMask: { paths: ["disabled"] },
        }),
      ),
    ).toBe("not_found person_id");
  });
});

describe("audit events", () => {
  test("tell who did what to which ids, from where, and hold no secret", async () => {
    const person = await redeem(node, await invitation("acc_a", VIEWER), "audited");
    const { personId } = person.person;
    await node.as(owner.token).updateMember({ accountId: "acc_a", personId, role: MEMBER });
    const { events } = await node.as(owner.token).listAuditEvents({ accountId: "acc_a" });
    expect(events[0]).toMatchObject({
      actor: toActor(`person:${owner.person.personId}`),
      accountId: "acc_a",
      method: "UpdateMember",
      ...{ succeeded: true, reason: Reason.UNSPECIFIED },
      address: "192.0.2.1",
      facts: { personId, oldRole: "VIEWER", role: "MEMBER" },
    });
  });

  test("tell of attempts that failed, too", async () => {
    const { personId } = owner.person;
    await errorOf(node.as(owner.token).removeMember({ accountId: "acc_a", personId }));
    const { events } = await node
      .as(owner.token)
      .listAuditEvents({ accountId: "acc_a", method: "RemoveMember", pageSize: 1 });
    expect(events).toMatchObject([{ reason: Reason.LAST_ONE }]);
  });

  test("are those of the own account for owners, and all for operators", async () => {
    const boss = await redeem(node, await invitation("acc_b", OWNER), "reads-audit");
    const client = node.as(boss.token);
    const { events } = await client.listAuditEvents({});
    expect(new Set(events.map(({ accountId }) => accountId))).toEqual(new Set(["acc_b"]));
    expect(await errorOf(client.listAuditEvents({ accountId: "acc_a" }))).toBe(
      "not_found account_id",
    );
    expect(await errorOf(client.listAuditEvents({ allAccounts: true }))).toBe("not_permitted");
    const all = await node.as(owner.token).listAuditEvents({ allAccounts: true });
    expect(new Set(all.events.map(({ accountId }) => accountId)).size).toBeGreaterThan(1);
    expect(
      await errorOf(
        node.as(owner.token).listAuditEvents({ allAccounts: true, accountId: "acc_a" }),
      ),
    ).toBe("invalid_request account_id");
  });

  test("come in pages, newest first, without a gap", async () => {
    const client = node.as(owner.token);
    const whole = await client.listAuditEvents({ allAccounts: true, pageSize: 1000 });
    const ids: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listAuditEvents({ allAccounts: true, pageSize: 7, pageToken });
      ids.push(...page.events.map(({ eventId }) => eventId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(ids).toEqual(whole.events.map(({ eventId }) => eventId));
  });
});
