// What the statements of payments store and find of deposits, grants, refunds and orders, against a
// simple model. The time of the database stands still, so that rows stand exactly at each border.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/payments.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "../support/query.ts";
import { openStopped } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const [second, minute, hour] = [1_000, 60_000, 3_600_000];

let postgres: Postgres;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ postgres, close } = await openStopped(now));
});
afterAll(() => close());

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

const newCode = () => `code_${String(++made).padStart(6, "0")}`;

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
      const owners = await run<{ order_id: string; owner: string }>(
        "select order_id, account_id || ' ' || family as owner from payment_deposits where order_id = any($1)",
        [[own.orderId, other.orderId]],
      );
      for (const { order_id, owner } of owners)
        expect(owner).toBe(`${(order_id === own.orderId ? own : other).accountId} v1`);
      for (const [externalId, one] of stored) {
        expect(found.get(externalId)).toMatchObject({
          orderId: (one.needed < 0 ? other : own).orderId,
          ...{ atoms: String(one.atoms), asset: "BTC", network: "bitcoin" },
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
    { numRuns: 35 },
  );
});

const refundState = fc.constantFrom(
  ...(["asked", "refused", "refunding", "cancelled", "completed"] as const),
);
const which = fc.constantFrom(0, 0, 0, 1);
const steps = fc.array(
  fc.oneof(
    fc.record({
      do: fc.constant("grant" as const),
      which,
      target: fc.bigInt({ min: 0n, max: 6n }),
    }),
    fc.record({
      do: fc.constant("refund" as const),
      which,
      micro: fc.bigInt({ min: 0n, max: 3n }),
      takes: fc.constantFrom(true, true, false),
    }),
    fc.record({
      do: fc.constant("move" as const),
      which,
      from: fc.constantFrom(...(["asked", "asked", "refunding"] as const)),
      to: refundState,
    }),
    fc.record({ do: fc.constant("bonus" as const), which, needs: fc.boolean() }),
    fc.record({ do: fc.constant("post" as const), which }),
  ),
  { minLength: 4, maxLength: 16, size: "max" },
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
            ...{ state: "asked", reason: "the reason", madeBy: "person:1", bonusMicro: 0n },
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
          const codeId = newCode();
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
        const idempotencyKey = accountId.slice(4);
        const byKey = await postgres.run(sql.findOrderByKey, { accountId, idempotencyKey });
        expect(byKey).toEqual({ orderId });
        for (const found of await postgres.run(sql.readOrders, { orderIds: [orderId] }))
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
        for (const refund of refunds)
          expect(refund).toMatchObject({ reason: "the reason", madeBy: "person:1" });
        expect(refunds.map(({ n, state: name, endedAt }) => [n, name, endedAt])).toEqual(
          one.refunds.map((refund, at) => [
            at + 1,
            refund.state,
            ["refused", "completed", "cancelled"].includes(refund.state) ? now : null,
          ]),
        );
      }
    }),
    { numRuns: 70 },
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
    grant: fc.constantFrom(null, 1n, -1n, 0n),
    refund: fc.constantFrom(null, "completed", "refused"),
  }),
  { maxLength: 5 },
);

