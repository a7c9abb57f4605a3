// What an operator does at the desk, over a whole gateway: each act needs a reason, the role, and a
// confirmation, is made once however often it is sent, and is found among the audit events.

import type { CallOptions } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { Attention, OrderState, RefundState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { type ApiError, toApiError } from "../../src/base/errors.ts";
import type { CatalogFile } from "../../src/config/catalog.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { fastCatalog, startTestGateway, type TestGateway } from "../support/gateway.ts";
import { createOperators, type SignedIn } from "../support/operators.ts";
import { query } from "../support/query.ts";

const usd = 200_000_000n;
const soon = { timeout: 20_000 };

let gateway: TestGateway;
let postgres: Postgres;
let core: TestGateway["admin"]["core"];
let ann: SignedIn;
/** Members of no account but the first. */
let bob: SignedIn;
let cleo: SignedIn;
let sue: SignedIn;
/** Whose confirmation is too long ago. */
let wendy: SignedIn;
beforeAll(async () => {
  gateway = await startTestGateway();
  ({ core } = gateway.admin);
  postgres = connectPostgres(gateway.databaseUrl);
  const operators = createOperators(gateway, () =>
    run("age-links", "update links set made_at = made_at - interval '2 days'"),
  );
  ann = await operators.newOwner("ann");
  bob = await operators.newOperator("bob");
  cleo = await operators.newOperator("cleo");
  sue = await operators.newOperator("sue", OperatorRole.SUPPORT);
  wendy = await operators.newOperator("wendy");
  await run("age-session", "update sessions set strong_until = now() where person_id = $1", [
    wendy.personId,
  ]);
});
afterAll(async () => {
  await postgres.close();
  await gateway.stop();
});

const run = <Row>(name: string, text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: `test/${name}`, text }, values);

let made = 0;
const unique = (what: string) => `${what}-${++made}-of-the-desk-acts`;

async function newAccount(): Promise<string> {
  const { account } = await core.billing.createAccount(
    { settings: { name: unique("shop") } },
    machine(),
  );
  return account?.accountId ?? "";
}
const machine = () => gateway.admin.call;
const orderOf = async (orderId: string) =>
  (await core.payments.getOrder({ orderId }, machine())).order;

/** An order of five dollars for which so many dollars arrived. Absent: none. */
async function newOrder(accountId: string, amount?: string): Promise<string> {
  const { order } = await core.payments.createOrder(
    {
      ...{ accountId, family: Family.V1, packMicrodollars: 5_000_000n },
      ...{ method: "simulated:usdc", idempotencyKey: unique("order") },
    },
    machine(),
  );
  const orderId = order?.orderId ?? "";
  if (amount === undefined) return orderId;
  await core.payments.simulateDeposit(
    { orderId, event: { case: "deposit", value: { coins: amount, confirmations: 1 } } },
    machine(),
  );
  await vi.waitFor(async () => expect((await orderOf(orderId))?.state).toBe(OrderState.PAID), soon);
  return orderId;
}

async function waitingOrder(accountId: string): Promise<string> {
  const orderId = await newOrder(accountId);
  const event = { case: "deposit", value: { coins: "700", confirmations: 1 } } as const;
  await core.payments.simulateDeposit({ orderId, event }, machine());
  await vi.waitFor(
    async () => expect((await orderOf(orderId))?.attention).toBe(Attention.OVERPAID),
    soon,
  );
  return orderId;
}

type Asked = { readonly reason: string; readonly idempotencyKey: string };
type Answer = { readonly approval?: Approval | undefined };
type Act = {
  readonly method: string;
  /** Makes what the act is about, in an account. Returns its id. */
  prepare(accountId: string): Promise<string>;
  run(subject: string, asked: Asked, by: CallOptions): Promise<Answer>;
  /** What the act changes. */
  read(subject: string, accountId: string): Promise<unknown>;
  /** After the first time, before the repeat. */
  settle?(subject: string): Promise<void>;
  /** False: who does it is the person whom it is about. */
  readonly hasAccount?: false;
  /** True: another person approves it above the limit. */
  readonly isGift: boolean;
};

