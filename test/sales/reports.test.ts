// The reports of sales, revenue, liabilities and bills: their sums, their bounds, and what they
// refuse.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  ListProviderBillsRequestSchema,
  QueryLiabilitiesRequestSchema,
  QueryRevenueRequestSchema,
  QuerySalesRequestSchema,
  RevenueGroup,
  SalesBucket,
  SalesGroup,
  SetProviderBillRequestSchema,
} from "../../gen/gateway/sales/v1/sales_pb.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { checkRequest } from "../../src/contract/validate.ts";
import { marginMicro } from "../../src/sales/reports.ts";
import { createSales } from "../../src/sales/sales.ts";
import { callBy } from "../support/calls.ts";
import { historyOfTest } from "../support/history.ts";
import { endingWith, log } from "../support/ledger.ts";
import {
  addAll,
  attemptAt,
  costsOf,
  fileWithCost,
  openRollup,
  register,
  sumDays,
} from "../support/sales.ts";
import { dayMs } from "../support/usage.ts";

const open = historyOfTest();

type Question = Exclude<MessageInitShape<typeof QuerySalesRequestSchema>, { $typeName: string }>;

async function fresh(cost = "cost: { input: 0.5, output: 2 }") {
  const world = await open();
  const file = fileWithCost(cost);
  const { postgres } = world.ledger;
  await register(postgres, file);
  const sales = createSales({ postgres, file, log });
  const call = callBy(environmentToken);
  const midnight = (daysAgo: number) =>
    timestampFromDate(new Date(world.today.getTime() - daysAgo * dayMs));
  const costVersion = costsOf(file)[0]?.costVersion ?? "";
  return {
    ...world,
    sales,
    call,
    midnight,
    costVersion,
    query: (question: Question) =>
      sales.querySales(create(QuerySalesRequestSchema, question), call),
    revenue: (
      question: Exclude<MessageInitShape<typeof QueryRevenueRequestSchema>, { $typeName: string }>,
    ) => sales.queryRevenue(create(QueryRevenueRequestSchema, question), call),
    liabilities: async (from: Timestamp, to: Timestamp) => {
      const request = create(QueryLiabilitiesRequestSchema, { startAt: from, endAt: to });
      return (await sales.queryLiabilities(request)).rows;
    },
  };
}

const sum = <T>(all: readonly T[], amount: (one: T) => bigint) =>
  all.reduce((total, one) => total + amount(one), 0n);

test("a margin is rounded down once, below zero too", () => {
  fc.assert(
    fc.property(fc.bigInt(0n, 10n ** 15n), fc.bigInt(0n, 10n ** 20n), (charged, cost) => {
      const margin = marginMicro(charged, cost);
      const exact = charged * 5_000n - cost;
      expect(margin * 1_000_000n <= exact && exact < (margin + 1n) * 1_000_000n).toBe(true);
    }),
  );
  expect(marginMicro(200n, 0n)).toBe(1n);
  expect(marginMicro(0n, 1n)).toBe(-1n);
});

