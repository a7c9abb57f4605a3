// BTCPay Server, against a stand-in that speaks its API: how invoices and payments become orders,
// deposits and credits, and what happens when that server does not do what it should.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  Attention,
  DepositState,
  type Order,
  OrderState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { Outbound } from "../../src/base/outbound.ts";
import { simulatedPayments } from "../../src/config/catalog.ts";
import type { Caller } from "../../src/contract/contract.ts";
import { createBtcpay } from "../../src/payments/btcpay.ts";
import { errorOf } from "../support/billing.ts";
import { type Btcpay, signedHook, startBtcpay } from "../support/btcpay.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";

const pack = 1_000_000_000n;
const anyone: Caller = { kind: "anyone" };

let btcpay: Btcpay;
let world: PaymentsNodes;
beforeAll(async () => {
  btcpay = await startBtcpay();
  world = await startPaymentsNodes({
    settings: {
      ...simulatedPayments,
      processors: [btcpay.settings, { type: "simulated", name: "simulated" }],
    },
    env: btcpay.env,
  });
});
afterAll(async () => {
  await world.stop();
  await btcpay.stop();
});

let keys = 0;
async function orderPack(of: { method?: string; accountId?: string; key?: string } = {}) {
  const { order } = await world.as(admin).createOrder({
    accountId: of.accountId ?? (await world.newAccount()),
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: of.method ?? "btcpay:btc-bitcoin",
    idempotencyKey: of.key ?? `key_${++keys}`,
  });
  if (!order) throw new Error("the answer has no order");
  return order;
}
const knock = (orderId: string) => world.as(anyone).receiveWebhook(btcpay.hook(orderId));
const orderThat = (orderId: string, isSo: (order: Order) => boolean) =>
  world.orderWhen(orderId, isSo);
/** Lets time pass for an order and its invoice. */
async function age(orderId: string, minutes: number): Promise<void> {
  await world.run(
    `update payment_orders set quoted_until = quoted_until - $2::integer * interval '1 minute',
       created_at = created_at - $2 * interval '1 minute' where order_id = $1`,
    [orderId, minutes],
  );
  const invoice = btcpay.invoiceOf(orderId);
  invoice.createdTime -= minutes * 60;
  invoice.expirationTime -= minutes * 60;
}