test("the orders of an account are counted by state, age and kind, and listed by page", async () => {
  await fc.assert(
    fc.asyncProperty(anyOrders, async (facts) => {
      const ids = [`acc_x${++made}`, `acc_y${made}`];
      const network = `net_${made}`;
      const orders: ((typeof facts)[number] & { orderId: string; accountId: string })[] = [];
      for (const one of facts) {
        const accountId = ids[one.isOther ? 1 : 0] ?? "";
        const { orderId } = await newOrder({
          ...{ account_id: accountId, kind: one.kind, state: one.state, network },
          ...{ quoted_until: after(one.quotedMs), created_at: after(one.createdMs) },
          ...{ attention: one.attention, ...(one.isOpened ? {} : { external_id: null }) },
        });
        if (one.grant !== null)
          await insert("payment_grants", {
            ...{
              order_id: orderId,
              n: 1,
              micro: one.grant,
              bonus_micro: one.grant === 0n ? -1 : 0,
            },
          });
        if (one.refund !== null)
          await insert("payment_refunds", {
            ...{ order_id: orderId, n: 1, usd_micro: 1, micro: 3, state: one.refund },
            ...{ reason: "", made_by: "" },
          });
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
              const any = { states: null, processor: null, asset: null, to: null };
              const page: sql.FindOrdersRow[] = await postgres.run(sql.findOrders, {
                ...{ ...any, accountId, needsAttention, from: new Date(0), leastUsdMicro: 0n },
                ...{ first: "", last: "p", after: last, rows },
              });
              const orderIds = page.map(({ orderId }) => orderId);
              const read = await postgres.run(sql.readOrders, { orderIds });
              expect(read).toHaveLength(page.length);
              for (const { orderId, grantedMicro, takenBackMicro } of read) {
                const one = own.find((order) => order.orderId === orderId);
                const taken = one?.refund === "completed" ? 3n : 0n;
                expect([grantedMicro, takenBackMicro]).toEqual([one?.grant ?? 0n, taken]);
              }
              listed.push(...orderIds);
              last = listed.at(-1) ?? null;
              if (page.length < rows) break;
            }
            const expected = own
              .filter(({ isOpened, attention }) => isOpened && (!needsAttention || attention))
              .map(({ orderId }) => orderId)
              .sort();
            expect(listed).toEqual(expected.toReversed());
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
      for (const { orderId } of waiting.slice(0, 1))
        await insert("payment_decisions", {
          ...{ decision_id: `dec_${orderId}`, order_id: orderId, kind: "close", facts: [] },
          ...{ reason: "", decided_by: "" },
        });
      const inOrder = waiting.map(({ orderId }) => orderId).sort();
      const attention = async (last: string, rows: number) =>
        (await postgres.run(sql.listAttention, { after: last, rows })).filter(({ orderId }) =>
          orders.some((one) => one.orderId === orderId),
        );
      expect(await attention("", 10_000)).toEqual(
        inOrder.map((orderId, index) => ({
          ...{ orderId, decisions: index === 0 ? 1 : 0 },
          accountId: waiting.find((one) => one.orderId === orderId)?.accountId,
        })),
      );
      const next = await attention(inOrder[0] ?? "", 1);
      expect(next.map(({ orderId }) => orderId)).toEqual(
        inOrder.length === 0 ? [] : inOrder.slice(1, 2),
      );
      const all = await postgres.run(sql.countWaiting, { rows: 10_000 });
      expect(all.filter(({ accountId }) => ids.includes(accountId))).toEqual(counted.toReversed());
      expect(await postgres.run(sql.countWaiting, { rows: 1 })).toEqual(all.slice(0, 1));
      const asked = { processor: "p", chain: network, asset: "BTC" };
      const awaited = await postgres.run(sql.isAwaited, asked);
      const others = await postgres.run(sql.isAwaited, { ...asked, processor: "q" });
      expect(others.order).toBe(false);
      expect(awaited.order).toBe(
        orders.some(
          (one) =>
            one.isOpened && ["open", "seen"].includes(one.state) && one.quotedMs > -15 * minute,
        ),
      );
    }),
    { numRuns: 35 },
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
    { numRuns: 50 },
  );
});

const anyOfMoment = fc.constantFrom(null, -1, 0, 1);