test("rows of every grouping sum up to the totals, with cost and a negative margin", async () => {
  const world = await fresh("cost: { input: 5000, output: 20000 }");
  const payers = [await world.payer(10n ** 12n), await world.payer(10n ** 12n, { family: "v2" })];
  for (const [n, payer] of payers.entries())
    for (const daysAgo of [0, 1, 40, 41]) {
      const attempts = [attemptAt(daysAgo === 41 ? "" : world.costVersion, `vendor${n}`)];
      await world.chargeAt(
        payer,
        world.daysAgo(daysAgo),
        endingWith({ input: 3, output: 2 }, attempts),
      );
    }
  await addAll(world.ledger.postgres);
  const range = { startAt: world.midnight(60), endAt: world.midnight(-1) };
  const whole = await world.query(range);
  expect(whole.rows).toHaveLength(1);
  expect(whole.totals).toMatchObject({
    requests: 8n,
    usage: { input: 24n, output: 16n },
    chargedMicrocredits: 8n * 130n,
    costPicodollars: `${6n * (3n * 5_000_000_000n + 2n * 20_000_000_000n)}`,
    uncostedRequests: 2n,
    uncostedMicrocredits: 260n,
    marginMicrodollars: (780n * 5_000n) / 1_000_000n - 6n * 55_000n,
  });
  expect(timestampDate(whole.completeUntil ?? world.midnight(900)) > world.today).toBe(true);
  for (const bucket of [SalesBucket.DAY, SalesBucket.WEEK, SalesBucket.MONTH])
    for (const groupBy of [
      [],
      [SalesGroup.ACCOUNT],
      [SalesGroup.MODEL, SalesGroup.PROVIDER],
      [SalesGroup.FAMILY],
    ]) {
      const { rows, totals } = await world.query({ ...range, bucket, groupBy });
      expect(totals).toEqual(whole.totals);
      expect(sum(rows, (row) => row.chargedMicrocredits)).toBe(totals?.chargedMicrocredits);
      expect(sum(rows, (row) => BigInt(row.costPicodollars))).toBe(
        BigInt(totals?.costPicodollars ?? ""),
      );
      expect(sum(rows, (row) => row.requests)).toBe(8n);
    }
  const { rows } = await world.query({ ...range, groupBy: [SalesGroup.FAMILY] });
  expect(rows.map(({ family, requests }) => [family, requests])).toEqual([
    [Family.V1, 4n],
    [Family.V2, 4n],
  ]);
  const one = await world.query({
    ...range,
    ...{ accountIds: [payers[0]?.accountId ?? ""], providers: ["vendor0"], families: [Family.V1] },
  });
  expect(one.totals?.requests).toBe(4n);
  expect((await world.query({ ...range, models: ["other"] })).totals?.requests).toBe(0n);
});

test("gifts stand beside the sums, and the sums of a rebuild are no longer complete", async () => {
  const world = await fresh();
  const payer = await world.payer(10n ** 9n);
  for (const [kind, amount] of [
    ["bonus", 5_000_000n],
    ["adjustment", -2_000_000n],
  ] as const)
    await world.run(
      `insert into transfers (account_id, transfer_id, family, kind, amount, posted_after, actor,
         idempotency_key) values ($1, $2, 'v1', $2, $3, 0, 'test', $2)`,
      [payer.accountId, kind, amount],
    );
  await addAll(world.ledger.postgres);
  const range = { startAt: world.midnight(1), endAt: world.midnight(-1) };
  expect(await world.query(range)).toMatchObject({
    bonusMicrocredits: 1_005_000_000n,
    adjustmentMicrocredits: -2_000_000n,
    completeUntil: expect.anything(),
  });
  await openRollup(world.ledger.postgres)
    .rebuild(() => Promise.reject(new Error("killed")))
    .catch(() => undefined);
  await world.run("update sales_progress set is_emptying = true");
  expect((await world.query(range)).completeUntil).toBeUndefined();
});

test("13 months of an account without use have no rows, and totals of zero", async () => {
  const world = await fresh();
  const { accountId } = await world.payer(0n);
  const from = world.month(12);
  const range = {
    startAt: timestampFromDate(new Date(from)),
    endAt: timestampFromDate(new Date(world.month(-1))),
  };
  const groupBy = [SalesGroup.ACCOUNT, SalesGroup.MODEL, SalesGroup.PROVIDER, SalesGroup.FAMILY];
  const answer = await world.query({ ...range, accountIds: [accountId], groupBy });
  expect(answer).toMatchObject({ rows: [], nextPageToken: "" });
  expect(answer.totals).toMatchObject({
    requests: 0n,
    chargedMicrocredits: 0n,
    costPicodollars: "0",
    marginMicrodollars: 0n,
  });
  expect((await world.revenue(range)).totals).toMatchObject({ orders: 0n, netMicrodollars: 0n });
  const rows = await world.liabilities(range.startAt, range.endAt);
  expect(rows).toHaveLength(
    2 * Math.round((Date.parse(world.month(-1)) - Date.parse(from)) / dayMs),
  );
  expect(new Set(rows.map(({ owedMicrocredits }) => owedMicrocredits))).toEqual(new Set([0n]));
});

