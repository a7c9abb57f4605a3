// Reports of usage: what is summed, over which time, and in which pages.

import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AttemptSchema, Outcome, OutcomeSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  Bucket,
  GetForecastRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { firstEventBoundsMs } from "../../src/base/shown-figures.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createReports } from "../../src/billing/usage.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { errorOf } from "../support/billing.ts";
import { callBy } from "../support/calls.ts";
import { endingWith } from "../support/ledger.ts";
import { query } from "../support/query.ts";
import { addUp, dayMs, freshUsage, type Question, stamp, startOf } from "../support/usage.ts";

const hourMs = 3_600_000;
const credits = 1_000_000_000_000n;

let world: Awaited<ReturnType<typeof freshUsage>>;
beforeAll(async () => {
  world = await freshUsage();
});
afterAll(async () => {
  expect(await world.store.verifyLedger()).toEqual([]);
  await world.close();
});

const all = (payer: { accountId: string }) => ({
  accountId: payer.accountId,
  onlyKey: undefined,
});

describe("sums", () => {
  test("every ending is counted once, as completed, failed or cut", async () => {
    const payer = await world.payer(credits);
    const outcomes: readonly Outcome[] = [
      Outcome.COMPLETED,
      ...[Outcome.PROVIDER_FAILED, Outcome.PROVIDER_BROKE, Outcome.GATEWAY_FAILED],
      ...[Outcome.REAPED, Outcome.INPUT_ABOVE_HOLD, Outcome.CLIENT_LEFT, Outcome.REVOKED],
      ...[Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, Outcome.CLIENT_LEFT_BEFORE_CONTENT],
      Outcome.TIME_LIMIT,
    ];
    // A new outcome has to be in one of the three.
    expect(new Set([Outcome.UNSPECIFIED, Outcome.RUNNING, ...outcomes]).size).toBe(
      OutcomeSchema.values.length,
    );
    for (const outcome of outcomes)
      await world.chargeAt(payer, world.daysAgo(0), { ...endingWith({ input: 1 }), outcome });
    const { totals } = await world.query({ startAt: stamp(world.daysAgo(1)) }, all(payer));
    expect(totals).toMatchObject({ requests: 11n, completed: 1n, failed: 5n, cut: 5n });
  });

  test("credits are told by what they were charged for, also of a charge that its hold limits", async () => {
    const payer = await world.payer(credits);
    const tokens = { input: 3, output: 5, thinking: 7, cacheRead: 11, cacheWrite5m: 13 };
    await world.chargeAt(payer, world.daysAgo(0), endingWith(tokens));
    // Input costs 30, the cache 167, thinking 420, output 250.
    const limited = await world.holdAt(payer, world.daysAgo(0), {
      amountMicro: 30n + 167n + 100n,
    });
    await world.settle(limited, endingWith(tokens));
    const { totals } = await world.query({ startAt: stamp(world.daysAgo(1)) }, all(payer));
    expect(totals).toMatchObject({
      chargedMicrocredits: 867n + 297n,
      inputMicrocredits: 60n,
      cacheMicrocredits: 334n,
      thinkingMicrocredits: 520n,
      outputMicrocredits: 250n,
    });
  });

  test("the first event of the last attempt is counted by its time", async () => {
    const payer = await world.payer(credits);
    const attempt = (ms: number | undefined) =>
      create(AttemptSchema, {
        provider: "p",
        ...(ms !== undefined && { firstEventAfter: durationFromMs(ms) }),
      });
    for (const attempts of [
      [attempt(100)],
      [attempt(50_000), attempt(101)],
      [attempt(7_000)],
      [attempt(60_000)],
      [attempt(undefined)],
      [],
    ])
      await world.chargeAt(payer, world.daysAgo(0), endingWith({ input: 1 }, attempts));
    const { totals } = await world.query({ startAt: stamp(world.daysAgo(1)) }, all(payer));
    const counted = totals?.firstEventCounts.flatMap((requests, index) =>
      requests === 0n ? [] : [[firstEventBoundsMs[index], requests]],
    );
    expect(totals?.firstEventCounts).toHaveLength(firstEventBoundsMs.length + 1);
    expect(counted).toEqual([
      ...[
        [100, 1n],
        [200, 1n],
        [7_600, 1n],
      ],
      [undefined, 1n],
    ]);
  });
});