test("looks go to due orders within free slots: webhooks first, and nobody's orders alone", async () => {
  const anyDue = fc.record({
    account: fc.nat(2),
    processor: fc.constantFrom("w", "w", "w", "w", "x"),
    nextMs: fc.constantFrom(null, -2, -1, 0, 0, 0, 1),
    leaseMs: fc.constantFrom(null, null, null, -1, 0, 1),
    hookMs: fc.constantFrom(null, null, -3, -2),
    pageMs: anyOfMoment,
    isOpening: fc.boolean(),
  });
  const anySlot = fc.record({
    usedMs: fc.constantFrom(...[-1, 0, 1].flatMap((ms) => [ms - second, ms - 2 * second])),
    account: fc.constantFrom(null, 0, 1),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyDue, { maxLength: 6, size: "max" }),
      fc.array(anySlot, { minLength: 4, maxLength: 4 }),
      async (facts, slots) => {
        await run("update payment_orders set next_look_at = null where next_look_at is not null");
        await run("delete from payment_look_slots");
        for (const [index, { usedMs, account }] of slots.entries())
          for (const [processor, look] of [
            ["w", account],
            ["x", 2],
          ] as const)
            await insert("payment_look_slots", {
              ...{ processor, slot: index + 1 },
              used_at: after(processor === "w" ? usedMs : -second),
              account_id: look === null ? null : `due_${look}`,
            });
        const orders: ((typeof facts)[number] & { orderId: string; dueMs: number })[] = [];
        for (const [index, one] of facts.entries()) {
          const at = one.nextMs === null ? null : after(one.nextMs);
          const { orderId } = await newOrder({
            ...{ account_id: `due_${one.account}`, processor: one.processor, next_look_at: at },
            lease_until: one.leaseMs === null ? null : after(one.leaseMs),
            hook_at: one.hookMs === null ? null : after(one.hookMs),
            page_open_until: one.pageMs === null ? null : after(one.pageMs),
          });
          // No two are due at the same time.
          const text =
            "update payment_orders set next_look_at = next_look_at - $2 * interval '1 millisecond' where order_id = $1";
          await run(text, [orderId, index]);
          orders.push({ ...one, orderId, dueMs: (one.nextMs ?? 9) - index });
        }
        const most = 3;
        const open = slots.slice(0, most);
        const isRecent = ({ account }: { account: number }) =>
          slots.some((slot) => slot.account === account && slot.usedMs > -2 * second);
        const rank = (one: (typeof orders)[number]) => [
          Number(isRecent(one)),
          one.hookMs ?? 9,
          one.pageMs !== null && one.pageMs > 0 ? 0 : 1,
          one.dueMs,
        ];
        const due = orders
          .filter(
            (one) =>
              one.processor === "w" &&
              one.nextMs !== null &&
              one.dueMs <= 0 &&
              (one.leaseMs === null || one.leaseMs < 0),
          )
          .toSorted((one, other) => {
            const [own, others] = [rank(one), rank(other)];
            const at = own.findIndex((value, index) => value !== others[index]);
            return at < 0 ? 0 : (own[at] ?? 0) - (others[at] ?? 0);
          })
          .slice(0, most);
        const has = await postgres.run(sql.hasWork, { processors: ["w"], withUnposted: false });
        expect(has.hasWork).toBe(due.length > 0);
        const free = open.flatMap(({ usedMs }, index) => (usedMs <= -second ? [index + 1] : []));
        // The highest slot is for webhooks.
        const isKept = due.every(({ hookMs }) => hookMs === null) && free.includes(most);
        const used = free
          .toReversed()
          .slice(isKept ? 1 : 0)
          .slice(0, due.length);
        const taken = await postgres.run(sql.takeWork, {
          ...{ processors: ["w"], slots: most, leaseMs: 5_000, withUnposted: false },
        });
        const chosen = due.slice(0, used.length);
        expect(taken.map(({ orderId }) => orderId).sort()).toEqual(
          chosen.map(({ orderId }) => orderId).sort(),
        );
        for (const row of taken) {
          const one = chosen.find(({ orderId }) => orderId === row.orderId);
          expect([row.work, row.processor, row.hook === ""]).toEqual([
            ...["look", "w", one?.hookMs === null],
          ]);
        }
        const leased = await run<{ id: string }>(
          "select order_id as id from payment_orders where lease_until = $1 order by 1",
          [after(5_000)],
        );
        expect(leased.map(({ id }) => id)).toEqual(chosen.map(({ orderId }) => orderId).sort());
        await run("update payment_orders set lease_until = null where lease_until is not null");
        const rows = await run<{ slot: number; account_id: string | null }>(
          `select slot, account_id from payment_look_slots
           where used_at = $1 and processor = 'w' order by slot desc`,
          [now],
        );
        const others = "select from payment_look_slots where processor = 'x' and used_at <> $1";
        expect(await run(others, [after(-second)])).toEqual([]);
        expect(rows).toEqual(
          used.map((slot, index) => ({ slot, account_id: `due_${chosen[index]?.account}` })),
        );
      },
    ),
    { numRuns: 35 },
  );
});