const itself = async (accountId: string) => accountId;
const transfers = async (_: string, accountId: string) =>
  (await core.billing.listTransfers({ accountId }, machine())).transfers.map((one) => [
    ...[one.kind, one.family, one.amountMicrocredits, one.reason],
  ]);
const move = (amountMicrocredits: bigint, kind: TransferKind) => {
  return async (accountId: string, asked: Asked, by: CallOptions) =>
    core.billing.createTransfer(
      { accountId, family: Family.V1, kind, amountMicrocredits, ...asked },
      by,
    );
};
const withCredits = async (accountId: string) => {
  const key = { reason: "", idempotencyKey: unique("start") };
  await move(100n * usd, TransferKind.BONUS)(accountId, key, machine());
  return accountId;
};
const statusOf = async (accountId: string) => {
  const { account } = await core.billing.getAccount({ accountId }, machine());
  return [account?.state, account?.stateReason, account?.stateChangedAt];
};
const decided = async (orderId: string) => {
  const order = await orderOf(orderId);
  const stored = await run("decisions", "select * from payment_decisions where order_id = $1", [
    orderId,
  ]);
  return [order?.attention, order?.state, order?.quotedUntil, stored.length];
};

const acts: Readonly<Record<string, Act>> = {
  credit: {
    ...{ method: "CreateTransfer", prepare: itself, read: transfers, isGift: true },
    run: move(10n * usd, TransferKind.BONUS),
  },
  debit: {
    ...{ method: "CreateTransfer", prepare: withCredits, read: transfers, isGift: false },
    run: move(-10n * usd, TransferKind.ADJUSTMENT),
  },
  "grant an order": {
    ...{ method: "DecideOrder", prepare: waitingOrder, read: decided, isGift: true },
    run: (orderId, asked, by) => {
      const choice = {
        case: "grant",
        value: { what: { case: "grantedMicrodollars", value: 100_000_000n } },
      } as const;
      return core.payments.decideOrder({ orderId, choice, ...asked }, by);
    },
  },
  "close an order": {
    ...{ method: "DecideOrder", prepare: waitingOrder, read: decided, isGift: false },
    run: (orderId, asked, by) =>
      core.payments.decideOrder({ orderId, choice: { case: "close", value: {} }, ...asked }, by),
  },
  "reopen an order": {
    ...{ method: "DecideOrder", read: decided, isGift: false },
    async prepare(accountId) {
      const orderId = await newOrder(accountId);
      await core.payments.cancelOrder({ orderId }, machine());
      return orderId;
    },
    run: (orderId, asked, by) =>
      core.payments.decideOrder({ orderId, choice: { case: "reopen", value: {} }, ...asked }, by),
    // Else the repeat would be refused for its state, whatever its key.
    async settle(orderId) {
      await core.payments.cancelOrder({ orderId }, machine());
    },
  },
  "refund an order": {
    ...{ method: "BeginRefund", isGift: true },
    prepare: (accountId) => newOrder(accountId, "5"),
    run: (orderId, asked, by) => {
      const what = { case: "amountMicrodollars", value: 2_000_000n } as const;
      return core.payments.beginRefund({ orderId, what, ...asked }, by);
    },
    async settle(orderId) {
      const states = async () => (await orderOf(orderId))?.refunds.map(({ state }) => state);
      await expect.poll(states, soon).toEqual([RefundState.REFUNDING]);
      await core.payments.completeRefund({ orderId, transaction: "tx" }, machine());
    },
    read: async (orderId) =>
      (await orderOf(orderId))?.refunds.map((one) => [one.number, one.refundedMicrodollars]),
  },
  "void an order": {
    ...{ method: "CancelOrder", prepare: newOrder, isGift: false },
    run: async (orderId, { reason }, by) => {
      await core.payments.cancelOrder({ orderId, reason }, by);
      return {};
    },
    read: async (orderId) => (await orderOf(orderId))?.state,
  },
  "move credits": {
    ...{ method: "MoveCredits", prepare: withCredits, read: transfers, isGift: false },
    run: async (accountId, asked, by) => {
      const pools = { fromFamily: Family.V1, toFamily: Family.V2 };
      const amountMicrocredits = 50n * usd;
      await core.billing.moveCredits({ accountId, ...pools, amountMicrocredits, ...asked }, by);
      return {};
    },
  },
  suspend: {
    ...{ method: "SuspendAccount", prepare: itself, isGift: false },
    run: async (accountId, { reason }, by) => {
      await core.billing.suspendAccount({ accountId, reason }, by);
      return {};
    },
    read: async (accountId) => (await statusOf(accountId)).slice(0, 2),
  },
  resume: {
    ...{ method: "ResumeAccount", read: statusOf, isGift: false },
    async prepare(accountId) {
      await core.billing.suspendAccount({ accountId, reason: "before" }, machine());
      return accountId;
    },
    run: async (accountId, { reason }, by) => {
      await core.billing.resumeAccount({ accountId, reason }, by);
      return {};
    },
  },
  "make a sign-in link": {
    ...{ method: "CreateSignInLink", isGift: true, hasAccount: false },
    // Of an operator: such a link waits wherever there is a limit.
    prepare: async () => sue.personId,
    run: (personId, asked, by) => core.people.createSignInLink({ personId, ...asked }, by),
    read: (personId) =>
      run("links", "select link_id from links where person_id = $1 and used_at is null", [
        personId,
      ]),
  },
};

