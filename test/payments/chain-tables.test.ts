// What the statements of chains find and change, beside payments of other chains, addresses and
// states, against a simple model. The time of the database stands still.

import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import * as sql from "../../gen/sql/payments.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { stopNow } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const timeOf = (ms: number | null) => (ms === null ? null : after(ms));
const [second, minute, day] = [1_000, 60_000, 86_400_000];
const near = (ms: number) => [ms - 1, ms, ms + 1];

let database: Awaited<ReturnType<typeof freshDatabase>>;
let postgres: Postgres;
beforeAll(async () => {
  database = await freshDatabase();
  await stopNow(database, now);
  postgres = connectPostgres(database.url);
});
beforeEach(clear);
afterAll(async () => {
  await postgres.close();
  await database.drop();
});

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

type Columns = Readonly<Record<string, unknown>>;
async function insert(table: string, columns: Columns): Promise<void> {
  const names = Object.keys(columns);
  await run(
    `insert into ${table} (${names.map((name) => `"${name}"`).join(", ")})
     values (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
    Object.values(columns),
  );
}

/** Three addresses: two of one account, for its two pools, and one of another account. */
const addresses = ["0xa", "0xb", "bc1c"] as const;
const owners = [
  { accountId: "acc_1", family: "v1" },
  { accountId: "acc_1", family: "v2" },
  { accountId: "acc_2", family: "v1" },
] as const;

async function clear(): Promise<void> {
  for (const table of [
    ...["sweep_payments", "sweeps", "address_dust", "address_balances", "chain_blocks", "chains"],
    ...["payment_transactions", "chain_payments", "payment_orders", "deposit_addresses"],
    "deposit_keys",
  ])
    await run(`delete from ${table}`);
  for (const [index, { accountId, family }] of owners.entries())
    await insert("deposit_addresses", {
      ...{ key_id: "key", index, address: addresses[index], account_id: accountId, family },
      created_at: after(index),
    });
}

const chain = { processor: "p", chain: "c" } as const;
const chains = [chain, { processor: "p", chain: "d" }, { processor: "q", chain: "c" }] as const;
const anyChain = fc.constantFrom(0, 0, 0, 1, 2);

let made = 0;
async function newOrder(of: Columns = {}): Promise<string> {
  const number = String(++made).padStart(6, "0");
  await insert("payment_orders", {
    ...{ order_id: `ord_${number}`, account_id: "acc_1", family: "v1", idempotency_key: number },
    ...{ usd_micro: 5_000_000n, processor: "p", method: "p:btc", asset: "BTC", network: "c" },
    ...{ decimals: 8, external_id: `ext_${number}`, quoted_atoms: "5000", rate: 1n },
    ...{ created_by: "", created_at: now, quoted_until: now, watched_until: now, ...of },
  });
  return `ord_${number}`;
}

/** The orders that a statement asked to look at. */
async function hooked(): Promise<string[]> {
  const rows = await run<{ id: string }>(
    "select order_id as id from payment_orders where hook_at = $1 and next_look_at = $1 order by 1",
    [now],
  );
  await run("update payment_orders set hook_at = null, next_look_at = null");
  return rows.map(({ id }) => id);
}

type Facts = {
  readonly chain: number;
  readonly address: number;
  readonly asset: string;
  readonly state: string;
  readonly height: number | null;
  readonly needed: number;
  readonly spends: readonly string[];
  readonly missingMs: number | null;
  readonly seenMs: number;
  readonly order: number | null;
};
const anyPayments: fc.Arbitrary<Facts[]> = fc.array(
  fc.record({
    chain: anyChain,
    address: fc.nat(2),
    asset: fc.constantFrom("BTC", "USDT"),
    state: fc.constantFrom("seen", "seen", "settled", "lost", "lost"),
    height: fc.constantFrom(null, null, 9, 10, 11, 12),
    needed: fc.integer({ min: 1, max: 3 }),
    spends: fc.constantFrom<string[][]>([], ["out"]),
    missingMs: fc.constantFrom(null, ...near(-5_000)),
    seenMs: fc.constantFrom(0, 1, -1, ...near(-day)),
    order: fc.constantFrom(null, 0, 0, 1),
  }),
  { maxLength: 6, size: "max" },
);
type Payment = Facts & { readonly id: string };

async function writePayments(facts: readonly Facts[], orders: readonly string[] = []) {
  const payments = facts.map((one, index) => ({ ...one, id: `pay_${index}` }));
  await run("delete from payment_transactions");
  await run("delete from chain_payments");
  for (const one of payments)
    await insert("chain_payments", {
      ...{ ...chains[one.chain], external_id: one.id, address: addresses[one.address] },
      ...{ asset: one.asset, decimals: 1, atoms: "20", state: one.state, height: one.height },
      ...{ hash: one.height === null ? null : `h${one.height}`, needed: one.needed },
      ...{ spends: one.spends, missing_since: timeOf(one.missingMs) },
      ...{ first_seen_at: after(one.seenMs), order_id: orders[one.order ?? 9] ?? null },
    });
  return payments;
}

type Row = {
  readonly id: string;
  readonly state: string;
  readonly height: number | null;
  readonly hash: string | null;
  readonly needed: number;
  readonly missing: Date | null;
};
const rowOf = ({ id, state, height, needed, missingMs }: Payment): Row => ({
  ...{ id, state, height, needed, hash: height === null ? null : `h${height}` },
  missing: timeOf(missingMs),
});
const readRows = () =>
  run<Row>(
    `select external_id as id, state, height::integer, hash, needed, missing_since as missing
     from chain_payments order by 1`,
  );
const idsOf = (rows: readonly { readonly externalId: string }[]) =>
  rows.map(({ externalId }) => externalId).sort();
const isOnChain = (one: Payment) => one.chain === 0;
const isOfProcessor = (one: Payment) => one.chain < 2;

const outOfBlock = { height: null, hash: null };
/** Statements that change payments: which of them, and what becomes of those. */
const changes: readonly {
  readonly name: string;
  /** Ids of the changed payments, if it returns them. */
  readonly change: () => Promise<readonly { readonly externalId: string }[] | number>;
  readonly becomes: (one: Payment) => Partial<Row> | undefined;
}[] = [
  {
    name: "a chain leaves its blocks above a height",
    change: () => postgres.run(sql.orphanPayments, { ...chain, above: 10 }),
    becomes: (one) => {
      if (!isOnChain(one) || (one.height ?? 0) <= 10 || one.state === "lost") return undefined;
      const mayReturn = one.spends.length > 0;
      const missing = mayReturn ? now : null;
      return { ...outOfBlock, state: mayReturn ? "seen" : "lost", missing };
    },
  },
  {
    name: "blocks of some payments are left",
    change: () =>
      postgres.run(sql.loseWithBlocks, { processor: "p", externalIds: ["pay_0", "pay_1"] }),
    becomes: (one) =>
      isOfProcessor(one) && ["pay_0", "pay_1"].includes(one.id) && one.state !== "lost"
        ? { ...outOfBlock, state: "lost" }
        : undefined,
  },
  {
    name: "payments were replaced, or are gone for too long",
    change: () =>
      postgres.run(sql.losePayments, { ...chain, replaced: ["pay_0"], missingMs: 5_000 }),
    becomes: (one) =>
      isOnChain(one) &&
      one.state !== "lost" &&
      one.height === null &&
      (one.id === "pay_0" || (one.missingMs ?? 0) < -5_000)
        ? { state: "lost" }
        : undefined,
  },
  {
    name: "payments wait for a block, or are gone",
    change: () => postgres.run(sql.markMissing, { ...chain, waiting: ["pay_0"] }),
    becomes: (one) =>
      isOnChain(one) && one.state !== "lost" && one.height === null
        ? { missing: one.id === "pay_0" ? null : (timeOf(one.missingMs) ?? now) }
        : undefined,
  },
  {
    name: "Ether of left blocks is lost",
    change: () => postgres.run(sql.loseNative, { ...chain, native: "BTC", above: 10 }),
    becomes: (one) =>
      isOnChain(one) && one.asset === "BTC" && (one.height ?? 0) > 10
        ? { ...outOfBlock, state: "lost" }
        : undefined,
  },
  {
    name: "payments to an address need more blocks",
    change: () =>
      postgres.run(sql.raiseNeeded, {
        ...{ ...chain, addresses: ["0xa", "bc1c"], needed: [2, 3], rows: 9 },
      }),
    becomes: (one) => {
      const needed = [2, 0, 3][one.address] ?? 0;
      const isOpen = isOnChain(one) && one.state === "seen" && one.height !== null;
      return isOpen && one.needed < needed ? { needed } : undefined;
    },
  },
  {
    name: "payments with enough blocks settle",
    change: () =>
      postgres.run(sql.settlePayments, {
        ...{ ...chain, addresses: ["0xa", "bc1c"], needed: [2, 3], flooded: [true, false] },
        ...{ height: 12, rows: 9 },
      }),
    becomes: (one) => {
      const needed = [2, Number.POSITIVE_INFINITY, 3][one.address] ?? 0;
      const isOpen = isOnChain(one) && one.state === "seen" && one.height !== null;
      return isOpen && (one.height ?? 0) + needed <= 13 ? { state: "settled" } : undefined;
    },
  },
];

for (const { name, change, becomes } of changes)
  test(`${name}: no payment changes but those`, async () => {
    await fc.assert(
      fc.asyncProperty(anyPayments, async (facts) => {
        const payments = await writePayments(facts);
        const changed = payments.filter((one) => becomes(one) !== undefined);
        const result = await change();
        if (typeof result === "number") expect(result).toBe(changed.length);
        else expect(idsOf(result)).toEqual(changed.map(({ id }) => id));
        expect(await readRows()).toEqual(
          payments.map((one) => ({ ...rowOf(one), ...becomes(one) })),
        );
      }),
      { numRuns: 25 },
    );
  });

test("payments are found by chain, block, order and state", async () => {
  const orders = [await newOrder(), await newOrder({ kind: "direct" })];
  await fc.assert(
    fc.asyncProperty(anyPayments, async (facts) => {
      const payments = await writePayments(facts, orders);
      const own = payments.filter(isOnChain);
      const ids = (some: readonly Payment[]) => some.map(({ id }) => id);
      const open = own.filter(({ state }) => state !== "lost");
      const unmined = open.filter(({ height }) => height === null);
      expect(idsOf(await postgres.run(sql.listUnmined, chain))).toEqual(ids(unmined));
      const awaited = await postgres.run(sql.isAwaited, { ...chain, asset: "BTC" });
      expect(awaited.payment).toBe(unmined.length > 0);
      const inBlocks = await postgres.run(sql.listInBlocks, {
        ...{ ...chain, from: 10, to: 11, native: "BTC" },
      });
      expect(idsOf(inBlocks)).toEqual(
        ids(open.filter(({ height, asset }) => [10, 11].includes(height ?? 0) && asset !== "BTC")),
      );
      for (const [index, orderId] of orders.entries()) {
        const found = await postgres.run(sql.listChainPayments, { processor: "p", orderId });
        expect(found.map(({ externalId }) => externalId)).toEqual(
          ids(
            payments
              .filter((one) => isOfProcessor(one) && one.order === index)
              .toSorted((one, other) => one.seenMs - other.seenMs || (one.id < other.id ? -1 : 1)),
          ),
        );
      }
      const waiting = await postgres.run(sql.listWaiting, chain);
      expect(waiting).toHaveLength(
        open.filter(({ height, order }) => height !== null && order === null).length,
      );
      for (const row of waiting) {
        const one = open.find(({ id }) => id === row.externalId);
        expect(one?.height === null || one?.order !== null).toBe(false);
        const place = one?.address ?? 9;
        expect(row).toMatchObject({ ...owners[place], address: addresses[place] });
      }
      const place = (row: (typeof waiting)[number]) =>
        waiting.filter(
          (other) =>
            other.address === row.address &&
            (other.firstSeenAt < row.firstSeenAt ||
              (other.firstSeenAt.getTime() === row.firstSeenAt.getTime() &&
                other.externalId < row.externalId)),
        ).length;
      const keys = waiting.map((row) => [
        ...[place(row), row.firstSeenAt.getTime(), row.externalId],
      ]);
      expect(keys).toEqual(
        keys.toSorted((one, other) => {
          const at = one.findIndex((value, index) => value !== other[index]);
          return at < 0 ? 0 : (one[at] ?? 0) < (other[at] ?? 0) ? -1 : 1;
        }),
      );
      const sums = await postgres.run(sql.sumDays, { ...chain, accountIds: ["acc_1", "acc_3"] });
      const counted = open.filter(
        (one) => one.address < 2 && (one.state === "seen" || one.seenMs > -day),
      );
      // Two coins of an order with a rate; without one their value is unknown.
      const isKnown = counted.every(({ order }) => order === 0);
      const usdMicro = isKnown ? String(2 * counted.length) : null;
      expect(sums).toEqual(counted.length === 0 ? [] : [{ accountId: "acc_1", usdMicro }]);
    }),
    { numRuns: 60 },
  );
});

test("the addresses of payments with enough blocks are listed, the lowest block first", async () => {
  await fc.assert(
    fc.asyncProperty(anyPayments, fc.boolean(), async (facts, byBlocks) => {
      const payments = await writePayments(facts);
      for (const rows of [1, 9]) {
        const found = await postgres.run(sql.listSettling, {
          ...{ ...chain, byBlocks, height: 12, rows },
        });
        const ready = addresses.flatMap((address, index) => {
          const own = payments.filter(
            (one) => isOnChain(one) && one.address === index && one.state === "seen" && one.height,
          );
          const heights = own.map(({ height }) => height ?? 0);
          const settled = own.map((one) => (one.height ?? 0) + (byBlocks ? one.needed : 1));
          const isReady = Math.min(...settled) <= 13;
          return isReady ? [{ address, lowest: Math.min(...heights) }] : [];
        });
        const inOrder = ready.toSorted(
          (one, other) => one.lowest - other.lowest || (one.address < other.address ? -1 : 1),
        );
        expect(found).toEqual(
          inOrder.slice(0, rows).map(({ address }) => ({
            address,
            accountId: owners[addresses.indexOf(address)]?.accountId,
            isFlooded: false,
          })),
        );
      }
    }),
    { numRuns: 25 },
  );
});

test("of a flooded address twenty settle at once, after those of others, and its newest order is marked once", async () => {
  const orders = [await newOrder(), await newOrder()];
  const usual = { chain: 0, asset: "BTC", state: "seen", needed: 1, spends: [], missingMs: null };
  const flood = Array.from({ length: 101 }, (_, index) => ({
    ...{ ...usual, address: 0, height: 10, seenMs: 0, order: index % 2 },
  }));
  await writePayments([...flood, { ...usual, address: 2, height: 12, seenMs: 0, order: null }]);
  await run("update chain_payments set order_id = $1 where external_id < 'pay_5'", [orders[0]]);
  await run("update chain_payments set order_id = $1 where external_id >= 'pay_5'", [orders[1]]);
  const listed = await postgres.run(sql.listSettling, {
    ...{ ...chain, byBlocks: true, height: 12, rows: 9 },
  });
  expect(listed).toEqual([
    { address: "bc1c", accountId: "acc_2", isFlooded: false },
    { address: "0xa", accountId: "acc_1", isFlooded: true },
  ]);
  const settle = (rows: number) =>
    postgres.run(sql.settlePayments, {
      ...{ ...chain, addresses: ["0xa", "bc1c"], needed: [1, 1], flooded: [true, false] },
      ...{ height: 12, rows },
    });
  expect(idsOf(await settle(1))).toEqual(["pay_101"]);
  expect(await settle(50)).toHaveLength(20);
  const mark = () => postgres.run(sql.markFlooded, { ...chain, addresses: ["0xa"] });
  expect([await mark(), await mark()]).toEqual([1, 0]);
  expect(await hooked()).toEqual([orders[1]]);
  const faults = await run("select faults from payment_orders where order_id = $1", [orders[1]]);
  expect(faults).toEqual([{ faults: ["flooded"] }]);
});

test("only orders of payments in blocks of that chain are marked as flooded", async () => {
  await fc.assert(
    fc.asyncProperty(anyPayments, async (facts) => {
      await run("update payment_orders set faults = '{}'");
      const orders = [await newOrder(), await newOrder({ account_id: "acc_2" })];
      const payments = await writePayments(facts, orders);
      await postgres.run(sql.markFlooded, { ...chain, addresses: ["0xa"] });
      const newest = payments
        .filter((one) => isOnChain(one) && one.address === 0 && one.state === "seen" && one.height)
        .flatMap(({ order }) => orders[order ?? 9] ?? [])
        .sort()
        .at(-1);
      expect(await hooked()).toEqual(newest === undefined ? [] : [newest]);
    }),
    { numRuns: 25 },
  );
});

test("a payment gets the newest order of its coin whose quote covered its first sight", async () => {
  const anyOrder = fc.record({
    address: fc.nat(2),
    isOther: fc.constantFrom("no", "no", "no", "no", "chain", "asset", "kind", "unopened"),
    createdMs: fc.constantFrom(0, -1, ...near(2 * minute)),
    quotedMs: fc.constantFrom(-1, 0, 1, 5 * minute),
  });
  await fc.assert(
    fc.asyncProperty(anyPayments, fc.array(anyOrder, { maxLength: 4 }), async (facts, asked) => {
      await run("delete from chain_payments");
      await run("delete from payment_orders");
      const orders: (typeof anyOrder extends fc.Arbitrary<infer T> ? T & { id: string } : never)[] =
        [];
      for (const [index, one] of asked.entries()) {
        const { accountId, family } = owners[one.address] ?? owners[0];
        const id = await newOrder({
          ...{ account_id: accountId, family, created_at: after(one.createdMs + index / 1_000) },
          quoted_until: after(one.quotedMs),
          ...(one.isOther === "chain" && { network: "d" }),
          ...(one.isOther === "asset" && { asset: "USDT" }),
          ...(one.isOther === "kind" && { kind: "direct" }),
          ...(one.isOther === "unopened" && { external_id: null }),
        });
        orders.push({ ...one, id });
      }
      const earlier = await newOrder({ account_id: "acc_9" });
      const payments = await writePayments(facts, [earlier]);
      await postgres.run(sql.assignPayments, chain);
      const taken = new Set<string>();
      const expected = payments.map((one) => {
        const has = one.order === 0 ? earlier : null;
        if (!isOnChain(one) || has !== null || one.state === "lost") return has;
        const fitting = orders
          .filter(
            (order) =>
              order.address === one.address &&
              (order.isOther === "no"
                ? one.asset === "BTC"
                : order.isOther === "asset" && one.asset === "USDT") &&
              one.seenMs >= order.createdMs - 2 * minute &&
              one.seenMs <= order.quotedMs,
          )
          .toSorted((a, b) => a.createdMs - b.createdMs || (a.id < b.id ? -1 : 1));
        const order = fitting.at(-1);
        if (order) taken.add(order.id);
        return order?.id ?? null;
      });
      const found = await run<{ id: string | null }>(
        "select order_id as id from chain_payments order by external_id",
      );
      expect(found.map(({ id }) => id)).toEqual(expected);
      expect(await hooked()).toEqual([...taken].sort());
      // A payment that has an order keeps it.
      const put = { orderId: earlier, processor: "p", externalIds: ["pay_0", "pay_1"] };
      await postgres.run(sql.putPaymentOrder, put);
      const then = await run<{ id: string | null }>(
        "select order_id as id from chain_payments order by external_id",
      );
      expect(then.map(({ id }) => id)).toEqual(
        payments.map((one, index) =>
          expected[index] === null && index < 2 && isOfProcessor(one) ? earlier : expected[index],
        ),
      );
      await postgres.run(sql.hookChanged, { processor: "p", externalIds: ["pay_0", "pay_1"] });
      const changed = then.filter(
        (_, index) => index < 2 && payments.slice(index, index + 1).some(isOfProcessor),
      );
      expect(await hooked()).toEqual([...new Set(changed.flatMap(({ id }) => id ?? []))].sort());
    }),
    { numRuns: 80 },
  );
});

test("what a chain says of a payment is stored when it changes something", async () => {
  const report = fc.record({
    height: fc.constantFrom(null, 10, 11),
    seenMs: fc.integer({ min: -1, max: 1 }),
    isLost: fc.constantFrom(false, false, true),
    isMissing: fc.constantFrom(false, false, true),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(report, { maxLength: 6 }), async (reports) => {
      await run("delete from chain_payments");
      let stored: (Row & { seenMs: number; blockMs: number | null }) | undefined;
      for (const [index, { height, seenMs, isLost, isMissing }] of reports.entries()) {
        const hash = height === null ? null : `h${height}`;
        const changed = await postgres.run(sql.putChainPayment, {
          ...{ ...chain, externalId: "pay_0", hashes: ["t1", `t${index}`], address: "0xa" },
          ...{ asset: "BTC", decimals: 8, atoms: 5n, height, hash, blockAt: timeOf(height) },
          ...{ firstSeenAt: after(seenMs), marketRate: null, spends: [], needed: 1 },
          transactions: 2,
        });
        const before = stored;
        const isNews =
          !before ||
          before.state === "lost" ||
          before.missing !== null ||
          (height !== null && hash !== before.hash);
        expect(changed).toBe(isNews ? 1 : 0);
        if (isNews)
          stored = {
            ...{ id: "pay_0", needed: 1, missing: null },
            state: before && before.state !== "lost" ? before.state : "seen",
            height: height ?? before?.height ?? null,
            hash: hash ?? before?.hash ?? null,
            seenMs: Math.min(seenMs, before?.seenMs ?? seenMs),
            blockMs: height ?? before?.blockMs ?? null,
          };
        if (isLost || isMissing) {
          await run("update chain_payments set state = $1, missing_since = $2", [
            ...[isLost ? "lost" : "settled", isMissing ? now : null],
          ]);
          if (stored)
            stored = {
              ...stored,
              ...{ state: isLost ? "lost" : "settled", missing: isMissing ? now : null },
            };
        }
      }
      const rows = await run(
        `select external_id as id, state, height::integer, hash, needed, missing_since as missing,
           first_seen_at, block_at from chain_payments`,
      );
      const { seenMs = 0, blockMs = null, ...row } = stored ?? {};
      expect(rows).toEqual(
        stored ? [{ ...row, first_seen_at: after(seenMs), block_at: timeOf(blockMs) }] : [],
      );
      const transactions = await run(
        "select tx from payment_transactions where external_id = 'pay_0' order by 1",
      );
      const names = new Set(reports.flatMap((_, index) => ["t1", `t${index}`]));
      expect(transactions).toEqual([...names].sort().map((tx) => ({ tx })));
      await run("delete from payment_transactions");
    }),
    { numRuns: 35 },
  );
});

test("the first sight of transactions whose payments were lost is kept, by address", async () => {
  await fc.assert(
    fc.asyncProperty(anyPayments, async (facts) => {
      const payments = await writePayments(facts);
      for (const [index, one] of payments.entries())
        await insert("payment_transactions", {
          ...{ ...chains[one.chain], tx: `t${index % 2}`, external_id: one.id },
        });
      const found = await postgres.run(sql.findFirstSights, { ...chain, hashes: ["t0", "t9"] });
      const lost = payments.filter(
        (one, index) => isOnChain(one) && one.state === "lost" && index % 2 === 0,
      );
      expect(found.toSorted((one, other) => (one.address < other.address ? -1 : 1))).toEqual(
        addresses.flatMap((address, index) => {
          const own = lost.filter((one) => one.address === index).map(({ seenMs }) => seenMs);
          if (own.length === 0) return [];
          return [{ tx: "t0", address, firstSeenAt: after(Math.min(...own)) }];
        }),
      );
    }),
    { numRuns: 25 },
  );
});

const anyPieces = fc.uniqueArray(
  fc.record({
    chain: anyChain,
    address: fc.constantFrom(0, 0, 1),
    asset: fc.constantFrom("ETH", "ETH", "USDT"),
    height: fc.integer({ min: 8, max: 12 }),
    atoms: fc.integer({ min: 1, max: 9 }),
    taken: fc.constantFrom(null, null, 10, 12),
  }),
  {
    selector: (one) => `${one.chain} ${one.address} ${one.asset} ${one.height}`,
    ...{ minLength: 2, maxLength: 8, size: "max" },
  },
);

test("small pieces wait, are taken, return with their blocks, and old ones become one", async () => {
  type Piece = { key: string; height: number; atoms: number; taken: number | null };
  const readPieces = async (): Promise<Piece[]> => {
    const rows = await run<Piece>(
      `select processor || chain || address || asset as key, height::integer, atoms::integer,
         taken_height::integer as taken from address_dust`,
    );
    return rows.toSorted((one, other) => (textOf(one) < textOf(other) ? -1 : 1));
  };
  const textOf = ({ key, height, atoms, taken }: Piece) => `${key} ${height} ${atoms} ${taken}`;
  const own = "pc0xaETH";
  await fc.assert(
    fc.asyncProperty(anyPieces, fc.constantFrom(null, 10, 11, 12), async (facts, oldest) => {
      const pieces = facts.map((one): Piece => {
        const { processor, chain: name } = chains[one.chain] ?? chain;
        const { height, atoms, taken } = one;
        return { key: processor + name + addresses[one.address] + one.asset, height, atoms, taken };
      });
      const write = async () => {
        for (const table of ["address_dust", "chain_blocks"]) await run(`delete from ${table}`);
        for (const one of facts)
          await insert("address_dust", {
            ...{ ...chains[one.chain], address: addresses[one.address], asset: one.asset },
            ...{ height: one.height, decimals: 18, atoms: one.atoms },
            since: after(one.height),
            taken_height: one.taken,
          });
        if (oldest === null) return;
        for (const height of [oldest, oldest + 1])
          await insert("chain_blocks", { ...chain, height, hash: "" });
        for (const one of chains.slice(1))
          await insert("chain_blocks", { ...one, height: one.chain === "c" ? 99 : 1, hash: "" });
      };
      const expectPieces = async (expected: readonly Piece[]) =>
        expect((await readPieces()).map(textOf)).toEqual(expected.map(textOf).sort());

      await write();
      const sums = await postgres.run(sql.sumDust, { ...chain, addresses: ["0xa"], below: 11 });
      for (const asset of ["ETH", "USDT"]) {
        const waiting = pieces.filter(
          (one) => one.key === `pc0xa${asset}` && one.height < 11 && one.taken === null,
        );
        const sum = waiting.reduce((all, { atoms }) => all + atoms, 0);
        const found = sums.filter((row) => row.asset === asset);
        expect(found).toEqual(sum === 0 ? [] : [{ address: "0xa", asset, atoms: String(sum) }]);
      }
      await postgres.run(sql.takeDust, { ...chain, address: "0xa", asset: "ETH", height: 10 });
      await expectPieces(
        pieces.map((one) =>
          one.key === own && one.height <= 10 && one.taken === null ? { ...one, taken: 10 } : one,
        ),
      );

      await write();
      await postgres.run(sql.returnDust, { ...chain, above: 10 });
      await expectPieces(
        pieces.flatMap((one) => {
          if (!one.key.startsWith("pc")) return [one];
          if (one.height > 10) return [];
          return [{ ...one, taken: (one.taken ?? 0) > 10 ? null : one.taken }];
        }),
      );

      await write();
      const added = { addresses: ["0xa"], assets: ["ETH"], decimals: [18], sinces: [now] };
      await postgres.run(sql.putDust, { ...chain, ...added, heights: [20], atoms: [7n] });
      const isOld = (one: Piece) =>
        oldest !== null &&
        one.key === own &&
        one.height < oldest &&
        (one.taken === null || one.taken < oldest);
      const old = pieces.filter((one) => isOld(one) && one.taken === null);
      const [whole] = await run<{ since: Date }>(
        `select since from address_dust
         where taken_height is null and height = $1 and asset = 'ETH' and address = '0xa'
           and (processor, chain) = ('p', 'c')`,
        [Math.max(0, ...old.map(({ height }) => height))],
      );
      const oldestMs = Math.min(...old.map(({ height }) => height));
      expect(whole?.since).toEqual(old.length === 0 ? undefined : after(oldestMs));
      await expectPieces([
        ...pieces.filter((one) => !isOld(one)),
        { key: own, height: 20, atoms: 7, taken: null },
        ...(old.length === 0
          ? []
          : [
              {
                ...{ key: own, height: Math.max(...old.map(({ height }) => height)) },
                atoms: old.reduce((all, { atoms }) => all + atoms, 0),
                taken: null,
              },
            ]),
      ]);
    }),
    { numRuns: 60 },
  );
});

test("balances move from the block before, are kept or read again, and new addresses have one", async () => {
  const anyBalances = fc.uniqueArray(
    fc.record({ chain: anyChain, address: fc.nat(2), height: fc.integer({ min: 8, max: 12 }) }),
    { selector: (one) => `${one.chain} ${one.address}`, maxLength: 5 },
  );
  const anyAwaiting = fc.record({
    address: fc.nat(2),
    state: fc.constantFrom("open", "cancelled", "paid"),
    quotedMs: fc.constantFrom(...near(-120 * minute)),
    isOther: fc.constantFrom("no", "no", "chain", "asset"),
  });
  await fc.assert(
    fc.asyncProperty(
      anyBalances,
      fc.option(anyAwaiting, { nil: undefined }),
      anyPayments,
      async (facts, awaiting, payments) => {
        const write = async () => {
          for (const table of ["address_balances", "sweep_payments", "sweeps"])
            await run(`delete from ${table}`);
          for (const one of facts)
            await insert("address_balances", {
              ...{ ...chains[one.chain], address: addresses[one.address], atoms: 50, nonce: 1 },
              ...{ height: one.height, block_at: now },
            });
        };
        const read = () =>
          run<{ id: string; atoms: number; height: number }>(
            `select processor || chain || address as id, atoms::integer, height::integer
             from address_balances order by 1`,
          );
        const balances = facts
          .map((one) => {
            const { processor, chain: name } = chains[one.chain] ?? chain;
            const address = addresses[one.address] ?? "";
            return { ...one, address, id: processor + name + address, atoms: 50 };
          })
          .toSorted((one, other) => (one.id < other.id ? -1 : 1));
        type Balance = (typeof balances)[number];
        const expectRows = async (of: (one: Balance) => { atoms?: number; height?: number }) =>
          expect(await read()).toEqual(
            balances.map((one) => {
              const { id, atoms, height } = one;
              return { ...{ id, atoms, height }, ...of(one) };
            }),
          );
        const isOwn = (one: Balance) => one.chain === 0;

        await write();
        await postgres.run(sql.keepBalances, {
          ...{ ...chain, addresses: ["0xa", "bc1c"], height: 10, blockAt: now },
        });
        await expectRows((one) =>
          isOwn(one) && one.address !== "0xb" && one.height < 10 ? { height: 10 } : {},
        );

        await write();
        await postgres.run(sql.moveBalance, {
          ...{ ...chain, address: "0xa", from: 10, height: 11, atoms: 9n, nonce: 2, blockAt: now },
        });
        await expectRows((one) =>
          isOwn(one) && one.address === "0xa" && one.height === 10 ? { atoms: 9, height: 11 } : {},
        );

        await write();
        await postgres.run(sql.ensureBalances, { ...chain, height: 3 });
        const ensured = await read();
        const had = balances.filter(isOwn).map(({ address }) => address);
        expect(ensured.filter(({ height }) => height === 3).map(({ id }) => id)).toEqual(
          ["0xa", "0xb"]
            .filter((one) => !had.some((address) => address === one))
            .map((one) => `pc${one}`),
        );
        expect(ensured.filter(({ height }) => height !== 3)).toHaveLength(balances.length);

        await write();
        await run("delete from chain_payments");
        await run("delete from payment_orders");
        if (awaiting) {
          const { accountId, family } = owners[awaiting.address] ?? owners[0];
          await newOrder({
            ...{ account_id: accountId, family, state: awaiting.state },
            quoted_until: after(awaiting.quotedMs),
            network: awaiting.isOther === "chain" ? "d" : "c",
            asset: awaiting.isOther === "asset" ? "USDT" : "ETH",
          });
        }
        const isAwaited = ({ address }: Balance) =>
          awaiting !== undefined &&
          addresses[awaiting.address] === address &&
          awaiting.isOther === "no" &&
          awaiting.state !== "paid" &&
          awaiting.quotedMs > -120 * minute;
        for (const rows of [1, 9]) {
          const listed = await postgres.run(sql.listBalances, {
            ...{ ...chain, below: 11, native: "ETH", rows },
          });
          expect(listed.map(({ address }) => address)).toEqual(
            balances
              .filter((one) => isOwn(one) && one.height < 11)
              .toSorted(
                (one, other) =>
                  Number(isAwaited(other)) - Number(isAwaited(one)) ||
                  one.height - other.height ||
                  (one.address < other.address ? -1 : 1),
              )
              .slice(0, rows)
              .map(({ address }) => address),
          );
        }

        // Blocks are left: what they brought is taken off, once.
        const lost = await writePayments(payments);
        for (const [id, network, granted] of [
          ["own", "c", null],
          ["granted", "c", "person:1"],
          ["other", "d", null],
        ]) {
          await insert("sweeps", {
            ...{ sweep_id: id, processor: "p", network, addresses: ["0xb"], until: now },
            created_by: "",
          });
          for (const height of [10, 11])
            await insert("sweep_payments", {
              ...{ processor: "p", external_id: `${id}${height}`, sweep_id: id, address: "0xb" },
              ...{ asset: "BTC", decimals: 1, atoms: 3, height, hash: "", at: now },
              granted_by: granted,
            });
        }
        await postgres.run(sql.loseNative, { ...chain, native: "BTC", above: 10 });
        await expectRows((one) => {
          if (!isOwn(one) || one.height <= 10) return {};
          const gone = lost.filter(
            (payment) =>
              isOnChain(payment) &&
              payment.asset === "BTC" &&
              (payment.height ?? 0) > 10 &&
              addresses[payment.address] === one.address,
          );
          const swept = one.address === "0xb" ? 3 : 0;
          return { height: 10, atoms: Math.max(0, 50 - 20 * gone.length - swept) };
        });
        await postgres.run(sql.loseSweepPayments, { ...chain, above: 10 });
        const left = await run<{ id: string }>(
          "select external_id as id from sweep_payments order by 1",
        );
        expect(left.map(({ id }) => id)).toEqual(
          ["own10", "granted10", "granted11", "other10", "other11"].sort(),
        );
      },
    ),
    { numRuns: 40 },
  );
});

test("a chain is read by one node at a time, by chunks that fit", async () => {
  const start = { height: 7, hash: "h7", next_read_at: now };
  for (const one of chains) await insert("chains", { ...one, ...start });
  const lease = () => postgres.run(sql.leaseChain, { ...chain, leaseMs: 1_000 });
  const set = (columns: string, values: readonly unknown[] = []) =>
    run(`update chains set ${columns} where processor = 'p' and chain = 'c'`, values);
  const read = async () =>
    (await run("select * from chains where (processor, chain) = ('p', 'c')"))[0];
  await set("next_read_at = $1", [after(1)]);
  expect(await lease()).toBeUndefined();
  await set("next_read_at = $1", [now]);
  const leased = await lease();
  expect(leased).toMatchObject({ height: 7n, hash: "h7", chunkBlocks: 500 });
  expect(await read()).toMatchObject({ lease_until: after(1_000) });
  for (const ms of [0, 1]) {
    await set("lease_until = $1", [after(ms)]);
    expect(await lease()).toBeUndefined();
  }
  await set("lease_until = $1", [after(-1)]);
  const name = (await lease())?.lease ?? "";
  expect(await postgres.run(sql.lockChain, { ...chain, lease: "2020" })).toBeUndefined();
  expect(await postgres.run(sql.lockChain, { ...chain, lease: name })).toMatchObject({
    height: 7n,
  });

  // Three failures halve a chunk, and a block that fails alone is reported each third time.
  await set("chunk_blocks = 3");
  const fail = async () => {
    const of = { ...chain, nextMs: 50, lease: name };
    const failed = await postgres.run(sql.failReading, of);
    expect(await read()).toMatchObject({ lease_until: null, next_read_at: after(50) });
    expect(await postgres.run(sql.failReading, of)).toBeUndefined();
    await set("lease_until = $1::timestamptz", [name]);
    return failed?.unreadBlock;
  };
  const seen: unknown[] = [];
  for (let failed = 0; failed < 9; failed++)
    seen.push([
      await fail(),
      (
        await run<{ n: number }>(
          "select chunk_blocks as n from chains where (processor, chain) = ('p', 'c')",
        )
      )[0]?.n,
    ]);
  expect(seen).toEqual([
    ...[
      [null, 3],
      [null, 3],
      [null, 1],
    ],
    ...[
      [null, 1],
      [null, 1],
      [8n, 1],
    ],
    ...[
      [null, 1],
      [null, 1],
      [8n, 1],
    ],
  ]);
  await set("chunk_blocks = 1, failures = 0, unread_block = null");
  for (const unread of [null, null, 8n]) {
    await fail();
    expect(await read()).toMatchObject({ unread_block: unread });
  }
  const chunk = { ...chain, most: 5 };
  for (const blocks of [2, 4, 5, 5]) {
    await postgres.run(sql.endChunk, chunk);
    expect(await read()).toMatchObject({ chunk_blocks: blocks, failures: 0, unread_block: null });
  }
  for (const isWhole of [false, true]) {
    await set("lease_until = $1::timestamptz", [name]);
    const end = { ...chain, tip: 9, isWhole, nextMs: 70 };
    await postgres.run(sql.endReading, { ...end, lease: "2020" });
    expect(await read()).toMatchObject({ lease_until: new Date(name) });
    await postgres.run(sql.endReading, { ...end, lease: name });
    expect(await read()).toMatchObject({
      ...{ tip: 9n, lease_until: null, next_read_at: after(70), read_at: isWhole ? now : null },
    });
  }
  expect(await postgres.run(sql.findChain, chain)).toEqual({ height: 7n, tip: 9n, readAt: now });

  for (const one of chains)
    for (const height of [5, 6])
      await insert("chain_blocks", { ...one, height, hash: `old${height}` });
  const move = { ...chain, heights: [9, 8, 6], hashes: ["h9", "h8", "h6"] };
  // Those of before this move are counted.
  await postgres.run(sql.moveChain, { ...move, kept: 1 });
  const blocks = () =>
    postgres.run(sql.listBlocks, chain).then((rows) => rows.map(({ height }) => Number(height)));
  expect([await blocks(), (await postgres.run(sql.findChain, chain))?.height]).toEqual([
    ...[[9, 8, 6, 5], 9n],
  ]);
  await postgres.run(sql.moveChain, { ...chain, heights: [10], hashes: ["h10"], kept: 1 });
  expect(await blocks()).toEqual([10, 9, 8]);
  await postgres.run(sql.dropBlocks, { ...chain, above: 9 });
  expect(await blocks()).toEqual([9, 8]);
  const others = await run("select from chain_blocks where (processor, chain) <> ('p', 'c')");
  expect(others).toHaveLength(4);
  const untouched = await run(
    "select from chains where height = 7 and tip is null and hash = 'h7'",
  );
  expect(untouched).toHaveLength(2);

  await run("update chains set read_at = null, added_at = $1", [after(-2 * minute)]);
  await set("read_at = $1", [after(-2 * minute - 1)]);
  await postgres.run(sql.ensureChain, chain);
  const unread = await postgres.run(sql.listUnreadChains);
  expect(unread).toEqual([{ ...chain, since: after(-2 * minute - 1), block: null }]);
});

test("every account and pool has one address of each account key, which is found and counted", async () => {
  expect(await postgres.run(sql.countAddresses, { keyId: "k" })).toBeUndefined();
  const take = async () => (await postgres.run(sql.takeIndex, { keyId: "k" })).index;
  expect([await take(), await take()]).toEqual([0n, 1n]);
  await postgres.run(sql.takeIndex, { keyId: "other" });
  expect(await postgres.run(sql.countAddresses, { keyId: "k" })).toEqual({ addresses: 2n });
  const give = (
    index: number,
    address: string,
    owner: { accountId: string; family: "v1" | "v2" },
  ) => postgres.run(sql.insertAddress, { keyId: "k", index, address, ...owner });
  expect([
    await give(0, "0xd", owners[0]),
    await give(1, "0xe", owners[0]),
    await give(1, "bc1e", owners[2]),
  ]).toEqual([1, 0, 1]);
  const find = async (keyId: string, owner: (typeof owners)[number]) =>
    (await postgres.run(sql.findAddress, { keyId, ...owner }))?.address;
  expect([
    ...[await find("k", owners[0]), await find("k", owners[1]), await find("k", owners[2])],
    await find("key", owners[1]),
  ]).toEqual(["0xd", undefined, "bc1e", "0xb"]);
  const given = async (after: number, rows: number) =>
    (await postgres.run(sql.listGiven, { keyId: "k", after, rows })).map(({ address }) => address);
  expect([await given(-1, 1), await given(0, 9), await given(-1, 9)]).toEqual([
    ...[["0xd"], ["bc1e"], ["0xd", "bc1e"]],
  ]);
  const list = async (after: string, rows: number) =>
    (await postgres.run(sql.listAddresses, { after, rows })).map(({ address }) => address);
  expect([await list("", 2), await list("0xb", 9)]).toEqual([["0xa", "0xb"], ["0xd"]]);
  const own = await postgres.run(sql.ownAddresses, { addresses: ["0xb", "bc1c", "0xz"] });
  expect(own.map(({ address, accountId }) => `${address} ${accountId}`).sort()).toEqual([
    ...["0xb acc_1", "bc1c acc_2"],
  ]);
});

test("a sweep counts from fifteen seconds before it until its end, at its addresses alone", async () => {
  const anySweep = fc.record({
    isOther: fc.constantFrom("no", "no", "chain", "address"),
    beganMs: fc.constantFrom(...near(15 * second)),
    untilMs: fc.constantFrom(-1, 0, 1, minute),
    endedMs: fc.constantFrom(null, -1, 0, 1),
  });
  const anyOrder = fc.record({
    createdMs: fc.constantFrom(...near(600 * second)),
    quotedMs: fc.constantFrom(-1, 0, 1),
    isOther: fc.constantFrom("no", "no", "no", "chain", "asset", "unopened", "pool"),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(anySweep, { maxLength: 3 }),
      fc.array(anyOrder, { maxLength: 3 }),
      fc.constantFrom(null, -1, 0, 1),
      async (facts, asked, readMs) => {
        for (const table of ["chain_payments", "payment_orders", "sweeps", "address_balances"])
          await run(`delete from ${table}`);
        if (readMs !== null)
          for (const one of chains)
            await insert("address_balances", {
              ...{ ...one, address: "0xa", atoms: 0, nonce: 0, height: 1 },
              block_at: after(one === chain ? readMs : minute * 9),
            });
        const sweeps = facts.map((one, index) => ({ ...one, id: `swp_${index}` }));
        for (const one of sweeps)
          await insert("sweeps", {
            ...{ sweep_id: one.id, processor: "p", created_by: "" },
            network: one.isOther === "chain" ? "d" : "c",
            addresses: one.isOther === "address" ? ["0xb"] : ["0xa", "0xc"],
            ...{ began_at: after(one.beganMs), until: after(one.untilMs) },
            ended_at: timeOf(one.endedMs),
          });
        const endOf = (one: (typeof sweeps)[number]) => Math.min(one.untilMs, one.endedMs ?? 9e9);
        const fitting = sweeps.filter(
          (one) => one.isOther === "no" && one.beganMs - 15 * second <= 0 && endOf(one) >= 0,
        );
        const found = await postgres.run(sql.findSweep, {
          ...{ ...chain, address: "0xa", from: now, to: now },
        });
        expect(found?.sweepId).toBe(fitting.at(-1)?.id);
        const listed: { sweepId: string; isRead: boolean }[] = [];
        for (let before: string | null = null; ; ) {
          const [row]: { sweepId: string; isRead: boolean }[] = await postgres.run(sql.listSweeps, {
            ...{ sweepId: null, before, rows: 1 },
          });
          if (!row) break;
          listed.push(row);
          before = row.sweepId;
        }
        expect(listed.map(({ sweepId, isRead }) => [sweepId, isRead])).toEqual(
          sweeps.toReversed().map((one) => {
            const isOf = one.isOther === "no" && readMs !== null && readMs <= endOf(one);
            // Of another chain the balance is newer.
            return [one.id, endOf(one) < 0 && !isOf];
          }),
        );
        const one = await postgres.run(sql.listSweeps, {
          ...{ sweepId: "swp_1", before: null, rows: 9 },
        });
        expect(one.map(({ sweepId }) => sweepId)).toEqual(sweeps.length > 1 ? ["swp_1"] : []);
        const ended = await postgres.run(sql.endSweep, { sweepId: "swp_0" });
        expect(ended).toBe(sweeps[0]?.endedMs === null ? 1 : 0);

        const orders: string[] = [];
        for (const order of asked) {
          const id = await newOrder({
            ...{ created_at: after(order.createdMs), quoted_until: after(order.quotedMs) },
            asset: order.isOther === "asset" ? "USDT" : "ETH",
            network: order.isOther === "chain" ? "d" : "c",
            family: order.isOther === "pool" ? "v2" : "v1",
            ...(order.isOther === "unopened" && { external_id: null }),
          });
          const isMarked =
            order.isOther === "no" && order.createdMs <= 600 * second && order.quotedMs >= 0;
          if (isMarked) orders.push(id);
        }
        for (let marked = 0; marked < 2; marked++)
          await postgres.run(sql.markSwept, {
            ...{ ...chain, address: "0xa", native: "ETH", from: now, to: now },
          });
        expect(await hooked()).toEqual(orders);
        const faults = await run<{ id: string; faults: string[] }>(
          "select order_id as id, faults from payment_orders where faults <> '{}' order by 1",
        );
        expect(faults).toEqual(orders.map((id) => ({ id, faults: ["swept"] })));
      },
    ),
    { numRuns: 50 },
  );
});

test("what came during a sweep is listed, locked and granted once, by its sweep", async () => {
  const sweep = (sweepId: string, network: string) =>
    postgres.run(sql.insertSweep, {
      ...{ sweepId, processor: "p", network, addresses: ["0xa", "0xb"], until: after(9) },
      createdBy: "person:1",
    });
  expect([await sweep("swp_1", "c"), await sweep("swp_2", "d")]).toEqual([1, 1]);
  const [row] = await run("select * from sweeps where sweep_id = 'swp_1'");
  expect(row).toMatchObject({
    ...{ processor: "p", network: "c", addresses: ["0xa", "0xb"], until: after(9) },
    ...{ created_by: "person:1", ended_at: null },
  });
  const payment = (sweepId: string, externalId: string) => ({
    ...{ processor: "p", externalId, sweepId, address: "0xa", asset: "ETH", decimals: 18 },
    ...{ atoms: 7n, height: 5n, hash: "h5", at: after(externalId.length) },
  });
  const all = [payment("swp_1", "pay_1"), payment("swp_1", "pay_10"), payment("swp_2", "pay_2")];
  for (const one of all)
    expect([
      await postgres.run(sql.putSweepPayment, one),
      await postgres.run(sql.putSweepPayment, { ...one, sweepId: "swp_2" }),
    ]).toEqual([1, 0]);
  const listed = await postgres.run(sql.listSweepPayments, { sweepIds: ["swp_1"] });
  expect(listed).toMatchObject(
    all.slice(0, 2).map(({ processor: _, ...one }) => ({ ...one, atoms: "7", grantedBy: null })),
  );
  const find = (sweepId: string, externalId: string) =>
    postgres.run(sql.findSweepPayment, { sweepId, externalId });
  expect(await find("swp_1", "pay_1")).toMatchObject({
    ...{ sweepId: "swp_1", externalId: "pay_1", processor: "p", network: "c", address: "0xa" },
  });
  expect([await find("swp_1", "pay_2"), await find("swp_2", "pay_1")]).toEqual([
    ...[undefined, undefined],
  ]);
  const lock = async (sweepId: string, externalId: string) =>
    (await postgres.run(sql.lockSweepPayment, { sweepId, externalId }))?.externalId;
  const grant = (sweepId: string, externalId: string) =>
    postgres.run(sql.grantSweepPayment, { sweepId, externalId, grantedBy: "person:2" });
  expect([await lock("swp_2", "pay_1"), await lock("swp_1", "pay_1")]).toEqual([
    ...[undefined, "pay_1"],
  ]);
  expect([await grant("swp_2", "pay_1"), await grant("swp_1", "pay_1")]).toEqual([0, 1]);
  expect([await grant("swp_1", "pay_1"), await lock("swp_1", "pay_1")]).toEqual([0, undefined]);
  expect(await lock("swp_1", "pay_10")).toBe("pay_10");
  const granted = await run(
    "select external_id, granted_at from sweep_payments where granted_by = 'person:2'",
  );
  expect(granted).toEqual([{ external_id: "pay_1", granted_at: now }]);
});
