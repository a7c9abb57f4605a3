// Orders from their quote to their credits, at the simulated processor, on a real ledger.

import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  Attention,
  DepositState,
  OrderState,
  RefundState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import {
  GrantRate,
  type SimulatedDepositSchema,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { errorOf, type Fields } from "../support/keys.ts";
import {
  memberOf,
  movableTime,
  order,
  type PaymentsClient,
  startTestPayments,
  type TestNode,
  type TestPayments,
} from "../support/payments.ts";

const pack = 1_000_000_000n;

let stage: TestPayments;
let node: TestNode;
let admin: PaymentsClient;
beforeAll(async () => {
  stage = await startTestPayments(movableTime);
  node = stage.node();
  admin = node.admin;
});
afterAll(() => stage.stop());

/** An account of its own, so that limits and balances of tests do not mix. */
async function freshAccount(): Promise<string> {
  const { account } = await stage.ledger.createAccount({ settings: { name: "a customer" } });
  return account?.accountId ?? "";
}

/** Pretends that an amount arrives and settles. Returns the id of the deposit. */
async function pay(
  orderId: string,
  amount: string,
  of: Fields<typeof SimulatedDepositSchema> = {},
  withoutHook = false,
): Promise<string> {
  const value = { coins: amount, confirmations: 1, ...of };
  const event = { case: "deposit", value } as const;
  const { depositId } = await admin.simulateDeposit({ orderId, event, withoutHook });
  return depositId;
}

const isPaid = ({ state }: { state: OrderState }) => state === OrderState.PAID;
const needs = (attention: Attention) => (one: { attention: Attention }) =>
  one.attention === attention;

describe("ordering", () => {
  test("lists all four coins, and says that they are not real", async () => {
    const { methods, packsMicrodollars, maxPackMicrodollars } = await admin.listPaymentMethods({});
    expect(methods.map(({ method, asset }) => [method, asset])).toEqual([
      ["simulated:btc", "BTC"],
      ["simulated:eth", "ETH"],
      ["simulated:usdt", "USDT"],
      ["simulated:usdc", "USDC"],
    ]);
    expect(methods.every(({ simulated }) => simulated)).toBe(true);
    expect([packsMicrodollars, maxPackMicrodollars]).toEqual([
      [5_000_000n, 20_000_000n, 50_000_000n, 200_000_000n],
      2_000_000_000n,
    ]);
  });

  test("offers nothing simulated to people who reach the gateway from elsewhere", async () => {
    const elsewhere = stage.node({ address: "https://gateway.example.com", isStarted: false });
    expect((await elsewhere.admin.listPaymentMethods({})).methods).toEqual([]);
    expect(await errorOf(order(elsewhere.admin))).toBe("invalid_request method");
  });

  test("quotes an amount, an address that is valid nowhere, and 15 minutes", async () => {
    const made = await order(admin, { coin: "btc", accountId: await freshAccount() });
    expect(made).toMatchObject({
      packMicrodollars: 5_000_000n,
      packMicrocredits: pack,
      asset: "BTC",
      network: "bitcoin",
      quotedCoins: "0.00007693",
      usdPerCoin: "65000.00",
      simulated: true,
      state: OrderState.OPEN,
      missingCoins: "0.00007693",
      grantedMicrocredits: 0n,
      createdBy: toActor("token:ADMIN_TOKEN"),
    });
    expect(made.payTo).toMatch(/^simulated-btc-[0-9a-f]{24}$/);
    const until = made.quotedUntil && timestampDate(made.quotedUntil).getTime();
    const from = made.createdAt && timestampDate(made.createdAt).getTime();
    expect(((until ?? 0) - (from ?? 0)) / 60_000).toBeCloseTo(15, 1);
  });

  test("a repeat is the same order, and another body with its key is refused", async () => {
    const accountId = await freshAccount();
    const request = {
      accountId,
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      method: "simulated:btc",
      idempotencyKey: "once",
    };
    const made = await Promise.all(
      Array.from({ length: 10 }, () =>
        admin.createOrder(request).catch((error: { reason: string }) => error.reason),
      ),
    );
    const { order: first } = await admin.createOrder(request);
    // A repeat during the opening is told to come back.
    for (const one of made)
      expect(typeof one === "string" ? one : one.order?.orderId).toSatisfy(
        (is: string) => is === first?.orderId || is === "gateway_unavailable",
      );
    expect((await admin.listOrders({ accountId })).orders).toHaveLength(1);
    for (const other of [
      { packMicrodollars: 10_000_000n },
      { method: "simulated:eth" },
      { family: Family.V2 },
    ])
      expect(await errorOf(admin.createOrder({ ...request, ...other }))).toBe(
        "idempotency_key_reused",
      );
  });

  test("refuses what cannot be ordered", async () => {
    const request = {
      accountId: "acc_a",
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      method: "simulated:btc",
      idempotencyKey: "bad",
    };
    for (const [change, error] of [
      [{ packMicrodollars: 0n }, "invalid_request pack_microdollars"],
      [{ packMicrodollars: 4_990_000n }, "invalid_request pack_microdollars"],
      [{ packMicrodollars: 5_010_000n }, "invalid_request pack_microdollars"],
      [{ packMicrodollars: 2_005_000_000n }, "invalid_request pack_microdollars"],
      [{ packMicrodollars: 42_949_672_950_000n }, "invalid_request pack_microdollars"],
      [{ method: "btc" }, "invalid_request method"],
      [{ method: "" }, "invalid_request method"],
      [{ family: Family.UNSPECIFIED }, "invalid_request family"],
      [{ idempotencyKey: "" }, "invalid_request idempotency_key"],
      [{ idempotencyKey: "x".repeat(201) }, "invalid_request idempotency_key"],
      [{ accountId: "acc_nobody" }, "not_found"],
      [{ accountId: "" }, "invalid_request account_id"],
    ] as const)
      expect([
        change,
        (await errorOf(admin.createOrder({ ...request, ...change }))).split(" account_id")[0] ===
          error.split(" account_id")[0],
      ]).toEqual([change, true]);
  });

  test("an account has five open orders at most, also if it asks for fifty at once", async () => {
    const accountId = await freshAccount();
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, () => errorOf(order(admin, { accountId }))),
    );
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(5);
    expect(outcomes.filter((one) => one === "rate_limited")).toHaveLength(45);
    const { orders } = await admin.listOrders({ accountId });
    await admin.cancelOrder({ orderId: orders[0]?.orderId ?? "" });
    expect(await errorOf(order(admin, { accountId }))).toBe("no error");
  });

  test("an account makes twenty orders an hour at most", async () => {
    const accountId = await freshAccount();
    for (let count = 0; count < 20; count++) {
      const { orderId } = await order(admin, { accountId });
      await admin.cancelOrder({ orderId });
    }
    expect(await errorOf(order(admin, { accountId }))).toBe("rate_limited");
  });

  test("an account that has paid once has twenty open orders, and makes sixty an hour", async () => {
    const accountId = await freshAccount();
    const first = await order(admin, { accountId });
    await pay(first.orderId, "5");
    await stage.orderWhen(first.orderId, isPaid);
    const outcomes: string[] = [];
    for (let count = 0; count < 21; count++)
      outcomes.push(await errorOf(order(admin, { accountId })));
    expect(outcomes).toEqual([...Array(20).fill("no error"), "rate_limited"]);
    for (const { orderId, state } of (await admin.listOrders({ accountId })).orders)
      if (state === OrderState.OPEN) await admin.cancelOrder({ orderId });
    // 21 were made.
    for (let count = 21; count < 60; count++) {
      const { orderId } = await order(admin, { accountId });
      await admin.cancelOrder({ orderId });
    }
    expect(await errorOf(order(admin, { accountId }))).toBe("rate_limited");
  });

  test("members order, viewers look, and others see nothing", async () => {
    const accountId = await freshAccount();
    const member = node.as(memberOf(accountId, AccountRole.MEMBER));
    const viewer = node.as(memberOf(accountId, AccountRole.VIEWER));
    const stranger = node.as(memberOf("acc_b", AccountRole.OWNER));
    const { orderId, createdBy } = await order(member, { accountId });
    expect(actorText(createdBy)).toBe("person:per_test");
    expect(await errorOf(order(viewer, { accountId }))).toBe("not_permitted");
    expect((await viewer.getOrder({ orderId })).order?.orderId).toBe(orderId);
    expect((await viewer.listOrders({})).orders).toHaveLength(1);
    expect(await errorOf(viewer.cancelOrder({ orderId }))).toBe("not_permitted");
    expect(await errorOf(stranger.getOrder({ orderId }))).toBe("not_found order_id");
    expect(await errorOf(stranger.cancelOrder({ orderId }))).toBe("not_found order_id");
    expect(await errorOf(stranger.getOrder({ orderId: "ord_none" }))).toBe("not_found order_id");
    for (const method of ["simulateDeposit", "decideOrder", "beginRefund"] as const)
      expect(await errorOf(member[method]({ orderId }))).toBe("not_permitted");
    expect(await errorOf(member.listAttention({}))).toBe("not_permitted");
  });
});

