// The e-mail address of a person: who sets it, how it is confirmed, and what is mailed to whom.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { LinkDelivery } from "../../gen/gateway/people/v1/people_pb.ts";
import { LinkPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { reasonName } from "../../src/base/reasons.ts";
import { closedPeople } from "../../src/config/catalog.ts";
import { createMailer } from "../../src/mail/mail.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  redeem,
  type SignedIn,
  startTestPeople,
  type TestPeople,
  tokenOf,
} from "../support/people.ts";
import { query } from "../support/query.ts";
import { startSilentServer, startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

let people: TestPeople;
let smtp: TestSmtpServer;
let node: PeopleNode;
let owner: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  smtp = await startSmtpServer();
  const mailer = createMailer({ url: new URL(smtp.url), from: "gw@localhost" });
  const signUp = { mode: "open", domains: [] } as const;
  node = people.node({ mailer, settings: { ...closedPeople, signUp } });
  owner = await firstOwner(node);
});
afterAll(async () => {
  await people.stop();
  await smtp.stop();
});

const mailsTo = (address: string) => smtp.mails.filter(({ to }) => to.includes(address));
const run = (text: string, values: unknown[] = []) =>
  query<Record<string, unknown>>(people.database, { name: "", text }, values);
async function named(login: string): Promise<SignedIn> {
  // An account makes twenty invitations a day.
  await run("update links set made_at = made_at - interval '2 days' where purpose = 'invitation'");
  return join(node, owner, "acc_a", AccountRole.MEMBER, login);
}

let networks = 0;
/** Asks for an address, from a network of its own. */
const setEmail = ({ token }: SignedIn, email: string, from = node) =>
  from.as(token, `198.51.${++networks}.1`).setEmail({ email });
const confirm = (token: string, more: object = {}) =>
  node.as(undefined, "192.0.2.77").confirmEmail({ token, ...more });
const emailOf = async ({ token }: SignedIn) =>
  (await node.as(token).getSession({})).person?.email ?? "";

/** The token that is mailed to an address, of its n-th mail. */
async function tokenTo(address: string, nth = 1): Promise<string> {
  await expect.poll(() => mailsTo(address)).toHaveLength(nth);
  return tokenOf(mailsTo(address)[nth - 1]?.links[0] ?? "");
}

test("an address is that of the person once its link was used, and the login stays", async () => {
  const ana = await named("ana");
  const { person } = await setEmail(ana, " Ana@Example.com ");
  expect(person).toMatchObject({ login: "ana", email: "" });
  const token = await tokenTo("ana@example.com");
  expect(await emailOf(ana)).toBe("");
  const { link, passkeyOptionsJson } = await node
    .as(undefined)
    .beginPasskey({ linkToken: token, login: "other" });
  expect(link).toMatchObject({ purpose: LinkPurpose.EMAIL, login: "ana@example.com" });
  // Whoever reads the mail gets no key to the person.
  expect(passkeyOptionsJson).toBe("");
  const confirmed = await confirm(token);
  expect(confirmed.grant).toBeUndefined();
  expect(confirmed.person).toMatchObject({ login: "ana", email: "ana@example.com" });
  expect(await emailOf(ana)).toBe("ana@example.com");
  expect(await errorOf(confirm(token))).toBe("not_found token");
  const { events } = await node
    .as(owner.token)
    .listAuditEvents({ allAccounts: true, actor: toActor(`person:${ana.person.personId}`) });
  expect(
    events.map(({ method, succeeded, reason }) => [method, succeeded ? "ok" : reasonName(reason)]),
  ).toEqual([
    ["ConfirmEmail", "ok"],
    ["SetEmail", "ok"],
    ["RedeemLink", "ok"],
  ]);
  expect(JSON.stringify(events.map(({ facts }) => facts))).not.toContain("example.com");
  // A recovery link goes there now.
  const { personId } = ana.person;
  await node
    .as(owner.token)
    .createSignInLink({ personId, delivery: LinkDelivery.MAILED, reason: "locked out" });
  await expect.poll(() => mailsTo("ana@example.com")).toHaveLength(2);
});

