// What the statements find and change of running requests beside those of other accounts, nodes and
// months, against a simple model. The time of the database stands still.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { stopNow } from "../support/sql-clock.ts";

const now = new Date(Date.UTC(2026, 10, 22, 12));
const after = (ms: number) => new Date(now.getTime() + ms);
const minute = 60_000;

let database: Awaited<ReturnType<typeof freshDatabase>>;
let postgres: Postgres;
beforeAll(async () => {
  database = await freshDatabase();
  await stopNow(database, now);
  postgres = connectPostgres(database.url);
  await run(
    `insert into price_versions (price_version, model, input, output, thinking, cache_write_5m,
       cache_write_1h, cache_read) values ('p', 'm', 1000, 1000, 1000, 1000, 1000, 1000)`,
  );
  for (const month of ["2026_10", "2026_11"])
    await run(
      `create table if not exists charges_${month} partition of charges
       for values from ('${month.replace("_", "-")}-01')
         to ('${month.replace("_", "-")}-01'::date + interval '1 month')`,
    );
});
afterAll(async () => {
  await postgres.close();
  await database.drop();
});

const run = <Row>(text: string, values: readonly unknown[] = []) =>
  query<Row>(postgres, { name: "", text }, values);

/** Requests of two accounts, which may have the same ids. */
const anyHolds = fc.uniqueArray(
  fc.record({
    account: fc.nat(1),
    request: fc.nat(2),
    family: fc.constantFrom("v1", "v2"),
    month: fc.constantFrom("2026-10-01", "2026-11-01"),
    amount: fc.integer({ min: 1, max: 3 }),
    manager: fc.constantFrom(null, "person:ana"),
    /** True of the first of a pool: the budgets of its key and person have a limit. */
    isLimited: fc.boolean(),
    node: fc.constantFrom(null, "live", "other", "dead", "gone"),
    deadlineMs: fc.constantFrom(-1, 0, 1),
    admittedMs: fc.integer({ min: -2, max: 0 }),
    isCharged: fc.constantFrom(false, false, true),
    /** Less than its pool holds, as much, or more. */
    posted: fc.constantFrom(-1, 0, 1),
  }),
  { selector: ({ account, request }) => `${account}/${request}`, maxLength: 6, size: "max" },
);
type Facts = typeof anyHolds extends fc.Arbitrary<(infer T)[]> ? T : never;
type Hold = Facts & ReturnType<typeof idsOf>;

const families = ["v1", "v2"] as const;
const accountOf = (account: number) => `acc_${account}`;
const idsOf = ({ account, request, family }: Facts) => ({
  accountId: accountOf(account),
  requestId: `req_${request}`,
  keyId: `key_${account}_${family}`,
});

async function write(facts: readonly Facts[]): Promise<Hold[]> {
  const holds = facts.map((one) => ({ ...one, ...idsOf(one) }));
  for (const table of ["holds", "ended_requests", "budgets", "keys", "pools", "nodes"])
    await run(`delete from ${table}`);
  await run("alter table charges disable trigger user");
  await run("delete from charges");
  await run(
    "insert into nodes (node_id, process) values ('live', ''), ('other', ''), ('dead', '')",
  );
  for (const account of [0, 1])
    for (const family of families) {
      const accountId = accountOf(account);
      await run("insert into accounts values ($1, '') on conflict do nothing", [accountId]);
      const own = holds.filter((one) => one.account === account && one.family === family);
      const held = own.reduce((sum, { amount }) => sum + amount, 0);
      const [posted = 0, keyId] = [own[0]?.posted, `key_${account}_${family}`];
      // After one of its holds the pool covers the others, or just not.
      const left = held - (own[0]?.amount ?? 0);
      await run(
        `insert into pools (account_id, family, posted, held, in_debt, running)
         values ($1, $2, $3, $4, true, $5)`,
        [accountId, family, left + posted, held, own.length],
      );
      await run("insert into keys (key_id, account_id, family, name) values ($1, $2, $3, '')", [
        ...[keyId, accountId, family],
      ]);
      for (const [payer, holding] of [
        [keyId, own],
        ["person:ana", own.filter(({ manager }) => manager !== null)],
      ] as const) {
        const known = own[0]?.isLimited ? holding : [];
        await run(
          `insert into budgets (account_id, family, payer, held, running, day_limit)
           values ($1, $2, $3, $4, $5, $6)`,
          [
            ...[accountId, family, payer],
            ...[known.reduce((sum, { amount }) => sum + amount, 0), known.length],
            own[0]?.isLimited ? 1_000 : null,
          ],
        );
      }
    }
  for (const one of holds) {
    const ids = [one.accountId, one.requestId, one.family, one.keyId, one.month];
    await run(
      `insert into holds (account_id, request_id, family, key_id, model, month, amount,
         price_version, nonce, node_id, admitted_at, deadline, granted_output, manager)
       values ($1, $2, $3, $4, 'm', $5, $6, 'p', '', $7, $8, $9, 0, $10)`,
      [...ids, one.amount, one.node, after(one.admittedMs), after(one.deadlineMs), one.manager],
    );
    if (one.isCharged)
      await run(
        `insert into charges (account_id, request_id, month, family, key_id, model,
           input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
           price_version, granted_output, hold, amount, overrun, output_over, thinking_over,
           outcome, basis, admitted_at, settled_at)
         values ($1, $2, $5, $3, $4, 'm', 0, 0, 0, 0, 0, 0, 0, 'p', 0, 0, 0, 0, 0, 0,
           'completed', 'reported', $6, $6)`,
        [...ids, now],
      );
  }
  return holds;
}

