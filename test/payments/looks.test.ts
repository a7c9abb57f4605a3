// How often processors are asked, by how many nodes, and what a page that is open sees.

import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { describe as describeOrder } from "../../src/payments/orders.ts";
import { nextLookMs, type Watched } from "../../src/payments/schedule.ts";
import { passUntil } from "../support/clock.ts";
import {
  movableTime,
  movableTimeAndNow,
  order,
  startTestPayments,
  type TestPayments,
} from "../support/payments.ts";

const minute = 60_000;
const now = new Date(Date.UTC(2026, 10, 22));
const inMinutes = (minutes: number) => new Date(now.getTime() + minutes * minute);
const watched = (of: Partial<Watched> = {}): Watched => ({
  isClosed: false,
  quotedUntil: inMinutes(15),
  watchedUntil: inMinutes(10_080),
  pageOpenUntil: null,
  failedLooks: 0,
  isAsked: false,
  ...of,
});

test.each([
  ["while the quote stands: each minute", watched(), minute],
  ["while the page is open: each 10 s", watched({ pageOpenUntil: inMinutes(0.5) }), 10_000],
  [
    "15 minutes after the quote: still each minute",
    watched({ quotedUntil: inMinutes(-15) }),
    minute,
  ],
  ["later: each 10 minutes", watched({ quotedUntil: inMinutes(-16) }), 10 * minute],
  ["an hour after the quote: each hour", watched({ quotedUntil: inMinutes(-61) }), 60 * minute],
  ["the end of the quote gets its look", watched({ quotedUntil: inMinutes(0.25) }), 16_000],
  [
    "the end of watching gets its look",
    watched({ quotedUntil: inMinutes(-60), watchedUntil: inMinutes(1) }),
    61_000,
  ],
  ["closed: never", watched({ isClosed: true }), undefined],
  [
    "one failure of a look that was asked for: 10 seconds",
    watched({ failedLooks: 1, isAsked: true }),
    10 * 1_000,
  ],
  ["one failure: no sooner than usual", watched({ failedLooks: 1 }), minute],
  [
    "failures with the page open: later each time",
    watched({ failedLooks: 3, pageOpenUntil: inMinutes(1) }),
    40_000,
  ],
  ["many failures: each 10 minutes at least", watched({ failedLooks: 1_000 }), 10 * minute],
])("the next look, %s", (_, order, expected) => {
  expect(nextLookMs(order, now)).toBe(expected);
});

