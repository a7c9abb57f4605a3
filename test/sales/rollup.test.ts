// The roll-up of sales: each charge is in the sums once, with its cost, whatever dies or comes
// late.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { Client } from "pg";
import { afterEach, expect, test, vi } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { QueryLiabilitiesRequestSchema } from "../../gen/gateway/sales/v1/sales_pb.ts";
import * as sql from "../../gen/sql/sales.ts";
import { findViolations } from "../../src/billing/verifier.ts";
import { closeMonth } from "../../src/history/history.ts";
import { keepRetention } from "../../src/history/retention.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { createSales } from "../../src/sales/sales.ts";
import { writeCharges } from "../support/charges.ts";
import { type FreshHistory, historyOfTest } from "../support/history.ts";
import { endingWith, log, price } from "../support/ledger.ts";
import {
  addAll,
  attemptAt,
  costsOf,
  fileWithCost,
  openRollup,
  register,
} from "../support/sales.ts";

const open = historyOfTest();
let world: FreshHistory;
/** False: charges were written without pools and hours. */
let isWhole = true;
async function fresh() {
  world = await open();
  return world;
}
afterEach(async () => {
  if (isWhole) expect(await world.store.verifyLedger()).toEqual([]);
  isWhole = true;
});

type Sums = Readonly<Record<string, bigint | string>>;

const columns = `sum(requests)::bigint as requests, sum(amount)::bigint as amount,
  sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
  sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
  sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches`;

/** By day, account, family and model. */
const sales = () =>
  world.run<Sums>(
    `select day::text, account_id, "family", model, ${columns} from sales_daily
     group by 1, 2, 3, 4 order by 1, 2, 3, 4`,
  );

/** The same, from the hours of the usage. */
const usageDays = () =>
  world.run<Sums>(
    `select (hour at time zone 'utc')::date::text as day, u.account_id, k."family", model,
       ${columns}
     from usage_hourly u join keys k on k.key_id = u.key_id
     group by 1, 2, 3, 4 order by 1, 2, 3, 4`,
  );

const costOf = async () => {
  const [row] = await world.run<{ cost: string; uncosted: bigint }>(
    "select sum(cost_pico)::text as cost, sum(uncosted)::bigint as uncosted from sales_daily",
  );
  return row;
};

test("the sums of sales are those of the usage by days, whatever was charged", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const file = fileWithCost("cost: { input: 0.50, output: 2.25, per: { web_search: 4 } }");
  await register(ledger.postgres, file);
  const [version] = costsOf(file);
  const payers = [
    await world.payer(1_000_000_000n),
    await world.payer(1_000_000_000n, { family: "v2" }),
  ];
  const tokens = fc.nat({ max: 2_000 });
  const request = fc.record({
    payer: fc.constantFrom(...payers),
    daysAgo: fc.nat({ max: 40 }),
    model: fc.constantFrom("model-test", "other"),
    usage: fc.record({
      ...{ input: tokens, output: tokens, thinking: tokens, cacheRead: tokens },
      ...{ cacheWrite5m: tokens, cacheWrite1h: tokens, webSearches: fc.nat({ max: 3 }) },
    }),
    attempts: fc.constantFrom(
      [],
      [attemptAt("")],
      [attemptAt("", "first"), attemptAt(version?.costVersion ?? "")],
      [attemptAt("cost_unknown", "other")],
    ),
  });
  let cost = 0n;
  let uncosted = 0n;
  await fc.assert(
    fc.asyncProperty(fc.array(request, { maxLength: 8 }), async (requests) => {
      for (const one of requests) {
        const ending = endingWith(one.usage, [...one.attempts]);
        await chargeAt(one.payer, daysAgo(one.daysAgo), ending, { model: one.model });
        const { input, output, thinking, cacheRead, cacheWrite1h, cacheWrite5m } = one.usage;
        const used = input + output + thinking + cacheRead + cacheWrite1h + cacheWrite5m;
        if (one.attempts.at(-1)?.costVersion === version?.costVersion)
          cost +=
            BigInt(input + cacheRead + cacheWrite1h + cacheWrite5m) * 500_000n +
            BigInt(output + thinking) * 2_250_000n +
            BigInt(one.usage.webSearches) * 4_000_000_000n;
        else if (used + one.usage.webSearches > 0) uncosted += 1n;
      }
      await addAll(ledger.postgres);
      expect(await sales()).toEqual(await usageDays());
      expect(await costOf()).toEqual({ cost: `${cost}`, uncosted });
    }),
    { numRuns: 12, interruptAfterTimeLimit: 60_000 },
  );
});