test("pages of 2,000 rows have each row once", async () => {
  const world = await fresh();
  const payer = await world.payer(0n);
  for (let n = 0; n < 3; n++)
    await world.run(
      `insert into sales_daily
       select ($1::date + m)::date, $2, 'v1', 'model ' || $3 || ' ' || m % 7, 'p', '', 1,
         0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0
       from generate_series(0, 999) m on conflict do nothing`,
      [world.month(11), `${payer.accountId}_${n}`, n],
    );
  await sumDays(world.run);
  const question = {
    startAt: timestampFromDate(new Date(world.month(11))),
    endAt: timestampFromDate(new Date(world.month(-2))),
    bucket: SalesBucket.DAY,
    groupBy: [SalesGroup.ACCOUNT, SalesGroup.MODEL],
  };
  const seen = new Set<string>();
  let pageToken = "";
  let pages = 0;
  let total = 0n;
  do {
    const page = await world.query({ ...question, pageToken, pageSize: 700 });
    for (const { startAt: from, accountId, model } of page.rows)
      seen.add(`${from?.seconds} ${accountId} ${model}`);
    ({ nextPageToken: pageToken } = page);
    total = page.totals?.requests ?? 0n;
    pages += 1;
  } while (pageToken !== "");
  expect(pages).toBeGreaterThan(1);
  expect(BigInt(seen.size)).toBe(total);
  await expect(world.query({ ...question, pageToken: "bm8" })).rejects.toThrow(/page_token/);
});

test("what is no range of whole UTC days, or too long, is refused by name", async () => {
  const world = await fresh();
  const refused = [
    [{ startAt: world.midnight(0), endAt: world.midnight(0) }, /^end_at: must be after start_at/],
    [
      { startAt: { ...world.midnight(1), nanos: 1 }, endAt: world.midnight(0) },
      /^start_at: must be the midnight of a UTC day/,
    ],
    [
      { startAt: world.midnight(420), endAt: world.midnight(0) },
      /^start_at: is more than 13 months before end_at/,
    ],
  ] as const;
  for (const [question, message] of refused)
    await expect(world.query(Object(question))).rejects.toThrow(message);
  const unknown = [
    [{ bucket: 9 }, /^bucket: /],
    [{ groupBy: [9] }, /^group_by\[0\]: /],
    [{ groupBy: [SalesGroup.UNSPECIFIED] }, /^group_by\[0\]: /],
    [{ families: [9] }, /^families\[0\]: /],
  ] as const;
  const range = { startAt: world.midnight(1), endAt: world.midnight(0) };
  for (const [more, message] of unknown) {
    const request = Object.assign(create(QuerySalesRequestSchema, range), more);
    expect(() => checkRequest(QuerySalesRequestSchema, request)).toThrow(message);
  }
});

