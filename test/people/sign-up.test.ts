// Signing up with an address: what is mailed, who becomes a person, and what an answer tells.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { LinkPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { closedPeople, type SignUp } from "../../src/config/catalog.ts";
import { createMailer } from "../../src/mail/mail.ts";
import { Authenticator } from "../support/authenticator.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  type PeopleNode,
  publicUrl,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
  tokenOf,
} from "../support/people.ts";
import { query } from "../support/query.ts";
import { startSilentServer, startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

const password = "correct horse battery";
const { MEMBER, OWNER } = AccountRole;

let people: TestPeople;
let smtp: TestSmtpServer;
let node: PeopleNode;
let owner: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  smtp = await startSmtpServer();
  node = nodeWith({ mode: "open", domains: [] });
  owner = await firstOwner(node);
});
afterAll(async () => {
  await people.stop();
  await smtp.stop();
});

function nodeWith(signUp: SignUp, url = smtp.url): PeopleNode {
  const mailer = createMailer({ url: new URL(url), from: "gw@localhost" });
  return people.node({ mailer, settings: { ...closedPeople, signUp } });
}

const mailsTo = (address: string) => smtp.mails.filter(({ to }) => to.includes(address));

let networks = 0;
/** Signs up, from a network of its own. */
const signUp = (email: string, from = node) =>
  from.as(undefined, `198.51.${++networks}.1`).signUp({ email });

/** The token of the confirmation that is mailed to a new address. */
async function confirmation(email: string, from = node): Promise<string> {
  await signUp(email, from);
  await expect.poll(() => mailsTo(email)).toHaveLength(1);
  const [link = ""] = mailsTo(email)[0]?.links ?? [];
  return tokenOf(link);
}

test("an address is confirmed with a password, and gets an account with nothing in it", async () => {
  const email = "ada@example.com";
  const token = await confirmation(email);
  const anyone = node.as(undefined);
  expect((await anyone.beginPasskey({ linkToken: token, login: "other" })).link).toMatchObject({
    purpose: LinkPurpose.SIGN_UP,
    login: email,
  });
  const { grant, person } = await anyone.confirmEmail({ token, name: "Ada", password });
  expect(person).toMatchObject({ login: email, email, name: "Ada" });
  const { accounts } = await node.as(grant?.token).getSession({});
  expect(accounts).toMatchObject([{ name: "Ada", role: OWNER }]);
  expect(await errorOf(anyone.signInWithPassword({ login: email, password }))).toBe("no error");
  expect(await errorOf(anyone.confirmEmail({ token, password }))).toBe("not_found token");
});

test("an address is confirmed with a passkey", async () => {
  const token = await confirmation("pia@example.com");
  const device = new Authenticator(publicUrl);
  const { passkeyOptionsJson } = await node.as(undefined).beginPasskey({ linkToken: token });
  const { grant, person } = await node
    .as(undefined)
    .confirmEmail({ token, passkeyAnswerJson: device.register(passkeyOptionsJson) });
  if (!person || !grant) throw new Error("nobody signed in");
  const again = await signIn(node, { token: grant.token, person, device });
  expect(again.person.login).toBe("pia@example.com");
});

test("nothing but the confirmation is mailed, and no word of a stranger is in it", async () => {
  await confirmation("quiet@example.com");
  const [mail] = mailsTo("quiet@example.com");
  expect(mail?.text).toContain("Open this link within 24 hours");
  expect(mail?.headers.get("subject")).toContain("Confirm your address");
});

test("the new person joins the configured account", async () => {
  const join = { accountId: "acc_b", role: "member" } as const;
  const joined = nodeWith({ mode: "open", domains: [], join });
  const token = await confirmation("joins@example.com", joined);
  const { grant } = await joined.as(undefined).confirmEmail({ token, password });
  const { accounts } = await joined.as(grant?.token).getSession({});
  expect(accounts).toMatchObject([{ accountId: "acc_b", role: MEMBER }]);
});

