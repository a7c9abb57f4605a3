// Every case of the lifecycle, played by hand: a tester needs SimulateDeposit and the methods of
// customers and operators, no database, and no waiting for days.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  Attention,
  DepositState,
  type Order,
  OrderState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import {
  GrantRate,
  type SimulateDepositRequestSchema,
  type SimulatedChangeSchema,
  type SimulatedDepositSchema,
  SimulatedEvent,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { errorOf, type Fields } from "../support/keys.ts";
import {
  movableTime,
  order,
  type PaymentsClient,
  startTestPayments,
  type TestPayments,
} from "../support/payments.ts";

let stage: TestPayments;
let admin: PaymentsClient;
beforeAll(async () => {
  stage = await startTestPayments(movableTime);
  admin = stage.node().admin;
});
afterAll(() => stage.stop());

const { MARKED, FAILED, QUOTE_OVER, WATCHING_OVER } = SimulatedEvent;
const { OPEN, SEEN, PARTLY_PAID, PAID, EXPIRED, CANCELLED, CLOSED } = OrderState;
const NONE = Attention.NONE;
const reason = "played by hand";

type Happening = NonNullable<Fields<typeof SimulateDepositRequestSchema>["event"]>;

/** What a tester does to an order. */
type Step = (orderId: string) => Promise<unknown>;
const simulate =
  (event: Happening): Step =>
  (orderId) =>
    admin.simulateDeposit({ event, orderId });
const pays = (amount: string, more: Fields<typeof SimulatedDepositSchema> = {}) =>
  simulate({ case: "deposit", value: { coins: amount, confirmations: 1, ...more } });
const shows = (amount: string) => simulate({ case: "deposit", value: { coins: amount } });
const event = (one: SimulatedEvent) => simulate({ case: "orderEvent", value: one });
const cancels: Step = (orderId) => admin.cancelOrder({ orderId });
const ofFirst =
  (more: Fields<typeof SimulatedChangeSchema>): Step =>
  async (orderId) => {
    const { order: found } = await admin.getOrder({ orderId });
    const depositId = found?.deposits[0]?.depositId ?? "";
    const value = { depositId, ...more };
    return admin.simulateDeposit({ orderId, event: { case: "change", value } });
  };
const settles: Step = async (orderId) => {
  await ofFirst({ confirmations: 1 })(orderId);
  await stage.orderWhen(orderId, ({ deposits: [first] }) => first?.state === DepositState.SETTLED);
};
const isLost = ofFirst({ lost: true });
const decides =
  (choice: Parameters<PaymentsClient["decideOrder"]>[0]["choice"]): Step =>
  (orderId) =>
    admin.decideOrder({ orderId, reason, ...(choice && { choice }) });
const reopens = decides({ case: "reopen", value: {} });
const grants = decides({
  case: "grant",
  value: { what: { case: "rate", value: GrantRate.QUOTE } },
});
const longAgo = timestampFromDate(new Date(Date.now() - 3_600_000));

/** The steps, each with the state and the attention that follow, and the dollars granted. */
type Case = readonly [
  name: string,
  coin: string,
  ...steps: (readonly [Step, OrderState, Attention?, dollars?: number])[],
];
const cases: readonly Case[] = [
  ["open: seen, settled", "usdt", [shows("5"), SEEN], [settles, PAID, NONE, 5]],
  ["open: settled at once", "usdt", [pays("5"), PAID, NONE, 5]],
  ["open: a part", "usdt", [pays("2"), PARTLY_PAID], [pays("3"), PAID, NONE, 5]],
  ["open: quote over", "usdt", [event(QUOTE_OVER), EXPIRED]],
  ["open: watching over", "usdt", [event(WATCHING_OVER), CLOSED]],
  ["open: cancelled", "usdt", [cancels, CANCELLED]],
  ["seen: more is seen", "usdt", [shows("2"), SEEN], [shows("3"), SEEN]],
  ["seen: quote over", "usdt", [shows("5"), SEEN], [event(QUOTE_OVER), SEEN], [settles, PAID]],
  [
    "seen: quote over, lost",
    "usdt",
    [shows("5"), SEEN],
    [event(QUOTE_OVER), SEEN],
    [isLost, EXPIRED],
  ],
  [
    "seen: watching over",
    "usdt",
    [shows("5"), SEEN],
    [event(WATCHING_OVER), CLOSED, Attention.UNCONFIRMED],
  ],
  [
    "partly paid: more is seen, quote over",
    "usdt",
    [pays("2"), PARTLY_PAID],
    [event(QUOTE_OVER), PARTLY_PAID, NONE, 2],
    [shows("3"), PARTLY_PAID, NONE, 2],
    [event(WATCHING_OVER), CLOSED, Attention.UNCONFIRMED, 2],
  ],
  [
    "partly paid: less than 1 USD asks nobody",
    "usdt",
    [pays("0.5"), PARTLY_PAID],
    [event(QUOTE_OVER), PARTLY_PAID, NONE],
  ],
  [
    "paid: more is seen and settles",
    "usdt",
    [pays("5"), PAID],
    [shows("1"), PAID],
    [pays("2"), PAID, NONE, 7],
  ],
  ["paid: too much", "usdt", [pays("60"), PAID, Attention.OVERPAID, 55], [grants, PAID, NONE, 60]],
  ["paid: lost", "usdt", [pays("5"), PAID], [isLost, OPEN, Attention.LOST, 0]],
  ["paid: watching over", "usdt", [pays("5"), PAID], [event(WATCHING_OVER), CLOSED, NONE, 5]],
  [
    "paid: refunded",
    "usdt",
    [pays("5"), PAID, NONE, 5],
    [
      (orderId) =>
        admin.beginRefund({
          orderId,
          reason,
          what: { case: "amountMicrodollars", value: 5_000_000n },
        }),
      PAID,
      NONE,
      0,
    ],
    [(orderId) => admin.completeRefund({ orderId, transaction: "0xabc" }), PAID, NONE, 0],
  ],
  ["expired: a stablecoin", "usdt", [event(QUOTE_OVER), EXPIRED], [pays("5"), PAID, NONE, 5]],
  [
    "expired: bitcoin, at the rate of the market",
    "btc",
    [event(QUOTE_OVER), EXPIRED],
    [shows("0.00007693"), SEEN],
    [settles, PAID, NONE],
  ],
  ["expired: watching over", "usdt", [event(QUOTE_OVER), EXPIRED], [event(WATCHING_OVER), CLOSED]],
  ["expired: reopened", "usdt", [event(QUOTE_OVER), EXPIRED], [reopens, OPEN], [pays("5"), PAID]],
  ["cancelled: paid all the same", "usdt", [cancels, CANCELLED], [pays("5"), PAID, NONE, 5]],
  ["cancelled: a part", "usdt", [cancels, CANCELLED], [pays("2"), PARTLY_PAID, NONE, 2]],
  ["cancelled: reopened", "usdt", [cancels, CANCELLED], [reopens, OPEN]],
  ["cancelled: watching over", "usdt", [cancels, CANCELLED], [event(WATCHING_OVER), CLOSED]],
  [
    "closed: seen, settled, granted",
    "usdt",
    [event(WATCHING_OVER), CLOSED],
    [shows("5"), CLOSED, Attention.LATE],
    [settles, CLOSED, Attention.LATE, 0],
    [grants, CLOSED, NONE, 5],
  ],
  ["rule 7", "usdt", [pays("5", { asset: "USDC" }), PARTLY_PAID, Attention.WRONG_ASSET, 0]],
  ["rule 9", "usdt", [event(MARKED), OPEN, Attention.MARKED, 0], [pays("5"), PAID, NONE, 5]],
  ["a processor that failed", "usdt", [event(FAILED), OPEN, Attention.FAILED, 0]],
];

const dollarsOf = ({ grantedMicrocredits }: Order) => Number(grantedMicrocredits) / 200_000_000;

describe("a tester plays", () => {
  test.for(cases)("%s", async ([, coin, ...steps]) => {
    const { account } = await stage.ledger.createAccount({ settings: { name: "a customer" } });
    const accountId = account?.accountId ?? "";
    const { orderId } = await order(admin, { accountId, coin });
    const shown = async () => {
      const { order: one } = await admin.getOrder({ orderId });
      return one && { state: one.state, attention: one.attention, dollars: dollarsOf(one) };
    };
    for (const [step, state, attention = NONE, dollars] of steps) {
      await step(orderId);
      await stage.orderWhen(
        orderId,
        (one) =>
          one.state === state &&
          one.attention === attention &&
          (dollars === undefined || dollarsOf(one) === dollars),
      );
      expect(await shown()).toEqual({ state, attention, dollars: dollars ?? expect.any(Number) });
    }
  });

  test("late bitcoin, whose rate nobody knows", async () => {
    const { orderId } = await order(admin, { coin: "btc" });
    await event(QUOTE_OVER)(orderId);
    await stage.orderWhen(orderId, ({ state }) => state === EXPIRED);
    // A quote that has just ended is younger than any late payment.
    await stage.age(orderId, 120);
    await pays("0.00007693", { firstSeenAt: longAgo })(orderId);
    const late = await stage.orderWhen(orderId, ({ attention }) => attention === Attention.LATE);
    expect(dollarsOf(late)).toBe(0);
  });
});

test("what happens is said once, and of a deposit that this order has", async () => {
  const { orderId } = await order(admin, {
    accountId:
      (await stage.ledger.createAccount({ settings: { name: "other" } })).account?.accountId ?? "",
  });
  const faults: readonly [Happening, string][] = [
    [{ case: undefined }, "event"],
    [{ case: "orderEvent", value: SimulatedEvent.UNSPECIFIED }, "order_event"],
    [{ case: "deposit", value: { confirmations: 1 } }, "deposit.coins"],
    [{ case: "deposit", value: { coins: "x" } }, "deposit.coins"],
    [{ case: "deposit", value: { coins: "5", asset: "DOGE" } }, "deposit.asset"],
    [{ case: "deposit", value: { coins: "5", confirmations: 1_001 } }, "deposit.confirmations"],
    [{ case: "change", value: { confirmations: 1 } }, "change.deposit_id"],
    [{ case: "change", value: { depositId: "sim_x", lost: true } }, "change.deposit_id"],
  ];
  for (const [happening, field] of faults)
    expect(await errorOf(admin.simulateDeposit({ orderId, event: happening }))).toBe(
      `invalid_request ${field}`,
    );
  expect(
    await errorOf(
      admin.simulateDeposit({ orderId: "ord_none", event: { case: "orderEvent", value: MARKED } }),
    ),
  ).toBe("not_found order_id");
  const { order: untouched } = await admin.getOrder({ orderId });
  expect(untouched).toMatchObject({ state: OPEN, attention: NONE });
});
