// The windows that workers share through their parent, without the processes: messages are passed
// by hand, as text, as between processes.

import assert from "node:assert/strict";
import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { createRateLimiter } from "../../src/rate-limits/limiter.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import {
  createSharedLimiter,
  createSharedWindows,
  type SharedLimiter,
  type WindowsRequest,
} from "../../src/rate-limits/shared-windows.ts";
import { runPendingTasks } from "../support/clock.ts";

const log = createLog("silent");
const nodes = { id: () => "node_1", live: () => ["node_1"] };

/** A parent with workers. `now.ms` is the clock of all of them. */
function machine(workers: number, { ownNodes = new Set<string>(), now = { ms: 1_000 } } = {}) {
  const nowMs = () => now.ms;
  const answer = createSharedWindows(log, { ownNodes, nowMs });
  const sent: WindowsRequest[][] = Array.from({ length: workers }, () => []);
  const limiters: SharedLimiter[] = sent.map((messages, index) =>
    createSharedLimiter((request) => {
      messages.push(request);
      const message = JSON.stringify(request);
      void answer(JSON.parse(message)).then((reply) =>
        limiters[index]?.receive(JSON.parse(JSON.stringify(reply))),
      );
    }, nowMs),
  );
  const limiterOf = (worker: number) => {
    const limiter = limiters[worker % workers];
    if (!limiter) throw new Error("no such worker");
    return limiter;
  };
  return { now, sent, limiterOf };
}

test("several workers admit what one process would, whoever asks and whoever returns a place", async () => {
  const step = fc.record({
    worker: fc.nat(2),
    key: fc.constantFrom("rpm:a", "rpm:b"),
    gapMs: fc.oneof(fc.constant(0), fc.nat(5_000), fc.nat(70_000)),
    cancels: fc.boolean(),
  });
  const property = fc.asyncProperty(
    fc.integer({ min: 1, max: 8 }),
    fc.array(step, { minLength: 1, maxLength: 80 }),
    async (limit, steps) => {
      const { now, limiterOf } = machine(3);
      const alone = createRateLimiter({ nodes, log, answerMsMax: 0, nowMs: () => now.ms });
      for (const { worker, key, gapMs, cancels } of steps) {
        now.ms += gapMs;
        const shared = await limiterOf(worker).acquire(key, limit);
        const expected = await alone.acquire(key, limit);
        expect({ ...shared, id: 0, waitMs: shared.waitMs ?? null }).toStrictEqual({
          ...expected,
          id: 0,
          waitMs: expected.waitMs ?? null,
        });
        if (shared.admitted && cancels) {
          limiterOf(worker).cancel(key, shared.id);
          alone.cancel(key, expected.id);
        }
      }
    },
  );
  await fc.assert(property, { numRuns: 60 });
});

test("two parents on one ledger admit their shares of a limit, and all of it when one has gone", async () => {
  const now = { ms: 1_000 };
  const ids = [
    ["node_a1", "node_a2"],
    ["node_b1", "node_b2"],
  ];
  let live: readonly string[] = ids.flat();
  const parents = ids.map((own) => {
    const { limiterOf } = machine(2, { ownNodes: new Set(own), now });
    for (const worker of [0, 1]) limiterOf(worker).follow(() => live);
    return limiterOf;
  });
  const admittedBy = async (limiterOf: (worker: number) => SharedLimiter, limit: number) => {
    const all = Array.from({ length: 20 }, (_, index) =>
      limiterOf(index).acquire(`rpm:${limit}`, limit),
    );
    return (await Promise.all(all)).filter(({ admitted }) => admitted).length;
  };
  for (const limit of [1, 2, 3, 10, 17]) {
    const [one = 0, other = 0] = await Promise.all(parents.map((of) => admittedBy(of, limit)));
    expect(one + other).toBeGreaterThan(0);
    expect(one + other).toBeLessThanOrEqual(limit);
    if (limit >= 10) expect(Math.min(one, other)).toBeGreaterThanOrEqual(Math.floor(limit / 3));
  }
  const [first] = parents;
  assert(first);
  expect([first(0).isDivided(), first(1).isDivided()]).toEqual([true, true]);
  live = ["node_a1", "node_a2"];
  // What the other one admitted counts for a minute.
  first(0).isDivided();
  await runPendingTasks();
  now.ms += 61_000;
  live = [...live];
  expect(await admittedBy(first, 10)).toBe(10);
  await vi.waitFor(() => expect(first(0).isDivided()).toBe(false));
});