const named = (rows: readonly { accountId: string; requestId: string }[]) =>
  rows.map(({ accountId, requestId }) => `${accountId}/${requestId}`).sort();

/** What pools, budgets and holds have. */
async function state() {
  type Holding = { account_id: string; family: string; held: bigint; running: number };
  const pools = await run<Holding & { in_debt: boolean }>(
    "select account_id, family, held, running, in_debt from pools order by 1, 2",
  );
  const budgets = await run<Holding & { payer: string; is_limited: boolean }>(
    "select account_id, family, payer, held, running, b.is_limited from budgets b order by 1, 2, 3",
  );
  const holds = await run<{ accountId: string; requestId: string; amount: bigint }>(
    `select account_id as "accountId", request_id as "requestId", amount from holds`,
  );
  return { pools, budgets, holds };
}

/** The same of the model: how much each request holds. Pools were in debt, unless it has ended. */
function expected(
  before: Awaited<ReturnType<typeof state>>,
  holds: readonly Hold[],
  amountOf: (hold: Hold) => number,
  posted: ReadonlyMap<string, bigint>,
  isLeft = (_: Hold) => true,
) {
  const sum = (has: (hold: Hold) => boolean) =>
    BigInt(holds.filter(has).reduce((all, one) => all + amountOf(one), 0));
  const count = (has: (hold: Hold) => boolean) =>
    holds.filter((one) => has(one) && isLeft(one)).length;
  return {
    pools: before.pools.map((pool) => {
      const isOwn = (one: Hold) => one.accountId === pool.account_id && one.family === pool.family;
      const held = sum(isOwn);
      const running = count(isOwn);
      const isChanged = holds.some((one) => isOwn(one) && amountOf(one) !== one.amount);
      const has = posted.get(`${pool.account_id}/${pool.family}`) ?? 0n;
      return { ...pool, held, running, in_debt: !isChanged || has < held };
    }),
    budgets: before.budgets.map((budget) => {
      const { account_id: accountId, family, payer, is_limited: isLimited } = budget;
      const isOwn = (one: Hold) =>
        isLimited &&
        one.accountId === accountId &&
        one.family === family &&
        (one.keyId === payer || one.manager === payer);
      return { ...budget, held: sum(isOwn), running: count(isOwn) };
    }),
  };
}

async function postedOf(): Promise<Map<string, bigint>> {
  const rows = await run<{ id: string; posted: bigint }>(
    "select account_id || '/' || family as id, posted from pools",
  );
  return new Map(rows.map(({ id, posted }) => [id, posted]));
}

test("a hold that is left of a charged request is released, and no other", async () => {
  await fc.assert(
    fc.asyncProperty(anyHolds, async (facts) => {
      const holds = await write(facts);
      const [first] = holds;
      if (!first) return;
      const [before, posted] = [await state(), await postedOf()];
      const { accountId, requestId } = first;
      await postgres.run(sql.releaseHold, { accountId, requestId });
      const left = (one: Hold) => (one === first && first.isCharged ? 0 : one.amount);
      const found = await state();
      expect(found).toMatchObject(expected(before, holds, left, posted, (one) => left(one) > 0));
      expect(named(found.holds)).toEqual(named(holds.filter((one) => left(one) > 0)));
    }),
    { numRuns: 35 },
  );
});