describe("crediting", () => {
  test("a payment becomes credits, once, under the key of its grant", async () => {
    const accountId = await freshAccount();
    const { orderId, quotedCoins: quotedAmount } = await order(admin, { accountId });
    await admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: quotedAmount, confirmations: 0 } },
    });
    const seen = await stage.orderWhen(orderId, ({ state }) => state === OrderState.SEEN);
    expect(seen).toMatchObject({ seenCoins: "5", missingCoins: "0", grantedMicrocredits: 0n });
    const [deposit] = seen.deposits;
    expect(deposit).toMatchObject({ state: DepositState.SEEN, confirmationsNeeded: 1 });
    await admin.simulateDeposit({
      orderId,
      event: { case: "change", value: { depositId: deposit?.depositId ?? "", confirmations: 1 } },
    });
    const paid = await stage.orderWhen(orderId, isPaid);
    expect(paid).toMatchObject({ settledCoins: "5", grantedMicrocredits: pack });
    expect(paid.deposits).toMatchObject([{ valueMicrodollars: 5_000_000n, confirmations: 1 }]);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
    expect(await stage.transfers(accountId)).toMatchObject([
      {
        kind: TransferKind.DEPOSIT,
        amountMicrocredits: pack,
        idempotencyKey: `pay:${orderId}#1`,
        createdBy: toActor("payments"),
      },
    ]);
  });

  test("a payment in two parts becomes the pack when the second one settles", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId, coin: "eth" });
    await pay(orderId, "0.001");
    const part = await stage.orderWhen(orderId, ({ state }) => state === OrderState.PARTLY_PAID);
    expect(part).toMatchObject({ missingCoins: "0.001", grantedMicrocredits: 0n });
    await pay(orderId, "0.001");
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
  });

  test("an underpaid order is credited in part when its quote is over", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await pay(orderId, "2");
    await stage.orderWhen(orderId, ({ state }) => state === OrderState.PARTLY_PAID);
    await stage.age(orderId, 16);
    await stage.orderWhen(orderId, (one) => one.grantedMicrocredits === 400_000_000n);
    // The rest comes a day later, with a coin of one dollar: the pack is full.
    await stage.age(orderId, 24 * 60);
    await pay(orderId, "3");
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
    expect((await stage.transfers(accountId)).map((one) => one.idempotencyKey)).toEqual([
      `pay:${orderId}#1`,
      `pay:${orderId}#2`,
    ]);
  });

  test("an expired and a cancelled order are still credited", async () => {
    const accountId = await freshAccount();
    const expired = await order(admin, { accountId });
    await stage.age(expired.orderId, 16);
    await stage.orderWhen(expired.orderId, ({ state }) => state === OrderState.EXPIRED);
    const cancelled = await order(admin, { accountId });
    await admin.cancelOrder({ orderId: cancelled.orderId });
    await admin.cancelOrder({ orderId: cancelled.orderId });
    for (const { orderId } of [expired, cancelled]) {
      await pay(orderId, "5");
      await stage.orderWhen(orderId, isPaid);
      expect(await errorOf(admin.cancelOrder({ orderId }))).toBe("wrong_state");
    }
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(2n * pack));
  });

  test("a deposit that is lost after it was credited is charged back, into debt if need be", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    const depositId = await pay(orderId, "5");
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
    await stage.ledger.createTransfer({
      accountId,
      family: Family.V1,
      kind: TransferKind.ADJUSTMENT,
      amountMicrocredits: -900_000_000n,
      idempotencyKey: "spent",
    });
    await admin.simulateDeposit({
      orderId,
      event: { case: "change", value: { depositId, lost: true } },
    });
    const lost = await stage.orderWhen(orderId, needs(Attention.LOST));
    expect(lost).toMatchObject({ grantedMicrocredits: 0n, state: OrderState.OPEN });
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(-900_000_000n));
    expect((await stage.transfers(accountId)).at(-1)).toMatchObject({
      kind: TransferKind.CHARGEBACK,
      amountMicrocredits: pack,
      idempotencyKey: `pay:${orderId}#2`,
    });
  });

  test("a payment replaced by another one counts once", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    const { depositId } = await admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: "5" } },
    });
    await stage.orderWhen(orderId, ({ state }) => state === OrderState.SEEN);
    await admin.simulateDeposit({
      orderId,
      event: { case: "change", value: { depositId, lost: true } },
      withoutHook: true,
    });
    await pay(orderId, "5");
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
  });

  test("a lost webhook only delays: the next look finds the payment", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await pay(orderId, "5", {}, true);
    await stage.run("update payment_orders set next_look_at = now() where order_id = $1", [
      orderId,
    ]);
    await stage.orderWhen(orderId, isPaid);
    await expect.poll(() => stage.posted(accountId)).toBe(pack);
  });

  test("a deposit that another order has is credited to neither twice", async () => {
    const accountId = await freshAccount();
    const one = await order(admin, { accountId });
    const other = await order(admin, { accountId });
    const depositId = await pay(one.orderId, "5");
    expect(
      await errorOf(
        admin.simulateDeposit({
          orderId: other.orderId,
          event: { case: "change", value: { depositId } },
        }),
      ),
    ).toBe("invalid_request change.deposit_id");
    await stage.orderWhen(one.orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(pack));
  });

  test("refuses amounts that are none", async () => {
    const { orderId } = await order(admin, { accountId: await freshAccount() });
    for (const amount of ["", "0", "-1", "1e5", "1.0000001", `1${"0".repeat(80)}`, "x", " 5", "٥"])
      expect([
        amount,
        await errorOf(
          admin.simulateDeposit({ orderId, event: { case: "deposit", value: { coins: amount } } }),
        ),
      ]).toEqual([amount, "invalid_request deposit.coins"]);
    expect(
      await errorOf(
        admin.simulateDeposit({
          orderId,
          event: { case: "deposit", value: { coins: "5", asset: "DOGE" } },
        }),
      ),
    ).toBe("invalid_request deposit.asset");
    expect(
      await errorOf(
        admin.simulateDeposit({
          orderId: "ord_x",
          event: { case: "deposit", value: { coins: "5" } },
        }),
      ),
    ).toBe("not_found order_id");
    expect((await admin.getOrder({ orderId })).order?.deposits).toEqual([]);
  });

  test("an order of another processor is none of the simulated one", async () => {
    const { orderId } = await order(admin, { accountId: await freshAccount() });
    await stage.run("update payment_orders set processor = 'other' where order_id = $1", [orderId]);
    expect(
      await errorOf(
        admin.simulateDeposit({ orderId, event: { case: "deposit", value: { coins: "5" } } }),
      ),
    ).toBe("invalid_request order_id");
  });
});

