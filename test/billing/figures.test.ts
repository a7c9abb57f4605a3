// What alerts, forecasts and operators read of pools, keys and accounts, against a simple model.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type * as sql from "../../gen/sql/billing.ts";
import { readBudget, startsOf } from "../../src/base/budgets.ts";
import { type FamilyName, familyOf } from "../../src/base/families.ts";
import { type AlertFigures, createAlertFigures } from "../../src/billing/alert-figures.ts";
import { createOverview } from "../../src/billing/overview.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { createReports, forecastDays, forecastDaysMin } from "../../src/billing/usage.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { movableNow } from "../support/sql-clock.ts";

let database: Awaited<ReturnType<typeof freshDatabase>>;
let postgres: Postgres;
let alerts: AlertFigures;
let overview: ReturnType<typeof createOverview>;
beforeAll(async () => {
  database = await freshDatabase();
  // Half past the first hour of a month, where an hour before is one of the month before.
  const now = new Date();
  const nextMonthMs = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1, 0, 30);
  await (await movableNow(database))(nextMonthMs - now.getTime());
  postgres = connectPostgres(database.url);
  alerts = createAlertFigures(postgres);
  overview = createOverview(createLedgerStore(postgres));
});
afterAll(async () => {
  await postgres.close();
  await database.drop();
});

const run = <Row>(text: string, values: unknown[]) =>
  query<Row>(postgres, { name: "", text }, values);

let made = 0;
/** A new account with a key of each family. */
async function newAccount() {
  const accountId = `acc_${String(++made).padStart(6, "0")}`;
  await run("insert into accounts (account_id, name) values ($1, '')", [accountId]);
  for (const family of ["v1", "v2"]) {
    await run("insert into pools (account_id, family) values ($1, $2)", [accountId, family]);
    const values = [keyOf(accountId, family), accountId, family];
    await run(
      "insert into keys (key_id, account_id, family, name) values ($1, $2, $3, 'a key')",
      values,
    );
    await run("insert into budgets (payer, account_id, family) values ($1, $2, $3)", values);
  }
  return accountId;
}

const keyOf = (accountId: string, family: string) => `key_${accountId}_${family}`;

type PoolFacts = {
  readonly accountId: string;
  readonly family: FamilyName;
  /** Signed amounts, the oldest first. */
  readonly transfers: readonly number[];
  readonly held: number;
};
const sum = (amounts: readonly number[]) => amounts.reduce((all, one) => all + one, 0);
const freeOf = ({ transfers, held }: PoolFacts) => sum(transfers) - held;
const lastFill = ({ transfers }: PoolFacts, atLeast = Number.NEGATIVE_INFINITY) =>
  transfers.findLastIndex(
    (amount, index) => amount > 0 && sum(transfers.slice(0, index + 1)) >= atLeast,
  );

async function fill(pool: PoolFacts): Promise<void> {
  const { accountId, family, transfers, held } = pool;
  for (const [index, amount] of transfers.entries())
    await run(
      `insert into transfers (account_id, transfer_id, family, kind, amount, posted_after, actor,
         idempotency_key) values ($1, $2, $3, 'adjustment', $4, $5, '', $2)`,
      [accountId, transferOf(pool, index), family, amount, sum(transfers.slice(0, index + 1))],
    );
  await run(
    "update pools set posted = $3, held = $4, in_debt = $5 where account_id = $1 and family = $2",
    [accountId, family, sum(transfers), held, sum(transfers) < held],
  );
}

const transferOf = ({ accountId, family }: PoolFacts, index: number) =>
  `tra_${index}_${accountId}_${family}`;

/** The two pools of two accounts. */
const anyPools = fc.array(
  fc.record({
    transfers: fc.array(
      fc.integer({ min: -5, max: 9 }).filter((amount) => amount !== 0),
      { maxLength: 4 },
    ),
    held: fc.nat(4),
    /** How far a bound is above the free credits. */
    bound: fc.constantFrom(-3, 0, 1, 3),
    /** Days before today, and hours, in which the pool was charged. */
    uses: fc.array(
      fc.record({
        daysAgo: fc.constantFrom(0, 1, 3, 6, 7, 8, 20),
        hour: fc.constantFrom(0, 23),
        amount: fc.integer({ min: 1, max: 90 }),
      }),
      { maxLength: 3 },
    ),
  }),
  { minLength: 4, maxLength: 4 },
);

