// Tests settlement batches on a database against a simple model.

import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Attempt, AttemptSchema, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { costMicro } from "../../src/base/cost.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { min } from "../../src/base/money.ts";
import { firstEventBoundsMs } from "../../src/base/shown-figures.ts";
import { type TokenCategory, tokenCategories } from "../../src/base/token-categories.ts";
import { type Hold, requestKeyOf } from "../../src/billing/admission.ts";
import { BatchConnection } from "../../src/billing/batch-queue.ts";
import { settlementBatch } from "../../src/billing/ledger-batches.ts";
import { chargedUsage } from "../../src/billing/price.ts";
import type { Settled, SettleRequest } from "../../src/billing/settlement.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { beside, ofCategories, within } from "../support/arbitraries.ts";
import { endingWith, freshLedger, heldFor, holdRequest, price, usage } from "../support/ledger.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let postgres: Postgres;
let connection: BatchConnection;
beforeAll(async () => {
  ledger = await freshLedger();
  postgres = connectPostgres(ledger.url);
  connection = new BatchConnection(postgres);
});
afterAll(async () => {
  await connection.close();
  await postgres.close();
  await ledger.close();
});

const never = new AbortController().signal;
const which = fc.nat(5);
/** Each hold covers 100 tokens of input and grants 100 of output: these come up to it or beyond. */
const anyUsed = fc
  .tuple(ofCategories(fc.oneof(fc.nat(60), fc.constantFrom(0, 99, 100, 101))), fc.nat(3))
  .map(([tokens, webSearches]) => usage({ ...tokens, webSearches }));
const anyOutcome = fc.constantFrom(
  ...[Outcome.COMPLETED, Outcome.PROVIDER_FAILED, Outcome.PROVIDER_BROKE, Outcome.CLIENT_LEFT],
  ...[Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, Outcome.CLIENT_LEFT_BEFORE_CONTENT, Outcome.REVOKED],
  ...[Outcome.TIME_LIMIT, Outcome.GATEWAY_FAILED, Outcome.REAPED, Outcome.INPUT_ABOVE_HOLD],
);
/** Which count of first events has an answer, from zero, and how long it took. */
const anyFirstEvent = fc.constantFrom(
  ...firstEventBoundsMs.flatMap((ms, index) => [
    { count: index, ms },
    { count: index + 1, ms: ms + 1 },
  ]),
);
type FirstEvent = typeof anyFirstEvent extends fc.Arbitrary<infer T> ? T : never;
const command = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      which,
      used: anyUsed,
      outcome: anyOutcome,
      hasFirstEvent: fc.boolean(),
    }),
  },
  fc.record({
    do: fc.constant("shrink" as const),
    which,
    micro: fc.oneof(beside(0n, heldFor(100)), within(0n, heldFor(120))),
  }),
);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