describe("ordering", () => {
  test("an order is an invoice of one payment method, and its quote is that server's", async () => {
    const order = await orderPack();
    const [create] = btcpay.calls.filter(({ method }) => method === "POST");
    expect(create?.body).toEqual({
      amount: "5.00",
      currency: "USD",
      metadata: { orderId: order.orderId },
      checkout: {
        expirationMinutes: 30,
        monitoringMinutes: 10_080,
        speedPolicy: "MediumSpeed",
        paymentTolerance: 0,
        paymentMethods: ["BTC-CHAIN"],
        redirectURL: `http://localhost:8080/console/credits/${order.orderId}`,
        redirectAutomatically: true,
      },
    });
    const { id } = btcpay.invoiceOf(order.orderId);
    expect(order).toMatchObject({
      processor: "btcpay",
      asset: "BTC",
      network: "bitcoin",
      simulated: false,
      quotedCoins: "0.00007692",
      usdPerCoin: "65000.00",
      payTo: `bc1q-of-${id}`,
      checkoutUrl: `https://pay.example.com/i/${id}`,
      state: OrderState.OPEN,
    });
    const minutesTo = (at: Order["quotedUntil"]) =>
      ((at ? timestampDate(at).getTime() : 0) - Date.now()) / 60_000;
    expect(minutesTo(order.quotedUntil)).toBeCloseTo(30, 0);
    expect(minutesTo(order.watchedUntil)).toBeCloseTo(10_110, 0);
  });

  test("a coin on a network is offered once, by the first processor that has it", async () => {
    const { methods } = await world.as(admin).listPaymentMethods({});
    expect(methods.map(({ method }) => method)).toEqual([
      ...["btcpay:btc-bitcoin", "btcpay:btc-lightning"],
      ...["simulated:eth", "simulated:usdt", "simulated:usdc"],
    ]);
  });

  test("a lost answer to the create is found again by the repeat, and nothing is ordered twice", async () => {
    const accountId = await world.newAccount();
    const before = btcpay.invoices.size;
    btcpay.troubles.push({ path: "POST", trouble: { kind: "hang-up-after" } });
    const first = orderPack({ accountId, key: "lost answer" });
    expect((await errorOf(first)).reason).toBe("gateway_unavailable");
    const order = await orderPack({ accountId, key: "lost answer" });
    expect(btcpay.invoices.size).toBe(before + 1);
    expect(order.payTo).toBe(`bc1q-of-${btcpay.invoiceOf(order.orderId).id}`);
  });

  test.each([
    ["429", { kind: "status", status: 429 }],
    ["503 with a page", { kind: "status", status: 503, body: "<html>no</html>" }],
    ["a wrong key", { kind: "status", status: 401, body: { code: "x", message: "no" } }],
    ["a list of problems", { kind: "status", status: 400, body: [{ path: "a", message: "b" }] }],
    ["text", { kind: "text", text: "ok" }],
    ["an empty body", { kind: "text", text: "" }],
    ["another type", { kind: "text", text: "[1, null, {}]" }],
    ["no address", { kind: "text", text: '{"id":"../../../x"}' }],
    ["two megabytes", { kind: "text", text: `"${"x".repeat(2_000_000)}"` }],
    ["nothing", { kind: "hang-up" }],
  ] as const)(
    "%s to a create is a processor that is away, and costs nothing",
    async (_, trouble) => {
      btcpay.troubles.push({ path: "POST", trouble });
      const error = await errorOf(orderPack());
      expect(error.reason).toBe("gateway_unavailable");
      expect(JSON.stringify(error)).not.toContain(btcpay.env.BTCPAY_API_KEY);
      btcpay.troubles.length = 0;
    },
  );
});

