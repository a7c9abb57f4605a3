// What the statements of payments store and find of deposits, grants, refunds and orders, against a
// simple model. The time of the database stands still, so that rows stand exactly at each border.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/payments.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { stopNow } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const [second, minute, hour] = [1_000, 60_000, 3_600_000];

let database: Awaited<ReturnType<typeof freshDatabase>>;
let postgres: Postgres;
beforeAll(async () => {
  database = await freshDatabase();
  await stopNow(database, now);
  postgres = connectPostgres(database.url);
});
afterAll(async () => {
  await postgres.close();
  await database.drop();
});

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

let made = 0;
/** Columns of an order that differ from those of `newOrder`. */
type Columns = Readonly<Record<string, unknown>>;

/** An order of an account of its own, opened by its processor. */
async function newOrder(of: Columns = {}): Promise<{ orderId: string; accountId: string }> {
  const number = String(++made).padStart(6, "0");
  const columns: Columns = {
    ...{ order_id: `ord_${number}`, account_id: `acc_${number}`, family: "v1" },
    ...{ idempotency_key: number, usd_micro: 5_000_000n, processor: "p", method: "p:btc" },
    ...{ asset: "BTC", network: "bitcoin", decimals: 8, external_id: `ext_${number}` },
    ...{ quoted_atoms: "5000", rate: 100_000_000_000n, created_by: "person:1", created_at: now },
    ...{ quoted_until: after(15 * minute), watched_until: after(hour) },
    ...of,
  };
  await insert("payment_orders", columns);
  return { orderId: String(columns.order_id), accountId: String(columns.account_id) };
}

