// NOWPayments, against a stand-in that speaks its API: how payments and redeposits become credits,
// and what happens when that server does not do what it should.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { Attention, type Order, OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { Outbound } from "../../src/base/outbound.ts";
import { simulatedPayments } from "../../src/config/catalog.ts";
import type { Caller } from "../../src/contract/contract.ts";
import { createNowpayments } from "../../src/payments/nowpayments.ts";
import { errorOf } from "../support/billing.ts";
import { type Nowpayments, signedIpn, startNowpayments } from "../support/nowpayments.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";

const pack = 1_000_000_000n;
const anyone: Caller = { kind: "anyone" };
const publicUrl = () => new URL("https://gateway.example.com");
const outbound = new Outbound();
const signal = new AbortController().signal;

let now: Nowpayments;
let world: PaymentsNodes;
beforeAll(async () => {
  now = await startNowpayments();
  world = await startPaymentsNodes({
    settings: { ...simulatedPayments, processors: [now.settings] },
    env: now.env,
  });
});
afterAll(async () => {
  await world.stop();
  await now.stop();
});

let keys = 0;
async function orderPack(
  of: { coin?: string; accountId?: string; key?: string; cents?: number } = {},
) {
  const { order } = await world.as(admin).createOrder({
    accountId: of.accountId ?? (await world.newAccount()),
    family: Family.V1,
    packMicrodollars: BigInt(of.cents ?? 500) * 10_000n,
    method: `nowpayments:${of.coin ?? "btc"}`,
    idempotencyKey: of.key ?? `key_${++keys}`,
  });
  if (!order) throw new Error("the answer has no order");
  return order;
}
const orderThat = (orderId: string, isSo: (order: Order) => boolean) =>
  world.orderWhen(orderId, isSo);
const isPaid = ({ state }: Order) => state === OrderState.PAID;
/** Something became of the payment of an order, and a notification says so. */
async function become(orderId: string, of: Parameters<Nowpayments["become"]>[1]): Promise<void> {
  await world.as(anyone).receiveWebhook(now.hook(now.become(orderId, of)));
}

describe("what is offered", () => {
  test("each coin that is known there, from its smallest payment on", async () => {
    const { methods } = await world.as(admin).listPaymentMethods({});
    expect(
      methods.map(({ method, asset, network, minPackMicrodollars }) => [
        ...[method, asset, network, minPackMicrodollars / 10_000n],
      ]),
    ).toEqual([
      ["nowpayments:btc", "BTC", "bitcoin", 500n],
      ["nowpayments:eth", "ETH", "ethereum", 725n],
      ["nowpayments:usdttrc20", "USDT", "tron", 500n],
    ]);
    expect((await errorOf(orderPack({ coin: "eth" }))).reason).toBe("invalid_request");
    await orderPack({ coin: "eth", cents: 1_000 });
    expect((await errorOf(orderPack({ coin: "usdcsol" }))).reason).toBe("invalid_request");
  });

  test("nothing while that server is away, and again later", async () => {
    const away = createNowpayments(
      { ...now.settings, url: "http://127.0.0.1:1" },
      { apiKey: "x", webhookSecret: undefined },
      { publicUrl, outbound },
    );
    expect(await away.methods(signal)).toEqual([]);
  });
});

