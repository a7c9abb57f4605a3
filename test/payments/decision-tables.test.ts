// What the statements of decisions and of promotions store, find and change beside those of other
// orders, codes and accounts, against a simple model. The time of the database stands still.

import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import * as sql from "../../gen/sql/payments.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
beforeEach(clear);
afterAll(() => close());

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

async function clear(): Promise<void> {
  for (const table of [
    ...["payment_decisions", "payment_refunds", "payment_grants", "promotion_uses", "promotions"],
    ...["payment_orders", "accounts"],
  ])
    await run(`delete from ${table}`);
}

type Columns = Readonly<Record<string, unknown>>;
async function insert(table: string, columns: Columns): Promise<void> {
  const names = Object.keys(columns);
  await run(
    `insert into ${table} (${names.map((name) => `"${name}"`).join(", ")})
     values (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
    Object.values(columns),
  );
}

const orders = ["ord_1", "ord_2", "ord_3"] as const;
const insertOrder = (orderId: string, of: Columns = {}) =>
  insert("payment_orders", {
    ...{ order_id: orderId, account_id: `acc_of_${orderId}`, family: "v1" },
    ...{ idempotency_key: orderId, usd_micro: 5_000_000n, processor: "p", method: "p:btc" },
    ...{ asset: "BTC", network: "bitcoin", decimals: 8, external_id: `ext_${orderId}` },
    ...{ quoted_atoms: "5000", rate: 100_000_000_000n, created_by: "person:1", created_at: now },
    ...{ quoted_until: after(1), watched_until: after(2) },
    ...of,
  });

let made = 0;
const decide = (orderId: string, given: readonly (readonly [string, bigint])[]) => {
  const decision = {
    ...{ decisionId: `dec_${++made}`, orderId, kind: "grant" as const, facts: [`fact_${made}`] },
    ...{ depositIds: given.map(([id]) => id), micros: given.map(([, micro]) => micro) },
    ...{ reason: `reason ${made}`, decidedBy: `person:${made}`, approvedBy: `person:b${made}` },
  };
  return postgres.run(sql.insertDecision, decision).then(() => decision);
};

test("a decision is found by its own id, as it was stored", async () => {
  for (const orderId of orders) await insertOrder(orderId);
  const stored = [];
  for (const [index, orderId] of orders.entries())
    stored.push(await decide(orderId, [[`dep_${index}`, BigInt(index)]]));
  for (const decision of stored)
    expect(await postgres.run(sql.findDecision, { decisionId: decision.decisionId })).toEqual({
      ...decision,
      createdAt: expect.any(Date),
    });
  expect(await postgres.run(sql.findDecision, { decisionId: "dec_none" })).toBeUndefined();
});

test("orders that wait for a person are listed after any one, with their own decisions", async () => {
  const anyOrder = fc.record({
    waits: fc.boolean(),
    isOpened: fc.constantFrom(true, true, false),
    decisions: fc.nat(2),
  });
  const four = fc.tuple(anyOrder, anyOrder, anyOrder, anyOrder);
  const anyAfter = fc.constantFrom("", "ord_0", "ord_1", "ord_2");
  await fc.assert(
    fc.asyncProperty(four, anyAfter, fc.integer({ min: 1, max: 4 }), async (all, from, rows) => {
      await clear();
      for (const [index, { waits, isOpened, decisions }] of all.entries()) {
        const orderId = `ord_${index}`;
        await insertOrder(orderId, {
          ...(waits && { attention: "late" }),
          ...(!isOpened && { external_id: null }),
        });
        for (let one = 0; one < decisions; one++) await decide(orderId, []);
      }
      expect(await postgres.run(sql.listAttention, { after: from, rows })).toEqual(
        all
          .map((one, index) => ({ ...one, orderId: `ord_${index}` }))
          .filter(({ waits, isOpened, orderId }) => waits && isOpened && orderId > from)
          .slice(0, rows)
          .map(({ orderId, decisions }) => ({
            ...{ orderId, accountId: `acc_of_${orderId}`, decisions },
          })),
      );
    }),
    { numRuns: 60 },
  );
});

const refundStates = [
  ...["asked", "refused", "refunding", "completed", "cancelling", "cancelled"],
] as const;

test("what was granted for an order has the deposits of its decisions, and those that go back", async () => {
  const anyRefund = fc.record({
    order: fc.nat(1),
    isWhole: fc.boolean(),
    state: fc.constantFrom(...refundStates),
  });
  // Of an order one refund is open at most.
  const isOpen = (state: string) => ["asked", "refunding", "cancelling"].includes(state);
  const anyRefunds = fc.uniqueArray(anyRefund, {
    selector: ({ order, state }) => (isOpen(state) ? order : Symbol()),
    maxLength: 4,
  });
  await fc.assert(
    fc.asyncProperty(anyRefunds, fc.nat(1), async (refunds, asked) => {
      await clear();
      for (const orderId of orders) await insertOrder(orderId);
      for (const order of [0, 1])
        await decide(`ord_${order + 1}`, [
          [`dep_${order}`, 3n],
          ["", BigInt(order)],
        ]);
      for (const [index, { order, isWhole, state }] of refunds.entries())
        await insert("payment_refunds", {
          ...{ order_id: `ord_${order + 1}`, n: index + 1, usd_micro: 1, micro: 1, state },
          ...{ external_id: isWhole ? `back_${index}` : null, reason: "", made_by: "" },
        });
      const listed = await postgres.run(sql.listDecided, { orderId: `ord_${asked + 1}` });
      const goesBack = refunds.flatMap(({ order, isWhole, state }, index) =>
        order === asked && isWhole && state !== "refused" && state !== "cancelled"
          ? [{ depositId: `back_${index}`, micro: 0n }]
          : [],
      );
      expect(new Set(listed)).toEqual(
        new Set([
          { depositId: `dep_${asked}`, micro: 3n },
          { depositId: "", micro: BigInt(asked) },
          ...goesBack,
        ]),
      );
    }),
    { numRuns: 40 },
  );
});

const codeOf = (codeId: string) => Buffer.from(`sha of ${codeId}`);
const promotion = (
  codeId: string,
  more: { most?: number | null; endsMs?: number | null } = {},
) => ({
  ...{ codeId, name: `name of ${codeId}`, family: "v2" as const, bonusMicro: 10n },
  ...{ most: more.most ?? null, needsPurchase: codeId.endsWith("2"), createdBy: `by ${codeId}` },
  endsAt: more.endsMs === undefined || more.endsMs === null ? null : after(more.endsMs),
});
const insertPromotion = (fields: ReturnType<typeof promotion>) =>
  postgres.run(sql.insertPromotion, { ...fields, codeSha256: codeOf(fields.codeId) });
const codes = ["code_1", "code_2", "code_3"] as const;

test("a promotion is stored once for its code, found by it, and listed newest first", async () => {
  for (const codeId of codes) {
    const stored = { ...promotion(codeId), used: 0, stoppedAt: null };
    const found = { ...stored, createdAt: expect.any(Date) };
    expect(await insertPromotion(promotion(codeId))).toEqual(found);
    const again = { ...promotion(`${codeId}_again`), codeSha256: codeOf(codeId) };
    expect(await postgres.run(sql.insertPromotion, again)).toBeUndefined();
    expect(await postgres.run(sql.findPromotion, { codeSha256: codeOf(codeId) })).toEqual(found);
  }
  const list = async (before: string | null, rows: number) =>
    (await postgres.run(sql.listPromotions, { before, rows })).map(({ codeId }) => codeId);
  expect([await list(null, 9), await list(null, 2), await list("code_3", 9)]).toEqual([
    ...[
      ["code_3", "code_2", "code_1"],
      ["code_3", "code_2"],
      ["code_2", "code_1"],
    ],
  ]);
  expect(await list("code_1", 9)).toEqual([]);
});

test("a promotion is used until its end, its number of uses or its stop, and no other with it", async () => {
  const ends = fc.constantFrom(null, -1, 0, 1);
  const anyCount = fc.record({
    endsMs: ends,
    count: fc.constantFrom<[most: number | null, used: number][]>(
      [null, 1],
      [1, 0],
      [1, 1],
      [2, 1],
    ),
    isStopped: fc.constantFrom(false, false, true),
  });
  await fc.assert(
    fc.asyncProperty(anyCount, async ({ endsMs, count, isStopped }) => {
      const [most, used] = count;
      await clear();
      for (const codeId of codes) await insertPromotion(promotion(codeId, { endsMs, most }));
      await run("update promotions set used = $1", [used]);
      const earlier = after(-9);
      await run("update promotions set stopped_at = $1 where code_id = 'code_3'", [earlier]);
      if (isStopped)
        expect((await postgres.run(sql.stopPromotion, { codeId: "code_2" }))?.stoppedAt).toEqual(
          now,
        );
      // A repeat changes nothing.
      expect((await postgres.run(sql.stopPromotion, { codeId: "code_3" }))?.stoppedAt).toEqual(
        earlier,
      );
      expect(await postgres.run(sql.stopPromotion, { codeId: "code_none" })).toBeUndefined();
      const isLeft =
        !isStopped && (endsMs === null || endsMs > 0) && (most === null || used < most);
      expect(await postgres.run(sql.countPromotionUse, { codeId: "code_2" })).toBe(isLeft ? 1 : 0);
      const all = await postgres.run(sql.listPromotions, { before: null, rows: 9 });
      expect(all.map(({ codeId, used: count, stoppedAt }) => [codeId, count, stoppedAt])).toEqual([
        ["code_3", used, earlier],
        ["code_2", used + (isLeft ? 1 : 0), isStopped ? now : null],
        ["code_1", used, null],
      ]);
    }),
    { numRuns: 60 },
  );
});

/** Uses of two codes by two accounts, of two orders or none. */
async function writeUses() {
  await clear();
  for (const codeId of codes) await insertPromotion(promotion(codeId));
  for (const orderId of orders) await insertOrder(orderId);
  for (const [index, codeId] of ["code_1", "code_2"].entries())
    for (const accountId of ["acc_1", "acc_2"]) {
      const orderId = accountId === "acc_1" ? "ord_1" : index === 0 ? "ord_2" : null;
      const use = { codeId, accountId, orderId };
      expect(await postgres.run(sql.insertPromotionUse, use)).toBe(1);
      // Of a repeat the first counts.
      expect(await postgres.run(sql.insertPromotionUse, { ...use, orderId: "ord_3" })).toBe(0);
    }
}

/** Code, account, order, transfer and refund of each use. */
const uses = async () =>
  (
    await run<Record<string, unknown>>(
      `select code_id, account_id, order_id, transfer_id, refund_n, used_at from promotion_uses
       order by code_id, account_id`,
    )
  ).map(({ used_at, ...use }) => {
    expect(used_at).toEqual(now);
    return Object.values(use)
      .map((value) => value ?? "-")
      .join(" ");
  });

test("a use is of its code and account, and gets its transfer once", async () => {
  await writeUses();
  expect(await uses()).toEqual([
    ...["code_1 acc_1 ord_1 - -", "code_1 acc_2 ord_2 - -"],
    ...["code_2 acc_1 ord_1 - -", "code_2 acc_2 - - -"],
  ]);
  for (const transferId of ["tra_1", "tra_2"])
    await postgres.run(sql.setPromotionTransfer, {
      ...{ codeId: "code_2", accountId: "acc_1", transferId },
    });
  expect(await uses()).toEqual([
    ...["code_1 acc_1 ord_1 - -", "code_1 acc_2 ord_2 - -"],
    ...["code_2 acc_1 ord_1 tra_1 -", "code_2 acc_2 - - -"],
  ]);
  const find = (codeId: string, accountId: string) =>
    postgres.run(sql.findPromotionUse, { codeId, accountId });
  const use = { codeId: "code_2", accountId: "acc_1", family: "v2", bonusMicro: 10n };
  expect(await find("code_2", "acc_1")).toEqual({ ...use, transferId: "tra_1" });
  expect(await find("code_2", "acc_2")).toEqual({ ...use, accountId: "acc_2", transferId: null });
  expect(await find("code_1", "acc_1")).toEqual({ ...use, codeId: "code_1", transferId: null });
  expect(await find("code_3", "acc_1")).toBeUndefined();
  expect(await find("code_1", "acc_3")).toBeUndefined();
});

test("a refund takes the bonuses of its order, and gives back what it took itself", async () => {
  await writeUses();
  await run("update promotions set bonus_micro = 7 where code_id = 'code_2'");
  const bonus = async (orderId: string) => (await postgres.run(sql.readBonus, { orderId })).micro;
  expect([await bonus("ord_1"), await bonus("ord_2"), await bonus("ord_3")]).toEqual([
    ...[17n, 10n, 0n],
  ]);
  await postgres.run(sql.takeBonus, { orderId: "ord_1", refundN: 1 });
  await postgres.run(sql.takeBonus, { orderId: "ord_1", refundN: 2 });
  await postgres.run(sql.takeBonus, { orderId: "ord_2", refundN: 2 });
  const taken = [
    ...["code_1 acc_1 ord_1 - 1", "code_1 acc_2 ord_2 - 2"],
    ...["code_2 acc_1 ord_1 - 1", "code_2 acc_2 - - -"],
  ];
  expect(await uses()).toEqual(taken);
  expect([await bonus("ord_1"), await bonus("ord_2")]).toEqual([0n, 0n]);
  await postgres.run(sql.returnBonus, { orderId: "ord_1", refundN: 2 });
  expect(await uses()).toEqual(taken);
  await postgres.run(sql.returnBonus, { orderId: "ord_1", refundN: 1 });
  expect(await uses()).toEqual([
    ...["code_1 acc_1 ord_1 - -", "code_1 acc_2 ord_2 - 2"],
    ...["code_2 acc_1 ord_1 - -", "code_2 acc_2 - - -"],
  ]);
  // A chargeback has taken them, for as long as nothing gave them back.
  await insert("payment_grants", { order_id: "ord_2", n: 1, micro: 0, bonus_micro: -17 });
  expect(await bonus("ord_1")).toBe(17n);
  await insert("payment_grants", { order_id: "ord_1", n: 1, micro: 0, bonus_micro: -17 });
  expect(await bonus("ord_1")).toBe(0n);
  await insert("payment_grants", { order_id: "ord_1", n: 2, micro: 0, bonus_micro: 17 });
  expect(await bonus("ord_1")).toBe(17n);
});

test("who redeems a code locks his own account", async () => {
  for (const accountId of ["acc_1", "acc_2"])
    await insert("accounts", { account_id: accountId, name: "" });
  const lock = (accountId: string) => postgres.run(sql.lockRedeemer, { accountId });
  expect([await lock("acc_1"), await lock("acc_2"), await lock("acc_3")]).toEqual([
    ...[{ accountId: "acc_1" }, { accountId: "acc_2" }, undefined],
  ]);
});