test("requests of one turn are one message, and each gets its own answer", async () => {
  const { sent, limiterOf } = machine(2);
  const answers = await Promise.all([
    ...Array.from({ length: 5 }, () => limiterOf(0).acquire("rpm:a", 3)),
    ...Array.from({ length: 2 }, () => limiterOf(0).acquire("rpm:b", 1)),
    limiterOf(1).acquire("rpm:c", 1),
  ]);
  expect(answers.map(({ admitted }) => admitted)).toStrictEqual([
    true,
    true,
    true,
    false,
    false,
    true,
    false,
    true,
  ]);
  expect(sent.map((messages) => messages.length)).toStrictEqual([1, 1]);
});

test("a key without a limit asks nobody", async () => {
  const { sent, limiterOf } = machine(1);
  const limits = createRateLimits({ nodes, log, limiter: limiterOf(0) });
  for (let index = 0; index < 100; index++) await limits.acquire("key_a", undefined);
  limits.check("key_a", undefined);
  expect(await limits.acquire("key_a", 5).then((place) => place?.rateLimit.remaining)).toBe(4);
  expect(sent[0]?.length).toBe(1);
  expect(limits.state()).toStrictEqual("memory");
});

test("a refusal is known for a second without asking, unless this worker returns a place", async () => {
  const { now, limiterOf } = machine(2);
  const [one, two] = [limiterOf(0), limiterOf(1)];
  const place = await one.acquire("rpm:a", 1);
  expect(one.knownWaitMs("rpm:a", 1)).toBe(0);
  expect((await one.acquire("rpm:a", 1)).admitted).toBe(false);
  expect(one.knownWaitMs("rpm:a", 1)).toBe(1_000);
  // A higher limit was set meanwhile.
  expect(one.knownWaitMs("rpm:a", 2)).toBe(0);
  expect(two.knownWaitMs("rpm:a", 1)).toBe(0);
  now.ms += 999;
  expect(one.knownWaitMs("rpm:a", 1)).toBe(1);
  one.cancel("rpm:a", place.id);
  expect(one.knownWaitMs("rpm:a", 1)).toBe(0);
  expect((await two.acquire("rpm:a", 1)).admitted).toBe(true);
});

test("failed requests and free calls count over all workers", async () => {
  const { limiterOf } = machine(2);
  const [one, two] = [0, 1].map((worker) =>
    createRateLimits({ nodes, log, limiter: limiterOf(worker) }),
  );
  for (let index = 0; index < 30; index++)
    for (const limits of [one, two]) await limits?.recordFailed("key_a", 1, 10);
  await one?.recordFailed("key_a", 1, 10);
  expect(one?.tooManyFailed("key_a", 1)?.reason).toBe("too_many_failed");
  for (let index = 0; index < 300; index++)
    for (const limits of [one, two]) (await limits?.acquireFreeCall("key_a", 10))?.();
  await assert.rejects(
    async () => two?.acquireFreeCall("key_a", 10),
    (error) => error instanceof ApiError && error.reason === "count_rate_limited",
  );
});

test("without its parent a worker decides nothing: requests get a 503 that may be repeated", async () => {
  const limiter = createSharedLimiter(() => {});
  const limits = createRateLimits({ nodes, log, limiter });
  const waiting = limits.acquire("key_a", 5);
  const inTheSameTurn = limits.acquire("key_b", 5);
  limiter.close();
  for (const request of [waiting, inTheSameTurn, limits.acquire("key_a", 5)])
    await expect(request).rejects.toMatchObject({ reason: "gateway_unavailable" });
  await expect(limits.recordFailed("key_a", 5, 10)).resolves.toBeUndefined();
});