test("what is owed at the end of each day is the sum of transfers less that of usage days", async () => {
  const world = await fresh();
  const days = 12;
  const payers = [
    await world.payer(0n),
    await world.payer(0n),
    await world.payer(0n, { family: "v2" }),
  ];
  let n = 0;
  const transfer = async (payer: (typeof payers)[number], daysAgo: number, amount: bigint) => {
    if (amount === 0n) return;
    await world.run(
      `insert into transfers (account_id, transfer_id, family, kind, amount, posted_after, actor,
         idempotency_key, created_at)
       values ($1, $2, $3, $4, $5, $5 + (select posted from pools
         where account_id = $1 and "family" = $3), 'test', $2, $6)`,
      [
        payer.accountId,
        `tr_${n++}`,
        payer.family,
        amount > 0n ? "purchase" : "chargeback",
        amount,
        world.daysAgo(daysAgo, 3_600_000),
      ],
    );
    await world.run(
      `update pools set posted = posted + $3, in_debt = posted + $3 < 0
       where account_id = $1 and "family" = $2`,
      [payer.accountId, payer.family, amount],
    );
  };
  const events = fc.array(
    fc.record({
      payer: fc.constantFrom(...payers),
      later: fc.constantFrom(0, 0, 1),
      amount: fc.bigInt(-3_000_000n, 3_000_000n),
      output: fc.nat({ max: 3 }),
    }),
    { maxLength: 6 },
  );
  // As a ledger has them, the oldest first.
  let daysAgo = days;
  const check = async () => {
    const rows = await world.liabilities(world.midnight(days), world.midnight(-1));
    for (const [family, name] of [
      [Family.V1, "v1"],
      [Family.V2, "v2"],
    ] as const)
      for (let daysAgo = days; daysAgo >= 0; daysAgo--) {
        const day = timestampDate(world.midnight(daysAgo)).toISOString().slice(0, 10);
        const balances = await world.run<{ balance: bigint }>(
          `select p.account_id,
             (coalesce((select sum(amount) from transfers t
                where t.account_id = p.account_id and t."family" = p."family"
                  and (created_at at time zone 'utc')::date <= $1::date), 0)
              - coalesce((select sum(u.amount) from usage_hourly u join keys k using (key_id)
                where u.account_id = p.account_id and k."family" = p."family"
                  and (hour at time zone 'utc')::date <= $1::date), 0))::bigint as balance
           from pools p where "family" = $2`,
          [day, name],
        );
        const positive = balances.filter(({ balance }) => balance > 0n);
        const row = rows.find(
          (one) =>
            one.family === family &&
            timestampDate(one.day ?? world.midnight(0))
              .toISOString()
              .startsWith(day),
        );
        const owed = sum(positive, ({ balance }) => balance);
        const net = sum(balances, ({ balance }) => balance);
        expect([day, row?.owedMicrocredits, row?.debtsMicrocredits]).toEqual([
          day,
          owed,
          owed - net,
        ]);
      }
    const [posted] = await world.run<{ all: bigint }>(
      "select sum(posted)::bigint as all from pools",
    );
    const today = rows.slice(-2);
    expect(sum(today, (row) => row.owedMicrocredits - row.debtsMicrocredits)).toBe(posted?.all);
    // What is owed grows by what was added, less what was charged.
    for (const family of [Family.V1, Family.V2]) {
      const own = rows.filter((one) => one.family === family);
      for (const [index, row] of own.slice(1).entries()) {
        const before = own[index];
        if (!before) throw new Error("a day before");
        const net = (one: typeof row) => one.owedMicrocredits - one.debtsMicrocredits;
        const added = sum(row.added, ({ addedMicrocredits: microcredits }) => microcredits);
        expect(net(row)).toBe(net(before) + added - row.chargedMicrocredits);
      }
    }
    return rows;
  };
  await fc.assert(
    fc.asyncProperty(events, async (all) => {
      for (const { payer, later, amount, output } of all) {
        daysAgo = Math.max(0, daysAgo - later);
        await transfer(payer, daysAgo, amount);
        if (output === 0) continue;
        await world.run("update pools set in_debt = true where posted - held < 2000000");
        await world.chargeAt(payer, world.daysAgo(daysAgo), endingWith({ output: output * 5_000 }));
      }
      await check();
    }),
    { numRuns: 20, interruptAfterTimeLimit: 60_000 },
  );
  // Closed days, whose charges are in the sums of sales, say the same.
  const before = await check();
  expect(before.some((row) => row.debtsMicrocredits > 0n)).toBe(true);
  await world.days.run();
  await addAll(world.ledger.postgres);
  expect(await check()).toEqual(before);
  await world.run("update sales_totals set amount = amount + 1");
  expect(await world.liabilities(world.midnight(days), world.midnight(-1))).not.toEqual(before);
  await world.run("update sales_progress set is_emptying = true");
  expect(await check()).toEqual(before);
}, 120_000);