describe("what waits for a person", () => {
  const reason = "the customer asked";
  const overpaid = async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await pay(orderId, "60");
    const waiting = await stage.orderWhen(orderId, needs(Attention.OVERPAID));
    expect(waiting).toMatchObject({ grantedMicrocredits: 11_000_000_000n, state: OrderState.PAID });
    expect(waiting.notice).toMatch(/decides about the rest/);
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(11_000_000_000n));
    return { accountId, orderId };
  };

  test("the rest of an overpaid order is granted at its rate, and waits no more", async () => {
    const { accountId, orderId } = await overpaid();
    expect((await admin.listAttention({})).orders.map((one) => one.orderId)).toContain(orderId);
    const grant = { what: { case: "rate" as const, value: GrantRate.QUOTE } };
    const choice = { case: "grant", value: grant } as const;
    const { decision, order: decided } = await admin.decideOrder({ orderId, choice, reason });
    expect(decision).toMatchObject({
      grantedMicrocredits: pack,
      decidedBy: toActor("token:ADMIN_TOKEN"),
      reason,
    });
    expect(decided).toMatchObject({
      grantedMicrocredits: 12_000_000_000n,
      attention: Attention.NONE,
    });
    expect(await stage.posted(accountId)).toBe(12_000_000_000n);
    expect((await admin.listAttention({})).orders.map((one) => one.orderId)).not.toContain(orderId);
    expect(await errorOf(admin.decideOrder({ orderId, choice, reason }))).toBe("wrong_state");
  });

  test("no rate grants more than a million dollars", async () => {
    const { orderId } = await order(admin, { accountId: await freshAccount() });
    await pay(orderId, "1000000000000");
    await stage.orderWhen(orderId, needs(Attention.OVERPAID));
    const choice = {
      case: "grant",
      value: { what: { case: "rate", value: GrantRate.QUOTE } },
    } as const;
    expect(await errorOf(admin.decideOrder({ orderId, choice, reason }))).toBe(
      "invalid_request grant.rate",
    );
    const { order: after } = await admin.getOrder({ orderId });
    expect(after?.grantedMicrocredits).toBe(11_000_000_000n);
  });

  test("the list comes in pages, the order that waits longest first", async () => {
    for (let index = 0; index < 3; index++) await overpaid();
    const all = (await admin.listAttention({ pageSize: 1000 })).orders.map((one) => one.orderId);
    expect(all.length).toBeGreaterThanOrEqual(3);
    expect(all).toEqual(all.toSorted());
    const paged: string[] = [];
    let pageToken = "";
    do {
      const page = await admin.listAttention({ pageSize: 2, pageToken });
      paged.push(...page.orders.map((one) => one.orderId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(paged).toEqual(all);
  });

  test("what is closed stays closed, until something new arrives", async () => {
    const { accountId, orderId } = await overpaid();
    await admin.decideOrder({ orderId, choice: { case: "close", value: {} }, reason });
    await pay(orderId, "1");
    const again = await stage.orderWhen(orderId, needs(Attention.OVERPAID));
    expect(again.grantedMicrocredits).toBe(11_000_000_000n);
    expect(await stage.posted(accountId)).toBe(11_000_000_000n);
  });

  test("another coin is granted by an amount, and by no rate", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await pay(orderId, "5", { asset: "USDC" });
    await stage.orderWhen(orderId, needs(Attention.WRONG_ASSET));
    const decide = (value: object) =>
      admin.decideOrder({ orderId, choice: { case: "grant", value }, reason });
    const amountOf = (value: bigint) => ({ what: { case: "grantedMicrodollars", value } });
    expect(await errorOf(decide({ what: { case: "rate", value: GrantRate.QUOTE } }))).toBe(
      "invalid_request grant.rate",
    );
    for (const grantedMicrodollars of [0n, -1n, 10n ** 18n])
      expect(await errorOf(decide(amountOf(grantedMicrodollars)))).toBe(
        "invalid_request grant.granted_microdollars",
      );
    expect(await errorOf(decide({}))).toBe("invalid_request grant");
    await decide(amountOf(4_900_000n));
    expect(await stage.posted(accountId)).toBe(980_000_000n);
  });

  test("late bitcoin without a rate of its time is granted at the rate of now", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId, coin: "btc" });
    await stage.age(orderId, 60);
    const firstSeenAt = timestampFromDate(new Date(Date.now() - 30 * 60_000));
    await pay(orderId, "0.00007693", { firstSeenAt });
    await stage.orderWhen(orderId, needs(Attention.LATE));
    expect(await stage.posted(accountId)).toBe(0n);
    const choice = {
      case: "grant",
      value: { what: { case: "rate", value: GrantRate.MARKET } },
    } as const;
    await admin.decideOrder({ orderId, choice, reason });
    expect(await stage.posted(accountId)).toBe(1_000_090_000n);
  });

  test("late bitcoin with a rate of its time needs nobody", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId, coin: "btc" });
    await stage.age(orderId, 60);
    await pay(orderId, "0.00007693");
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () =>
      expect(await stage.posted(accountId)).toBeGreaterThanOrEqual(pack),
    );
  });

  test("what arrives after the end of watching waits for a person", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await stage.age(orderId, 8 * 24 * 60);
    await stage.orderWhen(orderId, ({ state }) => state === OrderState.CLOSED);
    await pay(orderId, "5");
    await stage.orderWhen(orderId, needs(Attention.LATE));
    expect(await stage.posted(accountId)).toBe(0n);
    const choice = {
      case: "grant",
      value: { what: { case: "rate", value: GrantRate.QUOTE } },
    } as const;
    await admin.decideOrder({ orderId, choice, reason });
    expect(await stage.posted(accountId)).toBe(pack);
  });

  test("an expired order is reopened, and a paid one is not", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    const reopen = () =>
      admin.decideOrder({ orderId, choice: { case: "reopen", value: {} }, reason });
    expect(await errorOf(reopen())).toBe("wrong_state");
    await stage.age(orderId, 20);
    await stage.orderWhen(orderId, ({ state }) => state === OrderState.EXPIRED);
    expect((await reopen()).order?.state).toBe(OrderState.OPEN);
    await pay(orderId, "5");
    await stage.orderWhen(orderId, isPaid);
    expect(await errorOf(reopen())).toBe("wrong_state");
  });
});