describe("groups and filters", () => {
  let first: Payer;
  let second: Payer;
  beforeAll(async () => {
    first = await world.payer(credits);
    second = await world.payer(credits, { accountId: first.accountId, family: "v2" });
    const at = world.daysAgo(1);
    await world.chargeAt(first, at, endingWith({ output: 1 }));
    await world.chargeAt(first, at, endingWith({ output: 2 }), { model: "model-b" });
    await world.chargeAt(second, new Date(at.getTime() + 5 * hourMs), endingWith({ output: 4 }));
    await world.chargeAt(first, world.daysAgo(40), endingWith({ output: 8 }));
  });

  async function outputs(question: Question) {
    const range = { startAt: stamp(world.daysAgo(60)) };
    const { rows, totals } = await world.query({ ...range, ...question }, all(first));
    expect(addUp(rows).amount).toBe(totals?.chargedMicrocredits);
    return rows.map(({ sums }) => Number(sums?.usage?.output));
  }

  test("rows are summed over what they are not grouped by", async () => {
    expect(await outputs({})).toEqual([15]);
    expect(await outputs({ bucket: Bucket.NONE, groupBy: [UsageGroup.MODEL] })).toEqual([2, 13]);
    expect(await outputs({ groupBy: [UsageGroup.FAMILY] })).toEqual([11, 4]);
    expect(await outputs({ bucket: Bucket.DAY })).toEqual([8, 7]);
    expect(await outputs({ bucket: Bucket.HOUR })).toEqual([8, 3, 4]);
    const both = await world.query(
      { startAt: stamp(world.daysAgo(2)), groupBy: [UsageGroup.KEY, UsageGroup.MODEL] },
      all(first),
    );
    expect(both.rows.map(({ keyId, model }) => [keyId, model])).toEqual(
      [
        [first.keyId, "model-b"],
        [first.keyId, "model-test"],
        [second.keyId, "model-test"],
      ].sort((one, other) => (String(one) < String(other) ? -1 : 1)),
    );
    expect(both.rows.map(({ family }) => family)).toEqual(Array(3).fill(Family.UNSPECIFIED));
  });

  test("a model is looked for by month: the months in which it occurs have rows", async () => {
    const { rows } = await world.query(
      { startAt: stamp(world.daysAgo(60)), bucket: Bucket.MONTH, models: ["model-b"] },
      all(first),
    );
    const month = `${world.daysAgo(1).toISOString().slice(0, 7)}-01T00:00:00.000Z`;
    const began = world.daysAgo(60).toISOString();
    expect(rows.map(startOf)).toEqual([month < began ? began : month]);
  });

  test("filters take several keys and models, and unknown ones look unused", async () => {
    expect(await outputs({ keyIds: [second.keyId] })).toEqual([4]);
    expect(await outputs({ keyIds: [first.keyId, second.keyId] })).toEqual([15]);
    expect(await outputs({ models: ["model-b", "model-none"] })).toEqual([2]);
    expect(await outputs({ models: ["model-none"] })).toEqual([]);
    expect(await outputs({ keyIds: ["key_none"] })).toEqual([]);
    const foreign = await world.payer(credits);
    await world.chargeAt(foreign, world.daysAgo(1), endingWith({ output: 1 }));
    expect(await outputs({ keyIds: [foreign.keyId] })).toEqual([]);
  });

  test("a key that is no account reader is confined to itself", async () => {
    const scope = { accountId: first.accountId, onlyKey: second.keyId };
    const from = stamp(world.daysAgo(60));
    const outputOf = async (question: Question) =>
      Number((await world.query({ startAt: from, ...question }, scope)).totals?.usage?.output);
    expect(await outputOf({})).toBe(4);
    expect(await outputOf({ keyIds: [first.keyId, second.keyId] })).toBe(4);
    expect(await outputOf({ keyIds: [first.keyId] })).toBe(0);
  });
});