async function errorOf(asked: Promise<unknown>): Promise<Partial<ApiError>> {
  return asked.then(
    () => ({}),
    (thrown: unknown) => toApiError(thrown),
  );
}

describe.each(Object.entries(acts))("to %s", (_, act) => {
  const reason = "Agreed by phone on Monday.";
  let accountId = "";
  let subject = "";
  let before: unknown;
  beforeAll(async () => {
    accountId = await newAccount();
    subject = await act.prepare(accountId);
    before = await act.read(subject, accountId);
  });
  const asked = (of: Partial<Asked> = {}) => ({ reason, idempotencyKey: unique("act"), ...of });

  test("needs a reason of five characters, the role of an admin, and a confirmation", async () => {
    for (const short of ["", "  \n ", " why? ", "x".repeat(1_001), "a bell \u0007 rings"])
      expect(await errorOf(act.run(subject, asked({ reason: short }), bob.call))).toMatchObject({
        ...{ reason: "invalid_request", facts: { field: "reason" } },
      });
    expect(await errorOf(act.run(subject, asked(), sue.call))).toMatchObject({
      reason: "not_permitted",
    });
    expect(await errorOf(act.run(subject, asked(), wendy.call))).toMatchObject({
      reason: "confirm_identity",
    });
    expect(await act.read(subject, accountId)).toEqual(before);
  });

  test("sent twice with one idempotency key has one effect", async () => {
    const once = asked();
    const first = await act.run(subject, once, bob.call);
    expect(first.approval).toBeUndefined();
    await act.settle?.(subject);
    const after = await act.read(subject, accountId);
    if (act.method !== "DecideOrder" || !act.settle) expect(after).not.toEqual(before);
    const second = await errorOf(act.run(subject, once, bob.call));
    expect(second).toEqual({});
    expect(await act.read(subject, accountId)).toEqual(after);
  });

  test("is found among the audit events with its reason", async () => {
    const filter = { method: act.method, actor: toActor(`person:${bob.personId}`) };
    const whose = act.hasAccount === false ? { allAccounts: true } : { accountId };
    const { events } = await core.people.listAuditEvents({ ...filter, ...whose }, sue.call);
    const done = events.filter(({ succeeded }) => succeeded);
    expect(done.length).toBeGreaterThan(0);
    for (const { facts } of done) expect(facts.reason).toBe(reason);
  });
});