test("the bill of a provider stands beside the cost, and is replaced by a later one", async () => {
  const world = await fresh();
  const payer = await world.payer(10n ** 9n);
  const attempts = [attemptAt(world.costVersion)];
  await world.chargeAgo(payer, 1);
  await world.chargeAt(payer, world.monthsAgo(1), endingWith({ output: 10 }, attempts));
  await addAll(world.ledger.postgres);
  const month = world.month(1).slice(0, 7);
  const set = (
    given: Exclude<MessageInitShape<typeof SetProviderBillRequestSchema>, { $typeName: string }>,
  ) => world.sales.setProviderBill(create(SetProviderBillRequestSchema, given), world.call);
  await set({ provider: "vendor", month, billedMicrodollars: 5n, note: "Typo" });
  await set({ provider: "vendor", month, billedMicrodollars: 7n, note: "Invoice 12" });
  await set({ provider: "gone", month, billedMicrodollars: 1n });
  const range = {
    startAt: timestampFromDate(new Date(world.month(1))),
    endAt: timestampFromDate(new Date(world.month(0))),
  };
  const list = create(ListProviderBillsRequestSchema, range);
  expect((await world.sales.listProviderBills(list, world.call)).bills).toMatchObject([
    { provider: "gone", month, costPicodollars: "0", billedMicrodollars: 1n },
    {
      provider: "vendor",
      month,
      costPicodollars: "20000000",
      billedMicrodollars: 7n,
      note: "Invoice 12",
    },
  ]);
  for (const [given, message] of [
    [{ provider: "p", month: "2026-13" }, /^month: is a month/],
    [{ provider: "p", month, billedMicrodollars: -1n }, /^billed_microdollars: is at least 0/],
    [{ provider: "p", month, note: "x".repeat(1_001) }, /^note: has more than 1,000 characters/],
  ] as const) {
    const request = create(SetProviderBillRequestSchema, given);
    expect(() => checkRequest(SetProviderBillRequestSchema, request)).toThrow(message);
  }
  await expect(set({ provider: " ", month })).rejects.toThrow(/^provider: must not be blank/);
});

/** Orders, and what became of them. */
async function freshOrders() {
  const world = await fresh();
  const { accountId } = await world.payer(0n);
  let n = 0;
  return {
    ...world,
    order: (id: string, usd: number, asset: string) =>
      world.run(
        `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
           processor, method, asset, network, decimals, created_by, quoted_until, watched_until)
         values ($1, $2, 'v1', $1, $3, 'proc', 'm', $4, 'net', 8, 'test', now(), now())`,
        [id, accountId, usd * 1_000_000, asset],
      ),
    document: (
      kind: string,
      orderId: string,
      at: Date,
      { grantN = null, refundN = null }: { grantN?: number | null; refundN?: number | null } = {},
    ) => {
      n += 1;
      return world.run(
        `insert into payment_documents (seller, kind, year, n, number, order_id, issued_at,
           grant_n, refund_n)
         values ('main', $1, 2026, $2::integer, $1 || $2::text, $3, $4, $5, $6)`,
        [kind, n, orderId, at, grantN, refundN],
      );
    },
    grant: (orderId: string, grantN: number, micro: bigint, at: Date) =>
      world.run(
        "insert into payment_grants (order_id, n, micro, created_at) values ($1, $2, $3, $4)",
        [orderId, grantN, micro, at],
      ),
    refund: (orderId: string, refundN: number, usdMicro: bigint, micro: bigint) =>
      world.run(
        `insert into payment_refunds (order_id, n, usd_micro, micro, state, reason, made_by)
         values ($1, $2, $3, $4, 'completed', 'test', 'test')`,
        [orderId, refundN, usdMicro, micro],
      ),
    deposit: (id: string, orderId: string, atoms: number, at: Date) =>
      world.run(
        `insert into payment_deposits (processor, external_id, order_id, account_id, "family",
           asset, network, decimals, atoms, state, first_seen_at, settled_at)
         values ('proc', $1, $2, $3, 'v1', 'BTC', 'net', 8, $4, 'settled', $5, $5)`,
        [id, orderId, accountId, atoms, at],
      ),
  };
}