test("the old address is told of a new one, and of a removal", async () => {
  const ben = await named("ben");
  await setEmail(ben, "ben@old.example.com");
  await confirm(await tokenTo("ben@old.example.com"));
  await setEmail(ben, "ben@new.example.com");
  const token = await tokenTo("ben@new.example.com");
  expect(mailsTo("ben@old.example.com")).toHaveLength(1);
  await confirm(token);
  await expect.poll(() => mailsTo("ben@old.example.com")).toHaveLength(2);
  const told = mailsTo("ben@old.example.com")[1];
  expect(told?.links).toEqual([]);
  expect(told?.text).toContain("this address was replaced or removed");
  expect(told?.text).not.toContain("new.example.com");
  const { person } = await setEmail(ben, "");
  expect(person?.email).toBe("");
  await expect.poll(() => mailsTo("ben@new.example.com")).toHaveLength(2);
});

test("a new request ends the link of the one before, as a removal does", async () => {
  const cleo = await named("cleo");
  await setEmail(cleo, "cleo@one.example.com");
  const first = await tokenTo("cleo@one.example.com");
  await setEmail(cleo, "cleo@two.example.com");
  const second = await tokenTo("cleo@two.example.com");
  expect(await errorOf(confirm(first))).toBe("not_found token");
  await setEmail(cleo, "");
  expect(await errorOf(confirm(second))).toBe("not_found token");
  expect(await emailOf(cleo)).toBe("");
});

test("the address of another person is answered alike, and joins nobody", async () => {
  const [dan, eve] = [await named("dan"), await named("eve")];
  await setEmail(dan, "dan@example.com");
  await confirm(await tokenTo("dan@example.com"));
  const answers = [
    await setEmail(eve, "dan@example.com"),
    await setEmail(eve, "nobody@example.com"),
  ];
  expect(answers[0]).toEqual(answers[1]);
  expect(await emailOf(eve)).toBe("");
});

test("of fifty confirmations at once, one is made", async () => {
  const fay = await named("fay");
  await setEmail(fay, "fay@example.com");
  const token = await tokenTo("fay@example.com");
  const outcomes = await Promise.all(
    Array.from({ length: 50 }, () => errorOf(node.as(undefined).confirmEmail({ token }))),
  );
  expect(outcomes.filter((one) => one === "no error")).toHaveLength(1);
});

describe("a link of an address", () => {
  test("signs nobody in, and adds no way in", async () => {
    const gus = await named("gus");
    await setEmail(gus, "gus@example.com");
    const token = await tokenTo("gus@example.com");
    const anyone = node.as(undefined);
    const password = "correct horse battery";
    expect(await errorOf(anyone.redeemLink({ token, login: "gus2", password }))).toBe(
      "not_found token",
    );
    for (const more of [{ password }, { passkeyAnswerJson: "{}" }, { name: "Gus" }])
      expect(await errorOf(confirm(token, more))).toBe("invalid_request password");
    expect(await errorOf(confirm(token))).toBe("no error");
  });

  test("ends with a recovery, a disabling and a deletion of its person", async () => {
    const client = node.as(owner.token);
    const ends: Record<string, (personId: string) => Promise<unknown>> = {
      recovered: async (personId) =>
        redeem(node, (await client.createSignInLink({ personId, reason: "locked out" })).link, ""),
      disabled: (personId) =>
        client.updatePerson({
          personId,
          settings: { disabled: true },
          updateMask: { paths: ["disabled"] },
        }),
      deleted: (personId) => client.deletePerson({ personId }),
    };
    for (const [login, end] of Object.entries(ends)) {
      const person = await named(login);
      const email = `${login}@example.com`;
      await setEmail(person, email);
      const token = await tokenTo(email);
      await end(person.person.personId);
      expect([login, await errorOf(confirm(token))]).toEqual([login, "not_found token"]);
      const rows = await run("select email from people where person_id = $1", [
        person.person.personId,
      ]);
      expect(rows).toEqual([{ email: null }]);
    }
  });

  test("of signing up is another one: neither is taken for the other", async () => {
    await node.as(undefined, "198.51.100.200").signUp({ email: "hal@example.com" });
    const token = await tokenTo("hal@example.com");
    expect(await errorOf(confirm(token))).toBe("invalid_request password");
  });
});