describe("ordering", () => {
  test("an order is a payment with a fixed rate", async () => {
    const order = await orderPack({ cents: 500 });
    const create = now.calls.findLast(({ method }) => method === "POST");
    expect(create?.body).toEqual({
      price_amount: 5,
      price_currency: "usd",
      pay_currency: "btc",
      ipn_callback_url: "http://localhost:8080/payments/nowpayments/webhook",
      order_id: order.orderId,
      order_description: "1,000 credits",
      is_fixed_rate: true,
      is_fee_paid_by_user: false,
    });
    expect(order).toMatchObject({
      ...{
        quotedCoins: "0.00007692",
        payTo: `address-of-${now.paymentOf(order.orderId).payment_id}`,
      },
      memo: "",
      checkoutUrl: "",
      state: OrderState.OPEN,
    });
  });

  test("a memo that must be sent along is shown", async () => {
    expect(await orderPack({ coin: "usdttrc20" })).toMatchObject({
      memo: "memo-1",
      quotedCoins: "5",
      usdPerCoin: "1.00",
    });
  });

  test.each([
    [true, 1],
    [false, 2],
  ])(
    "a lost answer to the create: with rights to the list %s, payments made: %i",
    async (list, made) => {
      now.rights.list = list;
      const accountId = await world.newAccount();
      const before = now.payments.size;
      now.troubles.push({ path: "POST", trouble: { kind: "hang-up-after" } });
      const key = `lost answer ${list}`;
      expect((await errorOf(orderPack({ accountId, key }))).reason).toBe("gateway_unavailable");
      const order = await orderPack({ accountId, key });
      expect(now.payments.size - before).toBe(made);
      expect(order.payTo).toBe(`address-of-${now.paymentOf(order.orderId).payment_id}`);
      now.rights.list = true;
    },
  );

  test("a lost answer is found behind 1,200 payments of others", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack();
    const { payment_id } = now.paymentOf(orderId);
    const of = { ...now.paymentOf(orderId), order_id: "ord_of_others" };
    for (let count = 0; count < 1_200; count++) now.payments.set(`other-${count}`, of);
    now.troubles.push({ path: "POST", trouble: { kind: "hang-up-after" } });
    const key = "lost answer behind others";
    expect((await errorOf(orderPack({ accountId, key }))).reason).toBe("gateway_unavailable");
    const made = now.payments.size;
    const order = await orderPack({ accountId, key });
    expect(now.payments.size).toBe(made);
    expect(order.payTo).toBe(`address-of-${now.paymentOf(order.orderId).payment_id}`);
    expect(order.payTo).not.toBe(`address-of-${payment_id}`);
    for (let count = 0; count < 1_200; count++) now.payments.delete(`other-${count}`);
  });

  test.each([
    ["another order", { order_id: "ord_another" }],
    ["another coin", { pay_currency: "eth" }],
    ["another price", { price_amount: 1 }],
    ["no amount", { pay_amount: 0 }],
    ["a negative amount", { pay_amount: -1 }],
    ["no address", { pay_address: "" }],
    ["a path as an id", { payment_id: "../x" }],
  ])("a payment with %s is no answer", async (_, of) => {
    const orderId = (await orderPack()).orderId;
    const body = { ...now.paymentOf(orderId), ...of };
    now.troubles.push({ path: "POST", trouble: { kind: "text", text: JSON.stringify(body) } });
    expect((await errorOf(orderPack())).reason).toBe("gateway_unavailable");
  });

  test.each([429, 500, 503])("a create that is answered with %i costs nothing", async (status) => {
    now.troubles.push({ path: "POST", trouble: { kind: "status", status } });
    expect((await errorOf(orderPack())).reason).toBe("gateway_unavailable");
  });
});