test("holds change their size with those of their pools and budgets, and grow only if they may", async () => {
  await fc.assert(
    fc.asyncProperty(
      anyHolds,
      fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 2, maxLength: 2 }),
      fc.boolean(),
      async (facts, amounts, mayGrow) => {
        const holds = await write(facts);
        const [before, posted] = [await state(), await postedOf()];
        const resized = holds.slice(0, 2);
        await postgres.run(sql.resizeHolds, {
          accountIds: resized.map(({ accountId }) => accountId),
          requestIds: resized.map(({ requestId }) => requestId),
          amounts: amounts.slice(0, resized.length).map(BigInt),
          mayGrow,
        });
        const amountOf = (one: Hold) => {
          const amount = amounts[resized.indexOf(one)];
          return amount !== undefined && (mayGrow || amount < one.amount) ? amount : one.amount;
        };
        const found = await state();
        const all = expected(before, holds, amountOf, posted);
        expect(found.budgets).toEqual(all.budgets);
        expect(found.pools).toEqual(all.pools);
        const sizes = holds.map((one) => `${one.accountId}/${one.requestId} ${amountOf(one)}`);
        expect(
          found.holds.map((one) => `${one.accountId}/${one.requestId} ${one.amount}`).sort(),
        ).toEqual(sizes.sort());
      },
    ),
    { numRuns: 35 },
  );
});

test("a node ends the requests that it is asked to end, and old requests to end are forgotten", async () => {
  await fc.assert(
    fc.asyncProperty(
      anyHolds,
      fc.array(
        fc.record({ index: fc.nat(5), agoMs: fc.constantFrom(0, 10 * minute, 10 * minute + 1) }),
        { maxLength: 3 },
      ),
      async (facts, asked) => {
        const holds = await write(facts);
        const open = new Map<string, number>();
        for (const { index, agoMs } of asked) {
          const one = holds[index];
          const { accountId, requestId } = one ?? { accountId: "acc_0", requestId: "req_none" };
          const answer = await postgres.run(sql.askToEnd, { accountId, requestId });
          expect(answer).toEqual(one && { isAsked: one.node !== null });
          if (!one || one.node === null) continue;
          const id = `${accountId}/${requestId}`;
          open.set(id, agoMs);
          const text =
            "update ended_requests set asked_at = $3 where (account_id, request_id) = ($1, $2)";
          await run(text, [accountId, requestId, after(-agoMs)]);
        }
        const taken = await postgres.run(sql.takeEnded, { nodeId: "live" });
        const isTaken = (id: string, agoMs: number) =>
          agoMs > 10 * minute ||
          holds.some((one) => `${one.accountId}/${one.requestId}` === id && one.node === "live");
        const all = [...open];
        expect(named(taken)).toEqual(
          all.flatMap(([id, agoMs]) => (isTaken(id, agoMs) ? [id] : [])).sort(),
        );
        const left = await run<{ accountId: string; requestId: string }>(
          `select account_id as "accountId", request_id as "requestId" from ended_requests`,
        );
        expect(named(left)).toEqual(
          all.flatMap(([id, agoMs]) => (isTaken(id, agoMs) ? [] : [id])).sort(),
        );
      },
    ),
    { numRuns: 35 },
  );
});