test("a configured account that does not exist is told, and the link stays good", async () => {
  const join = { accountId: "acc_none", role: "member" } as const;
  const broken = nodeWith({ mode: "open", domains: [], join });
  const token = await confirmation("nowhere@example.com", broken);
  expect(await errorOf(broken.as(undefined).confirmEmail({ token, password }))).toBe(
    "gateway_unavailable",
  );
  expect(await errorOf(node.as(undefined).confirmEmail({ token, password }))).toBe("no error");
});

describe("an address that somebody has", () => {
  test("gets the same answer, by the same rows, and a mail without a link", async () => {
    const known = "known@example.com";
    await node
      .as(undefined)
      .confirmEmail({ token: await confirmation(known), password, name: "K" });
    const answers: unknown[] = [];
    const rows: unknown[] = [];
    const find = {
      name: "test/find-sign-up",
      text: `select m.kind, m.facts, l.purpose, l.used_at from mails m
               join links l on l.link_id = m.link_id
              where m.address = $1 order by m.made_at desc limit 1`,
    };
    for (const email of [known, "unknown@example.com"]) {
      answers.push(await signUp(email));
      rows.push(await query(people.database, find, [email]));
    }
    expect(answers[0]).toEqual(answers[1]);
    // What is stored before the answer is the same, too: who has the address is looked up later.
    expect(rows[0]).toEqual(rows[1]);
    expect(rows[0]).toHaveLength(1);
    await expect.poll(() => mailsTo(known)).toHaveLength(2);
    const [, mail] = mailsTo(known);
    expect(mail?.links).toEqual([]);
    expect(mail?.text).toContain("It has an account already");
  });

  test("is not taken from him by an earlier link", async () => {
    const email = "race@example.com";
    const first = await confirmation(email);
    await signUp(email);
    await expect.poll(() => mailsTo(email)).toHaveLength(2);
    const second = tokenOf(mailsTo(email)[1]?.links[0] ?? "");
    expect(await errorOf(node.as(undefined).confirmEmail({ token: first, password }))).toBe(
      "no error",
    );
    expect(await errorOf(node.as(undefined).confirmEmail({ token: second, password }))).toBe(
      "login_taken token",
    );
  });

  test("of fifty confirmations at once, one makes the person", async () => {
    const token = await confirmation("fifty@example.com");
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, () =>
        errorOf(node.as(undefined).confirmEmail({ token, password })),
      ),
    );
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(1);
  });
});

test("nobody keeps an address that he has not confirmed from its holder", async () => {
  const made = await node
    .as(owner.token)
    .createInvitation({ accountId: "acc_a", role: MEMBER, login: "ceo@example.com" });
  const token = tokenOf(made.link);
  const redeem = (login: string) => node.as(undefined).redeemLink({ token, login, password });
  expect(await errorOf(redeem(""))).toBe("invalid_request login");
  expect(await errorOf(redeem("boss@example.com"))).toBe("invalid_request login");
  expect(await errorOf(redeem("ceo"))).toBe("no error");
});

test("the first operator may have an address as his login all the same", async () => {
  const link = await node.installation.makeOwnerLink();
  const token = tokenOf(link);
  const redeem = node.as(undefined).redeemLink({ token, login: "op@example.com", password });
  expect(await errorOf(redeem)).toBe("no error");
});

test("a mail whose invitation was revoked is not sent", async () => {
  const silent = await startSilentServer();
  const email = "revoked@example.com";
  const hanging = nodeWith({ mode: "open", domains: [] }, silent.url);
  const client = hanging.as(owner.token);
  const accountId = "acc_a";
  const { invitation } = await client.createInvitation({ accountId, role: MEMBER, email });
  await expect.poll(silent.opened).toBeGreaterThan(0);
  await hanging.stop();
  await silent.stop();
  const invitationId = invitation?.invitationId ?? "";
  await node.as(owner.token).revokeInvitation({ accountId, invitationId });
  const text = "update mails set next_at = now() where state = 'waiting'";
  await query(people.database, { name: "test/make-due", text }, []);
  await confirmation("wakes-the-outbox@example.com");
  const find = { name: "test/state", text: "select state, problem from mails where address = $1" };
  await expect
    .poll(() => query(people.database, find, [email]))
    .toEqual([{ state: "failed", problem: "The link has ended." }]);
  expect(mailsTo(email)).toEqual([]);
});

