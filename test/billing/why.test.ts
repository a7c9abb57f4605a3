// A bar of the usage that is opened: its keys, models, failures and refusals add up to the bar, and
// both to the charges. No two figures of the rows are the same, so that none stands for another.

import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  Bucket,
  QueryUsageRequestSchema,
  UsageGroup,
  type UsageRow,
  type UsageSums,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { reasonName } from "../../src/base/reasons.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { Rejections } from "../../src/billing/rejections.ts";
import { outcomeName } from "../../src/billing/rows.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { callBy } from "../support/calls.ts";
import { endingWith, log, price } from "../support/ledger.ts";
import { dayMs, freshUsage, type Question, stamp } from "../support/usage.ts";

const hourMs = 3_600_000;
const credits = 1_000_000_000_000n;
const { KEY, MODEL } = UsageGroup;

let world: Awaited<ReturnType<typeof freshUsage>>;
let payers: Payer[];
beforeAll(async () => {
  world = await freshUsage();
  const first = await world.payer(credits);
  const { accountId } = first;
  payers = [
    first,
    await world.payer(credits, { accountId, family: "v2" }),
    await world.payer(credits, { accountId }),
  ];
  // Another account, whose charges are in no figure.
  await world.chargeAt(await world.payer(credits), world.daysAgo(5), {
    ...endingWith({ input: 1 }),
    outcome: Outcome.REVOKED,
  });
  let n = 0;
  for (const days of [6, 5, 4])
    for (const hour of [3, 4, 23])
      for (const [index, payer] of payers.entries())
        for (const outcome of failing.slice(0, 2 + index + (days % 2) * 3)) {
          n++;
          // Powers would be too large; squares differ in every sum that is compared here.
          const tokens = {
            ...{ input: n * n, output: 3 * n, thinking: 5 * n },
            ...{ cacheRead: 7 * n * n, cacheWrite5m: 11 * n, cacheWrite1h: n },
          };
          await world.chargeAt(
            payer,
            world.daysAgo(days, hour * hourMs + n * 1_000),
            { ...endingWith(tokens), outcome: n % 3 === 0 ? Outcome.COMPLETED : outcome },
            { model: `model-${n % 4}`, tags: n % 2 === 0 ? { team: `t${n % 6}` } : {} },
          );
        }
  const rejections = new Rejections({ db: world.postgres, log });
  payers.forEach((payer, index) => {
    for (let times = 0; times < 3 + index * 2; times++)
      rejections.count(payer, new ApiError("rate_limited"));
    for (let times = 0; times < 1 + index * 5; times++)
      rejections.count(payer, new ApiError("credits_exhausted"));
  });
  await rejections.stop();
});
afterAll(async () => {
  expect(await world.store.verifyLedger()).toEqual([]);
  await world.close();
});

const failing: readonly Outcome[] = [
  ...[Outcome.PROVIDER_FAILED, Outcome.CLIENT_LEFT, Outcome.PROVIDER_BROKE, Outcome.REVOKED],
  ...[Outcome.TIME_LIMIT, Outcome.REAPED, Outcome.GATEWAY_FAILED],
];

const scope = () => ({ accountId: payers[0]?.accountId ?? "", onlyKey: undefined });
const ask = (question: Question) => world.query(question, scope());

/** Each figure that rows are added up by. */
function figuresOf(all: readonly (UsageSums | undefined)[]) {
  const sum = (of: (sums: UsageSums) => bigint) =>
    all.reduce((before, sums) => before + (sums ? of(sums) : 0n), 0n);
  return {
    amount: sum((one) => one.chargedMicrocredits),
    requests: sum((one) => one.requests),
    failed: sum((one) => one.failed),
    cut: sum((one) => one.cut),
    input: sum(({ usage }) => usage?.input ?? 0n),
    output: sum(({ usage }) => usage?.output ?? 0n),
    thinking: sum(({ usage }) => usage?.thinking ?? 0n),
    cacheRead: sum(({ usage }) => usage?.cacheRead ?? 0n),
    cacheWrite: sum(({ usage }) => (usage?.cacheWrite5m ?? 0n) + (usage?.cacheWrite1h ?? 0n)),
    saved: sum((one) => one.cacheSavedNanocredits ?? 0n),
  };
}