test("revenue is what receipts and credit notes say, by their dates", async () => {
  const world = await freshOrders();
  const { order, grant, document, daysAgo } = world;
  await order("ord_1", 5, "BTC");
  await order("ord_2", 20, "ETH");
  await grant("ord_1", 1, 1_000_000_000n, daysAgo(3));
  await grant("ord_2", 1, 4_000_000_000n, daysAgo(2));
  await grant("ord_2", 2, -400_000_000n, daysAgo(1));
  await world.refund("ord_1", 1, 1_000_000n, 200_000_000n);
  await world.deposit("d1", "ord_1", 12_345_678, daysAgo(3));
  await document("receipt", "ord_1", daysAgo(3));
  await document("receipt", "ord_2", daysAgo(2));
  await document("credit_note", "ord_1", daysAgo(1), { refundN: 1 });
  await document("credit_note", "ord_2", daysAgo(1), { grantN: 2 });
  const range = { startAt: world.midnight(10), endAt: world.midnight(-1) };
  const all = await world.revenue(range);
  expect(all.totals).toMatchObject({
    orders: 2n,
    paidMicrodollars: 25_000_000n,
    refundedMicrodollars: 1_000_000n,
    lostMicrodollars: 2_000_000n,
    netMicrodollars: 22_000_000n,
    coins: [{ asset: "BTC", coins: "0.12345678" }],
  });
  for (const groupBy of [
    [RevenueGroup.PACK],
    [RevenueGroup.ASSET, RevenueGroup.NETWORK],
    [RevenueGroup.PROCESSOR],
    [RevenueGroup.KIND],
  ]) {
    const { rows, totals } = await world.revenue({ ...range, groupBy, bucket: SalesBucket.DAY });
    expect(totals).toEqual(all.totals);
    expect(sum(rows, (row) => row.netMicrodollars)).toBe(22_000_000n);
  }
  const { rows } = await world.revenue({ ...range, groupBy: [RevenueGroup.ASSET] });
  expect(rows).toMatchObject([
    { asset: "BTC", paidMicrodollars: 5_000_000n, coins: [{ coins: "0.12345678" }] },
    { asset: "ETH", lostMicrodollars: 2_000_000n, coins: [] },
  ]);
});

test("money that goes back counts as far as it was granted", async () => {
  const world = await freshOrders();
  const { order, grant, document, daysAgo } = world;
  await order("ord_1", 10, "BTC");
  await grant("ord_1", 1, 2_000_000_000n, daysAgo(5));
  await document("receipt", "ord_1", daysAgo(5));
  // 25 USD arrived: 15 were never granted, then 4 of the 10 go back, too.
  await world.refund("ord_1", 1, 15_000_000n, 0n);
  await document("credit_note", "ord_1", daysAgo(4), { refundN: 1 });
  const range = { startAt: world.midnight(10), endAt: world.midnight(-1) };
  expect((await world.revenue(range)).totals).toMatchObject({
    refundedMicrodollars: 0n,
    netMicrodollars: 10_000_000n,
  });
  await world.refund("ord_1", 2, 4_000_000n, 800_000_000n);
  await document("credit_note", "ord_1", daysAgo(3), { refundN: 2 });
  expect((await world.revenue(range)).totals).toMatchObject({
    refundedMicrodollars: 4_000_000n,
    netMicrodollars: 6_000_000n,
  });
});

test("a month that is over keeps its revenue, whatever comes to its orders later", async () => {
  const world = await freshOrders();
  const { order, grant, document, monthsAgo } = world;
  await order("ord_1", 10, "BTC");
  await grant("ord_1", 1, 1_000_000_000n, monthsAgo(2));
  await world.deposit("d1", "ord_1", 100_000_000, monthsAgo(2));
  await document("receipt", "ord_1", monthsAgo(2));
  const of = (months: number) =>
    world.revenue({
      startAt: timestampFromDate(new Date(world.month(months))),
      endAt: timestampFromDate(new Date(world.month(months - 1))),
      bucket: SalesBucket.MONTH,
    });
  const before = await of(2);
  expect(before.totals).toMatchObject({
    ...{ orders: 1n, paidMicrodollars: 5_000_000n },
    coins: [{ coins: "1" }],
  });
  await grant("ord_1", 2, 600_000_000n, monthsAgo(1));
  await world.deposit("d2", "ord_1", 50_000_000, monthsAgo(1));
  await grant("ord_1", 3, -1_000_000_000n, monthsAgo(1));
  await document("credit_note", "ord_1", monthsAgo(1), { grantN: 3 });
  await world.run("update payment_deposits set state = 'lost' where external_id = 'd1'");
  expect(await of(2)).toEqual(before);
  expect((await of(1)).totals).toMatchObject({
    ...{ orders: 0n, paidMicrodollars: 3_000_000n, lostMicrodollars: 5_000_000n },
    ...{ netMicrodollars: -2_000_000n, coins: [{ coins: "0.5" }] },
  });
});