test("a deleted person leaves no mail about an address that he had", async () => {
  const ida = await named("ida");
  await setEmail(ida, "ida@first.example.com");
  await confirm(await tokenTo("ida@first.example.com"));
  await setEmail(ida, "ida@second.example.com");
  await confirm(await tokenTo("ida@second.example.com"));
  await expect.poll(() => mailsTo("ida@first.example.com")).toHaveLength(2);
  await node.as(ida.token).deletePerson({ personId: ida.person.personId });
  const rows = await run("select to_jsonb(m)::text as row from mails m");
  expect(JSON.stringify(rows)).not.toContain("ida@");
});

describe("is refused", () => {
  test("for what is no address", async () => {
    for (const email of ["nobody", "a@b@c", "a@b\r\nBcc: c@d", "a b@c", "a@example.com, b@c.de"])
      expect(await errorOf(setEmail(owner, email))).toBe("invalid_request email");
  });

  test("without a mail server, where a removal still works", async () => {
    const plain = people.node();
    expect(await errorOf(setEmail(owner, "o@example.com", plain))).toBe("invalid_request email");
    expect(await errorOf(setEmail(owner, "", plain))).toBe("no error");
  });

  test("without a session, and without a confirmation of the last 15 minutes", async () => {
    const anyone = node.as(undefined);
    expect(await errorOf(anyone.setEmail({ email: "x@example.com" }))).toBe("invalid_session");
    const jo = await named("jo");
    await run("update sessions set strong_until = now() where person_id = $1", [
      jo.person.personId,
    ]);
    const late = people.node();
    expect(await errorOf(late.as(jo.token).setEmail({ email: "" }))).toBe("confirm_identity");
  });

  test("for a session that has ended meanwhile", async () => {
    const kim = await named("kim");
    await node.as(kim.token).getSession({});
    await run("update sessions set ended_at = now() where person_id = $1", [kim.person.personId]);
    expect(await errorOf(setEmail(kim, "kim@example.com"))).toBe("invalid_session");
  });
});

describe("floods", () => {
  test("an address gets three mails a day, with the same answer for more", async () => {
    const [leo, mia] = [await named("leo"), await named("mia")];
    const email = "flooded@example.com";
    for (const one of [leo, mia, leo, mia, leo])
      expect(await errorOf(setEmail(one, email))).toBe("no error");
    await setEmail(mia, "after-the-flood@example.com");
    await tokenTo("after-the-flood@example.com");
    expect(mailsTo(email).length).toBeLessThanOrEqual(3);
    const rows = await run("select 1 from mails where address = $1", [email]);
    expect(rows).toHaveLength(3);
  });

  test("a network has to wait after twenty requests", async () => {
    const ned = await named("ned");
    const from = (address: string) =>
      errorOf(node.as(ned.token, address).setEmail({ email: `${networks++}@many.example.com` }));
    for (let index = 0; index < 20; index++) expect(await from("203.0.113.5")).toBe("no error");
    expect(await from("203.0.113.5")).toBe("auth_rate_limited");
    expect(await from("203.0.113.6")).toBe("no error");
  });
});

test("a mail server that hangs does not hold the answer", async () => {
  const silent = await startSilentServer();
  const mailer = createMailer({ url: new URL(silent.url), from: "gw@localhost" });
  const hanging = people.node({ mailer });
  expect(await errorOf(setEmail(owner, "hangs@example.com", hanging))).toBe("no error");
  await expect.poll(silent.opened).toBeGreaterThan(0);
  await hanging.stop();
  await silent.stop();
});