describe("ranges", () => {
  test("a range is widened to hours, and to days where single hours are no longer kept", async () => {
    const payer = await world.payer(credits);
    const covered = async (from: Date, to: Date) => {
      const answer = await world.query({ startAt: stamp(from), endAt: stamp(to) }, all(payer));
      return [answer.startAt, answer.endAt].map((at) => at && timestampDate(at));
    };
    expect(await covered(world.daysAgo(5, 90 * 60_000), world.daysAgo(4, 1))).toEqual([
      world.daysAgo(5, hourMs),
      world.daysAgo(4, hourMs),
    ]);
    expect(await covered(world.daysAgo(150, 1), world.daysAgo(120, 1))).toEqual([
      world.daysAgo(150),
      world.daysAgo(119),
    ]);
    const empty = world.daysAgo(5, 90 * 60_000);
    expect(await covered(empty, empty)).toEqual([
      world.daysAgo(5, hourMs),
      world.daysAgo(5, hourMs),
    ]);
  });

  test("a range may end anywhere ahead, and the answer ends tomorrow at the latest", async () => {
    const payer = await world.payer(0n);
    const end = stamp(new Date("9999-12-31T23:59:59Z"));
    const { endAt: to } = await world.query({ endAt: end }, all(payer));
    expect(to && timestampDate(to) <= world.daysAgo(-2)).toBe(true);
  });

  test("without a range it is the current UTC month, up to now", async () => {
    const payer = await world.payer(credits);
    const { startAt: from, endAt: to } = await world.query({}, all(payer));
    const month = `${world.today.toISOString().slice(0, 7)}-01T00:00:00.000Z`;
    expect(from && timestampDate(from).toISOString()).toBe(month);
    const end = to ? timestampDate(to).getTime() : 0;
    expect(end).toBeGreaterThan(Date.now() - hourMs);
    expect(end).toBeLessThanOrEqual(Date.now() + hourMs);
  });

  const far = { seconds: 2n ** 60n };
  for (const { name, question, field } of [
    {
      name: "that goes backwards",
      question: { startAt: { seconds: 2_000_000n }, endAt: { seconds: 1_000_000n } },
      field: "end_at",
    },
    { name: "beyond the year 9999", question: { endAt: far }, field: "end_at" },
    {
      name: "before the year 1",
      question: { startAt: { seconds: -far.seconds } },
      field: "start_at",
    },
    {
      name: "in the future",
      question: { startAt: stamp(new Date(Date.now() + 2 * hourMs)) },
      field: "start_at",
    },
    { name: "of more than ten years", question: { startAt: { seconds: 1n } }, field: "start_at" },
  ] satisfies { name: string; question: Question; field: string }[]) {
    test(`a range ${name} is rejected`, async () => {
      const payer = await world.payer(0n);
      const asked = world.query(question, all(payer));
      expect(await errorOf(asked)).toEqual({ reason: "invalid_request", field });
    });
  }

  test("hours that are no longer kept are refused, and days of the same range are not", async () => {
    const payer = await world.payer(0n);
    const from = stamp(world.daysAgo(101));
    expect(await errorOf(world.query({ startAt: from, bucket: Bucket.HOUR }, all(payer)))).toEqual({
      reason: "invalid_request",
      field: "start_at",
    });
    await world.query({ startAt: from, bucket: Bucket.DAY }, all(payer));
    await world.query({ startAt: stamp(world.daysAgo(100)), bucket: Bucket.HOUR }, all(payer));
  });

  test("a report is complete until the first running request, and until a minute ago at most", async () => {
    const payer = await world.payer(credits);
    const other = await world.payer(0n, { accountId: payer.accountId });
    const until = async (keyIds: string[] = []) => {
      const { completeUntil } = await world.query({ keyIds }, all(payer));
      return completeUntil ? timestampDate(completeUntil).getTime() : 0;
    };
    const idle = await until();
    expect(idle).toBeLessThanOrEqual(Date.now() - 59_000);
    expect(idle).toBeGreaterThan(Date.now() - 120_000);
    const admittedAt = world.daysAgo(0, -hourMs);
    const hold = await world.holdAt(payer, admittedAt);
    expect(await until()).toBe(admittedAt.getTime());
    expect(await until([other.keyId])).toBeGreaterThanOrEqual(idle);
    await world.settle(hold, endingWith({}));
    expect(await until()).toBeGreaterThanOrEqual(idle);
  });
});