test("what has no transfer yet is work as well, where that is asked for", async () => {
  const open = [];
  for (const [table, columns] of [
    ["payment_grants", { micro: 1 }],
    ["payment_grants", { micro: 1, transfer_id: "tra_1" }],
    ["payment_refunds", { state: "asked" }],
    ["payment_refunds", { state: "cancelling" }],
    ["payment_refunds", { state: "refunding" }],
    ["promotion_uses", {}],
    ["promotion_uses", { transfer_id: "tra_1" }],
  ] as const) {
    await run("update payment_grants set transfer_id = 'posted' where transfer_id is null");
    await run("update payment_refunds set state = 'completed'");
    await run("update promotion_uses set transfer_id = 'posted' where transfer_id is null");
    const { orderId } = await newOrder();
    const codeId = newCode();
    await insert("promotions", {
      ...{ code_id: codeId, code_sha256: Buffer.from(codeId), name: "", family: "v1" },
      ...{ bonus_micro: 10n, created_by: "" },
    });
    await insert(table, {
      ...(table === "promotion_uses"
        ? { code_id: codeId, account_id: "acc_1", used_at: now }
        : { order_id: orderId, n: 1 }),
      ...(table === "payment_refunds" && { usd_micro: 1, micro: 1, reason: "", made_by: "" }),
      ...columns,
    });
    const asked = { processors: ["none"], withUnposted: true };
    const has = await postgres.run(sql.hasWork, asked);
    const none = { ...asked, withUnposted: false, slots: 1, leaseMs: 1 };
    expect((await postgres.run(sql.hasWork, none)).hasWork).toBe(false);
    expect(await postgres.run(sql.takeWork, none)).toEqual([]);
    const work = await postgres.run(sql.takeWork, { ...none, withUnposted: true });
    expect(work.map((one) => [one.work, one.orderId])).toEqual(
      has.hasWork ? [table === "promotion_uses" ? ["bonus", codeId] : ["post", orderId]] : [],
    );
    open.push(has.hasWork);
  }
  expect(open).toEqual([true, false, true, true, false, true, false]);
});

