// Mails that operators send again, over a whole gateway with a mail server.

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { AlertKind, DeliveryState } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { DocumentReceiver } from "../../gen/gateway/operations/v1/support_pb.ts";
import { DepositState, OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { errorOf } from "../support/keys.ts";
import { createOperators, type SignedIn } from "../support/operators.ts";
import { query } from "../support/query.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

const soon = { timeout: 30_000 };
const reason = "the customer lost it";
let smtp: TestSmtpServer;
let gateway: TestGateway;
let postgres: Postgres;
let ann: SignedIn;
let sue: SignedIn;
let bob: SignedIn;
let number = "";
let orderId = "";
const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);
const desk = () => gateway.admin.core.operations;
const mailsWith = (text: string) => smtp.mails.filter((mail) => mail.text.includes(text));

/** An order of somebody that is paid, and the number of its receipt. */
async function buys(buyer: SignedIn, idempotencyKey: string) {
  const { payments } = gateway.admin.core;
  const { order } = await payments.createOrder(
    {
      ...{ accountId: gateway.accountId, family: Family.V1, packMicrodollars: 5_000_000n },
      ...{ method: "simulated:usdc", idempotencyKey },
    },
    buyer.call,
  );
  const bought = { orderId: order?.orderId ?? "" };
  const event = { case: "deposit", value: { coins: "5", confirmations: 1 } } as const;
  await payments.simulateDeposit({ ...bought, event }, gateway.admin.call);
  return vi.waitFor(async () => {
    const { order: now } = await payments.getOrder(bought, gateway.admin.call);
    expect([now?.state, now?.receiptNumber]).toEqual([
      OrderState.PAID,
      expect.stringMatching(/^R/),
    ]);
    return { ...bought, number: now?.receiptNumber ?? "" };
  }, soon);
}

beforeAll(async () => {
  smtp = await startSmtpServer();
  gateway = await startTestGateway({
    env: { SMTP_URL: smtp.url, MAIL_FROM: "gateway@example.com" },
  });
  postgres = connectPostgres(gateway.databaseUrl);
  const operators = createOperators(gateway, () =>
    run("update links set made_at = made_at - interval '2 days'"),
  );
  ann = await operators.newOwner("ann");
  sue = await operators.newOperator("sue", OperatorRole.SUPPORT);
  bob = await operators.newPerson("bob");
  await run("update members set role = 'member' where person_id = $1", [bob.personId]);
  await operators.signIn(bob);
  await run("update people set email = login || '@example.com', email_verified_at = now()");
  ({ orderId, number } = await buys(ann, "the order"));
  await vi.waitFor(() => expect(mailsWith(`Receipt ${number}`)).toHaveLength(1), soon);
});
afterAll(async () => {
  await postgres.close();
  await gateway.stop();
  await smtp.stop();
});

test("support sends a receipt again, to owners or to the buyer, once for each key", async () => {
  const asked = { accountId: gateway.accountId, number, reason };
  for (const to of [DocumentReceiver.OWNERS, DocumentReceiver.BUYER]) {
    const before = mailsWith(`The receipt ${number} was sent again.`).length;
    for (let times = 0; times < 3; times++)
      await desk().resendDocument({ ...asked, receiver: to, idempotencyKey: `to ${to}` }, sue.call);
    await vi.waitFor(
      () => expect(mailsWith(`The receipt ${number} was sent again.`)).toHaveLength(before + 1),
      soon,
    );
  }
  const [mail] = mailsWith(`The receipt ${number} was sent again.`);
  expect(mail?.to).toEqual(["ann@example.com"]);
  expect(mail?.text).toContain("Total: 1000 credits, 5.00 USD");
});