test("a charge has the cost of its last attempt, with what the customer does not pay", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const file = fileWithCost("cost: { input: 0.5, output: 2 }", "{ provider: vendor, cost: 1.1 }");
  await register(ledger.postgres, file);
  const [version] = costsOf(file);
  const payer = await world.payer(1_000_000_000n);
  const used = endingWith({ input: 10, output: 1_000_002 }, [
    attemptAt(""),
    attemptAt(version?.costVersion ?? ""),
  ]);
  const receipt = await chargeAt(payer, daysAgo(1), used, { amountMicro: 60_000_000n });
  expect(receipt.usage).toMatchObject({ output: 1_000_000 });
  expect(receipt.attempts).toMatchObject([{ model: "", costVersion: "" }, { costVersion: "" }]);
  await addAll(ledger.postgres);
  expect(
    await world.run("select output, provider, cost_version, cost_pico from sales_daily"),
  ).toEqual([
    {
      output: 1_000_000n,
      provider: "vendor",
      cost_version: version?.costVersion,
      cost_pico: `${10n * 550_000n + 1_000_002n * 2_200_000n}`,
    },
  ]);
});

test("a step of the cost counts from more than so many tokens of prompt on", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const file = fileWithCost(
    "cost: { input: 1, output: 1, when: [{ prompt_above: 200, input: 4, output: 4 }, " +
      "{ prompt_above: 100, input: 2, output: 2 }] }",
  );
  const versions = costsOf(file);
  expect(versions.map(({ above }) => above)).toEqual([100, 200, null]);
  await register(ledger.postgres, file);
  const payer = await world.payer(1_000_000_000n);
  for (const [input, cacheRead] of [
    [100, 0],
    [100, 1],
    [200, 0],
    [1, 200],
  ] as const) {
    const attempts = [attemptAt(versions[0]?.costVersion ?? "")];
    await chargeAt(payer, daysAgo(1), endingWith({ input, cacheRead, output: 1 }, attempts));
  }
  await addAll(ledger.postgres);
  expect(
    await world.run(
      `select d.requests, (d.cost_pico / 1000000)::bigint as cost from sales_daily d order by cost_pico`,
    ),
  ).toEqual([
    { requests: 1n, cost: 101n },
    { requests: 2n, cost: 2n * (102n + 201n) },
    { requests: 1n, cost: 4n * 202n },
  ]);
});

/** Fails behind so many statements of transactions, counted from 0. */
function killing(postgres: Postgres, at: number): Pick<Postgres, "run" | "transaction"> {
  let left = at;
  return {
    run: postgres.run,
    transaction: (work) =>
      postgres.transaction((tx) => {
        const run: Runner["run"] = async (statement, ...parameters) => {
          const result = await tx.run(statement, ...parameters);
          if (left-- === 0) throw new Error("killed");
          return result;
        };
        return work({ run });
      }),
  };
}