const sumsOf = (rows: readonly UsageRow[]) => rows.map(({ sums }) => sums);

/** The same from the charges of a range. */
async function charged(from: Date, to: Date, condition = "true") {
  const [row] = await world.run<Record<string, bigint>>(
    `select coalesce(sum(amount), 0)::bigint as amount, count(*) as requests,
       coalesce(sum(failed), 0)::bigint as failed, coalesce(sum(cut), 0)::bigint as cut,
       coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output,
       coalesce(sum(thinking), 0)::bigint as thinking,
       coalesce(sum(cache_read), 0)::bigint as "cacheRead",
       coalesce(sum(cache_write_5m + cache_write_1h), 0)::bigint as "cacheWrite",
       coalesce(sum(cache_read * ($3::bigint - $4) + cache_write_5m * ($3::bigint - $5)
         + cache_write_1h * ($3::bigint - $6)), 0)::bigint as saved
     from charge_sums
     where account_id = $1 and admitted_at >= $2 and admitted_at < $7 and ${condition}`,
    [
      ...[scope().accountId, from, price.input, price.cacheRead, price.cacheWrite5m],
      ...[price.cacheWrite1h, to],
    ],
  );
  return row;
}

describe.each([
  { name: "hours", bucket: Bucket.HOUR, ms: hourMs },
  { name: "days", bucket: Bucket.DAY, ms: dayMs },
])("each bar of $name", ({ bucket, ms }) => {
  test.each([
    { name: "all requests", filter: {}, condition: "true" },
    { name: "a model", filter: { models: ["model-1"] }, condition: "model = 'model-1'" },
  ])("of $name is the sum of its keys, of its models, of both, and of its charges", async (one) => {
    const range = { startAt: stamp(world.daysAgo(7)), endAt: stamp(world.daysAgo(3)) };
    const chart = await ask({ ...range, ...one.filter, bucket });
    expect(chart.rows.length).toBe(bucket === Bucket.HOUR ? 9 : 3);
    const amounts = new Set(chart.rows.map(({ sums }) => sums?.chargedMicrocredits));
    expect(amounts.size).toBe(chart.rows.length);
    for (const bar of chart.rows) {
      const from = bar.startAt ? timestampDate(bar.startAt) : new Date(0);
      const to = new Date(from.getTime() + ms);
      const opened = { ...one.filter, startAt: stamp(from), endAt: stamp(to) };
      const expected = figuresOf([bar.sums]);
      expect(await charged(from, to, one.condition)).toEqual(expected);
      for (const groupBy of [[KEY], [MODEL], [KEY, MODEL]]) {
        const { rows, totals, outcomes } = await ask({ ...opened, groupBy, includeOutcomes: true });
        expect(figuresOf(sumsOf(rows))).toEqual(expected);
        expect(figuresOf([totals])).toEqual(expected);
        const failures = outcomes.reduce((sum, { requests }) => sum + requests, 0n);
        expect(failures).toBe(expected.failed + expected.cut);
      }
    }
  });
});

test("failures are counted by outcome: of the filter, not of others, the most frequent first", async () => {
  const range = { startAt: stamp(world.daysAgo(7)), endAt: stamp(world.daysAgo(3)) };
  const [payer] = payers;
  const filters = [
    { filter: {}, condition: "true" },
    { filter: { keyIds: [payer?.keyId ?? ""] }, condition: `key_id = '${payer?.keyId}'` },
    { filter: { models: ["model-2"] }, condition: "model = 'model-2'" },
    { filter: { tags: { team: "t2" } }, condition: 'tags @> \'{"team": "t2"}\'' },
    { filter: { groupByTag: "team" }, condition: "true" },
  ];
  for (const { filter, condition } of filters) {
    const { outcomes } = await ask({ ...range, ...filter, includeOutcomes: true });
    const rows = await world.run<{ outcome: string; n: bigint }>(
      `select outcome, count(*) as n from charges
       where account_id = $1 and outcome <> 'completed' and ${condition}
       group by 1 order by 2 desc, 1`,
      [scope().accountId],
    );
    expect(rows.length).toBeGreaterThan(1);
    expect(outcomes.map(({ outcome, requests }) => [outcomeName(outcome), requests])).toEqual(
      rows.map(({ outcome, n }) => [outcome, n]),
    );
  }
});