test("a buyer who is no owner gets his receipt alone, and so does a notice of it again", async () => {
  const bought = await buys(bob, "the order of a member");
  const sent = () => mailsWith(`The receipt ${bought.number} was sent again.`);
  const asked = { accountId: gateway.accountId, number: bought.number, reason };
  await desk().resendDocument({ ...asked, receiver: DocumentReceiver.BUYER }, sue.call);
  await vi.waitFor(() => expect(sent().map(({ to }) => to)).toEqual([["bob@example.com"]]), soon);
  const [row] = await run<{ alert_id: string }>(
    "select alert_id from alerts where kind = 'document_sent' and facts ->> 'document' = $1",
    [bought.number],
  );
  const { accountId } = gateway;
  await desk().resendNotice({ accountId, alertId: row?.alert_id ?? "", reason }, sue.call);
  const allSent = async () =>
    expect(await run("select from alert_deliveries where state = 'waiting'")).toEqual([]);
  await vi.waitFor(allSent, soon);
  expect(sent().map(({ to }) => to)).toEqual([["bob@example.com"], ["bob@example.com"]]);
  // The list of mails below is of the owner alone.
  await run("delete from alert_deliveries where channel = $1", [`mail:${bob.personId}`]);
});

test("support sends a notice again, whatever the hour's bound says", async () => {
  const { alerts } = await gateway.admin.core.alerts.listAlerts(
    { accountId: gateway.accountId },
    ann.call,
  );
  const { alertId = "" } = alerts.find((one) => one.orderId === orderId) ?? {};
  const asked = { accountId: gateway.accountId, alertId, reason };
  const mails = () => mailsWith(`Alert ${alertId}.`);
  for (let count = 1; count <= 2; count++) {
    const before = mails().length;
    await desk().resendNotice({ ...asked, idempotencyKey: `notice ${count}` }, sue.call);
    await vi.waitFor(() => expect(mails()).toHaveLength(before + 1), soon);
  }
  const before = mails().length;
  await desk().resendNotice({ ...asked, idempotencyKey: "notice 2" }, sue.call);
  expect(mails()).toHaveLength(before);
  const other = { ...asked, reason: "another reason", idempotencyKey: "notice 2" };
  expect(await errorOf(desk().resendNotice(other, sue.call))).toBe(
    "idempotency_key_reused idempotency_key",
  );
});

test("a credit note without a receipt is mailed, and shown: nothing was credited", async () => {
  const { core, call } = gateway.admin;
  const ordered = await core.payments.createOrder(
    {
      ...{ accountId: gateway.accountId, family: Family.V1, packMicrodollars: 5_000_000n },
      ...{ method: "simulated:usdc", idempotencyKey: "another coin" },
    },
    call,
  );
  const other = ordered.order?.orderId ?? "";
  await core.payments.simulateDeposit(
    {
      orderId: other,
      event: {
        case: "deposit",
        value: { coins: "0.0001", asset: "BTC", network: "bitcoin", confirmations: 9 },
      },
    },
    call,
  );
  const depositId = await vi.waitFor(async () => {
    const { order } = await core.payments.getOrder({ orderId: other }, call);
    expect(order?.deposits[0]?.state).toBe(DepositState.SETTLED);
    return order?.deposits[0]?.depositId ?? "";
  }, soon);
  await core.payments.beginRefund(
    { orderId: other, reason: "another coin", what: { case: "depositId", value: depositId } },
    call,
  );
  await core.payments.completeRefund({ orderId: other, transaction: "went-back" }, call);
  const { receipt, creditNotes } = await core.payments.getReceiptDocument({ orderId: other }, call);
  const [note] = creditNotes;
  expect([receipt, creditNotes.length, note?.receiptNumber]).toEqual([undefined, 1, ""]);
  const written = `Credit note ${note?.number} of `;
  // With the notice of the refund, and again.
  await vi.waitFor(() => expect(mailsWith(written)).toHaveLength(1), soon);
  await desk().resendDocument(
    {
      ...{ accountId: gateway.accountId, number: note?.number ?? "", reason },
      receiver: DocumentReceiver.OWNERS,
    },
    sue.call,
  );
  await vi.waitFor(() => expect(mailsWith(written)).toHaveLength(2), soon);
  expect(mailsWith(written)[1]?.text).not.toContain("For the receipt");
  const exported: string[] = [];
  for await (const { documents } of core.billing.exportAccount(
    { accountId: gateway.accountId },
    call,
  ))
    exported.push(...documents.map((one) => one.number));
  expect(exported).toEqual(expect.arrayContaining([number, note?.number]));
});

