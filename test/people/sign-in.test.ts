// Signing in with passkeys and passwords, sessions, and the confirmation of an identity.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
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

/** A new member of `acc_a` with a password. */
async function personWithPassword(login: string): Promise<SignedIn> {
  const joined = await join(node, owner, "acc_a", AccountRole.MEMBER, login);
  await node.as(joined.token).setPassword({ password });
  return joined;
}

test("the first link makes an operator who owns the account of the first start", async () => {
  const session = await node.as(owner.token).getSession({});
  expect(session.person).toMatchObject({ login: "owner", operatorRole: OperatorRole.ADMIN });
  expect(session.operatorRole).toBe(OperatorRole.ADMIN);
  expect(session.accounts).toMatchObject([
    { accountId: "acc_a", name: "account a", role: AccountRole.OWNER },
  ]);
  expect(session.passkeys).toHaveLength(1);
  expect(session.hasPassword).toBe(false);
});

test("a passkey signs in, without a login", async () => {
  const again = await signIn(node, owner);
  expect(again.token).not.toBe(owner.token);
  expect(again.person.personId).toBe(owner.person.personId);
  expect(await node.as(again.token).getSession({})).toMatchObject({ person: { login: "owner" } });
});

describe("a passkey answer is refused", () => {
  const anyone = () => node.as(undefined);
  const options = async () => (await anyone().beginSignIn({})).passkeyOptionsJson;
  const answer = (answerJson: string) => errorOf(anyone().signInWithPasskey({ answerJson }));

  test("that was used before", async () => {
    const answerJson = owner.device.sign(await options());
    expect(await answer(answerJson)).toBe("no error");
    expect(await answer(answerJson)).toBe("sign_in_failed");
  });

  test("of which two arrive at once: one signs in", async () => {
    const answerJson = owner.device.sign(await options());
    const outcomes = await Promise.all([answer(answerJson), answer(answerJson)]);
    expect(outcomes.sort()).toEqual(["no error", "sign_in_failed"]);
  });

  test("that was made on a page of another origin", async () => {
    const origin = "http://localhost:9999";
    expect(await answer(owner.device.sign(await options(), { origin }))).toBe("sign_in_failed");
  });

  test("that did not verify its user", async () => {
    const made = owner.device.sign(await options(), { userVerified: false });
    expect(await answer(made)).toBe("sign_in_failed");
  });

  test("whose challenge we did not make", async () => {
    const made = JSON.parse(await options());
    made.challenge = Buffer.alloc(54, 1).toString("base64url");
    expect(await answer(owner.device.sign(JSON.stringify(made)))).toBe("sign_in_failed");
  });

  test("whose challenge was made to register a passkey", async () => {
    const registration = await node.as(owner.token).beginPasskey({});
    const made = JSON.parse(await options());
    made.challenge = JSON.parse(registration.passkeyOptionsJson).challenge;
    expect(await answer(owner.device.sign(JSON.stringify(made)))).toBe("sign_in_failed");
  });

  test("of a passkey that nobody has here", async () => {
    const stranger = new Authenticator(publicUrl);
    stranger.register((await node.as(owner.token).beginPasskey({})).passkeyOptionsJson);
    expect(await answer(stranger.sign(await options()))).toBe("sign_in_failed");
  });

  test("that is no answer", async () => {
    expect(await answer("{")).toBe("invalid_request answer_json");
    for (const text of ["null", "[]", "{}", '{"id":"a","rawId":"a","type":"public-key"}'])
      expect(await answer(text)).toBe("sign_in_failed");
    const response = { clientDataJSON: "e30", authenticatorData: "AA", signature: "AA" };
    for (const id of ["a\u0000", "\ud800", ""])
      expect(await answer(JSON.stringify({ id, rawId: "a", type: "public-key", response }))).toBe(
        "sign_in_failed",
      );
  });
});

test("a passkey that one person began cannot be registered for another", async () => {
  const other = await join(node, owner, "acc_a", AccountRole.VIEWER, "other");
  const { passkeyOptionsJson } = await node.as(owner.token).beginPasskey({});
  const answerJson = new Authenticator(publicUrl).register(passkeyOptionsJson);
  expect(await errorOf(node.as(other.token).createPasskey({ answerJson, name: "two" }))).toBe(
    "sign_in_failed",
  );
  expect(await errorOf(node.as(owner.token).createPasskey({ answerJson, name: "two" }))).toBe(
    "no error",
  );
  expect(await errorOf(node.as(owner.token).createPasskey({ answerJson, name: "two" }))).toBe(
    "sign_in_failed",
  );
});