describe("refunds", () => {
  const reason = "the customer asked";
  const paidOrder = async (amount = "5") => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    const depositId = await pay(orderId, amount);
    await stage.orderWhen(orderId, isPaid);
    await stage.until(async () => expect(await stage.posted(accountId)).toBeGreaterThan(0n));
    const begin = (amountMicrodollars: bigint) =>
      admin.beginRefund({
        orderId,
        reason,
        what: { case: "amountMicrodollars", value: amountMicrodollars },
      });
    return { accountId, orderId, depositId, begin };
  };

  test("takes the credits first, and ends with the transaction of the person", async () => {
    const { accountId, orderId, begin } = await paidOrder();
    const { order: begun } = await begin(5_000_000n);
    expect(begun).toMatchObject({ grantedMicrocredits: 0n, refundedMicrodollars: 5_000_000n });
    expect(begun?.refunds).toMatchObject([
      { state: RefundState.REFUNDING, refundedMicrocredits: pack },
    ]);
    expect(await stage.posted(accountId)).toBe(0n);
    expect((await stage.transfers(accountId)).at(-1)).toMatchObject({
      kind: TransferKind.REFUND,
      idempotencyKey: `refund:${orderId}#1`,
    });
    expect(await errorOf(begin(1n))).toBe("wrong_state");
    expect(await errorOf(admin.completeRefund({ orderId, transaction: "x".repeat(201) }))).toBe(
      "invalid_request transaction",
    );
    const { order: done } = await admin.completeRefund({ orderId, transaction: "tx 1" });
    expect(done?.refunds).toMatchObject([{ state: RefundState.COMPLETED, transaction: "tx 1" }]);
    expect(await errorOf(begin(1n))).toBe("wrong_state");
    expect(await errorOf(admin.completeRefund({ orderId, transaction: "tx 2" }))).toBe(
      "wrong_state",
    );
  });

  test("a cancelled refund returns the credits, once", async () => {
    const { accountId, orderId, begin } = await paidOrder();
    await begin(2_000_000n);
    // There is more to refund, but one refund at a time.
    expect(await errorOf(begin(1_000_000n))).toBe("wrong_state");
    expect(await stage.posted(accountId)).toBe(600_000_000n);
    const cancels = await Promise.all(
      Array.from({ length: 5 }, () => errorOf(admin.cancelRefund({ orderId }))),
    );
    expect(cancels.filter((one) => one === "no error")).toHaveLength(1);
    expect(await stage.posted(accountId)).toBe(pack);
    expect((await stage.transfers(accountId)).at(-1)).toMatchObject({
      kind: TransferKind.ADJUSTMENT,
      idempotencyKey: `refund:${orderId}#1/cancel`,
    });
    expect((await admin.getOrder({ orderId })).order?.refundedMicrodollars).toBe(0n);
    await begin(5_000_000n);
    expect(await stage.posted(accountId)).toBe(0n);
  });

  test("what a process left behind that died during a refund is completed by the sweep", async () => {
    const { accountId, orderId } = await paidOrder();
    const refund = { orderId, usdMicro: 2_000_000n, externalId: null, micro: 400_000_000n };
    const { store } = stage.parts;
    const more = { bonusMicro: 0n, state: "asked", reason, madeBy: "test" } as const;
    const { n } = await store.run(sql.insertRefund, { ...refund, ...more });
    const refundOf = async () => (await admin.getOrder({ orderId })).order?.refunds[0]?.state;
    await stage.until(async () => expect(await refundOf()).toBe(RefundState.REFUNDING));
    expect(await stage.posted(accountId)).toBe(600_000_000n);
    await store.moveRefund({ orderId, n }, "refunding", "cancelling");
    await stage.until(async () => expect(await refundOf()).toBe(RefundState.CANCELLED));
    expect(await stage.posted(accountId)).toBe(pack);
  });

  test("is refused when the credits were spent, and nothing happens", async () => {
    const { accountId, orderId, begin } = await paidOrder();
    await stage.ledger.createTransfer({
      accountId,
      family: Family.V1,
      kind: TransferKind.ADJUSTMENT,
      amountMicrocredits: -1n,
      idempotencyKey: "spent",
    });
    expect(await errorOf(begin(5_000_000n))).toBe("insufficient_funds");
    expect(await stage.posted(accountId)).toBe(pack - 1n);
    const { order: after } = await admin.getOrder({ orderId });
    expect(after).toMatchObject({ refundedMicrodollars: 0n, grantedMicrocredits: pack });
    expect(after?.refunds).toMatchObject([{ state: RefundState.REFUSED }]);
    await begin(4_000_000n);
    expect(await stage.posted(accountId)).toBe(200_000_000n - 1n);
  });

  test("never exceeds what was received", async () => {
    const { begin } = await paidOrder();
    for (const amount of [0n, -1n, 5_000_001n, 2n ** 62n])
      expect(await errorOf(begin(amount))).toBe("invalid_request amount_microdollars");
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, () => errorOf(begin(3_000_000n))),
    );
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(1);
  });

  test("money that was never granted goes back without a transfer", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    await pay(orderId, "60");
    await stage.orderWhen(orderId, needs(Attention.OVERPAID));
    await stage.until(async () => expect(await stage.posted(accountId)).toBe(11_000_000_000n));
    const what = { case: "amountMicrodollars", value: 5_000_000n } as const;
    const { order: begun } = await admin.beginRefund({ orderId, what, reason });
    expect(begun).toMatchObject({ attention: Attention.NONE });
    expect(begun?.refunds).toMatchObject([
      { state: RefundState.REFUNDING, refundedMicrocredits: 0n },
    ]);
    expect(await stage.transfers(accountId)).toHaveLength(1);
    // Given up: the money waits for a person again.
    const { order: cancelled } = await admin.cancelRefund({ orderId });
    expect(cancelled).toMatchObject({ attention: Attention.OVERPAID, refundedMicrodollars: 0n });
    expect(await stage.transfers(accountId)).toHaveLength(1);
  });

  test("a deposit of unknown value goes back whole, and is never granted afterwards", async () => {
    const accountId = await freshAccount();
    const { orderId } = await order(admin, { accountId });
    const depositId = await pay(orderId, "5", { asset: "USDC" });
    await stage.orderWhen(orderId, needs(Attention.WRONG_ASSET));
    const what = { case: "depositId", value: depositId } as const;
    const { order: begun } = await admin.beginRefund({ orderId, what, reason });
    expect(begun).toMatchObject({ attention: Attention.NONE, refundedMicrodollars: 0n });
    await admin.completeRefund({ orderId, transaction: "tx" });
    expect(await errorOf(admin.beginRefund({ orderId, what, reason }))).toBe("wrong_state");
    expect(await stage.transfers(accountId)).toEqual([]);
  });

  test("a refund whose deposit the processor then calls lost takes the credits once", async () => {
    const { accountId, orderId, depositId, begin } = await paidOrder();
    await begin(5_000_000n);
    await admin.completeRefund({ orderId, transaction: "tx" });
    await admin.simulateDeposit({
      orderId,
      event: { case: "change", value: { depositId, lost: true } },
    });
    await stage.orderWhen(orderId, needs(Attention.LOST));
    expect(await stage.posted(accountId)).toBe(0n);
  });

  test("an order to which nothing was paid has nothing to refund", async () => {
    const { orderId } = await order(admin, { accountId: await freshAccount() });
    const what = { case: "amountMicrodollars", value: 1n } as const;
    expect(await errorOf(admin.beginRefund({ orderId, what, reason }))).toBe("wrong_state");
    expect(await errorOf(admin.cancelRefund({ orderId }))).toBe("wrong_state");
  });
});
