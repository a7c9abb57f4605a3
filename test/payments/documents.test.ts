import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { DocumentKind } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { simulatedPayments } from "../../src/config/catalog.ts";
import { errorOf } from "../support/billing.ts";
import {
  admin,
  member,
  type PaymentsNodes,
  startPaymentsNodes,
} from "../support/payments-nodes.ts";

const shown = { name: "Example Ltd", address: "1 Example Street\nExample City", taxId: "EX123" };
const seller = { id: "main", ...shown };

let world: PaymentsNodes;
beforeAll(async () => {
  world = await startPaymentsNodes({ settings: { ...simulatedPayments, seller } });
});
afterEach(async () => {
  expect(await world.violations()).toEqual([]);
});
afterAll(() => world.stop());

const documentsOf = (orderId: string) => world.as(admin).getReceiptDocument({ orderId });
/** The number without its kind and year. */
const countOf = (number: string | undefined) => Number(number?.split("-")[1]);

test("a paid order has a receipt with seller, buyer, credits, dollars and what was paid", async () => {
  const accountId = await world.newAccount("ACME");
  const orderId = await world.paidOrder(accountId, 20_000_000n);
  const { receipt, creditNotes, deposits } = await documentsOf(orderId);
  const year = new Date().getUTCFullYear();
  expect(receipt).toMatchObject({
    number: expect.stringMatching(new RegExp(`^R${year}-\\d{6}$`)),
    kind: DocumentKind.RECEIPT,
    // Pretended money has a series of its own.
    seller: { ...shown, name: "Example Ltd (simulated, no real money)" },
    buyer: { name: "ACME", address: "", taxId: "" },
    orderId,
    accountId,
    family: Family.V1,
    receiptNumber: "",
    totalMicrocredits: 4_000_000_000n,
    totalMicrodollars: 20_000_000n,
    lines: [{ microcredits: 4_000_000_000n, microdollars: 20_000_000n }],
  });
  expect(creditNotes).toEqual([]);
  expect(deposits).toMatchObject([{ asset: "USDC", coins: "20" }]);
  const { order } = await world.as(admin).getOrder({ orderId });
  expect(order?.receiptNumber).toBe(receipt?.number);
});

test("numbers have no gap, however many orders are credited at once on two nodes", async () => {
  world.node().payments.start();
  const orders = await Promise.all(
    Array.from({ length: 8 }, async () => world.paidOrder(await world.newAccount())),
  );
  // An order that is never paid takes no number.
  await world.as(admin).createOrder({
    accountId: await world.newAccount(),
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "simulated:btc",
    idempotencyKey: "unpaid",
  });
  const numbers = await Promise.all(
    orders.map(async (orderId) => countOf((await documentsOf(orderId)).receipt?.number)),
  );
  numbers.sort((one, other) => one - other);
  const first = numbers[0] ?? 0;
  expect(numbers).toEqual(numbers.map((_, index) => first + index));
});

test("an order without credits has no receipt, and a foreign one looks absent", async () => {
  const accountId = await world.newAccount();
  const { order } = await world.as(admin).createOrder({
    accountId,
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "simulated:btc",
    idempotencyKey: "open",
  });
  const { orderId = "" } = order ?? {};
  expect((await errorOf(documentsOf(orderId))).reason).toBe("not_found");
  const paid = await world.paidOrder(accountId);
  const stranger = world.as(member(await world.newAccount()));
  expect((await errorOf(stranger.getReceiptDocument({ orderId: paid }))).reason).toBe("not_found");
  const viewer = world.as(member(accountId, AccountRole.VIEWER));
  expect((await viewer.getReceiptDocument({ orderId: paid })).receipt?.orderId).toBe(paid);
});

test("money that comes later is a further line of the same receipt", async () => {
  const accountId = await world.newAccount();
  const orderId = await world.paidOrder(accountId);
  const before = await documentsOf(orderId);
  await world.as(admin).simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "2", confirmations: 1 } },
  });
  await world.until(async () => expect((await world.transfers(accountId)).length).toBe(2));
  const { receipt } = await documentsOf(orderId);
  expect(receipt?.number).toBe(before.receipt?.number);
  expect(receipt?.lines.map(({ microdollars }) => microdollars)).toEqual([5_000_000n, 2_000_000n]);
  expect(receipt?.totalMicrodollars).toBe(7_000_000n);
});

test("a refund has a credit note when it is completed, a cancelled one has none", async () => {
  const accountId = await world.newAccount();
  const orderId = await world.paidOrder(accountId, 10_000_000n);
  const refund = (dollars: bigint) =>
    world.as(admin).beginRefund({
      orderId,
      reason: "asked for",
      what: { case: "amountMicrodollars", value: dollars * 1_000_000n },
    });
  await refund(3n);
  await world.as(admin).cancelRefund({ orderId });
  expect((await documentsOf(orderId)).creditNotes).toEqual([]);
  await refund(4n);
  expect((await documentsOf(orderId)).creditNotes).toEqual([]);
  await world.as(admin).completeRefund({ orderId, transaction: "0xabc" });
  const { receipt, creditNotes } = await documentsOf(orderId);
  expect(creditNotes).toMatchObject([
    {
      kind: DocumentKind.CREDIT_NOTE,
      number: expect.stringMatching(/^C\d{4}-\d{6}$/),
      receiptNumber: receipt?.number,
      totalMicrodollars: 4_000_000n,
      totalMicrocredits: 800_000_000n,
    },
  ]);
  expect(receipt?.totalMicrodollars).toBe(10_000_000n);
});

test("the numbers of a seller go on under another name, and another id has its own", async () => {
  const next = async (changed: Partial<typeof seller>) => {
    const settings = { ...simulatedPayments, seller: { ...seller, ...changed } };
    world.payments.reload(settings);
    const { receipt } = await documentsOf(await world.paidOrder(await world.newAccount()));
    expect(receipt?.seller?.name).toContain(settings.seller.name);
    return countOf(receipt?.number);
  };
  const before = await next({});
  expect(await next({ name: "Example GmbH" })).toBe(before + 1);
  expect(await next({ id: "branch" })).toBe(1);
  expect(await next({})).toBe(before + 2);
});

test("a chargeback has a credit note", async () => {
  const accountId = await world.newAccount();
  const orderId = await world.paidOrder(accountId);
  const { order } = await world.as(admin).getOrder({ orderId });
  const depositId = order?.deposits[0]?.depositId ?? "";
  await world
    .as(admin)
    .simulateDeposit({ orderId, event: { case: "change", value: { depositId, lost: true } } });
  await world.until(async () => expect(await world.posted(accountId)).toEqual([0n, 0n]));
  const { creditNotes, receipt } = await documentsOf(orderId);
  expect(creditNotes).toMatchObject([
    { totalMicrocredits: 1_000_000_000n, totalMicrodollars: 5_000_000n },
  ]);
  expect(receipt?.issuedAt && timestampDate(receipt.issuedAt).getTime()).toBeLessThanOrEqual(
    creditNotes[0]?.issuedAt ? timestampDate(creditNotes[0].issuedAt).getTime() : 0,
  );
});

test("the numbers of a cell carry its name", async () => {
  await world.run("update installation set cell = '07'");
  try {
    const orderId = await world.paidOrder(await world.newAccount());
    const { receipt } = await documentsOf(orderId);
    expect(receipt?.number).toMatch(/^R07-\d{4}-\d{6}$/);
  } finally {
    await world.run("update installation set cell = '00'");
  }
});