test("a password signs in, whatever the case of its login", async () => {
  await personWithPassword("paula@example.com");
  const { grant, person } = await node
    .as(undefined)
    .signInWithPassword({ login: " Paula@Example.COM ", password });
  expect(person?.login).toBe("paula@example.com");
  expect(await identify(node, grant?.token ?? "")).toMatchObject({ kind: "person" });
});

test("a wrong password and an unknown login look alike and cost the same", async () => {
  await personWithPassword("peter");
  people.database.ran.length = 0;
  const attempts: string[][] = [];
  for (const [login, text] of [
    ["peter", "a wrong password"],
    ["nobody-here", password],
  ] as const) {
    people.database.ran.length = 0;
    const address = `198.51.100.${attempts.length + 1}`;
    const call = node.as(undefined, address).signInWithPassword({ login, password: text });
    expect(await errorOf(call)).toBe("sign_in_failed");
    attempts.push(people.database.ran.filter((name) => name !== "people/read-changes"));
  }
  expect(attempts[0]).toEqual(attempts[1]);
});

test("a password has at least twelve characters, and no other rule", async () => {
  const person = await join(node, owner, "acc_a", AccountRole.VIEWER, "rules");
  const set = (text: string) => errorOf(node.as(person.token).setPassword({ password: text }));
  expect(await set("elevenchars")).toBe("invalid_request password");
  expect(await set("x".repeat(2_001))).toBe("invalid_request password");
  expect(await set("aaaaaaaaaaaa")).toBe("no error");
  expect(await set("🙂".repeat(12))).toBe("no error");
});

test("a new password ends the other sessions of its person", async () => {
  const first = await personWithPassword("sessions");
  const second = await signIn(node, first);
  await node.as(second.token).setPassword({ password: "another long password" });
  expect(await errorOf(identify(node, first.token))).toBe("invalid_session");
  expect(await errorOf(identify(node, second.token))).toBe("no error");
});

describe("a session", () => {
  test("is listed with its browser and address, and can be ended from another one", async () => {
    const first = await join(node, owner, "acc_a", AccountRole.VIEWER, "lists");
    const second = await signIn(node, first);
    const { sessions } = await node.as(second.token).listSessions({});
    expect(sessions).toMatchObject([
      { current: true, address: "192.0.2.1", agent: "a test" },
      { current: false },
    ]);
    const sessionId = sessions[1]?.sessionId ?? "";
    await node.as(second.token).revokeSession({ sessionId });
    expect(await errorOf(identify(node, first.token))).toBe("invalid_session");
    expect(await errorOf(node.as(second.token).revokeSession({ sessionId }))).toBe(
      "not_found session_id",
    );
  });

  test("of somebody else looks absent", async () => {
    const person = await join(node, owner, "acc_a", AccountRole.VIEWER, "foreign");
    const { sessionId } = await node.as(owner.token).getSession({});
    expect(await errorOf(node.as(person.token).revokeSession({ sessionId }))).toBe(
      "not_found session_id",
    );
    expect(await errorOf(identify(node, owner.token))).toBe("no error");
  });

  test("ends with its sign-out", async () => {
    const { token } = await signIn(node, owner);
    await node.as(token).signOut({});
    expect(await errorOf(node.as(token).getSession({}))).toBe("invalid_session");
  });

  test("costs no statement while it is warm", async () => {
    const { token } = await signIn(node, owner);
    await identify(node, token);
    const readChanges = "people/read-changes";
    people.database.ran.length = 0;
    for (let calls = 0; calls < 100; calls++) await identify(node, token);
    expect(people.database.ran.filter((name) => name !== readChanges)).toEqual([]);
  });

  test("that is not one of ours is refused without a statement", async () => {
    people.database.ran.length = 0;
    for (const token of ["", "short", "sk-gw2-1abc", "x".repeat(44), `${"x".repeat(43)} y`])
      expect(await errorOf(identify(node, token))).toBe("invalid_session");
    expect(people.database.ran.filter((name) => name !== "people/read-changes")).toEqual([]);
  });

  test("ends twelve hours after its last use, and thirty days after the sign-in", async () => {
    const { token } = await signIn(node, owner);
    const { sessionId } = await node.as(token).getSession({});
    const set = async (assignment: string) => {
      const text = `update sessions set ${assignment} where session_id = $1`;
      await query(people.database, { name: `test/${assignment}`, text }, [sessionId]);
      // Another node has nothing cached.
      return errorOf(identify(people.node(), token));
    };
    expect(await set("used_at = now() - interval '11 hours 59 minutes'")).toBe("no error");
    expect(await set("used_at = now() - interval '12 hours'")).toBe("invalid_session");
    expect(await set("used_at = now(), ends_at = now() + interval '1 minute'")).toBe("no error");
    expect(await set("ends_at = now()")).toBe("invalid_session");
  });
});

