// Mail of the people service: invitations, recovery, and servers that hang or refuse.

import { inspect } from "node:util";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { MailState } from "../../gen/gateway/people/v1/members_pb.ts";
import { LinkDelivery } from "../../gen/gateway/people/v1/people_pb.ts";
import { createLog } from "../../src/base/log.ts";
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
import {
  type Refusal,
  startSilentServer,
  startSmtpServer,
  type TestSmtpServer,
} from "../support/smtp.ts";

let people: TestPeople;
let smtp: TestSmtpServer;
let node: PeopleNode;
let owner: SignedIn;
let refusal: Refusal | undefined;
/** The warnings of the node. */
const lines: unknown[] = [];
beforeAll(async () => {
  people = await startTestPeople();
  smtp = await startSmtpServer({ refuse: () => refusal });
  node = people.node({
    mailer: createMailer({ url: new URL(smtp.url), from: "gw@localhost" }),
    log: Object.assign(createLog("silent"), { warn: (line: unknown) => lines.push(line) }),
  });
  owner = await firstOwner(node);
});
afterEach(() => {
  refusal = undefined;
});
afterAll(async () => {
  await people.stop();
  await smtp.stop();
});

const { MEMBER, OWNER } = AccountRole;
const mailsTo = (address: string) => smtp.mails.filter(({ to }) => to.includes(address));
const invitationTo = async (email: string, from = node) => {
  const { invitations } = await from.as(owner.token).listInvitations({ accountId: "acc_a" });
  return invitations.find((one) => one.email === email);
};
const invite = (email: string, role: AccountRole = MEMBER) =>
  node.as(owner.token).createInvitation({ accountId: "acc_a", role, email });

/** Lets every mail that waits be tried at once, by the next mail that is handed in. */
async function makeDue(): Promise<void> {
  const text = "update mails set next_at = now() where state = 'waiting'";
  await query(people.database, { name: "test/make-due", text }, []);
}

test("an invitation is mailed, and its link is in the mail alone", async () => {
  const { link, invitation } = await invite("Mia@Example.com");
  expect(link).toBe("");
  expect(invitation).toMatchObject({ email: "mia@example.com", mailState: MailState.WAITING });
  await expect.poll(() => mailsTo("mia@example.com")).toHaveLength(1);
  const [mail] = mailsTo("mia@example.com");
  expect(mail?.text).toContain("owner invites you to the account “account a”");
  await expect
    .poll(() => invitationTo("mia@example.com"))
    .toMatchObject({ mailState: MailState.SENT, mailProblem: "" });
  const mia = await redeem(node, mail?.links[0] ?? "", "mia");
  // Nobody but the holder of the address could have had the link.
  expect(mia.person.email).toBe("mia@example.com");
  expect(
    await errorOf(node.as(undefined).redeemLink({ token: tokenOf(mail?.links[0] ?? "") })),
  ).toBe("not_found token");
});

test("an invitation without an address is shown, and confirms none", async () => {
  const { link } = await node
    .as(owner.token)
    .createInvitation({ accountId: "acc_a", role: MEMBER, login: "no-mail@example.com" });
  const joined = await redeem(node, link, "no-mail@example.com");
  expect(joined.person.email).toBe("");
  expect(mailsTo("no-mail@example.com")).toEqual([]);
});

test("without a mail server the link is shown", async () => {
  const plain = people.node();
  const made = await plain
    .as(owner.token)
    .createInvitation({ accountId: "acc_b", role: MEMBER, email: "shown@example.com" });
  expect(made.link).not.toBe("");
  expect(made.invitation).toMatchObject({ email: "", mailState: MailState.NONE });
  const mail = plain.as(owner.token).createSignInLink({
    personId: owner.person.personId,
    delivery: LinkDelivery.MAILED,
    reason: "locked out",
  });
  expect(await errorOf(mail)).toBe("invalid_request delivery");
});

test("what is no address is refused, and nothing is made", async () => {
  for (const email of ["nobody", "a@example.com, b@example.com", "a@b\r\nBcc: c@d", "a b@c"])
    expect(await errorOf(invite(email))).toBe("invalid_request email");
  expect(smtp.mails.flatMap(({ to }) => to)).not.toContain("b@example.com");
});

test("a name brings no line, address or mark of its own into a mail", async () => {
  const mallory = await join(node, owner, "acc_a", OWNER, "https://evil.example.com/buy");
  await node
    .as(mallory.token)
    .createInvitation({ accountId: "acc_a", role: MEMBER, email: "v@example.com" });
  await expect.poll(() => mailsTo("v@example.com")).toHaveLength(1);
  const text = mailsTo("v@example.com")[0]?.text ?? "";
  expect(text).not.toContain("evil.example.com");
  expect(text).toContain("https evil example com buy invites you");
});

test("a refused address is told, and not tried again", async () => {
  refusal = { code: 550, message: "user unknown" };
  await invite("refused@example.com");
  await expect
    .poll(() => invitationTo("refused@example.com"))
    .toMatchObject({
      mailState: MailState.FAILED,
      mailProblem: "The mail server refused the mail: 550 user unknown",
    });
});