test("a roll-up and a rebuild that fail behind any of their statements count nothing twice", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  const charge = (days: number) => chargeAt(payer, daysAgo(days), endingWith({ output: 7 }));
  for (const days of [0, 1, 2]) await charge(days);
  await addAll(ledger.postgres);
  const { postgres } = ledger;
  const pause = async () => {
    throw new Error("killed");
  };
  let failures = 0;
  for (let at = 0; ; at++) {
    await charge(at % 3);
    const killed = openRollup(killing(postgres, at));
    const isKilled = await killed.rebuild(pause).then(
      () => false,
      () => true,
    );
    if (isKilled) failures += 1;
    await addAll(postgres);
    expect(await sales()).toEqual(await usageDays());
    if (at > 20) break;
  }
  // One of a rebuild has: lease, lock, removal, end, lease, lock, page, cursor, completeness.
  expect(failures).toBeGreaterThan(8);
});

test("several processes add each charge once", async () => {
  const { ledger, daysAgo } = await fresh();
  isWhole = false;
  const payer = await world.payer(0n);
  await writeCharges(world.run, { payer, count: 12_000, from: daysAgo(3), stepMs: 10 });
  const rollups = [1, 2, 3].map(() => openRollup(ledger.postgres));
  for (let turn = 0; turn < 3; turn++) await Promise.all(rollups.map((one) => one.run()));
  await addAll(ledger.postgres);
  const sums = await world.run(
    "select sum(requests)::bigint as n, count(*) as rows from sales_daily",
  );
  expect(sums).toEqual([{ n: 12_000n, rows: 1n }]);
});

test("a charge that is settled late is added to the day of its admission", async () => {
  const { ledger, daysAgo, holdAt, settle } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  const hold = await holdAt(payer, daysAgo(9));
  await addAll(ledger.postgres);
  expect(await sales()).toEqual([]);
  await settle(hold, endingWith({ output: 3 }));
  await addAll(ledger.postgres);
  const day = daysAgo(9).toISOString().slice(0, 10);
  expect(await sales()).toMatchObject([{ day, requests: 1n, amount: 150n }]);
});

test("a transaction that began first and ends last hides no charge from the sums", async () => {
  const { ledger, daysAgo } = await fresh();
  isWhole = false;
  const payers = [await world.payer(0n), await world.payer(0n)] as const;
  const [early, late] = payers.map((payer) => ({ payer, count: 2, from: daysAgo(0), stepMs: 1 }));
  if (!early || !late) throw new Error("two payers");
  await world.store.registerPrice("model-test", price);
  const client = new Client({ connectionString: world.url });
  await client.connect();
  try {
    await client.query("begin");
    await writeCharges((text, values) => client.query(text, values), early);
    await writeCharges(world.run, { ...late, from: new Date(late.from.getTime() + 10) });
    const rollup = openRollup(ledger.postgres);
    for (let turn = 0; turn < 4; turn++) await rollup.run();
    expect(await world.run("select 1 from sales_daily")).toEqual([]);
    await client.query("commit");
    await addAll(ledger.postgres, rollup);
    expect(await world.run("select requests from sales_daily")).toEqual([
      { requests: 2n },
      { requests: 2n },
    ]);
  } finally {
    await client.end();
  }
});

test("what nobody charged is in no day, and a request without tokens is not without cost", async () => {
  const { ledger, daysAgo, chargeAt } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  await chargeAt(payer, daysAgo(1), { ...endingWith({}), outcome: Outcome.PROVIDER_FAILED });
  await addAll(ledger.postgres);
  expect(await world.run("select requests, uncosted, amount from sales_daily")).toEqual([
    { requests: 1n, uncosted: 0n, amount: 0n },
  ]);
});

test("charges of a month are removed after the sums have them, and a rebuild keeps its sums", async () => {
  const { ledger, days, month } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  for (const count of [3, 3, 0]) await world.chargeAgo(payer, count, 5);
  await days.run();
  await closeMonth(ledger, month(3));
  await world.run(
    `insert into month_archives (month, sha256, place, verified_at)
     select month, sha256, 'here', now() from month_closings`,
  );
  const keep = () => keepRetention(ledger, { months: 1, sink: undefined });
  expect((await keep()).map(({ why }) => why.message)).toEqual([
    `${month(3).slice(0, 7)} is not in the sums of sales yet`,
  ]);
  await addAll(ledger.postgres);
  expect(await keep()).toEqual([]);
  expect(await world.run("select 1 from charges")).toHaveLength(1);
  const before = await sales();
  expect(before).toHaveLength(2);
  expect(await openRollup(ledger.postgres).rebuild(async () => undefined)).toBe(3n);
  expect(await sales()).toEqual(before);
});