describe("questions that are not valid", () => {
  test("a page token continues its own question only", async () => {
    const payer = await world.payer(credits);
    const foreign = await world.payer(credits);
    for (const days of [1, 2, 3])
      await world.chargeAt(payer, world.daysAgo(days), endingWith({ output: 1 }));
    const question = { startAt: stamp(world.daysAgo(9)), bucket: Bucket.DAY, pageSize: 1 };
    const { nextPageToken: pageToken } = await world.query(question, all(payer));
    expect(pageToken).not.toBe("");
    await world.query({ ...question, pageSize: 2, pageToken }, all(payer));
    const refused = { reason: "invalid_request", field: "page_token" };
    for (const more of [
      { bucket: Bucket.MONTH },
      { groupBy: [UsageGroup.KEY] },
      { startAt: stamp(world.daysAgo(8)) },
      { models: ["model-test"] },
      { keyIds: [payer.keyId] },
    ])
      expect(await errorOf(world.query({ ...question, ...more, pageToken }, all(payer)))).toEqual(
        refused,
      );
    expect(await errorOf(world.query({ ...question, pageToken }, all(foreign)))).toEqual(refused);
    const confined = { accountId: payer.accountId, onlyKey: payer.keyId };
    expect(await errorOf(world.query({ ...question, pageToken }, confined))).toEqual(refused);
  });

  test("a page token of nowhere is refused", async () => {
    const payer = await world.payer(0n);
    expect(await errorOf(world.query({ pageToken: "AAAA" }, all(payer)))).toEqual({
      reason: "invalid_request",
      field: "page_token",
    });
  });

  test("an account that does not exist is not found", async () => {
    const call = callBy(environmentToken, { accountId: "acc_none" });
    for (const asked of [
      world.service.queryUsage(create(QueryUsageRequestSchema), call),
      world.service.getForecast(create(GetForecastRequestSchema), call),
    ])
      expect((await errorOf(asked)).reason).toBe("not_found");
  });

  test("a report that takes too long is ended by the database, and says so", async () => {
    const payer = await world.payer(0n);
    const [limit] = await query<{ statement_timeout: string }>(
      world.postgres.reports,
      { name: "", text: "show statement_timeout" },
      [],
    );
    expect(limit?.statement_timeout).toBe("10s");
    // The same limit, but short.
    const hurried = connectPostgres(world.url, { timeoutMs: 2_100 });
    const client = new Client({ connectionString: world.url });
    await client.connect();
    await client.query("begin");
    await client.query("lock table usage_hourly");
    const { queryUsage } = createReports(hurried.reports);
    const failed = await errorOf(queryUsage(create(QueryUsageRequestSchema), all(payer))).finally(
      () => Promise.all([client.end(), hurried.close()]),
    );
    expect(failed.reason).toBe("report_too_large");
  });
});

describe("forecast", () => {
  const forecastOf = async ({ accountId }: { accountId: string }) =>
    (
      await world.service.getForecast(
        create(GetForecastRequestSchema),
        callBy(environmentToken, { accountId }),
      )
    ).forecasts.find(({ family }) => family === Family.V1);
  async function spend(payer: Payer, days: number, input: number): Promise<void> {
    const hold = await world.holdAt(payer, world.daysAgo(days, hourMs), {
      amountMicro: BigInt(input) * 10n,
    });
    await world.settle(hold, endingWith({ input }));
  }

  test("there is none before the third day of use", async () => {
    const payer = await world.payer(10_000n);
    expect(await forecastOf(payer)).toMatchObject({ freeMicrocredits: 10_000n });
    expect((await forecastOf(payer))?.daysLeft).toBeUndefined();
    await spend(payer, 1, 100);
    expect((await forecastOf(payer))?.daysLeft).toBeUndefined();
    await spend(payer, 0, 100);
    expect((await forecastOf(payer))?.daysLeft).toBeUndefined();
  });

  test("from the third day on it is the mean since the first, then of the last seven full days", async () => {
    const payer = await world.payer(100_000n);
    await spend(payer, 2, 100);
    await spend(payer, 1, 200);
    await spend(payer, 0, 999);
    const free = 100_000n - 12_990n;
    expect(await forecastOf(payer)).toMatchObject({
      freeMicrocredits: free,
      dailyMicrocredits: 1_500n,
      daysLeft: Number(free) / 1_500,
    });
    await spend(payer, 7, 400);
    expect((await forecastOf(payer))?.dailyMicrocredits).toBe(1_000n);
    // Days before the last seven count for nothing but the start.
    const old = await world.payer(100_000n);
    await spend(old, 30, 5_000);
    expect((await forecastOf(old))?.dailyMicrocredits).toBe(0n);
    expect((await forecastOf(old))?.daysLeft).toBeUndefined();
    await spend(old, 1, 700);
    expect((await forecastOf(old))?.dailyMicrocredits).toBe(1_000n);
  });
});