test("what a server says of an address names no whole one, on the page and in the log", async () => {
  refusal = { code: 550, message: "<tom@example.com> moved to tom.new@example.org" };
  await invite("tom@example.com");
  const problem = "The mail server refused the mail: 550 <t…@example.com> moved to t…@example.org";
  await expect.poll(() => invitationTo("tom@example.com")).toMatchObject({ mailProblem: problem });
  await expect.poll(() => lines.at(-1)).toMatchObject({ code: "mail_not_sent", problem });
  expect(inspect(lines, { depth: 9 })).not.toContain("tom");
});

test("a mail that is refused for now is sent later, and its link works", async () => {
  refusal = { code: 451, message: "try later" };
  await invite("later@example.com");
  await expect
    .poll(() => invitationTo("later@example.com"))
    .toMatchObject({
      mailState: MailState.WAITING,
      mailProblem: "The mail server refused the mail: 451 try later",
    });
  refusal = undefined;
  await makeDue();
  await invite("wakes-the-outbox@example.com");
  await expect.poll(() => mailsTo("later@example.com")).toHaveLength(1);
  const later = await redeem(node, mailsTo("later@example.com")[0]?.links[0] ?? "", "later");
  expect(later.person.email).toBe("later@example.com");
});

test("a mail whose time is over has failed", async () => {
  refusal = { code: 451, message: "never" };
  await invite("never@example.com");
  await expect
    .poll(() => invitationTo("never@example.com"))
    .toMatchObject({ mailProblem: "The mail server refused the mail: 451 never" });
  const text = "update mails set ends_at = now() + interval '1 second', next_at = now()";
  const where = "where address = 'never@example.com'";
  await query(people.database, { name: "test/end", text: `${text} ${where}` }, []);
  await invite("wakes-again@example.com");
  await expect
    .poll(() => invitationTo("never@example.com"))
    .toMatchObject({ mailState: MailState.FAILED });
});

test("a mail server that hangs holds no request, and another process sends the mail", async () => {
  const silent = await startSilentServer();
  const mailer = createMailer({ url: new URL(silent.url), from: "gw@localhost" });
  const hanging = people.node({ mailer });
  await hanging
    .as(owner.token)
    .createInvitation({ accountId: "acc_b", role: MEMBER, email: "patient@example.com" });
  // The request was answered while the attempt hangs.
  await expect.poll(silent.opened).toBe(1);
  await hanging.stop();
  await silent.stop();
  await makeDue();
  await invite("wakes-a-third-time@example.com");
  await expect.poll(() => mailsTo("patient@example.com")).toHaveLength(1);
});

test("nothing is sent twice by two processes", async () => {
  const second = people.node({
    mailer: createMailer({ url: new URL(smtp.url), from: "gw@localhost" }),
  });
  const addresses = Array.from({ length: 8 }, (_, index) => `many-${index}@example.com`);
  await Promise.all(
    addresses.map((email, index) =>
      (index % 2 === 0 ? node : second)
        .as(owner.token)
        .createInvitation({ accountId: "acc_b", role: MEMBER, email }),
    ),
  );
  await expect.poll(() => addresses.flatMap(mailsTo)).toHaveLength(addresses.length);
  const links = addresses.flatMap(mailsTo).flatMap((mail) => mail.links);
  expect(new Set(links).size).toBe(addresses.length);
  await second.stop();
});

test("the database never holds the secret of a mailed link", async () => {
  const dump = { name: "test/dump", text: "select m::text as row from mails m" };
  const rows = await query<{ row: string }>(people.database, dump, []);
  const secrets = smtp.mails.flatMap(({ links }) => links.map(tokenOf));
  expect(secrets.length).toBeGreaterThan(0);
  for (const { row } of rows) for (const secret of secrets) expect(row).not.toContain(secret);
});

test("a recovery link is mailed to a confirmed address, and its use is told there", async () => {
  await invite("rita@example.com");
  await expect.poll(() => mailsTo("rita@example.com")).toHaveLength(1);
  const rita = await redeem(node, mailsTo("rita@example.com")[0]?.links[0] ?? "", "rita");
  const { personId } = rita.person;
  const { link } = await node
    .as(owner.token)
    .createSignInLink({ personId, delivery: LinkDelivery.MAILED, reason: "locked out" });
  expect(link).toBe("");
  await expect.poll(() => mailsTo("rita@example.com")).toHaveLength(2);
  await redeem(node, mailsTo("rita@example.com")[1]?.links[0] ?? "", "");
  await expect.poll(() => mailsTo("rita@example.com")).toHaveLength(3);
  const told = mailsTo("rita@example.com")[2];
  expect(told?.links).toEqual([]);
  expect(told?.text).toContain("192.0.2.1");
  expect(told?.text).toContain("earlier ways to sign in were removed");
});

test("a recovery link is not mailed to a person without a confirmed address", async () => {
  const { personId } = owner.person;
  expect(
    await errorOf(
      node
        .as(owner.token)
        .createSignInLink({ personId, delivery: LinkDelivery.MAILED, reason: "locked out" }),
    ),
  ).toBe("invalid_request delivery");
});