describe("crediting", () => {
  test("seen, then settled: the pack, once, after one look that a webhook asked for", async () => {
    const accountId = await world.newAccount();
    const { orderId, quotedCoins: quotedAmount } = await orderPack({ accountId });
    const { id } = btcpay.pay(orderId, quotedAmount, { status: "Processing" });
    await knock(orderId);
    const seen = await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    expect(seen).toMatchObject({ seenCoins: "0.00007692", grantedMicrocredits: 0n });
    btcpay.pay(orderId, quotedAmount, { id, status: "Settled" });
    await knock(orderId);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.deposits).toMatchObject([
      { depositId: id, state: DepositState.SETTLED, confirmations: 1, confirmationsNeeded: 1 },
    ]);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
  });

  test("the id of a payment on the chain tells its transaction, by which it is found", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    const tx = "5e".repeat(32);
    btcpay.pay(orderId, quotedAmount, { id: `${tx.toUpperCase()}-1` });
    await knock(orderId);
    await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(await world.run("select chain, tx, external_id from payment_transactions")).toEqual([
      { chain: "bitcoin", tx, external_id: `${tx.toUpperCase()}-1` },
    ]);
  });

  test("Lightning pays at once", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack({
      method: "btcpay:btc-lightning",
    });
    btcpay.pay(orderId, quotedAmount, { method: "BTC-LN", id: "payment-hash-of-1" });
    await knock(orderId);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.grantedMicrocredits).toBe(pack);
  });

  test("a webhook that is lost changes only the time of the look", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    btcpay.pay(orderId, quotedAmount);
    await world.run("update payment_orders set next_look_at = now() where order_id = $1", [
      orderId,
    ]);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.grantedMicrocredits).toBe(pack);
  });

  test("more is worth more, and two payments are worth their sum", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId });
    btcpay.pay(orderId, "0.00003", { id: "one-of-two" });
    btcpay.pay(orderId, "6.154E-5", { id: "two-of-two" });
    await knock(orderId);
    await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    // 0.00009154 BTC at 65,000 USD are 5.9501 USD.
    await world.until(async () =>
      expect(await world.posted(accountId)).toEqual([1_190_020_000n, 0n]),
    );
  });

  test("too little is credited when the quote is over, while the invoice stays expired", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId });
    btcpay.pay(orderId, "0.00004");
    Object.assign(btcpay.invoiceOf(orderId), {
      status: "Expired",
      additionalStatus: "PaidPartial",
    });
    await knock(orderId);
    await orderThat(orderId, ({ state }) => state === OrderState.PARTLY_PAID);
    expect(await world.posted(accountId)).toEqual([0n, 0n]);
    await age(orderId, 31);
    await knock(orderId);
    await world.until(async () =>
      expect(await world.posted(accountId)).toEqual([520_000_000n, 0n]),
    );
  });

  test("money in time counts at the quote, also if it is seen after an outage", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    const receivedDate = Math.floor(Date.now() / 1000) - 40 * 60;
    await age(orderId, 45);
    Object.assign(btcpay.invoiceOf(orderId), { status: "Expired", additionalStatus: "PaidLate" });
    btcpay.pay(orderId, quotedAmount, { receivedDate });
    await knock(orderId);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.grantedMicrocredits).toBe(pack);
  });

  test("late bitcoin without a rate of the market waits for a person", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    await age(orderId, 45);
    btcpay.pay(orderId, quotedAmount);
    await knock(orderId);
    const order = await orderThat(orderId, ({ attention }) => attention === Attention.LATE);
    expect(order.grantedMicrocredits).toBe(0n);
  });

  test("another payment method than ordered waits for a person", async () => {
    const { orderId } = await orderPack();
    btcpay.pay(orderId, "5.0", { method: "LTC-CHAIN", id: "ltc-1" });
    await knock(orderId);
    const order = await orderThat(orderId, ({ attention }) => attention === Attention.WRONG_ASSET);
    expect(order.grantedMicrocredits).toBe(0n);
  });

  test("replaced by fee: the first is lost, the second counts, and nothing is charged back", async () => {
    const accountId = await world.newAccount();
    const { orderId, quotedCoins: quotedAmount } = await orderPack({ accountId });
    const { id } = btcpay.pay(orderId, quotedAmount, { status: "Processing" });
    await knock(orderId);
    await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    btcpay.pay(orderId, quotedAmount, { id, status: "Invalid" });
    btcpay.pay(orderId, quotedAmount, { id: `${id}-again` });
    await knock(orderId);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.attention).toBe(Attention.NONE);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
  });

  test("a credited payment that becomes invalid is charged back", async () => {
    const accountId = await world.newAccount();
    const { orderId, quotedCoins: quotedAmount } = await orderPack({ accountId });
    const { id } = btcpay.pay(orderId, quotedAmount);
    await knock(orderId);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
    btcpay.pay(orderId, quotedAmount, { id, status: "Invalid" });
    await knock(orderId);
    await orderThat(orderId, ({ attention }) => attention === Attention.LOST);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([0n, 0n]));
  });

  test("marked paid by hand without a payment grants nothing; marked invalid is no mark", async () => {
    const [paid, invalid] = [await orderPack(), await orderPack()];
    const mark = (orderId: string, status: string) =>
      Object.assign(btcpay.invoiceOf(orderId), { status, additionalStatus: "Marked" });
    mark(paid.orderId, "Settled");
    mark(invalid.orderId, "Invalid");
    for (const { orderId } of [paid, invalid]) await knock(orderId);
    const marked = await orderThat(paid.orderId, ({ attention }) => attention === Attention.MARKED);
    expect(marked.grantedMicrocredits).toBe(0n);
    const other = await orderThat(invalid.orderId, ({ lookedAt }) => lookedAt !== undefined);
    expect(other.attention).toBe(Attention.NONE);
  });

  test("an invoice of another store or order, and nonsense, are no answers", async () => {
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    btcpay.pay(orderId, quotedAmount);
    const invoice = btcpay.invoiceOf(orderId);
    const looked = async () => {
      const [row] = await world.run<{ failed: number }>(
        "select failed_looks as failed from payment_orders where order_id = $1",
        [orderId],
      );
      return row?.failed ?? 0;
    };
    const fail = async (count: number) => {
      await world.run("update payment_orders set next_look_at = now() where order_id = $1", [
        orderId,
      ]);
      await world.until(async () => expect(await looked()).toBe(count));
    };
    invoice.storeId = "another";
    await fail(1);
    invoice.storeId = "store-of-tests";
    invoice.metadata = { orderId: "ord_another" };
    await fail(2);
    invoice.metadata = { orderId };
    btcpay.troubles.push({ path: "/payment-methods", trouble: { kind: "text", text: "{}" } });
    await fail(3);
    btcpay.troubles.push({ path: "/payment-methods", trouble: { kind: "status", status: 429 } });
    await fail(4);
    await knock(orderId);
    await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(await looked()).toBe(0);
  });
});