test("outcomes are on the first page only, and nowhere else unless they are asked for", async () => {
  const question = {
    ...{ startAt: stamp(world.daysAgo(7)), endAt: stamp(world.daysAgo(3)) },
    ...{ groupBy: [KEY], pageSize: 1 },
  };
  const first = await ask({ ...question, includeOutcomes: true });
  expect(first.outcomes.length).toBeGreaterThan(1);
  const pageToken = first.nextPageToken;
  expect((await ask({ ...question, pageToken, includeOutcomes: true })).outcomes).toEqual([]);
  expect((await ask(question)).outcomes).toEqual([]);
});

test("a key that is no account reader sees how its own requests failed", async () => {
  const keyId = payers[1]?.keyId ?? "";
  const range = { startAt: stamp(world.daysAgo(7)), endAt: stamp(world.daysAgo(3)) };
  const own = await world.query(
    { ...range, includeOutcomes: true },
    { accountId: scope().accountId, onlyKey: keyId },
  );
  const all = await ask({ ...range, keyIds: [keyId], includeOutcomes: true });
  expect(own.outcomes).toEqual(all.outcomes);
  expect(own.outcomes.length).toBeGreaterThan(1);
});

test("refusals of an hour, by reason, are those of the day's bar and of all", async () => {
  const answer = await world.service.queryUsage(
    create(QueryUsageRequestSchema, {
      ...{ startAt: stamp(world.daysAgo(0)), bucket: Bucket.NONE },
      ...{ groupBy: [KEY], includeRefusals: true },
    }),
    callBy(environmentToken, { accountId: scope().accountId }),
  );
  expect(
    answer.refusals?.rows.map(({ reason, requests }) => [reasonName(reason), requests]),
  ).toEqual([
    ["credits_exhausted", 1n + 6n + 11n],
    ["rate_limited", 3n + 5n + 7n],
  ]);
  expect(answer.refusals?.total).toBe(33n);
});

test("what the cache saved is exact, stays so when days are closed, and is absent by tag", async () => {
  const range = { startAt: stamp(world.daysAgo(7)), endAt: stamp(world.daysAgo(3)) };
  const open = await ask({ ...range, bucket: Bucket.DAY });
  await world.days.run();
  const closed = await ask({ ...range, bucket: Bucket.DAY });
  expect(closed.rows).toEqual(open.rows);
  const saved = figuresOf([closed.totals]).saved;
  expect(saved).toBe((await charged(world.daysAgo(7), world.daysAgo(3)))?.saved);
  expect(saved).not.toBe(0n);
  for (const filter of [{ groupByTag: "team" }, { tags: { team: "t2" } }]) {
    const tagged = await ask({ ...range, ...filter });
    expect(tagged.totals?.cacheSavedNanocredits).toBeUndefined();
  }
});

test("more is lost by writing to the cache than saved by reading: the figure is negative", async () => {
  const payer = await world.payer(credits);
  const all = { accountId: payer.accountId, onlyKey: undefined };
  const tokens = { cacheRead: 3, cacheWrite5m: 1_000, cacheWrite1h: 10 };
  // A hold that is far too small changes nothing of it.
  const hold = await world.holdAt(payer, world.daysAgo(1), { amountMicro: 7n });
  await world.settle(hold, endingWith(tokens));
  const { totals } = await world.query({ startAt: stamp(world.daysAgo(2)) }, all);
  expect(totals?.cacheSavedNanocredits).toBe(
    3n * (10_000n - 1_000n) + 1_000n * (10_000n - 12_000n) + 10n * (10_000n - 20_000n),
  );
  expect(totals?.chargedMicrocredits).toBe(7n);
});