test("alerts, forecasts and operators read what the pools have, lack and spend", async () => {
  await fc.assert(
    fc.asyncProperty(
      anyPools,
      fc.constantFrom(0, 7, 8, 20, 99),
      fc.boolean(),
      async (facts, openDays, isWritten) => {
        const accounts = [await newAccount(), await newAccount()];
        const pools = facts.map((pool, index) => ({
          ...pool,
          accountId: accounts[index >> 1] ?? "",
          family: index % 2 === 0 ? ("v1" as const) : ("v2" as const),
        }));
        for (const pool of pools) await fill(pool);
        await use(pools, { openDays, isWritten });
        const bounds = pools.map((pool) => ({ ...pool, below: freeOf(pool) + pool.bound }));
        // Only these are asked for.
        for (const asked of [bounds, bounds.slice(0, 1), bounds.slice(1, 3)])
          expect(await low(asked)).toEqual(
            asked
              .filter((pool) => freeOf(pool) < pool.below && lastFill(pool) >= 0)
              .map((pool) => {
                const index = lastFill(pool, pool.below);
                return {
                  ...{ accountId: pool.accountId, family: pool.family },
                  belowMicro: BigInt(pool.below),
                  freeMicro: BigInt(freeOf(pool)),
                  filledBy: index < 0 ? null : transferOf(pool, index),
                };
              }),
          );
        const reports = createReports(postgres.reports);
        for (const accountId of accounts) {
          const own = pools.filter((pool) => pool.accountId === accountId);
          const forecasts = await reports.forecast(accountId);
          expect(
            forecasts.map(({ $typeName, daysLeft, budget, ...one }) => ({
              ...one,
              heldOfBudget: budget?.heldMicrocredits,
              isLasting: daysLeft === undefined,
            })),
          ).toEqual(own.map(forecastOf));
          // Of this account alone.
          const spend = await alerts.readDailySpend([accountId]);
          expect(spend.toSorted(byFamily)).toEqual(
            own
              .filter((pool) => inDays(pool).length > 0 && daysOf(pool) >= forecastDaysMin)
              .map((pool) => ({
                ...{ accountId, family: pool.family },
                dailyMicro: BigInt(Math.trunc(spentOf(pool) / daysOf(pool))),
              })),
          );
          for (const daysAgo of [0, 1, 7, 8]) {
            const [figures, ...others] = await overview.readAccounts([accountId], day(daysAgo));
            expect(others).toEqual([]);
            const uses = own.flatMap((pool) => pool.uses);
            expect(figures?.spentMicro).toBe(
              BigInt(sum(uses.filter((one) => one.daysAgo <= daysAgo).map(({ amount }) => amount))),
            );
            expect(figures?.pools).toMatchObject(
              own.map((pool) => ({
                family: familyOf(pool.family),
                postedMicrocredits: BigInt(sum(pool.transfers)),
                heldMicrocredits: BigInt(pool.held),
              })),
            );
          }
        }
        const debts = accounts.flatMap((accountId) => {
          const own = pools.filter((pool) => pool.accountId === accountId && freeOf(pool) < 0);
          return own.length === 0
            ? []
            : [[accountId, BigInt(-sum(own.map(freeOf)))] as [string, bigint]];
        });
        const newest = debts.toReversed();
        expect([...(await overview.debts(newest.length))]).toEqual(newest);
      },
    ),
    { numRuns: 60 },
  );
});

type Pool = PoolFacts & {
  readonly uses: readonly {
    readonly daysAgo: number;
    readonly hour: number;
    readonly amount: number;
  }[];
};

const byFamily = (one: { family: string }, other: { family: string }) =>
  one.family < other.family ? -1 : 1;
let today = "";
const day = (daysAgo: number) =>
  new Date(Date.parse(`${today}T00:00:00Z`) - daysAgo * 86_400_000).toISOString().slice(0, 10);
const inDays = ({ uses }: Pool) =>
  uses.filter(({ daysAgo }) => daysAgo > 0 && daysAgo <= forecastDays);
