import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Route } from "../../src/config/catalog.ts";
import { pauseBefore } from "../../src/providers/attempts.ts";
import { failureOfAnswer, readRetryAfterMs } from "../../src/providers/failures.ts";
import { ModelHealth } from "../../src/providers/health.ts";
import { ConcurrencyLimit, orderRoutes } from "../../src/providers/routing.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";

const failure = { at: new Date(0), status: 500, reason: "oops" };
/** One account after the other, so that none is a large part of the calls. */
const accounts = Array.from({ length: 10 }, (_, index) => `acc_${index}`);
const accountOf = (call: number) => accounts[call % accounts.length] ?? "";
const outcomes = fc.array(
  fc.record({
    account: fc.constantFrom(...accounts),
    afterMs: fc.nat(300),
    isAnswered: fc.boolean(),
  }),
  { maxLength: 300 },
);

describe("the health of a model", () => {
  const passed = { isProbe: false };

  test("sheds nothing while at least one call in ten is answered", () => {
    const health = new ModelHealth(new ManualClock());
    for (let call = 0; call < 1_000; call++) {
      if (call % 10 === 9) health.answer(accountOf(call), passed);
      else health.fail({ accountId: accountOf(call) }, failure);
      expect(health.share).toBe(1);
    }
  });

  test("gives a dead provider less and less, but one call a second", async () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock, () => 0.999);
    for (let call = 0; call < 400; call++) health.fail({ accountId: accountOf(call) }, failure);
    expect(health.share).toBeLessThan(0.1);
    expect(health.pass("acc_0")).toBeDefined();
    expect(health.pass("acc_1")).toBeUndefined();
    await clock.advance(999);
    expect(health.pass("acc_1")).toBeUndefined();
    await clock.advance(1);
    expect(health.pass("acc_1")).toBeDefined();
    await clock.advance(15_000);
    expect(health.share).toBe(1);
  });

  test("lets no account weigh more than twenty calls, and bounds that account by its own", () => {
    const health = new ModelHealth(new ManualClock(), () => 0.5);
    for (const account of accounts) health.answer(account, passed);
    for (let call = 0; call < 5_000; call++) health.fail({ accountId: "bad" }, failure);
    expect(health.share).toBe(1);
    // The one call of this second.
    health.pass("acc_1");
    expect(health.pass("acc_1")).toBeDefined();
    expect(health.pass("bad")).toBeUndefined();
  });

  test("counts failures that no request can cause for all", () => {
    const health = new ModelHealth(new ManualClock());
    for (let call = 0; call < 100; call++) health.fail({ accountId: undefined }, failure);
    expect(health.share).toBe(0.1);
  });

  test("its share is at least one call a second, whatever the outcomes", async () => {
    await fc.assert(
      fc.asyncProperty(outcomes, async (calls) => {
        const clock = new ManualClock();
        const health = new ModelHealth(clock, () => 1);
        let lastMs = Number.NEGATIVE_INFINITY;
        for (const { account, afterMs, isAnswered } of calls) {
          clock.skip(afterMs);
          const one = health.pass(account);
          if (clock.now() - lastMs >= 1_000) expect(one).toBeDefined();
          if (one === undefined) continue;
          lastMs = clock.now();
          if (isAnswered) health.answer(account, one);
          else health.fail({ accountId: account }, failure);
        }
      }),
    );
  });

  test("calls are at most 2.25 times the requests and ten more", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(2), { maxLength: 400 }), (wishes) => {
        const health = new ModelHealth(new ManualClock());
        let calls = 0;
        for (const wished of wishes) {
          health.earnRetries();
          calls++;
          for (let repeat = 0; repeat < wished && health.canRetry; repeat++) {
            health.spendRetry();
            calls++;
          }
        }
        expect(calls).toBeLessThanOrEqual(2.25 * wishes.length + 10);
      }),
    );
  });
});