describe("crediting", () => {
  test("confirming, sending, finished: the pack, once, and not a micro-credit more", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId });
    const paid = { actually_paid: now.paymentOf(orderId).pay_amount };
    await become(orderId, { ...paid, payment_status: "confirming" });
    await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    await become(orderId, { ...paid, payment_status: "sending" });
    await become(orderId, { ...paid, payment_status: "finished" });
    await orderThat(orderId, isPaid);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
    expect(await world.transfers(accountId)).toHaveLength(1);
  });

  test("the hash of what came in is kept, and what is none is not", async () => {
    const { orderId } = await orderPack();
    const paid = { actually_paid: now.paymentOf(orderId).pay_amount, payment_status: "finished" };
    const tx = "6f".repeat(32);
    await become(orderId, { ...paid, payin_hash: `0x${tx.toUpperCase()}` });
    await orderThat(orderId, isPaid);
    await become(orderId, { ...paid, payin_hash: "<b>none</b>" });
    const other = await orderPack();
    const { pay_amount } = now.paymentOf(other.orderId);
    await become(other.orderId, { ...paid, actually_paid: pay_amount, payin_hash: "none" });
    await orderThat(other.orderId, isPaid);
    expect(await world.run("select tx from payment_transactions")).toEqual([{ tx: `0x${tx}` }]);
  });

  test("less, with amounts as texts: what arrived, when the quote is over", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    await become(orderId, { actually_paid: "2.5", payment_status: "partially_paid" });
    await orderThat(orderId, ({ state }) => state === OrderState.PARTLY_PAID);
    await world.run(
      "update payment_orders set quoted_until = now(), next_look_at = now() where order_id = $1",
      [orderId],
    );
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack / 2n, 0n]));
  });

  test("more is worth more", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    await become(orderId, { actually_paid: 7.25, payment_status: "finished" });
    await world.until(async () =>
      expect(await world.posted(accountId)).toEqual([1_450_000_000n, 0n]),
    );
  });

  test.each([
    ["that the first payment names", false],
    ["that only its notification names", true],
  ])("a redeposit %s is worth what they say it was", async (_, isHidden) => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    await become(orderId, { actually_paid: 5, payment_status: "finished" });
    await orderThat(orderId, isPaid);
    const of = { actually_paid: 2, actually_paid_at_fiat: 1.99 };
    const again = now.redeposit(orderId, of, isHidden);
    await world.as(anyone).receiveWebhook(now.hook(again));
    await world.until(async () =>
      expect(await world.posted(accountId)).toEqual([1_398_000_000n, 0n]),
    );
  });

  test("35 redeposits all count; of more than 200, a person looks at the rest", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    const again = { actually_paid: 0.1, actually_paid_at_fiat: 0.1 };
    for (let count = 0; count < 35; count++) now.redeposit(orderId, again);
    await become(orderId, { actually_paid: 5, payment_status: "finished" });
    await world.until(async () =>
      expect(await world.posted(accountId)).toEqual([1_700_000_000n, 0n]),
    );
    for (let count = 35; count < 201; count++)
      now.redeposit(orderId, { ...again, actually_paid_at_fiat: 0.01 });
    await become(orderId, {});
    const { deposits } = await orderThat(
      orderId,
      ({ attention }) => attention === Attention.FLOODED,
    );
    expect(deposits).toHaveLength(201);
  });

  test("a redeposit without a value, also of the same coin, waits for a person", async () => {
    const { orderId } = await orderPack({ coin: "usdttrc20" });
    await become(orderId, { actually_paid: 5, payment_status: "finished" });
    for (const pay_currency of ["usdttrc20", "doge"])
      await world
        .as(anyone)
        .receiveWebhook(now.hook(now.redeposit(orderId, { pay_currency, actually_paid: 50 })));
    // An order is read before its deposits: one that is read during a look may be older than they.
    const order = await orderThat(
      orderId,
      ({ deposits, attention }) => deposits.length === 3 && attention === Attention.WRONG_ASSET,
    );
    expect(order.attention).toBe(Attention.WRONG_ASSET);
    expect(order.grantedMicrocredits).toBe(pack);
  });

  test("a payment that names another parent is no redeposit", async () => {
    const { orderId } = await orderPack({ coin: "usdttrc20" });
    const foreign = now.redeposit(orderId, {
      parent_payment_id: 1,
      actually_paid: 50,
      actually_paid_at_fiat: 50,
    });
    now.become(orderId, { payment_extra_ids: [foreign.payment_id] });
    await become(orderId, { actually_paid: 5, payment_status: "finished" });
    const order = await orderThat(orderId, isPaid);
    expect(order.deposits).toHaveLength(1);
  });

  test("refunded there: what was credited is charged back", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    await become(orderId, { actually_paid: 5, payment_status: "finished" });
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
    await become(orderId, { payment_status: "refunded" });
    await orderThat(orderId, ({ attention }) => attention === Attention.LOST);
    await world.until(async () => expect(await world.posted(accountId)).toEqual([0n, 0n]));
  });

  test("a failure with money waits for a person; one without is nothing", async () => {
    const [paid, empty] = [await orderPack(), await orderPack()];
    await become(paid.orderId, { actually_paid: 0.0000769, payment_status: "failed" });
    await become(empty.orderId, { payment_status: "failed" });
    await orderThat(paid.orderId, ({ attention }) => attention === Attention.FAILED);
    const other = await orderThat(empty.orderId, ({ lookedAt }) => lookedAt !== undefined);
    expect([other.attention, other.deposits.length]).toEqual([Attention.NONE, 0]);
  });

  test("late bitcoin without a rate of the market waits for a person", async () => {
    const { orderId } = await orderPack();
    await world.run(
      "update payment_orders set quoted_until = now() - interval '5 minutes' where order_id = $1",
      [orderId],
    );
    await become(orderId, { actually_paid: 0.0000769, payment_status: "finished" });
    const order = await orderThat(orderId, ({ attention }) => attention === Attention.LATE);
    expect(order.grantedMicrocredits).toBe(0n);
  });

  test("an unknown status and another order's payment are no answers", async () => {
    const { orderId } = await orderPack();
    await become(orderId, { actually_paid: 1, payment_status: "celebrating" });
    const failed = async () =>
      (
        await world.run<{ n: number }>(
          "select failed_looks as n from payment_orders where order_id = $1",
          [orderId],
        )
      )[0]?.n;
    await world.until(async () => expect(await failed()).toBe(1));
    const payment = now.become(orderId, { payment_status: "finished", order_id: "ord_another" });
    await world.as(anyone).receiveWebhook(now.hook(payment));
    await world.until(async () => expect(await failed()).toBe(2));
    payment.order_id = orderId;
    await world.as(anyone).receiveWebhook(now.hook(payment, { updated_at: "later" }));
    await orderThat(orderId, ({ grantedMicrocredits }) => grantedMicrocredits > 0n);
  });
});