describe("webhooks", () => {
  test("the worked signature is right, and of these bytes only", () => {
    const body = '{"type":"InvoiceSettled","invoiceId":"abc"}';
    const hex = "b152a83d668d07788266a8077b53f3cf1d64f1b4a271857a16c9230112b56409";
    const { readHook } = createBtcpay(
      btcpay.settings,
      { apiKey: "x", webhookSecret: "whsec-example" },
      { publicUrl: () => new URL("http://localhost"), outbound: new Outbound() },
    );
    const read = (text: string, signature: string) =>
      readHook?.({ "btcpay-sig": signature }, Buffer.from(text));
    // It names no store, so it is about no invoice of ours.
    expect(read(body, `sha256=${hex}`)).toEqual({ deliveryKey: "", externalId: "" });
    expect(() => read(body.replace(",", ", "), `sha256=${hex}`)).toThrow("signature");
    for (const wrong of ["", hex, "sha256=", `sha256=${hex.slice(2)}`, `sha1=${hex}`])
      expect(() => read(body, wrong)).toThrow("signature");
  });

  test("fifty deliveries at once credit once", async () => {
    const accountId = await world.newAccount();
    const { orderId, quotedCoins: quotedAmount } = await orderPack({ accountId });
    btcpay.pay(orderId, quotedAmount);
    await Promise.all(Array.from({ length: 50 }, () => knock(orderId)));
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
    expect(await world.transfers(accountId)).toHaveLength(1);
  });

  test("one before the answer to the create is taken, and the order is paid all the same", async () => {
    const early = signedHook({
      deliveryId: "early",
      originalDeliveryId: "early",
      type: "InvoiceCreated",
      storeId: "store-of-tests",
      invoiceId: `Inv${btcpay.invoices.size + 1_000}`,
    });
    await world.as(anyone).receiveWebhook(early);
    const { orderId, quotedCoins: quotedAmount } = await orderPack();
    btcpay.pay(orderId, quotedAmount);
    await knock(orderId);
    const paid = await orderThat(orderId, ({ state }) => state === OrderState.PAID);
    expect(paid.grantedMicrocredits).toBe(pack);
  });

  test("a redelivery is another delivery, and a test event is taken", async () => {
    const { orderId } = await orderPack();
    const count = async () => {
      const [row] = await world.run<{ count: number }>(
        "select count(*)::integer as count from payment_hooks where processor = 'btcpay'",
      );
      return row?.count ?? 0;
    };
    const before = await count();
    const hook = btcpay.hook(orderId, "InvoiceExpired", { originalDeliveryId: "first" });
    await world.as(anyone).receiveWebhook(hook);
    await world.as(anyone).receiveWebhook(hook);
    expect(await count()).toBe(before + 1);
    await world.as(anyone).receiveWebhook(signedHook({ deliveryId: "t", type: "InvoiceCreated" }));
    for (const body of [[], "text", null])
      await world.as(anyone).receiveWebhook(signedHook(Object(body)));
    expect(await count()).toBeGreaterThan(before + 1);
  });

  test("a forged one, one about another processor's order, and a large one change nothing", async () => {
    const mine = await orderPack();
    const other = await orderPack({ method: "simulated:usdc" });
    await world.as(admin).simulateDeposit({
      orderId: other.orderId,
      event: { case: "deposit", value: { coins: "5", confirmations: 1 } },
      withoutHook: true,
    });
    btcpay.pay(mine.orderId, mine.quotedCoins);
    const [before] = await world.run("select count(*) as count from payment_hooks");
    const forged = signedHook({ storeId: "store-of-tests" }, "another secret of tests");
    expect((await errorOf(world.as(anyone).receiveWebhook(forged))).reason).toBe(
      "invalid_signature",
    );
    const large = signedHook({ text: "x".repeat(70_000) });
    expect((await errorOf(world.as(anyone).receiveWebhook(large))).reason).toBe(
      "request_too_large",
    );
    expect(await world.run("select count(*) as count from payment_hooks")).toEqual([before]);
    const foreign = signedHook({
      deliveryId: "foreign",
      storeId: "store-of-tests",
      invoiceId: other.orderId,
    });
    await world.as(anyone).receiveWebhook(foreign);
    const rows = await world.run<{ hook_at: Date | null }>(
      "select hook_at from payment_orders where order_id in ($1, $2)",
      [mine.orderId, other.orderId],
    );
    expect(rows.map(({ hook_at }) => hook_at)).toEqual([null, null]);
  });

  test("without a secret there is no webhook", () => {
    const { readHook } = createBtcpay(
      btcpay.settings,
      { apiKey: "x", webhookSecret: undefined },
      { publicUrl: () => new URL("http://localhost"), outbound: new Outbound() },
    );
    expect(readHook).toBeUndefined();
  });
});