test("what is owed counts charges that were removed before there were sums", async () => {
  const { ledger, days, month } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  for (const count of [3, 2, 0]) await world.chargeAgo(payer, count, 5);
  await days.run();
  await closeMonth(ledger, month(3));
  await addAll(ledger.postgres);
  const reports = createSales({ postgres: ledger.postgres, file: { models: [] }, log });
  const [from, to] = [3, 0].map((count) => timestampFromDate(new Date(month(count))));
  expect.assert(from && to);
  const owed = async () => {
    const request = create(QueryLiabilitiesRequestSchema, { startAt: from, endAt: to });
    return (await reports.queryLiabilities(request)).rows;
  };
  const before = await owed();
  expect(before.length).toBeGreaterThan(0);
  await world.run(
    `insert into month_archives (month, sha256, place, verified_at, dropped_at)
     select month, sha256, 'here', now(), now() from month_closings`,
  );
  for (const [table, column] of [
    ["daily", "day"],
    ["totals", "day"],
    ["monthly", "month"],
  ])
    await world.run(`delete from sales_${table} where date_trunc('month', ${column}) = $1::date`, [
      month(3),
    ]);
  expect(await owed()).toEqual(before);
});

test("a month that is closed is in the sums, and its days are those of the usage", async () => {
  const { ledger, days, month } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  for (const count of [2, 2]) await world.chargeAgo(payer, count, 5);
  await days.run();
  await closeMonth(ledger, month(2));
  await addAll(ledger.postgres);
  const usage = await world.run("select sum(amount)::bigint as amount from usage_daily");
  const nano = 2n * (5n * price.output + 3n * price.input);
  expect(usage).toEqual([{ amount: nano / 1_000n }]);
  expect(await sales()).toMatchObject([{ ...(usage[0] ?? {}), requests: 2n }]);
});

test("a cost that somebody mistyped does not stop the sums", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const payer = await world.payer(1_000_000_000n);
  const mistyped = 10n ** 13n;
  const version = {
    ...{ costVersion: "cost_mistyped", provider: "vendor", model: "m" },
    ...{ input: mistyped, output: mistyped, thinking: mistyped, cacheRead: mistyped },
    ...{ cacheWrite5m: mistyped, cacheWrite1h: mistyped, webSearch: mistyped },
    ...{ above: null, aboveVersion: null },
  };
  await ledger.postgres.run(sql.registerCost, version);
  const input = 1_500_000;
  for (let n = 0; n < 2; n++)
    await chargeAt(payer, daysAgo(1), endingWith({ input }, [attemptAt("cost_mistyped")]), {
      amountMicro: 100_000_000n,
    });
  await addAll(ledger.postgres);
  const cost = 2n * BigInt(input) * mistyped;
  expect(cost > 2n ** 63n).toBe(true);
  expect(await costOf()).toEqual({ cost: `${cost}`, uncosted: 0n });
});