test("the running requests of an account, of a dead node and of all are found and summed", async () => {
  await fc.assert(
    fc.asyncProperty(anyHolds, fc.integer({ min: 1, max: 3 }), async (facts, rows) => {
      const holds = await write(facts);
      const orphans: string[] = [];
      for (let last = { accountId: "", requestId: "" }; ; ) {
        const page = await postgres.run(sql.findOrphans, {
          nodeIds: ["dead"],
          afterAccountId: last.accountId,
          afterRequestId: last.requestId,
          rows,
        });
        orphans.push(...page.map(({ accountId, requestId }) => `${accountId}/${requestId}`));
        const end = page.at(-1);
        if (!end || page.length < rows) break;
        last = end;
      }
      const isOrphan = ({ deadlineMs, node }: Hold) =>
        deadlineMs < 0 || node === "dead" || node === "gone";
      expect(orphans).toEqual(named(holds.filter(isOrphan)));
      const times = (some: readonly Hold[]) => some.map(({ admittedMs }) => admittedMs);
      const oldest = (some: readonly Hold[]) =>
        some.length === 0 ? null : after(Math.min(...times(some)));
      for (const account of [0, 1]) {
        const accountId = accountOf(account);
        const own = holds.filter((one) => one.account === account);
        const inOrder = own.toSorted(
          (one, other) => one.admittedMs - other.admittedMs || one.request - other.request,
        );
        const listed = await postgres.run(sql.listRunningOf, {
          ...{ accountId, rows, afterAt: null, afterId: "" },
        });
        expect(listed.map(({ requestId }) => requestId)).toEqual(
          inOrder.slice(0, rows).map(({ requestId }) => requestId),
        );
        for (const keyIds of [null, [`key_${account}_v1`]])
          expect(await postgres.run(sql.findFirstRunning, { accountId, keyIds })).toMatchObject({
            admittedAt: oldest(own.filter(({ keyId }) => !keyIds || keyIds.includes(keyId))),
          });
      }
      const running = await postgres.run(sql.findRunning, { requestId: "req_1" });
      expect(running.map(({ accountId }) => accountId)).toEqual(
        holds
          .filter(({ request }) => request === 1)
          .toSorted(
            (one, other) => one.admittedMs - other.admittedMs || one.account - other.account,
          )
          .map(({ accountId }) => accountId),
      );
      const deadlines = holds.map(({ deadlineMs }) => deadlineMs);
      expect(await postgres.run(sql.sumHolds)).toEqual({
        requests: BigInt(holds.length),
        heldMicro: BigInt(holds.reduce((sum, { amount }) => sum + amount, 0)),
        oldestAdmittedAt: oldest(holds),
        firstDeadlineAt: holds.length === 0 ? null : after(Math.min(...deadlines)),
      });
    }),
    { numRuns: 35 },
  );
});

test("the day of the oldest request is the one before while that runs", async () => {
  const [one, other] = await write(
    [0, 1].map((request) => ({
      ...{
        account: 0,
        request,
        family: "v1",
        month: "2026-11-01",
        amount: 1,
        node: null,
        manager: null,
        isLimited: false,
      },
      ...{ deadlineMs: 1, admittedMs: request * -86_400_000, isCharged: false, posted: 0 },
    })),
  );
  expect([one?.requestId, other?.requestId]).toEqual(["req_0", "req_1"]);
  expect(await postgres.run(sql.findOldestHold)).toEqual({ day: "2026-11-21" });
});

test("a checkpoint raises the counts of its requests, each by itself, and never lowers one", async () => {
  const names = [
    ...["input", "output", "thinking", "cache_write_5m", "cache_write_1h", "cache_read"],
    "web_searches",
  ];
  const anyCounts = fc.array(fc.nat(2), { minLength: names.length, maxLength: names.length });
  const list = names.join(", ");
  await fc.assert(
    fc.asyncProperty(anyHolds, anyCounts, anyCounts, async (facts, before, reported) => {
      const holds = await write(facts);
      const [first] = holds;
      if (!first) return;
      await run(`update holds set ${names.map((name, at) => `${name} = $${at + 1}`)}`, before);
      const [input, output, thinking, write5m, write1h, cacheRead, webSearches] = reported;
      const one = (count: number | undefined) => [count ?? 0];
      const changed = await postgres.run(sql.checkpointHolds, {
        ...{ accountIds: [first.accountId], requestIds: [first.requestId] },
        ...{ input: one(input), output: one(output), thinking: one(thinking) },
        ...{ cacheWrite5m: one(write5m), cacheWrite1h: one(write1h), cacheRead: one(cacheRead) },
        webSearches: one(webSearches),
      });
      expect(changed).toBe(1);
      const found = await run<{ id: string; counts: number[] }>(
        `select account_id || request_id as id, array[${list}]::integer[] as counts from holds`,
      );
      for (const { id, counts } of found)
        expect(counts).toEqual(
          id === first.accountId + first.requestId
            ? before.map((count, at) => Math.max(count, reported[at] ?? 0))
            : before,
        );
    }),
    { numRuns: 35 },
  );
});