describe("on a ledger", () => {
  let stage: TestPayments;
  beforeEach(async () => {
    stage = await startTestPayments(movableTime);
  });
  afterEach(() => stage.stop());

  /** Inserts open orders that are due now, without asking the processor. */
  async function insertDue(count: number, prefix: string, at = stage): Promise<void> {
    await at.run(
      `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
         processor, method, asset, network, decimals, external_id, quoted_atoms, rate, created_by,
         quoted_until, watched_until, next_look_at, hook_at)
       select $2 || n, 'acc_a', 'v1', $2 || n, 5000000, 'simulated', 'simulated:usdt', 'USDT', 'tron',
         6, $2 || n, 5000000, 1000000, 'test', now() + interval '15 minutes',
         now() + interval '7 days', now() - n * interval '1 millisecond', null
       from generate_series(1, $1::integer) n`,
      [count, prefix],
    );
  }

  const looks = async () => {
    const [row] = await stage.run<{ count: number }>(
      "select count(*)::integer as count from payment_orders where looked_at is not null",
    );
    return row?.count ?? 0;
  };

  test("of a thousand due orders, three nodes look at no more than five in any second", async () => {
    const moved = await startTestPayments(movableTimeAndNow);
    onTestFinished(() => moved.stop());
    await insertDue(1_000, "ord_", moved);
    for (let node = 0; node < 3; node++) {
      moved.node();
      await moved.pass(300);
    }
    const times: number[] = [];
    await passUntil(
      () => moved.pass(100),
      async () => {
        const rows = await moved.run<{ at: Date }>(
          "select looked_at as at from payment_orders where looked_at is not null order by 1",
        );
        times.splice(0, Number.POSITIVE_INFINITY, ...rows.map(({ at }) => at.getTime()));
        expect(times.length).toBeGreaterThanOrEqual(16);
      },
    );
    // The sixth look after each one starts a second later at the earliest.
    for (const [index, time] of times.entries())
      expect((times[index + 5] ?? Number.POSITIVE_INFINITY) - time).toBeGreaterThanOrEqual(1_000);
  });

  test("an order with a webhook is looked at before a thousand that are due", async () => {
    await insertDue(1_000, "ord_");
    const node = stage.node();
    await stage.until(async () => expect(await looks()).toBeGreaterThan(0));
    const { orderId } = await order(node.admin, { accountId: "acc_b" });
    await node.admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: "5", confirmations: 1 } },
    });
    await stage.orderWhen(orderId, ({ state }) => state === OrderState.PAID);
    expect(await looks()).toBeLessThan(40);
  });

  test("when nothing is due, a node sends one statement a second", async () => {
    // The latest by which chance lets it poll.
    const random = vi.spyOn(Math, "random").mockReturnValue(0);
    onTestFinished(() => random.mockRestore());
    const node = stage.node();
    await order(node.admin);
    // It waits for the next poll, for the next rates and for the hourly cleaning.
    const idle = () => expect.poll(() => stage.clock.pending).toBe(3);
    await idle();
    const before = node.database.ran.length;
    for (let seconds = 1; seconds <= 7; seconds++) {
      await stage.pass(999);
      expect(node.database.ran.length - before).toBe(seconds - 1);
      await stage.pass(1);
      expect(node.database.ran.length - before).toBe(seconds);
      await idle();
    }
    // Seven seconds include a sweep, which is no statement of its own.
    expect(new Set(node.database.ran.slice(before))).toEqual(new Set(["payments/has-work"]));
  });

  test("fifty looks at once, of any node, credit a payment once", async () => {
    const { admin } = stage.node({ isStarted: false });
    const { orderId } = await order(admin);
    await admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: "2", confirmations: 1 } },
    });
    await admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: "3", confirmations: 1 } },
    });
    await Promise.all(Array.from({ length: 50 }, () => stage.look(orderId)));
    expect((await admin.getOrder({ orderId })).order).toMatchObject({
      state: OrderState.PAID,
      grantedMicrocredits: 1_000_000_000n,
    });
    expect(await stage.posted()).toBe(1_000_000_000n);
    expect(await stage.transfers()).toHaveLength(1);
    expect(await stage.run("select n from payment_grants where transfer_id is null")).toEqual([]);
  });

  test("an open page shows each change, also one that another node made", async () => {
    const [one, other] = [stage.node(), stage.node()];
    const { orderId } = await order(one.admin);
    const states: OrderState[] = [];
    const leaving = new AbortController();
    const watching = (async () => {
      for await (const { order: shown } of one.admin.watchOrder(
        { orderId },
        { signal: leaving.signal },
      ))
        states.push(shown?.state ?? OrderState.UNSPECIFIED);
    })();
    await expect.poll(() => states).toContain(OrderState.OPEN);
    const [page] = await stage.run<{ open: boolean }>(
      "select page_open_until > now() as open from payment_orders where order_id = $1",
      [orderId],
    );
    expect(page?.open).toBe(true);
    await other.admin.simulateDeposit({
      orderId,
      event: { case: "deposit", value: { coins: "5" } },
    });
    await stage.until(() => expect(states).toContain(OrderState.SEEN));
    leaving.abort();
    await watching;
  });

  test("the stream of an order ends when the order is closed", async () => {
    const node = stage.node();
    const { orderId } = await order(node.admin);
    const seen: OrderState[] = [];
    const watching = (async () => {
      for await (const { order: shown } of node.admin.watchOrder({ orderId }))
        seen.push(shown?.state ?? OrderState.UNSPECIFIED);
    })();
    await expect.poll(() => seen).toContain(OrderState.OPEN);
    await stage.age(orderId, 8 * 24 * 60);
    await stage.until(() => expect(seen.at(-1)).toBe(OrderState.CLOSED));
    await watching;
  });

  test("a processor that does not answer is asked less and less, and no order is closed", async () => {
    const node = stage.node({ isStarted: false });
    const { orderId } = await order(node.admin);
    await stage.age(orderId, 8 * 24 * 60);
    for (let failed = 1; failed <= 3; failed++) {
      await stage.failLook(orderId);
      const [row] = await stage.run<{ wait: number; failed_looks: number; state: string }>(
        `select extract(epoch from next_look_at - now())::float8 as wait, failed_looks, state
         from payment_orders where order_id = $1`,
        [orderId],
      );
      expect(row).toMatchObject({ failed_looks: failed, state: "expired" });
      expect(row?.wait).toBeGreaterThan(590);
    }
  });
});

test("an order that is read during a look has the deposits of its state", async () => {
  const stage = await startTestPayments(movableTime);
  onTestFinished(() => stage.stop());
  const { admin } = stage.node({ isStarted: false });
  const { orderId, quotedCoins: amount } = await order(admin);
  await admin.simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: amount, confirmations: 1 } },
    withoutHook: true,
  });
  const { store } = stage.parts;
  const before = await store.findOrder(orderId);
  if (!before) throw new Error("there is no order");
  let reads = 0;
  const listDeposits: typeof store.listDeposits = async (orderIds) => {
    // A look ends between the reading of the order and that of its deposits.
    if (reads++ === 0) await stage.look(orderId);
    return store.listDeposits(orderIds);
  };
  const parts = { ...stage.parts, store: { ...store, listDeposits } };
  const shown = await describeOrder(parts, before);
  expect([shown.state, shown.deposits.length]).toEqual([OrderState.PAID, 1]);
  expect(reads).toBe(2);
});