// Last: it closes days.
test("any range, buckets and groups add up to the charges of the range, wherever the days end", async () => {
  const payer = await world.payer(credits);
  const other = await world.payer(0n, { accountId: payer.accountId });
  const charged: { at: Date; keyId: string; amount: bigint }[] = [];
  let seed = 1;
  const dice = (sides: number) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * sides);
  };
  for (let count = 0; count < 120; count++) {
    const who = dice(3) > 0 ? payer : other;
    const at = world.daysAgo(dice(130), dice(dayMs));
    const ending = endingWith({ input: dice(50), output: dice(50), thinking: dice(9) });
    const model = dice(2) > 0 ? "model-test" : "model-b";
    const { chargedMicrocredits: amount } = await world.chargeAt(who, at, ending, {
      model,
    });
    charged.push({ at, keyId: who.keyId, amount });
  }
  await world.days.run();
  const range = fc.record({ daysAgo: fc.nat(140), hours: fc.nat(23), days: fc.nat(140) });
  const groups = fc.subarray([UsageGroup.KEY, UsageGroup.MODEL, UsageGroup.FAMILY]);
  const buckets = fc.constantFrom(Bucket.NONE, Bucket.DAY, Bucket.MONTH, Bucket.HOUR);
  await fc.assert(
    fc.asyncProperty(
      range,
      groups,
      buckets,
      fc.boolean(),
      fc.integer({ min: 1, max: 40 }),
      async ({ daysAgo, hours, days }, groupBy, bucket, isFiltered, pageSize) => {
        const from = world.daysAgo(daysAgo, hours * hourMs);
        const to = new Date(from.getTime() + days * dayMs + hours * hourMs);
        if (from.getTime() > Date.now()) return;
        if (bucket === Bucket.HOUR && from < world.daysAgo(100)) return;
        const keyIds = isFiltered ? [payer.keyId] : [];
        const question = {
          startAt: stamp(from),
          endAt: stamp(to),
          bucket,
          groupBy,
          keyIds,
          pageSize,
        };
        const pages = await world.queryAll(question, all(payer));
        const [{ startAt: coveredFrom, endAt: coveredTo } = {}] = pages;
        const [start, end] = [coveredFrom, coveredTo].map((at) => at && timestampDate(at));
        if (!start || !end) throw new Error("an answer without its range");
        expect(start <= from && end.getTime() >= Math.min(to.getTime(), Date.now())).toBe(true);
        const expected = charged
          .filter(({ at, keyId }) => at >= start && at < end && (keyIds[0] ?? keyId) === keyId)
          .reduce((sum, { amount }) => sum + amount, 0n);
        const rows = pages.flatMap((page) => page.rows);
        expect(addUp(rows).amount).toBe(expected);
        expect(pages[0]?.totals?.chargedMicrocredits).toBe(expected);
        for (const page of pages.slice(1)) expect(page.totals).toBeUndefined();
        for (const page of pages) expect(page.rows.length).toBeLessThanOrEqual(pageSize);
        const names = rows.map((row) => `${startOf(row)} ${row.keyId} ${row.model} ${row.family}`);
        expect(names).toEqual([...new Set(names)].sort());
      },
    ),
    { numRuns: 150 },
  );
});
