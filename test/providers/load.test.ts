import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Route } from "../../src/config/catalog.ts";
import { RetryBudget } from "../../src/providers/attempts.ts";
import { CircuitBreaker, CoolDowns, ProviderCircuit } from "../../src/providers/circuit-breaker.ts";
import { ConcurrencyLimit } from "../../src/providers/concurrency.ts";
import { readRetryAfterMs } from "../../src/providers/failures.ts";
import { orderRoutes } from "../../src/providers/routing.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";

describe("a circuit breaker", () => {
  const fail = (breaker: CircuitBreaker, times: number) => {
    const calls = Array.from({ length: times }, () => breaker.begin());
    return calls.map((isProbe) => breaker.fail(isProbe));
  };

  test("opens when five calls and half of the last ones failed, and reports it once", () => {
    expect(fail(new CircuitBreaker(new ManualClock()), 7)).toEqual([
      false,
      false,
      false,
      false,
      true,
      false,
      false,
    ]);
    const sometimes = new CircuitBreaker(new ManualClock());
    for (let call = 0; call < 100; call++) {
      if (call % 3 === 0) sometimes.fail(sometimes.begin());
      else sometimes.succeed();
    }
    expect(sometimes.waitMs()).toBe(0);
  });

  test("is half-open after its open time: one call is the probe, and all others wait for it", async () => {
    const clock = new ManualClock();
    const breaker = new CircuitBreaker(clock);
    fail(breaker, 5);
    expect(breaker.waitMs()).toBe(2000);
    await clock.advance(2000);
    expect(breaker.waitMs()).toBe(0);
    expect(breaker.begin()).toBe(true);
    expect(breaker.waitMs()).toBeGreaterThan(0);
    breaker.succeed();
    expect([breaker.waitMs(), breaker.begin()]).toEqual([0, false]);
  });

  test("doubles its open time each time the probe fails, up to a minute", async () => {
    const clock = new ManualClock();
    const breaker = new CircuitBreaker(clock);
    fail(breaker, 5);
    const rests: number[] = [];
    for (let round = 0; round < 7; round++) {
      rests.push(breaker.waitMs());
      await clock.advance(breaker.waitMs());
      breaker.fail(breaker.begin());
    }
    expect(rests).toEqual([2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
  });

  test("makes another call the probe when we stopped the first one", async () => {
    const clock = new ManualClock();
    const breaker = new CircuitBreaker(clock);
    fail(breaker, 5);
    await clock.advance(2000);
    breaker.noVerdict(breaker.begin());
    expect([breaker.waitMs(), breaker.begin()]).toEqual([0, true]);
  });
});

describe("the circuits of a provider", () => {
  const fail = (circuit: ProviderCircuit, accountId: string, times = 1) =>
    Array.from({ length: times }, () =>
      circuit.fail(accountId, circuit.begin(accountId), "account"),
    );

  test("open for the account whose calls fail, and for no other", () => {
    const circuit = new ProviderCircuit(new ManualClock());
    expect(fail(circuit, "a", 5).filter(Boolean)).toEqual(["account"]);
    expect([circuit.waitMs("a"), circuit.waitMs("b"), circuit.waitMs()]).toEqual([2000, 0, 0]);
  });

  test("open for all when calls of two accounts fail and at most half of the last ones succeeded", () => {
    const circuit = new ProviderCircuit(new ManualClock());
    for (let call = 0; call < 5; call++) circuit.succeed("c");
    fail(circuit, "a", 4);
    expect(circuit.waitMs("c")).toBe(0);
    expect(fail(circuit, "b")).toEqual(["provider"]);
    expect(circuit.waitMs("c")).toBe(2000);
  });

  test("stay closed for all while more than half of the last calls succeed", () => {
    const circuit = new ProviderCircuit(new ManualClock());
    for (let call = 0; call < 200; call++) {
      if (call % 5 === 3) fail(circuit, "a");
      else if (call % 5 === 4) fail(circuit, "b");
      else circuit.succeed("c");
      expect(circuit.waitMs("c")).toBe(0);
    }
  });

  test("open for all after failures of one account that no request can cause", () => {
    const circuit = new ProviderCircuit(new ManualClock());
    for (let call = 0; call < 4; call++) circuit.fail("a", circuit.begin("a"), "provider");
    expect(circuit.waitMs("b")).toBe(0);
    expect(circuit.fail("a", circuit.begin("a"), "provider")).toBe("provider");
    expect(circuit.waitMs("b")).toBe(2000);
  });

  test("are not affected by failures of single requests", () => {
    const circuit = new ProviderCircuit(new ManualClock());
    for (let call = 0; call < 50; call++) circuit.fail("a", circuit.begin("a"), "request");
    expect([circuit.waitMs("a"), circuit.waitMs()]).toEqual([0, 0]);
  });

  test("do not stay open longer for all because the probes of one account fail", async () => {
    const clock = new ManualClock();
    const circuit = new ProviderCircuit(clock);
    fail(circuit, "a", 4);
    fail(circuit, "b");
    for (let round = 0; round < 5; round++) {
      await clock.advance(circuit.waitMs("a"));
      fail(circuit, "a");
      expect(circuit.waitMs("c")).toBe(2000);
    }
    await clock.advance(2000);
    expect(circuit.begin("c").ofProvider).toBe(true);
    circuit.succeed("c");
    expect(circuit.waitMs("d")).toBe(0);
  });

  test("never open for a second account, whatever the calls of the first lead to", async () => {
    const outcome = fc.constantFrom("account", "request", "succeed", "cancel", "wait");
    await fc.assert(
      fc.asyncProperty(fc.array(outcome, { maxLength: 100 }), async (outcomes) => {
        const clock = new ManualClock();
        const circuit = new ProviderCircuit(clock);
        for (const one of outcomes) {
          if (one === "wait" || circuit.waitMs("a") > 0) await clock.advance(1500);
          else {
            const probes = circuit.begin("a");
            if (one === "succeed") circuit.succeed("a");
            else if (one === "cancel") circuit.noVerdict("a", probes);
            else circuit.fail("a", probes, one);
          }
          expect(circuit.waitMs("b")).toBe(0);
        }
      }),
    );
  });
});

describe("a cool-down", () => {
  test("lasts as long as the provider requested, and ten minutes at most", async () => {
    const clock = new ManualClock();
    const coolDowns = new CoolDowns(clock);
    coolDowns.add("m", 30_000);
    expect(coolDowns.waitMs("m")).toBe(30_000);
    coolDowns.add("m", 1_000);
    expect(coolDowns.waitMs("m")).toBe(30_000);
    await clock.advance(30_000);
    expect(coolDowns.waitMs("m")).toBe(0);
    coolDowns.add("m", 86_400_000);
    expect(coolDowns.waitMs("m")).toBe(600_000);
  });

  test("leaves the provider's other models callable", () => {
    const coolDowns = new CoolDowns(new ManualClock());
    coolDowns.add("opus", 30_000);
    expect([coolDowns.waitMs("opus"), coolDowns.waitMs("haiku")]).toEqual([30_000, 0]);
  });

  test("that one account's request may have caused keeps only that account away", () => {
    const coolDowns = new CoolDowns(new ManualClock());
    coolDowns.add("m", 30_000, "a");
    coolDowns.add("m", 30_000, "a");
    const waits = () => ["a", "b", undefined].map((account) => coolDowns.waitMs("m", account));
    expect(waits()).toEqual([30_000, 0, 0]);
  });

  test("that a second account meets as well is one of all accounts", async () => {
    const clock = new ManualClock();
    const coolDowns = new CoolDowns(clock);
    coolDowns.add("m", 10_000, "a");
    await clock.advance(10_000);
    // The first one has ended.
    coolDowns.add("m", 20_000, "b");
    expect(coolDowns.waitMs("m")).toBe(0);
    coolDowns.add("m", 5_000, "c");
    expect([coolDowns.waitMs("m"), coolDowns.waitMs("m", "b")]).toEqual([5_000, 20_000]);
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

describe("a retry budget", () => {
  test("allows a second attempt for about a tenth of a thousand failing calls", () => {
    const budget = new RetryBudget();
    let retries = 0;
    for (let call = 0; call < 1000; call++) {
      budget.earn();
      if (budget.spend()) retries++;
    }
    expect(retries).toBeGreaterThan(100);
    expect(retries).toBeLessThan(130);
  });
});

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