test("in the end the ledger and the orders agree", async () => {
  await world.until(async () =>
    expect(await world.run("select from payment_grants where transfer_id is null")).toEqual([]),
  );
  expect(await world.violations()).toEqual([]);
});

test("a payment is found by the hash of its transaction, or by its id there", async () => {
  const { orderId, accountId } = await orderPack();
  const other = await orderPack();
  const hash = "ab".repeat(32);
  const { id } = btcpay.pay(orderId, "0.00007693", { id: `${hash}-1` });
  btcpay.pay(other.orderId, "0.00007693", { id: `${"cd".repeat(32)}-0` });
  const look = (tx: string, processor = "btcpay") =>
    world.as(admin).lookUpPayment({ processor, tx });
  for (const tx of [hash, id, `0x${hash.toUpperCase()}`.replace("0X", "0x")])
    expect(await look(tx)).toMatchObject({
      ...{ known: true, foreignOutputs: 0 },
      outputs: [{ orderId, accountId, coins: "0.00007693", asset: "BTC", depositId: id }],
    });
  // The look made it be looked at, without a webhook.
  await orderThat(orderId, ({ state }) => state === OrderState.PAID);
  expect(await look("ef".repeat(32))).toMatchObject({ known: false, outputs: [] });
  expect(await errorOf(look(hash, "simulated"))).toMatchObject({ field: "processor" });
  expect(await errorOf(look("a b"))).toMatchObject({ field: "tx" });
  btcpay.troubles.push({ path: "/api/v1/", trouble: { kind: "status", status: 503 } });
  expect(await errorOf(look(hash))).toMatchObject({ reason: "gateway_unavailable" });
});