test("any batches of endings and shrinks charge each request once, at most its hold, and release the rest", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(command, { minLength: 1, maxLength: 8 }), { maxLength: 4 }),
      anyFirstEvent,
      async (batches, firstEvent) => {
        // Two accounts, three keys and both pools of one of them.
        const first = await ledger.payer(heldFor(100) * 5n);
        const second = await ledger.payer(heldFor(100) * 5n);
        const { accountId } = first;
        const sibling = await ledger.payer(0n, { accountId });
        const other = await ledger.payer(heldFor(100) * 5n, { accountId, family: "v2" });
        const payers = [first, second, sibling, first, second, other];
        const requestId = newRequestId();
        const holds = await Promise.all(
          payers.map((payer, index) => {
            // Two accounts may have the same id.
            const request = holdRequest(payer, 100, index < 2 ? { requestId } : {});
            return ledger.holds.place(request, never);
          }),
        );
        await admitEarlier(holds[3]);
        const running = new Map(holds.map((hold, index) => [index, hold.amountMicro]));
        const charged: Charged = new Map();
        for (const batch of batches) {
          const outcomes = await connection.run(() =>
            settlementBatch(batch.map((one) => askOf(one, holds, firstEvent))),
          );
          check(batch, outcomes, running, charged);
          const pools = await readPools();
          for (const { accountId, family } of [first, second, other]) {
            const isOfPool = (index: number) =>
              payers[index]?.accountId === accountId && payers[index]?.family === family;
            const sums = (amounts: Iterable<[number, bigint]>) =>
              [...amounts].reduce(
                (sum, [index, micro]) => (isOfPool(index) ? sum + micro : sum),
                0n,
              );
            expect(pools.get(`${accountId}/${family}`)).toEqual({
              posted:
                heldFor(100) * 5n -
                sums([...charged].map(([index, { amount }]) => [index, amount])),
              held: sums(running),
            });
          }
          const hours = await rolledUp();
          for (const { keyId } of [first, second, sibling, other]) {
            const own = [...charged].filter(([index]) => payers[index]?.keyId === keyId);
            expect(hours.get(keyId)).toEqual({ ...sumsOf(own, firstEvent), is_last_use: true });
          }
        }
        // Months, roll-ups and charges agree with the pools, row by row.
        expect(await ledger.store.verifyLedger()).toEqual([]);
      },
    ),
    { numRuns: 25 },
  );
});

test("each settlement of an hour adds to every figure of it", async () => {
  const payer = await ledger.payer(heldFor(100) * 80n);
  const used = usage({
    ...{ input: 1, output: 2, thinking: 3, cacheWrite5m: 4, cacheWrite1h: 5, cacheRead: 6 },
    webSearches: 1,
  });
  const endings = Array.from({ length: counts }, (_, count) => {
    const ms = firstEventBoundsMs[count] ?? 1_000_000;
    // No two neighbours are as many.
    return Array(1 + (count % 2)).fill(endingWith(used, attemptsOf(ms)));
  }).flat();
  let once: Record<string, unknown> = {};
  for (const times of [1, 2]) {
    const holds = await Promise.all(
      endings.map(() => ledger.holds.place(holdRequest(payer, 100), never)),
    );
    const requests = holds.map((hold, index): SettleRequest => {
      const ending = endings[index] ?? endingWith(used);
      return { kind: "settle", hold, ending };
    });
    await connection.run(() => settlementBatch(requests));
    const { is_last_use: _, ...sums } = (await rolledUp()).get(payer.keyId) ?? {};
    if (times === 1) once = sums;
    const doubled = Object.entries(once).map(([name, sum]) => [
      name,
      BigInt(times) * BigInt(`${sum}`),
    ]);
    expect(sums).toEqual(Object.fromEntries(doubled));
  }
  expect(firstEventCounts.map((name) => once[name])).toEqual(
    firstEventCounts.map((_, count) => BigInt(1 + (count % 2))),
  );
});

/** What was charged, by the number of the request. */
type Charged = Map<
  number,
  { amount: bigint; hold: bigint; usage: Usage; ending: Extract<Command, { do: "settle" }> }
>;

async function readPools() {
  const rows = await ledger.run<{ id: string; posted: bigint; held: bigint }>(
    "select account_id || '/' || family as id, posted, held from pools",
  );
  return new Map(rows.map(({ id, ...pool }) => [id, pool]));
}

/** As if the request had been admitted an hour ago. */
async function admitEarlier(hold: Hold | undefined): Promise<void> {
  const text =
    "update holds set admitted_at = admitted_at - interval '1 hour' where request_id = $1";
  await ledger.run(text, [hold?.requestId]);
}

const counts = firstEventBoundsMs.length + 1;
const firstEventCounts = Array.from({ length: counts }, (_, index) => `first_event_${index + 1}`);