describe("notifications", () => {
  const secrets = { apiKey: "x", webhookSecret: "ipn-secret-example" };
  const worked =
    '{"actually_paid":0.0000769,"actually_paid_at_fiat":0,"fee":{"currency":"btc","depositFee":0,"serviceFee":3.8e-7,"withdrawalFee":0},"invoice_id":null,"order_description":"1,000 credits","order_id":"ord_0199e1c0a1b27c3d8e4f","outcome_amount":0.00007652,"outcome_currency":"btc","parent_payment_id":null,"pay_address":"bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu","pay_amount":0.0000769,"pay_currency":"btc","payin_extra_id":null,"payment_extra_ids":null,"payment_id":4492847470,"payment_status":"finished","price_amount":5,"price_currency":"usd","purchase_id":"6105448077","updated_at":1795300000000}';
  const hex =
    "3d5d29b441e58dd8d64664c669174f6e4d4e5e500886bd461e93bfb9bc764fd3f33afe7d263bb66a1118697dc938267585e1a90bca81f287a1727866adc7f404";
  const read = (text: string, signature: string) =>
    createNowpayments(now.settings, secrets, { publicUrl, outbound }).readHook?.(
      { "x-nowpayments-sig": signature },
      Buffer.from(text),
    );

  test("the worked signature is right, in any order of members and any spacing", () => {
    const about = {
      deliveryKey: "4492847470 finished 1795300000000",
      externalId: "4492847470",
      depositId: "",
    };
    expect(read(worked, hex)).toEqual(about);
    const { fee, ...rest } = JSON.parse(worked);
    const turned = { fee: Object.fromEntries(Object.entries(fee).reverse()), ...rest };
    expect(read(JSON.stringify(turned, null, 4), hex)).toEqual(about);
  });

  test("any change, also inside a member, is a wrong signature", () => {
    for (const [from, to] of [
      ['"serviceFee":3.8e-7', '"serviceFee":3.9e-7'],
      ['"finished"', '"sending"'],
      ['"payment_id":4492847470', '"payment_id":"4492847470"'],
      ["{", '{"a":1,'],
    ] as const)
      expect(() => read(worked.replace(from, to), hex)).toThrow("signature");
    for (const text of ["", "null", "[", "\u0000", "[".repeat(30_000), '{"a":'.repeat(9_000)])
      expect(() => read(text, hex)).toThrow("signature");
    for (const wrong of ["", "x", hex.slice(2), `${hex}00`])
      expect(() => read(worked, wrong)).toThrow("signature");
  });

  test("a payout, a list and one without an id are taken, and are about nothing", async () => {
    for (const body of [
      { batch_withdrawal_id: "5000000713", id: "1", payment_id: 7 },
      [],
      { payment_status: "finished" },
    ])
      await world.as(anyone).receiveWebhook(signedIpn(body));
    const forged = signedIpn({ payment_id: 1 }, "another secret of tests");
    expect((await errorOf(world.as(anyone).receiveWebhook(forged))).reason).toBe(
      "invalid_signature",
    );
  });

  test("fifty at once credit once", async () => {
    const accountId = await world.newAccount();
    const { orderId } = await orderPack({ accountId, coin: "usdttrc20" });
    const payment = now.become(orderId, { actually_paid: 5, payment_status: "finished" });
    await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        world.as(anyone).receiveWebhook(now.hook(payment, { updated_at: index })),
      ),
    );
    await world.until(async () => expect(await world.posted(accountId)).toEqual([pack, 0n]));
    expect(await world.transfers(accountId)).toHaveLength(1);
  });

  test("without a secret there is no webhook, and none is asked for", async () => {
    const silent = createNowpayments(
      now.settings,
      { apiKey: now.env.NOWPAYMENTS_API_KEY, webhookSecret: undefined },
      { publicUrl, outbound },
    );
    expect(silent.readHook).toBeUndefined();
    await silent.open(
      {
        ...{
          orderId: "ord_silent",
          accountId: "acc_a",
          family: "v1" as const,
          method: "nowpayments:btc",
        },
        usdMicro: 5_000_000n,
        createdAt: new Date(),
        isRepeat: false,
      },
      signal,
    );
    const create = now.calls.findLast(({ method }) => method === "POST");
    expect(create?.body).not.toHaveProperty("ipn_callback_url");
  });
});