test("an order is opened by one node, once, and its page and webhooks bring its look forward", async () => {
  const [{ orderId, accountId }, other] = [
    await newOrder({ external_id: null, next_look_at: null }),
    await newOrder({ next_look_at: null }),
  ];
  const read = async (columns: string, id = orderId) =>
    (await run(`select ${columns} from payment_orders where order_id = $1`, [id]))[0];
  const set = (columns: string, values: readonly unknown[]) =>
    run(`update payment_orders set ${columns} where order_id = $1`, [orderId, ...values]);
  const untouched = await read("*", other.orderId);
  const lease = () => postgres.run(sql.leaseOpening, { orderId, leaseMs: 100 });
  expect([await lease(), await lease()]).toEqual([1, 0]);
  expect(await read("lease_until")).toEqual({ lease_until: after(100) });
  for (const [ms, taken] of [
    [0, 0],
    [-1, 1],
  ] as const) {
    await set("lease_until = $2", [after(ms)]);
    expect(await lease()).toBe(taken);
  }
  expect(await postgres.run(sql.failOpening, { orderId })).toBe(1);
  expect(await read("lease_until, quoted_until, watched_until")).toEqual({
    ...{ lease_until: null, quoted_until: now, watched_until: now },
  });
  const quote = {
    ...{ orderId, externalId: "new", atoms: 7n, rate: 8n, payTo: "to", memo: "memo" },
    ...{ checkoutUrl: "url", quotedForMs: 10, watchedForMs: 20, firstLookMs: 5 },
  };
  await lease();
  expect([
    await postgres.run(sql.putQuote, quote),
    await postgres.run(sql.putQuote, quote),
  ]).toEqual([1, 0]);
  const opened = {
    ...{ external_id: "new", quoted_atoms: "7", rate: 8n, pay_to: "to", memo: "memo" },
    ...{ checkout_url: "url", quoted_until: after(10), watched_until: after(20) },
    ...{ next_look_at: after(5), lease_until: null, version: 2n },
  };
  const columns = Object.keys(opened).join(", ").replace("quoted_atoms", "quoted_atoms::text");
  expect(await read(columns)).toEqual(opened);
  expect([await lease(), await postgres.run(sql.failOpening, { orderId })]).toEqual([0, 0]);
  expect(await read(columns)).toEqual(opened);

  const page = { orderId, openMs: 30, paceMs: 4 };
  for (const [lookedMs, nextMs, failed, expected] of [
    [-10, 5, 0, 0],
    [-2, 5, 0, 2],
    [-2, 1, 0, 1],
    [-2, 5, 1, undefined],
    [-2, null, 0, undefined],
  ] as const) {
    await set("looked_at = $2, next_look_at = $3, failed_looks = $4, page_open_until = null", [
      ...[after(lookedMs), nextMs === null ? null : after(nextMs), failed],
    ]);
    expect(await postgres.run(sql.openPage, page)).toBe(expected === undefined ? 0 : 1);
    expect(await read("next_look_at, page_open_until")).toEqual(
      expected === undefined
        ? { next_look_at: nextMs === null ? null : after(nextMs), page_open_until: null }
        : { next_look_at: after(expected), page_open_until: after(30) },
    );
  }

  const [elsewhere, hook] = [
    await newOrder({ processor: "q", external_id: "new", next_look_at: null }),
    { processor: "p", externalId: "new" },
  ];
  for (const asked of [
    { ...hook, processor: "s" },
    { ...hook, externalId: "other" },
  ])
    expect(await postgres.run(sql.hookOrder, asked)).toBe(0);
  expect(await postgres.run(sql.hookOrder, hook)).toBe(1);
  expect(await read("hook_at, next_look_at")).toEqual({ hook_at: now, next_look_at: now });
  const delivery = { ...hook, deliveryKey: "key", bodySha256: Buffer.from("x"), depositId: "d2" };
  for (const [nextMs, expected] of [
    [5, 0],
    [-5, -5],
  ] as const) {
    await set("hook_at = null, next_look_at = $2", [after(nextMs)]);
    const deliveryKey = `key${nextMs}`;
    const receive = () => postgres.run(sql.receiveHook, { ...delivery, deliveryKey });
    expect([await receive(), await receive()]).toEqual([1, 0]);
    expect(await read("hook_at, next_look_at")).toEqual({
      ...{ hook_at: now, next_look_at: after(expected) },
    });
  }
  expect(await read("hook_at", elsewhere.orderId)).toEqual({ hook_at: null });
  for (const more of [{ externalId: "new2" }, { processor: "q" }, { depositId: "" }])
    await postgres.run(sql.receiveHook, {
      ...delivery,
      deliveryKey: JSON.stringify(more),
      ...more,
    });
  expect(await postgres.run(sql.listNamed, hook)).toEqual([{ depositId: "d2" }]);
  const stranger = { ...delivery, processor: "r", externalId: "new", deliveryKey: "k" };
  await postgres.run(sql.receiveHook, { ...stranger, depositId: "d3" });
  await postgres.run(sql.receiveHook, {
    ...delivery,
    externalId: "x",
    depositId: "d4",
    deliveryKey: "l",
  });
  expect(await postgres.run(sql.listNamed, hook)).toEqual([{ depositId: "d2" }]);
  await postgres.run(sql.ensureSlots, { processor: "slots", slots: 2 });
  const slots = "select slot, used_at from payment_look_slots where processor = 'slots' order by 1";
  expect(await run(slots)).toEqual([1, 2].map((slot) => ({ slot, used_at: after(-hour) })));
  await run("update payment_hooks set received_at = $1", [after(-90 * 24 * hour)]);
  const kept =
    "update payment_hooks set received_at = received_at - interval '1 millisecond' where delivery_key = 'key5'";
  await run(kept);
  expect(await postgres.run(sql.removeHooks)).toBe(1);

  expect(await postgres.run(sql.cancelOrder, { orderId })).toBe(1);
  expect(await read("cancelled_at")).toEqual({ cancelled_at: now });
  for (const watchedMs of [24 * hour - 1, 24 * hour + 1]) {
    await set("watched_until = $2", [after(watchedMs)]);
    await postgres.run(sql.reopenOrder, { orderId, quotedForMs: 40 });
    expect(await read("cancelled_at, quoted_until, watched_until")).toEqual({
      ...{ cancelled_at: null, quoted_until: after(40) },
      watched_until: after(Math.max(24 * hour, watchedMs)),
    });
  }
  await set("handled = $2", [["b"]]);
  await postgres.run(sql.handleFacts, { orderId, facts: ["c", "a", "b"] });
  expect(await read("handled")).toEqual({ handled: ["a", "b", "c"] });
  for (const [id, of] of [
    ["1", orderId],
    ["2", orderId],
    ["3", other.orderId],
  ] as const) {
    const decision = {
      ...{ decisionId: `dec_${id}${of}`, orderId: of, kind: "close" as const, reason: "why" },
      ...{ facts: [`f${id}`, "c"], depositIds: [`dep${id}`], micros: [BigInt(id)] },
      ...{ decidedBy: "person:1", approvedBy: "person:2" },
    };
    await postgres.run(sql.insertDecision, decision);
    const { decisionId } = decision;
    expect(await postgres.run(sql.findDecision, { decisionId })).toMatchObject(decision);
  }
  await postgres.run(sql.restoreFacts, { orderId });
  expect(await read("handled")).toEqual({ handled: ["c", "f1", "f2"] });
  await insert("payment_refunds", {
    ...{ order_id: orderId, n: 1, usd_micro: 0, external_id: "dep1", micro: 0, state: "asked" },
    ...{ reason: "", made_by: "" },
  });
  const decided = async () =>
    (await postgres.run(sql.listDecided, { orderId }))
      .map(({ depositId, micro }) => `${depositId} ${micro}`)
      .sort();
  expect(await decided()).toEqual(["dep1 0", "dep1 1", "dep2 2"]);
  for (const state of ["refused", "cancelled"]) {
    await run("update payment_refunds set state = $2 where order_id = $1", [orderId, state]);
    expect(await decided()).toEqual(["dep1 1", "dep2 2"]);
  }
  for (const number of ["R-1", "R-2"])
    await postgres.run(sql.setReceiptNumber, { orderId, number });
  expect(await read("receipt_number")).toEqual({ receipt_number: "R-1" });
  expect(await read("*", other.orderId)).toEqual(untouched);
  expect(await postgres.run(sql.readVersions, { orderIds: [orderId] })).toEqual([
    { orderId, version: 2n },
  ]);
  expect((await postgres.run(sql.lockOrder, { orderId }))?.orderId).toBe(orderId);
  const found = await postgres.run(sql.findOrderByKey, { accountId, idempotencyKey: "none" });
  expect(found).toBeUndefined();
});

