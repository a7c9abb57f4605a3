// What alerts, forecasts and operators read of pools, keys and accounts, against a simple model.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
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

const anyKeys = fc.array(
  fc.record({
    status: fc.constantFrom("active", "active", "revoked"),
    cap: fc.constantFrom(null, 0, 100, 100),
    spent: fc.constantFrom(0, 79, 80, 81, 99, 100, 101),
    monthsAgo: fc.constantFrom(0, 0, 1),
    rejection: fc.constantFrom(null, "monthly_cap_reached", "credits_exhausted"),
    hoursAgo: fc.constantFrom(0, 1),
  }),
  { minLength: 4, maxLength: 4 },
);

test("alerts read the keys that have spent a part of the cap of this month, or all of it", async () => {
  const monthStart = "date_trunc('month', now() at time zone 'utc')";
  await fc.assert(
    fc.asyncProperty(anyKeys, async (facts) => {
      const accounts = [await newAccount(), await newAccount()];
      const keys = facts.map((key, index) => {
        const accountId = accounts[index >> 1] ?? "";
        return { ...key, accountId, keyId: keyOf(accountId, index % 2 === 0 ? "v1" : "v2") };
      });
      for (const { keyId, accountId, ...key } of keys) {
        await run("update keys set status = $2 where key_id = $1", [keyId, key.status]);
        await run(
          `update budgets set month_limit = $2, spent = $4, month_base = 0,
             day = (${monthStart} - $3 * interval '1 month')::date where payer = $1`,
          [keyId, key.cap, key.monthsAgo, key.spent],
        );
        if (key.rejection !== null)
          await run(
            `insert into errors_hourly (account_id, hour, key_id, reason, requests)
             values ($1, date_trunc('hour', now()) - $2 * interval '1 hour', $3, $4, 1)`,
            [accountId, key.hoursAgo, keyId, key.rejection],
          );
      }
      for (const accountId of accounts) {
        const found = await alerts.findSpentCaps([accountId], 80);
        expect(found.toSorted((one, other) => (one.keyId < other.keyId ? -1 : 1))).toMatchObject(
          keys
            .filter(
              (key) =>
                key.accountId === accountId &&
                key.status === "active" &&
                key.cap === 100 &&
                key.spent >= 80 &&
                key.monthsAgo === 0,
            )
            .map(({ keyId, spent, rejection, hoursAgo }) => ({
              ...{ keyId, accountId, name: "a key", capMicro: 100n, spentMicro: BigInt(spent) },
              // A rejection an hour ago was in the month before.
              isReached: spent >= 100 || (rejection === "monthly_cap_reached" && hoursAgo === 0),
            })),
        );
      }
    }),
    { numRuns: 40 },
  );
});