describe("what is known of a model", () => {
  const passed = { isProbe: false };
  const one = { accountId: "acc_1" };

  test("is unusable after three calls of a minute without an answer, until one is answered", () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    const fail = (count: number) => {
      for (let call = 0; call < count; call++) health.fail(one, failure);
      return health.isUnusable;
    };
    expect([health.isUnusable, fail(2), fail(1)]).toEqual([false, false, true]);
    health.answer("acc_1", passed);
    expect([health.isUnusable, fail(2)]).toEqual([false, false]);
    // The answer was within the last minute, and is so no more.
    clock.skip(59_999);
    expect(fail(3)).toBe(false);
    clock.skip(1);
    expect(fail(1)).toBe(true);
  });

  test("is unusable when none of the last twenty calls was answered", () => {
    const health = new ModelHealth(new ManualClock());
    health.answer("acc_1", passed);
    for (let call = 1; call <= 20; call++) {
      health.fail(one, failure);
      expect(health.isUnusable).toBe(call === 20);
    }
  });

  test("keeps the last failure, and when it answered last", () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    expect([health.lastFailure, health.wasAnsweredWithin(1_000)]).toEqual([undefined, false]);
    health.fail(one, { ...failure, status: 503 });
    health.fail(one, failure);
    health.answer("acc_1", passed);
    clock.skip(10);
    expect(health.lastFailure).toBe(failure);
    expect([11, 10].map((ms) => health.wasAnsweredWithin(ms))).toEqual([true, false]);
  });

  test("counts the calls of five to ten seconds, of each account and of none", () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    expect(health.answeredRatio).toBe(1);
    health.fail(one, failure);
    expect(health.answeredRatio).toBe(1 / 2);
    health.answer("acc_1", passed);
    clock.skip(5_000);
    health.answer("acc_1", passed);
    health.answer("acc_1", passed);
    health.fail(one, failure);
    health.fail({ accountId: undefined }, failure);
    expect(health.answeredRatio).toBe(4 / 7);
    // The first two are over, then all.
    clock.skip(5_000);
    expect(health.answeredRatio).toBe(3 / 5);
    clock.skip(5_000);
    expect(health.answeredRatio).toBe(1);
    health.fail(one, failure);
    clock.skip(5_000);
    health.fail(one, failure);
    clock.skip(5_000);
    expect(health.answeredRatio).toBe(1 / 2);
  });

  test("counts the failures of the half before beside the answers of this one", () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    health.fail(one, failure);
    clock.skip(5_000);
    for (let call = 0; call < 2; call++) health.answer("acc_1", passed);
    health.fail(one, failure);
    expect(health.answeredRatio).toBe(3 / 5);
  });

  test("has ten retries at first, 1.25 more for each request, and never more than 110", () => {
    const health = new ModelHealth(new ManualClock());
    const spendAll = () => {
      let spent = 0;
      for (; health.canRetry; spent++) health.spendRetry();
      return spent;
    };
    expect(spendAll()).toBe(10);
    health.earnRetries();
    expect(spendAll()).toBe(1);
    for (let request = 0; request < 4; request++) health.earnRetries();
    // A quarter was left.
    expect(spendAll()).toBe(5);
    for (let request = 0; request < 1_000; request++) health.earnRetries();
    expect(spendAll()).toBe(110);
  });

  test("passes as large a part of the calls as its share", () => {
    let random = 0.1;
    const health = new ModelHealth(new ManualClock(), () => random);
    expect(health.pass("acc_1")).toEqual(passed);
    health.fail({ ...one, isQuota: true, retryAfterMs: 1 }, failure);
    expect(health.share).toBe(0.1);
    expect(health.pass("acc_1")).toBeUndefined();
    random = 0.099;
    expect(health.pass("acc_1")).toEqual({ isProbe: true });
  });
});

describe("a pause for a quota", () => {
  const quota = (retryAfterMs: number) =>
    ({ accountId: "acc_1", isQuota: true, retryAfterMs }) as const;
  const probe = { isProbe: true };
  const failAll = (health: ModelHealth, calls: number, isQuota = true) => {
    for (let call = 0; call < calls; call++)
      health.fail(isQuota ? quota(30_000) : { accountId: "acc_1" }, failure);
    return health.pauseMs;
  };

  test("needs a time, and no other call than a probe ends it", () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    health.fail({ accountId: "acc_1", isQuota: true }, failure);
    expect(health.pauseMs).toBe(0);
    failAll(health, 1);
    health.answer("acc_2", { isProbe: false });
    expect(health.pauseMs).toBe(30_000);
    // A probe whose answer comes after the pause does not loosen the next one.
    clock.skip(30_000);
    health.answer("acc_2", probe);
    expect(failAll(health, 1)).toBe(30_000);
  });

  test.for([
    [8, 90, true],
    [9, 89, false],
    [9, 90, true],
    [0, 97, false],
    [0, 98, true],
  ] as const)("of %i other failures and %i more of the quota, binds again: %s", (one) => {
    const [others, quotas, binds] = one;
    const health = new ModelHealth(new ManualClock());
    failAll(health, 1);
    health.answer("acc_2", probe);
    failAll(health, others, false);
    expect(failAll(health, quotas - 1)).toBe(0);
    expect(failAll(health, 1)).toBe(binds ? 30_000 : 0);
  });

  test.for([0, 60_000])("that nothing loosened within a minute, a probe ends: %d ms", (ms) => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    if (ms > 0) {
      failAll(health, 1);
      health.answer("acc_2", probe);
      clock.skip(ms);
    }
    expect(failAll(health, 200)).toBe(30_000);
    health.answer("acc_2", probe);
    expect(health.pauseMs).toBe(0);
  });

  test("lasts as long as the provider says, and ten minutes at most", async () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    health.fail(quota(30_000), failure);
    health.fail(quota(1_000), failure);
    expect([health.pauseMs, health.share]).toEqual([30_000, 0.1]);
    await clock.advance(30_000);
    expect([health.pauseMs, health.share]).toEqual([0, 1]);
    health.fail(quota(86_400_000), failure);
    expect(health.pauseMs).toBe(600_000);
  });

  test("is not made by other failures, and ends when a call of it is answered", async () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock, () => 0.05);
    health.fail({ accountId: "acc_1", retryAfterMs: 30_000 }, failure);
    expect(health.pauseMs).toBe(0);
    health.fail(quota(30_000), failure);
    const probe = health.pass("acc_2");
    expect(probe).toEqual({ isProbe: true });
    health.answer("acc_2", probe ?? { isProbe: false });
    expect(health.pauseMs).toBe(0);
    // For a minute its word does not bind.
    health.fail(quota(30_000), failure);
    expect(health.pauseMs).toBe(0);
    await clock.advance(60_000);
    health.fail(quota(30_000), failure);
    expect(health.pauseMs).toBe(30_000);
  });

  test("binds after all when nine in ten of a hundred calls meet it", () => {
    const health = new ModelHealth(new ManualClock());
    health.fail(quota(30_000), failure);
    health.answer("acc_2", { isProbe: true });
    for (let call = 0; call < 100; call++) health.fail(quota(30_000), failure);
    expect(health.pauseMs).toBe(30_000);
    health.answer("acc_2", { isProbe: true });
    expect(health.pauseMs).toBe(30_000);
  });
});