test("support sees what was mailed, to whom without his address, and what became of it", async () => {
  const list = (by = sue) => desk().listMails({ accountId: gateway.accountId }, by.call);
  await vi.waitFor(
    async () => expect(await run("select from alert_deliveries where state <> 'sent'")).toEqual([]),
    soon,
  );
  const { mails, nextPageToken } = await list();
  expect(nextPageToken).toBe("");
  const times = mails.map(({ delivery }) => Number(delivery?.createdAt?.seconds));
  expect(times).toEqual(times.toSorted((one, next) => next - one));
  expect(mails.map(({ delivery }) => delivery?.kind)).toEqual(
    expect.arrayContaining([AlertKind.PAYMENT_CREDITED, AlertKind.DOCUMENT_SENT]),
  );
  for (const { address, delivery } of mails) {
    expect(address).toBe("a…@example.com");
    expect(delivery?.delivery?.state).toBe(DeliveryState.SENT);
    // Nothing, or which other mail counted it.
    expect(delivery?.delivery?.problem).toMatch(/^$|^The mail about .* counted it\.$/);
  }
  const { alertId = "" } = mails[0]?.delivery ?? {};
  await run(
    `update alert_deliveries set state = 'failed',
       problem = 'The mail server refused the mail: 550 <a…@example.com> is unknown'
     where alert_id = $1`,
    [alertId],
  );
  // Posts are no mails.
  await run(
    `insert into alert_deliveries (alert_id, channel, account_id, ends_at)
     values ($1, 'webhook', $2, now())`,
    [alertId, gateway.accountId],
  );
  const [failed, ...others] = (await list()).mails;
  expect(others).toHaveLength(mails.length - 1);
  expect(failed?.delivery?.delivery).toMatchObject({
    state: DeliveryState.FAILED,
    problem: "The mail server refused the mail: 550 <a…@example.com> is unknown",
  });
  await run(
    `insert into alerts (alert_id, account_id, kind, facts, on_page)
     select 'key_created/' || n, $1, 'key_created', '{}', false from generate_series(1, 101) as n`,
    [gateway.accountId],
  );
  await run(
    `insert into alert_deliveries (alert_id, channel, account_id, ends_at, state, next_at, problem)
     select 'key_created/' || n, 'mail:per_left', $1, now(), 'sent', now() - interval '2 days',
       '550 l…@example.com'
     from generate_series(1, 101) as n`,
    [gateway.accountId],
  );
  // Pages of both sources of mails, together in the order of time.
  const listPage = (pageToken: string, accountId = gateway.accountId) =>
    desk().listMails({ accountId, pageSize: 40, pageToken }, sue.call);
  const many = await listPage("");
  const pages = [many];
  for (let last = many; last.nextPageToken !== ""; pages.push(last))
    last = await listPage(last.nextPageToken);
  expect(pages.map((page) => page.mails.length)).toEqual([40, 40, mails.length + 101 - 80]);
  const paged = pages.flatMap((page) => page.mails).map(({ delivery }) => delivery?.alertId);
  expect(new Set(paged).size).toBe(new Set(mails.map((one) => one.delivery?.alertId)).size + 101);
  // Of a person who left, nothing is known.
  const ofLeft = many.mails.find(({ delivery }) => delivery?.delivery?.personId === "per_left");
  expect(ofLeft?.address).toBe("");
  expect(ofLeft?.delivery?.delivery?.problem).toBe("550 l…@example.com");
  expect(await errorOf(desk().listMails({ accountId: "acc_none" }, sue.call))).toBe(
    "not_found account_id",
  );
  // The owners of another account see that somebody looked.
  const { account } = await gateway.admin.core.billing.createAccount(
    { settings: { name: "another" } },
    gateway.admin.call,
  );
  const { accountId = "" } = account ?? {};
  expect((await desk().listMails({ accountId }, sue.call)).mails).toEqual([]);
  const looks = await run<{ method: string }>(
    "select method from audit_events where account_id = $1 and actor = $2",
    [accountId, `person:${sue.personId}`],
  );
  expect(looks).toEqual([{ method: "ListMails" }]);
});