describe("floods", () => {
  test("an address gets three mails a day, with the same answer for more", async () => {
    const email = "flooded@example.com";
    await Promise.all(Array.from({ length: 9 }, () => signUp(email)));
    await expect.poll(() => mailsTo(email)).toHaveLength(3);
    expect(await errorOf(signUp(email))).toBe("no error");
    // The next mail is sent later than one of that sign-up would be.
    await confirmation("after-the-flood@example.com");
    expect(mailsTo(email)).toHaveLength(3);
  });

  test("a network has to wait after twenty sign-ups, and others do not", async () => {
    const from = (address: string, index: number) =>
      errorOf(node.as(undefined, address).signUp({ email: `many-${index}@example.org` }));
    for (let index = 0; index < 20; index++)
      expect(await from("203.0.113.5", index)).toBe("no error");
    expect(await from("203.0.113.5", 20)).toBe("auth_rate_limited");
    expect(await from("203.0.113.6", 21)).toBe("no error");
  });
});

describe("is refused", () => {
  test("where it is closed, or there is no mail server", async () => {
    const closed = nodeWith({ mode: "closed", domains: [] });
    expect(await errorOf(signUp("a@example.com", closed))).toBe("sign_up_closed");
    const mailless = people.node({
      settings: { ...closedPeople, signUp: { mode: "open", domains: [] } },
    });
    expect(await errorOf(signUp("a@example.com", mailless))).toBe("sign_up_closed");
    const signUps = [closed, mailless, node].map((one) => one.as(undefined).beginSignIn({}));
    expect((await Promise.all(signUps)).map((one) => one.signUp)).toEqual([false, false, true]);
  });

  test("once it was closed, with an earlier link too", async () => {
    const token = await confirmation("too-late@example.com");
    const closed = nodeWith({ mode: "closed", domains: [] });
    expect(await errorOf(closed.as(undefined).confirmEmail({ token, password }))).toBe(
      "sign_up_closed",
    );
  });

  test("for another domain", async () => {
    const domains = nodeWith({ mode: "domains", domains: ["acme.com"] });
    expect(await errorOf(signUp("a@evil.com", domains))).toBe("sign_up_closed");
    expect(await errorOf(signUp("a@acme.com.evil.com", domains))).toBe("sign_up_closed");
    expect(await errorOf(signUp("a@ACME.com", domains))).toBe("no error");
  });

  test("for what is no address", async () => {
    for (const email of ["", "a", "a@b@c", "a@example.com\r\nBcc: b@example.com", "a,b@c.de"])
      expect(await errorOf(signUp(email))).toBe("invalid_request email");
  });

  test("with a wrong link, a short password, or none", async () => {
    const anyone = node.as(undefined);
    const token = await confirmation("wrong@example.com");
    const confirm = (more: object) => errorOf(anyone.confirmEmail({ token, ...more }));
    expect(await confirm({ token: "x".repeat(43), password })).toBe("not_found token");
    expect(await confirm({ password: "short" })).toBe("invalid_request password");
    expect(await confirm({})).toBe("invalid_request password");
    expect(await errorOf(anyone.redeemLink({ token, login: "w", password }))).toBe(
      "not_found token",
    );
    const { link } = await node
      .as(owner.token)
      .createInvitation({ accountId: "acc_a", role: MEMBER });
    expect(await confirm({ token: tokenOf(link), password })).toBe("not_found token");
    expect(await confirm({ password })).toBe("no error");
  });
});

test("a mail server that hangs does not hold the answer", async () => {
  const silent = await startSilentServer();
  const hanging = nodeWith({ mode: "open", domains: [] }, silent.url);
  expect(await errorOf(signUp("hangs@example.com", hanging))).toBe("no error");
  await expect.poll(silent.opened).toBeGreaterThan(0);
  await hanging.stop();
  await silent.stop();
});