describe("the quota of a day", () => {
  const bodies = {
    google: {
      error: {
        ...{ code: 429, status: "RESOURCE_EXHAUSTED", message: "Quota exceeded" },
        details: [
          { "@type": "type.googleapis.com/google.rpc.Help" },
          {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            violations: [{ quotaId: "GenerateRequestsPerDayPerProjectPerModel" }],
          },
        ],
      },
    },
    bedrock: { message: "Too many tokens per day, please wait before trying again." },
  };

  test.each(Object.entries(bodies))("is known from what %s says", (_, body) => {
    const failure = failureOfAnswer({ status: 429, body, retryAfterMs: 1_000 }, "m");
    expect(failure).toMatchObject({ isDayQuota: true, retry: "elsewhere" });
    expect(failure.error.reason).toBe("overloaded");
  });

  test.each([
    {
      error: {
        message: "Rate limit reached",
        details: [{ violations: [{ quotaId: "PerMinute" }] }],
      },
    },
    { error: { message: "slow down", details: "PerDay" } },
    { error: { message: "slow down", details: [{ violations: "PerDay" }, null, 1] } },
  ])("is not what another 429 says: %j", (body) => {
    expect(failureOfAnswer({ status: 429, body }, "m").isDayQuota).toBeUndefined();
  });

  test("pauses for ten minutes, with one call a second, until one is answered", async () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock, () => 0);
    const spent = { accountId: "acc_1", isQuota: true, isDayQuota: true, retryAfterMs: 1_000 };
    expect(health.pass("acc_1")).toBeDefined();
    health.fail(spent, failure);
    expect([health.pauseMs, health.share]).toEqual([600_000, 0]);
    let passed = 0;
    for (let call = 0; call < 100; call++) {
      await clock.advance(100);
      if (health.pass("acc_2")) passed++;
    }
    expect(passed).toBe(10);
    await clock.advance(1_000);
    health.answer("acc_2", health.pass("acc_2") ?? { isProbe: false });
    expect([health.pauseMs, health.share]).toEqual([0, 1]);
  });

  test("is over after ten minutes without a word", async () => {
    const clock = new ManualClock();
    const health = new ModelHealth(clock);
    health.fail({ accountId: "acc_1", isQuota: true, isDayQuota: true }, failure);
    await clock.advance(600_000);
    expect([health.pauseMs, health.share]).toEqual([0, 1]);
  });
});