test("support sees the mails of invitations among the others, without the whole address", async () => {
  const { accountId } = gateway;
  const invite = (email: string) =>
    gateway.admin.core.people.createInvitation(
      { accountId, role: AccountRole.MEMBER, email },
      ann.call,
    );
  const { invitation } = await invite("new.person@example.org");
  await invite("other.person@example.org");
  const list = async () =>
    (await desk().listMails({ accountId }, sue.call)).mails.filter(
      ({ invitationId }) => invitationId !== "",
    );
  await vi.waitFor(
    async () =>
      expect((await list()).map(({ delivery }) => delivery?.delivery?.state)).toEqual([
        DeliveryState.SENT,
        DeliveryState.SENT,
      ]),
    soon,
  );
  const [other, first] = await list();
  expect([other?.address, first?.address]).toEqual(["o…@example.org", "n…@example.org"]);
  expect(first).toMatchObject({
    invitationId: invitation?.invitationId,
    delivery: { alertId: "", delivery: { failures: 0, problem: "" } },
  });
  await run(
    `update mails set state = 'failed', problem = 'refused', attempts = 2
     where address like 'new.person%'`,
  );
  expect((await list())[1]?.delivery?.delivery).toMatchObject({
    ...{ state: DeliveryState.FAILED, problem: "refused", failures: 2 },
  });
  // Newest first, whatever they are about.
  const { mails } = await desk().listMails({ accountId }, sue.call);
  expect(mails[0]?.invitationId).toBe(other?.invitationId);
  // Those of another account are not listed, and neither are mails that are no invitations.
  await run(
    `update links set account_id = null, role = null
     where link_id in (select link_id from mails where address like 'new.person%')`,
  );
  expect((await list()).map(({ address }) => address)).toEqual(["o…@example.org"]);
});

test("it needs a reason, a right, and something to send, and leaves an audit event", async () => {
  const to = DocumentReceiver.OWNERS;
  const asked = { accountId: gateway.accountId, number, reason, receiver: to };
  const resend = (more: object, by = sue) =>
    errorOf(desk().resendDocument({ ...asked, ...more }, by.call));
  expect(await resend({ reason: "no" })).toBe("invalid_request reason");
  expect(await resend({ number: "R1999-000001" })).toBe("not_found number");
  expect(await resend({ receiver: 9 })).toBe("invalid_request receiver");
  expect(
    await errorOf(
      desk().resendNotice({ accountId: gateway.accountId, alertId: "none", reason }, sue.call),
    ),
  ).toBe("not_found alert_id");
  await run("update people set email = null, email_verified_at = null where login = 'ann'");
  expect(await resend({})).toBe("wrong_state");
  // Its owner has no right at the desk of others.
  const outsider = { headers: { authorization: "Bearer sk-gw2-none" } };
  expect(await errorOf(desk().resendDocument(asked, outsider))).toBe("invalid_key");
  const events = await run<{ facts: { reason?: string } }>(
    "select facts from audit_events where method = 'ResendDocument' and outcome = 'ok'",
  );
  expect(events.length).toBeGreaterThan(0);
  for (const { facts } of events) expect(facts.reason).toBe(reason);
});