describe("a strong moment", () => {
  const endStrong = {
    name: "test/end-strong",
    text: "update sessions set strong_until = now() - interval '1 second' where person_id = $1",
  };

  test("is over fifteen minutes after the sign-in, and comes back with a passkey", async () => {
    const person = await join(node, owner, "acc_a", AccountRole.VIEWER, "strong");
    await query(people.database, endStrong, [person.person.personId]);
    const other = people.node();
    const call = () => errorOf(other.as(person.token).setPassword({ password }));
    expect(await call()).toBe("confirm_identity");
    const { passkeyOptionsJson } = await other.as(person.token).beginSignIn({});
    expect(JSON.parse(passkeyOptionsJson).allowCredentials).toHaveLength(1);
    const passkeyAnswerJson = person.device.sign(passkeyOptionsJson);
    await other.as(person.token).confirmIdentity({ passkeyAnswerJson });
    expect(await call()).toBe("no error");
  });

  test("comes back with a password", async () => {
    const person = await personWithPassword("strong-password");
    await query(people.database, endStrong, [person.person.personId]);
    const other = people.node();
    const confirm = (text: string) =>
      errorOf(other.as(person.token).confirmIdentity({ password: text }));
    expect(await confirm("a wrong password")).toBe("sign_in_failed");
    expect(await errorOf(other.as(person.token).setPassword({ password }))).toBe(
      "confirm_identity",
    );
    expect(await confirm(password)).toBe("no error");
    expect(await errorOf(other.as(person.token).setPassword({ password }))).toBe("no error");
  });

  test("does not come from somebody else's passkey", async () => {
    const person = await join(node, owner, "acc_a", AccountRole.VIEWER, "strong-other");
    const { passkeyOptionsJson } = await node.as(person.token).beginSignIn({});
    const passkeyAnswerJson = owner.device.sign(passkeyOptionsJson);
    const call = node.as(person.token).confirmIdentity({ passkeyAnswerJson });
    expect(await errorOf(call)).toBe("sign_in_failed");
  });
});

describe("where operators have to use a passkey", () => {
  const url = "https://gateway.example.com";
  test("a password gives no operator role, and redeems no link of an operator", async () => {
    const strict = await startTestPeople(url);
    try {
      const one = strict.node();
      await one.installation.claimFirstAccount("acc_a");
      const link = await one.installation.makeOwnerLink();
      expect(link).toMatch(/^https:\/\/gateway\.example\.com\/console\/welcome#/);
      const token = tokenOf(link);
      const anyone = one.as(undefined);
      expect(await errorOf(anyone.redeemLink({ token, login: "boss", password }))).toBe(
        "invalid_request password",
      );
      const { passkeyOptionsJson, link: info } = await anyone.beginPasskey({ linkToken: token });
      expect(info?.needsPasskey).toBe(true);
      const device = new Authenticator(url);
      const passkeyAnswerJson = device.register(passkeyOptionsJson);
      const { grant } = await anyone.redeemLink({ token, login: "boss", passkeyAnswerJson });
      await one.as(grant?.token).setPassword({ password });
      const weak = await anyone.signInWithPassword({ login: "boss", password });
      const session = await one.as(weak.grant?.token).getSession({});
      expect(session.operatorRole).toBe(OperatorRole.UNSPECIFIED);
      expect(await errorOf(one.as(weak.grant?.token).listPeople({}))).toBe("not_permitted");
      expect(await errorOf(one.as(grant?.token).listPeople({}))).toBe("no error");
    } finally {
      await strict.stop();
    }
  });
});

test("a passkey can be removed, but not the last way in", async () => {
  const person = await redeem(
    node,
    (await node.as(owner.token).createInvitation({ accountId: "acc_b", role: AccountRole.OWNER }))
      .link,
    "ways",
  );
  const client = node.as(person.token);
  const [passkey] = (await client.getSession({})).passkeys;
  const passkeyId = passkey?.passkeyId ?? "";
  expect(await errorOf(client.deletePasskey({ passkeyId }))).toBe("last_one");
  expect(await errorOf(client.setPassword({ password: "" }))).toBe("no error");
  await client.setPassword({ password });
  expect(await errorOf(client.deletePasskey({ passkeyId }))).toBe("no error");
  expect(await errorOf(client.deletePasskey({ passkeyId }))).toBe("not_found passkey_id");
  expect(await errorOf(client.setPassword({ password: "" }))).toBe("last_one");
});