describe("a concurrency limit", () => {
  const settings = { concurrency: 1, queue: 2, queueMs: 100 };
  const never = new AbortController().signal;

  test("admits waiting calls first in, first out", async () => {
    const limit = new ConcurrencyLimit(settings, new ManualClock());
    const entered: number[] = [];
    expect(limit.tryAcquire()).toBe(true);
    const enter = async (number: number) => {
      await limit.acquire(never);
      entered.push(number);
    };
    const both = [enter(1), enter(2)];
    limit.release();
    await runPendingTasks();
    expect([entered, limit.active]).toEqual([[1], 1]);
    limit.release();
    limit.release();
    await Promise.all(both);
    expect([entered, limit.active]).toEqual([[1, 2], 0]);
  });

  test("rejects a call at once when the queue is full", async () => {
    const limit = new ConcurrencyLimit(settings, new ManualClock());
    limit.tryAcquire();
    const waiting = [limit.acquire(never), limit.acquire(never)];
    await expect(limit.acquire(never)).rejects.toMatchObject({ reason: "overloaded" });
    limit.release();
    limit.release();
    await Promise.all(waiting);
  });

  test("rejects a call that waited too long, and removes one that was cancelled", async () => {
    const clock = new ManualClock();
    const limit = new ConcurrencyLimit(settings, clock);
    limit.tryAcquire();
    const abort = new AbortController();
    const left = limit.acquire(abort.signal);
    const late = limit.acquire(never);
    const refused = Promise.all([
      expect(left).rejects.toMatchObject({ reason: "cancelled" }),
      expect(late).rejects.toMatchObject({ reason: "overloaded" }),
    ]);
    abort.abort();
    await clock.advance(100);
    await refused;
    limit.release();
    expect([limit.active, clock.pending]).toEqual([0, 0]);
  });
});

describe("the order of routes", () => {
  const route = (provider: string, weight = 1): { target: Route } => ({
    target: { provider, weight, model: "m", systemEntries: "forward" },
  });
  const conversations = Array.from({ length: 2000 }, (_, index) => `conversation ${index}`);
  const providersOf = (groups: { target: Route }[][], affinity: string) =>
    orderRoutes(groups, () => affinity).map(({ target }) => target.provider);
  const firsts = (group: { target: Route }[]) =>
    conversations.map((affinity) => providersOf([group], affinity)[0]);

  test("is the same for the same conversation, and keeps groups one after the other", () => {
    fc.assert(
      fc.property(fc.string(), (affinity) => {
        const groups = [[route("a"), route("b")], [route("c")], [route("d"), route("e")]];
        const order = providersOf(groups, affinity);
        expect(providersOf(groups, affinity)).toEqual(order);
        expect(order.join("")).toMatch(/^(ab|ba)c(de|ed)$/);
      }),
    );
  });

  test("divides conversations by weight", () => {
    const share =
      firsts([route("a", 3), route("b", 1)]).filter((provider) => provider === "a").length /
      conversations.length;
    expect(share).toBeGreaterThan(0.7);
    expect(share).toBeLessThan(0.8);
  });

  test("moves only the conversations of a provider that is removed", () => {
    const before = firsts([route("a"), route("b"), route("c")]);
    const after = firsts([route("a"), route("b")]);
    const moved = before.filter((provider, index) => provider !== "c" && provider !== after[index]);
    expect(moved).toEqual([]);
  });
});

describe("the pause before a repeat", () => {
  test("doubles, is longer at an overloaded provider, and follows a short retry-after", () => {
    const pauses = (of: object) => [0, 1].map((repeat) => pauseBefore(of, repeat, () => 0.5));
    expect(pauses({})).toEqual([37.5, 75]);
    expect(pauses({ isOverload: true })).toEqual([750, 1_500]);
    expect(pauses({ isOverload: true, retryAfterMs: 2_000 })).toEqual([2_000, 2_000]);
    expect(pauses({ isOverload: true, retryAfterMs: 2_001 })).toEqual([undefined, undefined]);
  });
});

test.each([429, 503, 529])(
  "status %i is an overload, and its time is that of a repeat",
  (status) => {
    const failure = failureOfAnswer({ status, retryAfterMs: 1_500 }, "m");
    expect(failure).toMatchObject({ outcome: "failed", isOverload: true, retryAfterMs: 1_500 });
    expect(failureOfAnswer({ status }, "m").retryAfterMs).toBeUndefined();
    // Another failure of the provider is none.
    expect(failureOfAnswer({ status: 500 }, "m").isOverload).toBeUndefined();
  },
);

describe("retry-after", () => {
  const now = Date.parse("2026-01-02T03:04:05Z");
  const cases = [
    { headers: { "retry-after": "7" }, ms: 7000 },
    { headers: { "retry-after": "Fri, 02 Jan 2026 03:04:15 GMT" }, ms: 10_000 },
    { headers: { "retry-after": "7", "retry-after-ms": "150" }, ms: 150 },
    { headers: { "retry-after": "Fri, 02 Jan 2026 03:00:00 GMT" }, ms: undefined },
    { headers: { "retry-after": "soon" }, ms: undefined },
    { headers: { "retry-after": "-1" }, ms: undefined },
    { headers: {}, ms: undefined },
  ];
  for (const { headers, ms } of cases) {
    test(`${JSON.stringify(headers)} is ${ms ?? "no time"}`, () =>
      expect(readRetryAfterMs(headers, now)).toBe(ms));
  }
});