const spentOf = (pool: Pool) => sum(inDays(pool).map(({ amount }) => amount));
/** For how many days the amount stands. */
function daysOf({ uses }: Pool): number {
  const days = uses.map(({ daysAgo }) => daysAgo);
  return Math.min(forecastDays, Math.max(0, ...days));
}

function forecastOf(pool: Pool) {
  const filled = lastFill(pool);
  const days = daysOf(pool);
  return {
    family: familyOf(pool.family),
    freeMicrocredits: BigInt(freeOf(pool)),
    heldMicrocredits: BigInt(pool.held),
    heldOfBudget: BigInt(pool.held),
    filledToMicrocredits: filled < 0 ? undefined : BigInt(sum(pool.transfers.slice(0, filled + 1))),
    dailyMicrocredits:
      days < forecastDaysMin ? undefined : BigInt(Math.trunc(spentOf(pool) / days)),
    isLasting: days < forecastDaysMin || spentOf(pool) === 0,
  };
}

async function low(asked: readonly (PoolFacts & { readonly below: number })[]) {
  const found = await alerts.findLow(
    asked.map(({ below, ...pool }) => ({ ...pool, belowMicro: BigInt(below) })),
  );
  const place = ({ accountId, family }: { accountId: string; family: string }) =>
    asked.findIndex((one) => one.accountId === accountId && one.family === family);
  return found.toSorted((one, other) => place(one) - place(other));
}

/**
 * Writes the hours, and of closed days the days: those before the last `openDays`. `isWritten`: of
 * open ones, too, as while they are closed.
 */
async function use(
  pools: readonly Pool[],
  { openDays, isWritten }: { openDays: number; isWritten: boolean },
): Promise<void> {
  const [row] = await run<{ today: string }>(
    "select (now() at time zone 'utc')::date as today",
    [],
  );
  today = row?.today ?? "";
  await run("update usage_progress set closed_to = $1", [day(openDays)]);
  for (const { accountId, family, uses } of pools)
    for (const { daysAgo, hour, amount } of uses) {
      const values = [accountId, keyOf(accountId, family), day(daysAgo)];
      await run(
        `insert into usage_hourly as u (account_id, key_id, model, hour, amount)
         values ($1, $2, 'm', $3::timestamp at time zone 'utc' + $4 * interval '1 hour', $5)
         on conflict (account_id, hour, key_id, model) do update
         set amount = u.amount + excluded.amount`,
        [...values, daysAgo === 0 ? 0 : hour, amount],
      );
      if (daysAgo <= openDays && !isWritten) continue;
      await run(
        `insert into usage_daily as u (account_id, key_id, model, day, amount)
         values ($1, $2, 'm', $3, $4)
         on conflict (account_id, day, key_id, model) do update
         set amount = u.amount + excluded.amount`,
        [...values, amount],
      );
    }
}

const four = <One>(one: fc.Arbitrary<One>) => fc.array(one, { minLength: 4, maxLength: 4 });
/** A limit of nothing is the tightest of all, and seldom. */
const anyLimit = fc.oneof(
  { arbitrary: fc.constantFrom(null, 100), weight: 30 },
  { arbitrary: fc.constant(0), weight: 1 },
);
/** A budget, in numbers as columns have them, which was last changed some days ago. */
const anyBudget = fc.record({
  // Tomorrow: the clock went back.
  daysAgo: fc.constantFrom(0, 0, 0, 0, -1, 1, 7, 31),
  held: fc.constantFrom(0, 0, 15),
  spent: four(fc.constantFrom(0, 79, 80, 99, 100, 101)),
  limits: four(anyLimit),
  // One of its limits was changed so many seconds before the last rejection.
  change: fc.option(
    fc.record({
      secondsAgo: fc.constantFrom(-60, 4, 5, 6, 6, 60),
      window: fc.constantFrom("day", "week", "month", "total"),
      passed: fc.constantFrom(null, 400, 500),
    }),
  ),
});
/** Of an account: two keys of one pool, the member who manages the first of them, and the pool. */
const anyBudgets = fc.record({
  budgets: four(anyBudget),
  isActive: fc.boolean(),
  percent: fc.constantFrom(80, 100),
  rejection: fc.constantFrom(
    ...[null, "monthly_cap_reached", "budget_reached", "budget_reached", "credits_exhausted"],
  ),
  hoursAgo: fc.constantFrom(0, 0, 0, 1),
});