/** The sums of the hours of each key, and if it was used last at its newest settlement. */
async function rolledUp() {
  const columns = [
    ...["input", "output", "thinking", "cache_write_5m", "cache_write_1h", "cache_read"],
    ...["web_searches", "amount", "amount_input", "amount_cache", "amount_thinking"],
    ...["amount_output", "requests", "completed", "failed", "cut", "cache_saved"],
    ...firstEventCounts,
  ];
  const sums = columns.map((name) => `coalesce(sum(u.${name}), 0)::bigint as ${name}`);
  const rows = await ledger.run<{ id: string }>(
    `select k.key_id as id, ${sums.join(", ")},
       (select last_used_at from budgets b where b.payer = k.key_id)
         is not distinct from (select max(settled_at) from charges c where c.key_id = k.key_id)
         as is_last_use
     from keys k
     left join usage_hourly u on u.key_id = k.key_id
     group by k.key_id`,
  );
  return new Map(rows.map(({ id, ...sums }): [string, Record<string, unknown>] => [id, sums]));
}

const failures: readonly Outcome[] = [
  ...[Outcome.PROVIDER_FAILED, Outcome.PROVIDER_BROKE, Outcome.GATEWAY_FAILED],
  ...[Outcome.REAPED, Outcome.INPUT_ABOVE_HOLD],
];

/** The same of charges. A hold that is too small covers input, cache, thinking, then output. */
function sumsOf(
  charges: readonly (readonly [number, NonNullable<ReturnType<Charged["get"]>>])[],
  firstEvent: FirstEvent,
) {
  const all = charges.map(([, one]) => one);
  const sum = (of: (one: (typeof all)[number]) => bigint) =>
    all.reduce((before, one) => before + of(one), 0n);
  const tokens = (category: TokenCategory) => sum(({ usage: used }) => BigInt(used[category]));
  const count = (has: (ending: (typeof all)[number]["ending"]) => boolean) =>
    sum(({ ending }) => (has(ending) ? 1n : 0n));
  const covered = (...categories: TokenCategory[]) =>
    sum(({ hold, usage: used }) => {
      const none = { input: 0, output: 0, thinking: 0 };
      const writes = { cacheWrite5m: 0, cacheWrite1h: 0, cacheRead: 0 };
      const part = Object.fromEntries(categories.map((category) => [category, used[category]]));
      const { webSearches } = used;
      return min(costMicro(price, { ...none, ...writes, webSearches, ...part }), hold);
    });
  const withCache = ["input", "cacheWrite5m", "cacheWrite1h", "cacheRead"] as const;
  const [requests, completed, failed] = [
    BigInt(all.length),
    count(({ outcome }) => outcome === Outcome.COMPLETED),
    count(({ outcome }) => failures.includes(outcome)),
  ];
  return {
    ...{ input: tokens("input"), output: tokens("output"), thinking: tokens("thinking") },
    ...{ cache_write_5m: tokens("cacheWrite5m"), cache_write_1h: tokens("cacheWrite1h") },
    ...{ cache_read: tokens("cacheRead"), requests, completed, failed },
    web_searches: sum(({ usage: used }) => BigInt(used.webSearches)),
    cut: requests - completed - failed,
    cache_saved:
      tokens("cacheRead") * (price.input - price.cacheRead) +
      tokens("cacheWrite5m") * (price.input - price.cacheWrite5m) +
      tokens("cacheWrite1h") * (price.input - price.cacheWrite1h),
    amount: covered(...tokenCategories),
    amount_input: covered("input"),
    amount_cache: covered(...withCache) - covered("input"),
    amount_thinking: covered(...withCache, "thinking") - covered(...withCache),
    amount_output: covered(...tokenCategories) - covered(...withCache, "thinking"),
    ...Object.fromEntries(
      firstEventCounts.map((name, index) => [
        name,
        firstEvent.count === index ? count(({ hasFirstEvent }) => hasFirstEvent) : 0n,
      ]),
    ),
  };
}