test("a version that cannot be stored keeps no other one from it", async () => {
  const { ledger } = await fresh();
  const file = fileWithCost("cost: { input: 1, output: 1, when: [{ geo: us, multiply: 2 }] }");
  const ids = file.models[0]?.routes[0]?.[0]?.paid?.cases.map(
    ({ versions }) => versions[0]?.costVersion,
  );
  expect(new Set(ids).size).toBe(2);
  const { postgres } = ledger;
  const failing: Postgres = {
    ...postgres,
    run: async (statement, ...parameters) => {
      if (JSON.stringify(parameters, text).includes(`"${ids?.[0]}"`)) throw new Error("bad");
      return postgres.run(statement, ...parameters);
    },
  };
  const warned = vi.spyOn(log, "warn");
  const sales = createSales({ postgres: failing, file, log });
  sales.start();
  await expect
    .poll(() => world.run("select cost_version from cost_versions"))
    .toEqual([{ cost_version: ids?.[1] }]);
  await expect
    .poll(() => warned.mock.calls.map(([facts]) => facts))
    .toContainEqual(expect.objectContaining({ code: "costs_not_registered" }));
  await sales.stop();
  warned.mockRestore();
});
const text = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}` : value);

test("a long prompt whose version is not stored is one without a cost", async () => {
  const { chargeAt, daysAgo, ledger } = await fresh();
  const file = fileWithCost(
    "cost: { input: 1, output: 1, when: [{ prompt_above: 100, input: 2, output: 2 }] }",
  );
  const [short] = costsOf(file);
  if (!short) throw new Error("a version");
  await ledger.postgres.run(sql.registerCost, short);
  const payer = await world.payer(1_000_000_000n);
  for (const input of [100, 101])
    await chargeAt(payer, daysAgo(1), endingWith({ input }, [attemptAt(short.costVersion)]));
  await addAll(ledger.postgres);
  expect(await costOf()).toEqual({ cost: "100000000", uncosted: 1n });
});

test("the verifier finds sums of sales that are not those of the days", async () => {
  const { chargeAt, daysAgo, days, ledger } = await fresh();
  const payers = [
    await world.payer(1_000_000_000n),
    await world.payer(1_000_000_000n, { family: "v2" }),
  ];
  for (const payer of payers)
    for (const ago of [40, 9, 8, 1])
      await chargeAt(payer, daysAgo(ago), endingWith({ output: ago }, [attemptAt("")]));
  await days.run();
  await addAll(ledger.postgres);
  const sizes = { charges: 1, ids: 1, accounts: 1, rows: 1 };
  const found = async () => {
    const [all, sliced] = [
      await world.store.verifyLedger(),
      await findViolations(ledger.postgres, new AbortController().signal, sizes),
    ];
    expect(sliced).toEqual(all);
    return [...new Set(all.map(({ invariant }) => invariant))];
  };
  expect(await found()).toEqual([]);
  const [accountId] = payers.map((payer) => payer.accountId);
  const day = daysAgo(9).toISOString().slice(0, 10);
  for (const [change, back, ...invariants] of [
    [
      "update sales_daily set amount = amount + 1 where day = $1 and account_id = $2",
      "update sales_daily set amount = amount - 1 where day = $1 and account_id = $2",
      "sales = days",
      "sales of a month = its days",
      "sales of all accounts = those of each",
    ],
    [
      `update sales_monthly set cost_pico = cost_pico + 1
       where month = date_trunc('month', $1::date::timestamp) and account_id = $2`,
      `update sales_monthly set cost_pico = cost_pico - 1
       where month = date_trunc('month', $1::date::timestamp) and account_id = $2`,
      "sales of a month = its days",
    ],
    [
      "update sales_totals set requests = requests + 1 where day = $1 and $2::text is not null",
      "update sales_totals set requests = requests - 1 where day = $1 and $2::text is not null",
      "sales of all accounts = those of each",
    ],
    [
      "update sales_daily set account_id = account_id || 'x' where day = $1 and account_id = $2",
      "update sales_daily set account_id = $2 where day = $1 and account_id = $2 || 'x'",
      "sales = days",
      "sales of a month = its days",
    ],
  ] as const) {
    await world.run(change, [day, accountId]);
    expect(await found()).toEqual(invariants);
    await world.run(back, [day, accountId]);
  }
  // A day whose charges are not in the sums yet is none.
  await chargeAt(payers[0] ?? fail(), daysAgo(8), endingWith({ output: 1 }));
  await world.run("update usage_progress set closed_to = '0001-01-01', hours_from = '0001-01-01'");
  await days.run();
  expect(await found()).toEqual([]);
});
const fail = (): never => {
  throw new Error("a payer");
};