describe("where another person has to approve gifts", () => {
  beforeAll(() => gateway.reload(withLimit(1)));

  function withLimit(secondApprovalAboveUsd: number): CatalogFile {
    const seller = { id: "main", name: "", address: "", taxId: "" };
    const payments = {
      ...{ packsUsd: [5], mostUsd: 1_000, seller, ownersMove: false },
      processors: [{ type: "simulated", name: "simulated" }] as const,
    };
    return { ...fastCatalog(), payments: { ...payments, secondApprovalAboveUsd } };
  }

  test.each(Object.entries(acts))("to %s waits if it gives away", async (_, act) => {
    const accountId = await newAccount();
    const subject = await act.prepare(accountId);
    const before = await act.read(subject, accountId);
    const asked = { reason: "A gift to a friend", idempotencyKey: unique("gift") };
    const { approval } = await act.run(subject, asked, bob.call);
    expect(approval !== undefined).toBe(act.isGift);
    if (!approval) return;
    expect(approval.reason).toBe(asked.reason);
    expect(await act.read(subject, accountId)).toEqual(before);
    // The same request again is the same one.
    const again = await act.run(subject, asked, bob.call);
    expect(again.approval?.approvalId).toBe(approval.approvalId);
    const { approvalId } = approval;
    expect(await errorOf(core.operations.approve({ approvalId }, bob.call))).toMatchObject({
      reason: "not_permitted",
    });
    await core.operations.approve({ approvalId }, cleo.call);
    const after = await act.read(subject, accountId);
    expect(after).not.toEqual(before);
    await act.settle?.(subject);
    const settled = await act.read(subject, accountId);
    await act.run(subject, asked, bob.call);
    expect(await act.read(subject, accountId)).toEqual(settled);
  });

  const gifts = Object.entries(acts).filter(([, act]) => act.isGift);
  test.each(gifts)("to %s again answers with its own request", async (_, act) => {
    const subject = await act.prepare(await newAccount());
    const askFor = (reason: string) => ({ reason, idempotencyKey: unique("gift") });
    const [first, later] = [askFor("A gift to a friend"), askFor("A gift to somebody else")];
    const waiting = async (asked: Asked) =>
      (await act.run(subject, asked, bob.call)).approval?.approvalId;
    const [ofFirst, ofLater] = [await waiting(first), await waiting(later)];
    expect(ofLater).toMatch(/^apv_/);
    // Of all acts, transfers alone wait beside each other.
    expect(await waiting(first)).toBe(act.method === "CreateTransfer" ? ofFirst : undefined);
    expect(await waiting(later)).toBe(ofLater);
  });
});

test("a program sells without a reason, and an owner cancels his order without one", async () => {
  const accountId = await newAccount();
  const sale = { accountId, family: Family.V1, kind: TransferKind.PURCHASE, reason: "" };
  const { transfer } = await core.billing.createTransfer(
    { ...sale, amountMicrocredits: 10n * usd, idempotencyKey: unique("sale") },
    machine(),
  );
  expect(transfer?.reason).toBe("");
  const orderId = await newOrder(gateway.accountId);
  const { order } = await core.payments.cancelOrder({ orderId }, ann.call);
  expect(order?.state).toBe(OrderState.CANCELLED);
});

test("an owner reads that an operator acted, and not why", async () => {
  const { accountId } = gateway;
  await move(usd, TransferKind.BONUS)(
    accountId,
    { reason: "Sorry for the outage", idempotencyKey: unique("gift") },
    bob.call,
  );
  const filter = { accountId, method: "CreateTransfer", actor: toActor(`person:${bob.personId}`) };
  const read = async (call: CallOptions) =>
    (await core.people.listAuditEvents(filter, call)).events.map(({ facts }) => facts.reason);
  expect(await read(sue.call)).toEqual(["Sorry for the outage"]);
  const asOwner = new Headers(ann.call.headers);
  asOwner.set("x-operator-role", "none");
  expect(await read({ headers: asOwner })).toEqual([undefined]);
});