test("alerts read the limits of which a part is spent, or for which a request was refused", async () => {
  await fc.assert(
    fc.asyncProperty(anyBudgets, anyBudgets, async (one, other) => {
      const accounts = [await newBudgets(one), await newBudgets(other)];
      // An account that nobody asks for has no part in it.
      await newBudgets(one);
      // One alone, and both.
      for (const asked of [accounts.slice(0, 1), accounts]) {
        const found = await alerts.findSpentLimits(asked);
        expect(found.toSorted(byPlace)).toEqual(asked.flatMap(spentLimits).toSorted(byPlace));
      }
    }),
    { numRuns: 60 },
  );
});

test("a rejection counts in its hour and in the next one of its day", async () => {
  const now = new Date();
  const noonMs = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1, 12, 30);
  const other = await freshDatabase();
  await (await movableNow(other))(noonMs - now.getTime());
  const atNoon = connectPostgres(other.url);
  const { findSpentLimits } = createAlertFigures(atNoon);
  const refused = async (hoursAgo: number) => {
    const accountId = `acc_${hoursAgo}`;
    const statements = [
      "insert into accounts (account_id, name) values ($1, '')",
      "insert into pools (account_id, family) values ($1, 'v1')",
      `insert into keys (key_id, account_id, family, name) values ('key_' || $1, $1, 'v1', 'a key')`,
      `insert into budgets (payer, account_id, family, spent, total_limit)
         values ('key_' || $1, $1, 'v1', 90, 100)`,
      `insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
         values ($1, date_trunc('hour', now()) - ${hoursAgo} * interval '1 hour', 'key_' || $1,
           'budget_reached', 1, now())`,
    ];
    for (const text of statements) await query(atNoon, { name: "", text }, [accountId]);
    const [limit] = await findSpentLimits([{ accountId, percent: 80 }]);
    return limit?.isRefused;
  };
  expect([await refused(0), await refused(1), await refused(2)]).toEqual([true, true, false]);
  await atNoon.close();
  await other.drop();
});

test("a limit of a management key has the name of that key", async () => {
  const accountId = await newAccount();
  for (const id of ["mgk_a", "mgk_b"])
    await run(
      `insert into management_keys (management_key_id, account_id, name, scopes, most_keys,
         created_by) values ($1 || $2, $2, $1, '{read}', 1, 'test')`,
      [id, accountId],
    );
  await run(
    `insert into budgets (account_id, family, payer, spent, total_limit)
     values ($1, 'v1', 'mgmt:mgk_b' || $1, 90, 100)`,
    [accountId],
  );
  const found = await alerts.findSpentLimits([{ accountId, percent: 80 }]);
  expect(found).toMatchObject([{ payer: `mgmt:mgk_b${accountId}`, name: "mgk_b" }]);
});

type AnyBudgets = Parameters<Parameters<typeof anyBudgets.map>[0]>[0];
type Limit = sql.FindSpentLimitsRow & { readonly free: bigint };

const byPlace = (one: sql.FindSpentLimitsRow, other: sql.FindSpentLimitsRow) =>
  placeOf(one) < placeOf(other) ? -1 : 1;
const placeOf = (row: sql.FindSpentLimitsRow) => `${row.accountId} ${row.payer} ${row.window}`;

/** A time before that of the last rejection. */
const secondsBefore = (seconds: number) =>
  new Date(Date.UTC(2026, 0, 1, 12) - seconds * 1_000).toISOString();