test("an order is stored as it was made, and one for what arrived without it once", async () => {
  const texts = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, `the ${name}`]));
  const shared = {
    ...{ family: "v1" as const, usdMicro: 6_000_000n, decimals: 8 },
    ...texts(["idempotencyKey", "processor", "method", "asset", "network", "createdBy"]),
    ...texts(["sellerId", "sellerName", "sellerAddress", "sellerTaxId"]),
    ...texts(["buyerName", "buyerAddress", "buyerTaxId"]),
  } as Omit<Parameters<typeof sql.insertOrder.with>[0], "orderId" | "accountId">;
  const expected = (more: Columns) => ({
    ...Object.fromEntries(
      Object.entries(shared).map(([name, value]) => [
        name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        value,
      ]),
    ),
    ...more,
  });
  const read = async (orderId: string) =>
    (await run("select * from payment_orders where order_id = $1", [orderId]))[0];
  const ids = { orderId: "ord_own", accountId: "acc_own" };
  await postgres.run(sql.insertOrder, { ...shared, ...ids });
  expect(await read("ord_own")).toMatchObject(
    expected({
      ...{ account_id: "acc_own", kind: "pack", external_id: null, next_look_at: null },
      ...{ quoted_until: after(minute), watched_until: after(minute) },
    }),
  );
  const arrived = {
    ...{ ...shared, orderId: "ord_direct", accountId: "acc_direct", externalId: "the ext" },
    ...{ atoms: 7n, rate: 8n, payTo: "the address", quotedUntil: after(5), watchedForMs: 60 },
  };
  expect([
    await postgres.run(sql.insertDirect, arrived),
    await postgres.run(sql.insertDirect, { ...arrived, orderId: "ord_again", externalId: "e" }),
  ]).toEqual([1, 0]);
  expect(await read("ord_direct")).toMatchObject(
    expected({
      ...{ account_id: "acc_direct", kind: "direct", external_id: "the ext", rate: 8n },
      ...{ pay_to: "the address", quoted_until: after(5), watched_until: after(60) },
      ...{ next_look_at: now, quoted_atoms: "7" },
    }),
  );
  await postgres.run(sql.cancelOrder, { orderId: "ord_own" });
  expect(await read("ord_direct")).toMatchObject({ cancelled_at: null });
});