test("a checkpoint of requests that end at the same time neither blocks their charges nor fails", async () => {
  const payer = await ledger.payer(heldFor(100) * 3n);
  const placed = await Promise.all(
    [1, 2, 3].map(() => ledger.holds.place(holdRequest(payer, 100), never)),
  );
  const [first, middle, last] = placed.sort((one, other) =>
    one.requestId < other.requestId ? -1 : 1,
  );
  if (!first || !middle || !last) throw new Error("no holds");
  // Another session blocks the checkpoint, which then waits with the first hold locked.
  const other = new Client(ledger.url);
  await other.connect();
  await other.query("begin");
  await other.query("select from holds where request_id = $1 for update", [middle.requestId]);
  const checkpoint = ledger.store.checkpoint(
    placed.map((hold) => ({ ...requestKeyOf(hold), usage: usage({ output: 1 }) })),
  );
  await waiting(1);
  // In the order of their endings, which is not the order of their ids.
  const requests = [last, first].map(
    (hold): SettleRequest => ({ kind: "settle", hold, ending: endingWith({ output: 7 }) }),
  );
  const settled = connection.run(() => settlementBatch(requests));
  await waiting(2);
  await other.query("commit");
  expect(await checkpoint).toBe(3);
  expect((await settled).map(({ kind }) => kind)).toEqual(["charged", "charged"]);
  await other.end();
});

/** Waits until this many statements wait for locks. */
async function waiting(count: number): Promise<void> {
  for (;;) {
    const text =
      "select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    const [row] = await ledger.run<{ n: number }>(text);
    if (row?.n === count) return;
  }
}

function askOf(one: Command, holds: readonly Hold[], firstEvent: FirstEvent): SettleRequest {
  const hold = holds[one.which];
  if (!hold) throw new Error("no such hold");
  return one.do === "shrink"
    ? { kind: "shrink", hold, amountMicro: one.micro }
    : {
        kind: "settle",
        hold,
        ending: {
          ...endingWith(one.used, attemptsOf(one.hasFirstEvent ? firstEvent.ms : undefined)),
          outcome: one.outcome,
        },
      };
}

/** Of several attempts the last that had a first event counts. */
function attemptsOf(firstEventMs: number | undefined): Attempt[] {
  const after = (ms: number) =>
    create(AttemptSchema, ms < 0 ? {} : { firstEventAfter: durationFromMs(ms) });
  return firstEventMs === undefined ? [after(-1)] : [after(1), after(firstEventMs), after(-1)];
}

/** In a batch holds shrink first. Of several endings of one request the first one counts. */
function check(
  batch: readonly Command[],
  outcomes: readonly Settled[],
  running: Map<number, bigint>,
  charged: Charged,
): void {
  // Of several shrinks in one batch the last one counts.
  const shrunk = new Map(
    batch.flatMap((one) => (one.do === "shrink" ? [[one.which, one.micro] as const] : [])),
  );
  for (const [index, micro] of shrunk) {
    const held = running.get(index);
    if (held !== undefined && micro < held) running.set(index, micro);
  }
  const charges = new Map<
    number,
    { amountMicro: bigint; overrunMicro: bigint; holdMicro: bigint }
  >();
  for (const one of batch) {
    const holdMicro = running.get(one.which);
    if (one.do !== "settle" || holdMicro === undefined) continue;
    const cost = costMicro(price, one.used);
    const part = chargedUsage(one.used, 100);
    const amountMicro = min(costMicro(price, part), holdMicro);
    charges.set(one.which, { amountMicro, overrunMicro: cost - amountMicro, holdMicro });
    charged.set(one.which, { amount: amountMicro, hold: holdMicro, usage: part, ending: one });
    running.delete(one.which);
  }
  expect(outcomes).toMatchObject(
    batch.map((one) => {
      if (one.do === "shrink") return { kind: "resized" };
      const charge = charges.get(one.which);
      return charge ? { kind: "charged", charge } : { kind: "missing" };
    }),
  );
}