test("every grouping of any range has the sums of its days", async () => {
  const world = await fresh();
  const payers = [await world.payer(10n ** 12n), await world.payer(10n ** 12n, { family: "v2" })];
  const back = 75;
  for (let daysAgo = 0; daysAgo <= back; daysAgo += 3)
    for (const payer of payers)
      await world.chargeAt(
        payer,
        world.daysAgo(daysAgo),
        endingWith({ output: daysAgo + 1 }, [attemptAt(daysAgo % 2 ? world.costVersion : "")]),
      );
  await addAll(world.ledger.postgres);
  const { ACCOUNT, MODEL, PROVIDER, FAMILY } = SalesGroup;
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        days: fc.tuple(fc.nat({ max: back + 5 }), fc.nat({ max: back + 5 })),
        bucket: fc.constantFrom(
          ...[SalesBucket.NONE, SalesBucket.DAY, SalesBucket.WEEK, SalesBucket.MONTH],
        ),
        groupBy: fc.subarray([ACCOUNT, MODEL, PROVIDER, FAMILY]),
        only: fc.subarray(payers),
        pageSize: fc.constantFrom(1, 3, 2_000),
      }),
      async ({ days: [one, other], bucket, groupBy, only, pageSize }) => {
        const accountIds = only.map(({ accountId }) => accountId);
        const [first, last] = [Math.max(one, other), Math.min(one, other) - 1];
        const question = {
          ...{ startAt: world.midnight(first), endAt: world.midnight(last) },
          ...{ bucket, groupBy, accountIds, pageSize },
        };
        const rows = [];
        let page = await world.query(question);
        for (;;) {
          rows.push(...page.rows);
          if (page.nextPageToken === "") break;
          page = await world.query({ ...question, pageToken: page.nextPageToken });
        }
        const [expected] = await world.run<Record<string, bigint>>(
          `select coalesce(sum(requests), 0)::bigint as requests,
             coalesce(sum(amount), 0)::bigint as amount,
             coalesce(sum(cost_pico), 0)::bigint as cost,
             coalesce(sum(uncosted), 0)::bigint as uncosted
           from sales_daily
           where day >= $1 and day < $2 and (account_id = any ($3) or cardinality($3) = 0)`,
          [...[question.startAt, question.endAt].map((at) => timestampDate(at)), accountIds],
        );
        const { totals } = page;
        expect({
          requests: totals?.requests,
          amount: totals?.chargedMicrocredits,
          cost: BigInt(totals?.costPicodollars ?? ""),
          uncosted: totals?.uncostedRequests,
        }).toEqual(expected);
        expect(sum(rows, (row) => row.requests)).toBe(expected?.requests);
        expect(sum(rows, (row) => row.uncostedMicrocredits)).toBe(totals?.uncostedMicrocredits);
        expect(sum(rows, (row) => BigInt(row.costPicodollars))).toBe(expected?.cost);
        const names = rows.map((row) =>
          [row.startAt?.seconds, row.accountId, row.model, row.provider, row.family].join(" "),
        );
        expect(new Set(names).size).toBe(names.length);
        const times = rows.map((row) => Number(row.startAt?.seconds));
        expect(times).toEqual(times.toSorted((before, after) => before - after));
      },
    ),
    { numRuns: 40, interruptAfterTimeLimit: 60_000 },
  );
}, 120_000);