async function insert(table: string, columns: Columns): Promise<void> {
  const names = Object.keys(columns);
  await run(
    `insert into ${table} (${names.map((name) => `"${name}"`).join(", ")})
     values (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
    Object.values(columns),
  );
}

const state = fc.constantFrom("seen", "settled", "lost");
const looks = fc.array(
  fc.record({
    which: fc.nat(1),
    isOther: fc.constantFrom(false, false, false, false, true),
    isValued: fc.constantFrom(false, false, false, true),
    state,
    atoms: fc.bigInt({ min: 1n, max: 3n }),
    usdMicro: fc.option(fc.bigInt({ min: 0n, max: 3n })),
    confirmations: fc.nat(3),
    needed: fc.nat(3),
    firstSeenMs: fc.nat(2),
    block: fc.option(fc.record({ ms: fc.nat(2), rate: fc.option(fc.bigInt(1n, 3n)) })),
  }),
  { maxLength: 8 },
);

test("looks at a deposit, in whatever order, only take it forwards, and value it once", async () => {
  await fc.assert(
    fc.asyncProperty(looks, fc.boolean(), async (seen, mayReturn) => {
      const [own, other] = [await newOrder(), await newOrder()];
      type Stored = {
        atoms: bigint;
        state: string;
        returned: boolean;
        confirmations: number;
        needed: number;
        firstSeenMs: number;
        processorUsdMicro: bigint | null;
        blockMs: number | null;
        blockRate: bigint | null;
        isSettled: boolean;
        usdMicro: bigint | null;
      };
      const stored = new Map<string, Stored>();
      for (const [index, look] of seen.entries()) {
        const externalId = `dep_${look.which}_${own.orderId}`;
        const before = stored.get(externalId);
        const order = look.isOther ? other : own;
        const changed = await postgres.run(sql.upsertDeposit, {
          ...{ processor: "p", externalId, orderId: order.orderId, accountId: order.accountId },
          ...{ family: "v1", asset: "BTC", network: "bitcoin", decimals: 8 },
          ...{ atoms: look.atoms, marketRate: 7n, processorUsdMicro: look.usdMicro, mayReturn },
          ...{ state: look.state, confirmations: look.confirmations },
          ...{ confirmationsNeeded: look.needed, firstSeenAt: after(look.firstSeenMs) },
          ...{ blockAt: look.block && after(look.block.ms), blockRate: look.block?.rate ?? null },
        });
        if (before && look.isOther !== before.needed < 0) {
          // Of another order than the first look.
          expect(changed).toBe(0);
          continue;
        }
        expect(changed).toBe(1);
        const isBack = mayReturn && before?.state === "lost" && !before.isSettled;
        const both = [before?.state, look.state];
        stored.set(externalId, {
          atoms:
            !before || (before.state === "seen" && look.state === "settled")
              ? look.atoms
              : before.state === "seen" && look.atoms > before.atoms
                ? look.atoms
                : before.atoms,
          state:
            !before || isBack
              ? look.state
              : (["lost", "settled"].find((one) => both.includes(one)) ?? "seen"),
          returned:
            before?.returned === true ||
            (before?.state === "lost" && look.state !== "lost" && !isBack),
          confirmations: Math.max(before?.confirmations ?? 0, look.confirmations),
          needed: look.isOther ? -1 - look.needed : look.needed,
          firstSeenMs: Math.min(before?.firstSeenMs ?? 9, look.firstSeenMs),
          processorUsdMicro:
            !before || before.state === "seen" ? look.usdMicro : before.processorUsdMicro,
          blockMs: look.block?.ms ?? before?.blockMs ?? null,
          blockRate:
            before && before.usdMicro !== null ? before.blockRate : (look.block?.rate ?? null),
          isSettled:
            before?.isSettled === true ||
            (look.state === "settled" && (!before || before.state === "seen" || mayReturn)),
          usdMicro: before?.usdMicro ?? null,
        });
        if (!look.isValued) continue;
        const value = {
          processor: "p",
          externalId,
          usdMicro: BigInt(index),
          valuedBy: "quote" as const,
        };
        const valued = await postgres.run(sql.valueDeposit, value);
        const one = stored.get(externalId);
        expect(valued).toBe(one?.usdMicro === null ? 1 : 0);
        if (one) one.usdMicro ??= BigInt(index);
      }
      const rows = await postgres.run(sql.listDeposits, {
        orderIds: [own.orderId, other.orderId],
      });
      const found = new Map(rows.map((row) => [row.externalId, row]));
      expect(found.size).toBe(stored.size);
      for (const [externalId, one] of stored) {
        expect(found.get(externalId)).toMatchObject({
          orderId: (one.needed < 0 ? other : own).orderId,
          atoms: String(one.atoms),
          ...{ state: one.state, isReturned: one.returned, confirmations: one.confirmations },
          confirmationsNeeded: one.needed < 0 ? -1 - one.needed : one.needed,
          firstSeenAt: after(one.firstSeenMs),
          ...{ marketRate: 7n, processorUsdMicro: one.processorUsdMicro },
          blockAt: one.blockMs === null ? null : after(one.blockMs),
          ...{ blockRate: one.blockRate, settledAt: one.isSettled ? now : null },
          usdMicro: one.usdMicro,
        });
      }
    }),
    { numRuns: 60 },
  );
});

const refundState = fc.constantFrom(
  ...(["asked", "refused", "refunding", "cancelled", "completed"] as const),
);
const steps = fc.array(
  fc.oneof(
    fc.record({
      do: fc.constant("grant" as const),
      which: fc.nat(1),
      target: fc.bigInt({ min: 0n, max: 6n }),
    }),
    fc.record({
      do: fc.constant("refund" as const),
      which: fc.nat(1),
      micro: fc.bigInt({ min: 0n, max: 3n }),
      takes: fc.boolean(),
    }),
    fc.record({
      do: fc.constant("move" as const),
      which: fc.nat(1),
      from: fc.constantFrom(...(["asked", "refunding"] as const)),
      to: refundState,
    }),
    fc.record({ do: fc.constant("bonus" as const), which: fc.nat(1), needs: fc.boolean() }),
    fc.record({ do: fc.constant("post" as const), which: fc.nat(1) }),
  ),
  { maxLength: 12 },
);

test("grants follow what is due, bonuses their purchase, and refunds are counted until they end without money", async () => {
  const purchaseMicro = 3n;
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const orders = [await newOrder(), await newOrder()];
      const model = orders.map(() => ({
        grants: [] as { micro: bigint; bonus: bigint; isPosted: boolean }[],
        refunds: [] as { micro: bigint; state: string }[],
        uses: [] as { codeId: string; refund: number | null }[],
      }));
      const isGone = (name: string) => name === "refused" || name === "cancelled";
      const sum = (amounts: readonly bigint[]) => amounts.reduce((one, other) => one + other, 0n);
      for (const step of all) {
        const [order, one] = [orders[step.which], model[step.which]];
        if (!order || !one) throw new Error("no such order");
        const { orderId, accountId } = order;
        const granted = sum(one.grants.map(({ micro }) => micro));
        const bonus = sum(one.grants.map((grant) => grant.bonus));
        const taken = sum(one.refunds.filter((r) => !isGone(r.state)).map(({ micro }) => micro));
        const kept = 10n * BigInt(one.uses.filter(({ refund }) => refund === null).length);
        if (step.do === "grant") {
          const micro = step.target - granted;
          const back = -bonus - (step.target - taken < purchaseMicro ? kept : 0n);
          const added = [
            ...(micro === 0n ? [] : [{ micro, bonus: 0n, isPosted: false }]),
            ...(back === 0n ? [] : [{ micro: 0n, bonus: back, isPosted: false }]),
          ];
          const rows = await postgres.run(sql.insertGrant, {
            ...{ orderId, targetMicro: step.target, purchaseMicro },
          });
          expect(rows.toSorted((a, b) => a.n - b.n)).toEqual(
            added.map((grant, at) => ({ n: one.grants.length + at + 1, micro: grant.micro })),
          );
          one.grants.push(...added);
        } else if (step.do === "refund") {
          if (one.refunds.some((r) => ["asked", "refunding", "cancelling"].includes(r.state)))
            continue;
          const { n } = await postgres.run(sql.insertRefund, {
            ...{ orderId, usdMicro: step.micro, externalId: null, micro: step.micro },
            ...{ state: "asked", reason: "", madeBy: "", bonusMicro: 0n },
          });
          one.refunds.push({ micro: step.micro, state: "asked" });
          expect(n).toBe(one.refunds.length);
          if (!step.takes) continue;
          await postgres.run(sql.takeBonus, { orderId, refundN: n });
          for (const use of one.uses) use.refund ??= n;
        } else if (step.do === "move") {
          const n = one.refunds.length;
          const last = one.refunds[n - 1];
          const facts = { transferId: null, cancelTransferId: null, transaction: null };
          const { from, to } = step;
          const moved = await postgres.run(sql.moveRefund, {
            orderId,
            n,
            from,
            to,
            ...facts,
          });
          expect(moved !== undefined).toBe(last?.state === from);
          if (!last || moved === undefined) continue;
          last.state = to;
          if (!isGone(to)) continue;
          await postgres.run(sql.returnBonus, { orderId, refundN: n });
          for (const use of one.uses) if (use.refund === n) use.refund = null;
        } else if (step.do === "bonus") {
          const codeId = `code_${++made}`;
          await insert("promotions", {
            ...{ code_id: codeId, code_sha256: Buffer.from(codeId), name: "", family: "v1" },
            ...{ bonus_micro: 10n, created_by: "" },
          });
          const use = { codeId, accountId, orderId: step.needs ? orderId : null };
          expect(await postgres.run(sql.insertPromotionUse, use)).toBe(1);
          expect(await postgres.run(sql.insertPromotionUse, use)).toBe(0);
          if (step.needs) one.uses.push({ codeId, refund: null });
        } else {
          const n = one.grants.findIndex(({ isPosted }) => !isPosted) + 1;
          await postgres.run(sql.putTransfer, { orderId, n, transferId: `tra_${orderId}` });
          await postgres.run(sql.putTransfer, { orderId, n, transferId: "another" });
          for (const grant of one.grants.slice(n - 1, n)) grant.isPosted = true;
        }
      }
      for (const [index, { orderId, accountId }] of orders.entries()) {
        const one = model[index];
        if (!one) throw new Error("no such order");
        const granted = sum(one.grants.map(({ micro }) => micro));
        const counted = one.refunds.filter((r) => !isGone(r.state)).map(({ micro }) => micro);
        for (const found of [
          await postgres.run(sql.findOrder, { orderId }),
          await postgres.run(sql.findOrderByKey, {
            accountId,
            idempotencyKey: accountId.slice(4),
          }),
        ])
          expect(found).toMatchObject({
            ...{ orderId, grantedMicro: granted, takenBackMicro: sum(counted) },
            refundedUsdMicro: sum(counted),
          });
        for (const micro of [-1n, 0n, 1n].map((more) => granted - sum(counted) + more)) {
          const asked = { accountId, family: "v1" as const, micro };
          const found = await postgres.run(sql.findPaidOrder, asked);
          expect(found?.orderId).toBe(micro <= granted - sum(counted) ? orderId : undefined);
          const other = await postgres.run(sql.findPaidOrder, { ...asked, family: "v2" });
          expect(other).toBeUndefined();
        }
        expect(await postgres.run(sql.listUnposted, { orderId })).toEqual(
          one.grants.flatMap(({ micro, bonus, isPosted }, at) =>
            isPosted ? [] : [{ n: at + 1, micro: micro + bonus, accountId, family: "v1" }],
          ),
        );
        const transfers = await run(
          "select n from payment_grants where order_id = $1 and transfer_id = 'tra_' || $1",
          [orderId],
        );
        expect(transfers).toHaveLength(one.grants.filter(({ isPosted }) => isPosted).length);
        expect(
          (await postgres.run(sql.listGranted, { orderId })).map(({ micro }) => micro),
        ).toEqual(one.grants.map(({ micro }) => micro).filter((micro) => micro > 0n));
        const kept = one.uses.filter(({ refund }) => refund === null).length;
        const hasReturned = sum(one.grants.map(({ bonus }) => bonus)) !== 0n;
        expect(await postgres.run(sql.readBonus, { orderId })).toEqual({
          micro: hasReturned ? 0n : 10n * BigInt(kept),
        });
        const refunds = await postgres.run(sql.listRefunds, { orderIds: [orderId] });
        expect(refunds.map(({ n, state: name, endedAt }) => [n, name, endedAt])).toEqual(
          one.refunds.map((refund, at) => [
            at + 1,
            refund.state,
            ["refused", "completed", "cancelled"].includes(refund.state) ? now : null,
          ]),
        );
      }
    }),
    { numRuns: 60 },
  );
});

const anyState = fc.constantFrom(
  ...["open", "seen", "partly_paid", "paid", "expired", "cancelled", "closed"],
);
const beside = (ms: number) => fc.constantFrom(ms - 1, ms, ms + 1);
const anyOrders = fc.array(
  fc.record({
    isOther: fc.constantFrom(false, false, true),
    kind: fc.constantFrom("pack", "pack", "direct"),
    state: anyState,
    quotedMs: fc.oneof(beside(0), beside(-15 * minute)),
    createdMs: fc.oneof(beside(-hour), fc.constant(0)),
    isOpened: fc.constantFrom(true, true, false),
    attention: fc.constantFrom(null, "short"),
    grant: fc.constantFrom(null, 1n, -1n),
  }),
  { maxLength: 5 },
);

test("the orders of an account are counted by state, age and kind, and listed by page", async () => {
  await fc.assert(
    fc.asyncProperty(anyOrders, async (facts) => {
      const ids = [`acc_x${++made}`, `acc_y${made}`];
      const network = `net_${made}`;
      const orders = [];
      for (const one of facts) {
        const accountId = ids[one.isOther ? 1 : 0] ?? "";
        const { orderId } = await newOrder({
          ...{ account_id: accountId, kind: one.kind, state: one.state, network },
          ...{ quoted_until: after(one.quotedMs), created_at: after(one.createdMs) },
          ...{ attention: one.attention, ...(one.isOpened ? {} : { external_id: null }) },
        });
        if (one.grant !== null)
          await insert("payment_grants", { order_id: orderId, n: 1, micro: one.grant });
        orders.push({ ...one, orderId, accountId });
      }
      for (const accountId of ids) {
        const own = orders.filter((one) => one.accountId === accountId);
        const packs = own.filter(({ kind }) => kind === "pack");
        const recent = packs.filter(({ createdMs }) => createdMs > -hour);
        expect(await postgres.run(sql.countOrders, { accountId })).toEqual({
          open: packs.filter(
            (one) => one.state === "seen" || (one.state === "open" && one.quotedMs > 0),
          ).length,
          made: recent.length,
          firstAt:
            recent.length === 0
              ? null
              : after(Math.min(...recent.map(({ createdMs }) => createdMs))),
          hasPaid: own.some(({ grant }) => grant === 1n),
        });
        for (const needsAttention of [false, true])
          for (const rows of [1, 2, 9]) {
            const listed: string[] = [];
            for (let last: string | null = null; ; ) {
              const page: { orderId: string }[] = await postgres.run(sql.listOrders, {
                ...{ accountId, needsAttention, after: last, rows },
              });
              listed.push(...page.map(({ orderId }) => orderId));
              last = listed.at(-1) ?? null;
              if (page.length < rows) break;
            }
            const expected = own
              .filter(({ isOpened, attention }) => isOpened && (!needsAttention || attention))
              .map(({ orderId }) => orderId)
              .sort();
            expect(listed).toEqual(needsAttention ? expected : expected.toReversed());
          }
        for (const { orderId } of own)
          expect(
            (
              await postgres.run(sql.listOpenOthers, {
                ...{ processor: "p", accountId, family: "v1", networks: [network], orderId },
              })
            )
              .map((one) => one.orderId)
              .sort(),
          ).toEqual(
            own
              .filter((one) => one.state === "open" && one.isOpened && one.orderId !== orderId)
              .map((one) => one.orderId)
              .sort(),
          );
      }
      const waiting = orders.filter(({ attention, isOpened }) => attention && isOpened);
      const counted = ids.flatMap((accountId) => {
        const count = waiting.filter((one) => one.accountId === accountId).length;
        return count === 0 ? [] : [{ accountId, orders: count }];
      });
      const all = await postgres.run(sql.countWaiting, { rows: 10_000 });
      expect(all.filter(({ accountId }) => ids.includes(accountId))).toEqual(counted.toReversed());
      expect(await postgres.run(sql.countWaiting, { rows: 1 })).toEqual(all.slice(0, 1));
      const awaited = await postgres.run(sql.isAwaited, {
        ...{ processor: "p", chain: network, asset: "BTC" },
      });
      expect(awaited.order).toBe(
        orders.some(
          (one) =>
            one.isOpened && ["open", "seen"].includes(one.state) && one.quotedMs > -15 * minute,
        ),
      );
    }),
    { numRuns: 60 },
  );
});

/** Times of which two differ by a step of the database's clock, and none. */
const anyTime = fc.constantFrom(null, -second, 0, second);

test("a decision keeps a webhook that came during the look, and never delays the next look", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        isLook: fc.boolean(),
        hookMs: anyTime,
        answered: fc.constantFrom("none", "own", "earlier"),
        lookedMs: anyTime,
        newLookedMs: anyTime,
        nextMs: anyTime,
        delayMs: fc.constantFrom(null, 0, 500, 2_000),
        leaseMs: anyTime,
      }),
      async (one) => {
        const timeOf = (ms: number | null) => (ms === null ? null : after(ms));
        const of = {
          ...{ lease_until: timeOf(one.leaseMs), hook_at: timeOf(one.hookMs) },
          ...{ looked_at: timeOf(one.lookedMs), next_look_at: timeOf(one.nextMs) },
        };
        const [{ orderId }, untouched] = [await newOrder(of), await newOrder(of)];
        const [stored] = await run<{ hook: string }>(
          "select coalesce(hook_at::text, '') as hook from payment_orders where order_id = $1",
          [orderId],
        );
        const hook =
          one.answered === "own" ? (stored?.hook ?? "") : one.answered === "none" ? null : "2020";
        await postgres.run(sql.updateOrder, {
          ...{ orderId, state: "paid", attention: null, faults: [], ruleMicro: 9n },
          ...{ isLook: one.isLook, hook, lookedAt: timeOf(one.newLookedMs), failedLooks: 3 },
          nextLookMs: one.delayMs,
        });
        const read = async (id: string) =>
          (
            await run(
              `select state, rule_micro, lease_until, hook_at, looked_at, next_look_at, version
               from payment_orders where order_id = $1`,
              [id],
            )
          )[0];
        const looked = [one.lookedMs, one.newLookedMs].filter((ms) => ms !== null);
        const [isAsked, delayed] = [
          // A look without an answer took no webhook.
          hook !== null && (stored?.hook ?? "") !== hook,
          one.delayMs === null ? null : after(one.delayMs),
        ];
        const next = of.next_look_at;
        const least = delayed && next && next < delayed ? next : delayed;
        expect(await read(orderId)).toEqual({
          ...{ state: "paid", rule_micro: 9n, version: 2n },
          lease_until: one.isLook ? null : of.lease_until,
          hook_at: hook === (stored?.hook ?? "") ? null : of.hook_at,
          looked_at: looked.length === 0 ? null : after(Math.max(...looked)),
          next_look_at: isAsked ? now : one.isLook ? delayed : least,
        });
        expect(await read(untouched.orderId)).toMatchObject({ state: "open", version: 1n });
      },
    ),
    { numRuns: 100 },
  );
});