test("in the end the ledger and the orders agree", async () => {
  await world.until(async () =>
    expect(await world.run("select from payment_grants where transfer_id is null")).toEqual([]),
  );
  expect(await world.violations()).toEqual([]);
});

test("a payment is found by its id there, as is what was sent once more", async () => {
  const { orderId, accountId } = await orderPack();
  const look = (tx: string) => world.as(admin).lookUpPayment({ processor: "nowpayments", tx });
  const { payment_id: id } = now.paymentOf(orderId);
  // Nothing has arrived, so there is nothing to show.
  expect(await look(String(id))).toMatchObject({ known: false, outputs: [] });
  now.become(orderId, { payment_status: "finished", actually_paid: 0.00007 });
  const found = { orderId, accountId, asset: "BTC", coins: "0.00007" };
  expect(await look(String(id))).toMatchObject({ known: true, outputs: [found] });
  const paid = { payment_status: "finished", actually_paid: 0.00002, actually_paid_at_fiat: 1.3 };
  const again = now.redeposit(orderId, paid);
  expect(await look(String(again.payment_id))).toMatchObject({
    outputs: [{ ...found, coins: "0.00002", depositId: String(again.payment_id) }],
  });
  expect(await look("999999999")).toMatchObject({ known: false, outputs: [] });
  // Their list has no hashes.
  await expect(look("ab".repeat(32))).rejects.toThrow("number of a payment");
});