/** Stores them. Returns the limits that they have now. */
async function newBudgets(facts: AnyBudgets) {
  const { budgets, isActive, rejection, hoursAgo } = facts;
  const accountId = await newAccount();
  const [managed, revoked] = [keyOf(accountId, "v1"), `${keyOf(accountId, "v1")}_other`];
  const person = `person:per_${accountId}`;
  await run("update keys set managed_by = $2 where key_id = $1", [managed, person]);
  await run(
    `insert into keys (key_id, account_id, family, name, status) values ($1, $2, 'v1', 'b key', $3)`,
    [revoked, accountId, isActive ? "active" : "revoked"],
  );
  for (const payer of [revoked, person])
    await run("insert into budgets (account_id, family, payer) values ($1, 'v1', $2)", [
      ...[accountId, payer],
    ]);
  const payers = [managed, revoked, person, ""];
  const made = await run<{ key_id: string; created_at: Date }>(
    "select key_id, created_at from keys where account_id = $1",
    [accountId],
  );
  const madeAt = new Map(made.map((key) => [key.key_id, key.created_at]));
  const limits: Limit[] = [];
  for (const [index, payer] of payers.entries()) {
    const budget = budgets[index];
    expect.assert(budget);
    const { daysAgo, held, spent, limits: most, change } = budget;
    if (change)
      await run(
        `insert into limit_changes values ($1, 'v1', $2, $3, $4::timestamptz, $5)`,
        ...[[accountId, payer, change.window, secondsBefore(change.secondsAgo), change.passed]],
      );
    // What it had spent in all is more than in any window.
    const all = 500;
    const [table, more] = payer === "" ? ["pools", ", posted = 15"] : ["budgets", ""];
    const [row] = await run<{ at: Date; day: number }>(
      `update ${table} set day = (now() at time zone 'utc')::date - $3::integer, spent = $4,
         held = $5, day_base = $6, week_base = $7, month_base = $8, total_base = $9,
         day_limit = $10, week_limit = $11, month_limit = $12, total_limit = $13${more}
       where account_id = $1 and family = 'v1' and $2 = ${payer === "" ? "''" : "payer"}
       returning now() as at, day - date '1970-01-01' as day`,
      [accountId, payer, daysAgo, all, held, ...spent.map((one) => all - one), ...most],
    );
    expect.assert(row);
    const numbers = [row.day, all, held, 0, ...spent.map((one) => all - one)];
    const { windows } = readBudget(
      [...numbers, ...most.map((one) => one ?? -1)].map(BigInt),
      row.at,
    );
    const total = most[3] ?? null;
    const totalLimit = total === null ? null : BigInt(total);
    const starts = startsOf(new Date(Math.max(row.at.getTime(), Number(row.day) * 86_400_000)));
    for (const [place, { name, spent: inWindow, limit }] of windows.entries())
      if (limit !== null)
        limits.push({
          ...{ accountId, family: "v1" as const, payer, window: name, isRefused: false },
          name: payer === managed ? "a key" : payer === revoked ? "b key" : null,
          since: name === "total" ? null : new Date(starts[name]).toISOString().slice(0, 10),
          base: BigInt(all - (spent[place] ?? 0)),
          limitMicro: limit,
          spentMicro: inWindow,
          passed: change?.window === name && change.passed !== null ? BigInt(change.passed) : null,
          ...{ totalLimit, keyCreatedAt: madeAt.get(payer) ?? null, keyExpiresAt: null },
          free: limit - inWindow - BigInt(held),
        });
  }
  if (rejection !== null)
    await run(
      `insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
       values ($1, date_trunc('hour', now()) - $2 * interval '1 hour', $3, $4, 1, $5)`,
      [accountId, hoursAgo, managed, rejection, secondsBefore(0)],
    );
  // By limits that bind the key, and may be those of before.
  const isOld = payers.some(
    (payer, index) => payer !== revoked && (budgets[index]?.change?.secondsAgo ?? 60) < 5,
  );
  // A rejection an hour ago was yesterday.
  const isCap = rejection === "monthly_cap_reached";
  const [least] =
    hoursAgo > 0 || isOld || (!isCap && rejection !== "budget_reached")
      ? []
      : limits
          .filter(({ payer }) => payer !== revoked)
          .filter(({ payer, window }) => (payer === managed && window === "month") === isCap)
          .toSorted((one, other) => Number(one.free - other.free) || byPlace(one, other));
  return {
    ...facts,
    accountId,
    limits: limits.map((one) => ({ ...one, isRefused: one === least })),
  };
}

function spentLimits(
  account: AnyBudgets & { readonly limits: readonly Limit[] },
): sql.FindSpentLimitsRow[] {
  const { limits, percent, isActive } = account;
  return limits
    .filter(({ name }) => isActive || name !== "b key")
    .filter(({ limitMicro, spentMicro }) => limitMicro > 0n && spentMicro >= BigInt(percent))
    .map(({ free, ...one }) => one);
}
