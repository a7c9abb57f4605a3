import assert from "node:assert/strict";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { createFailedCredentials } from "../../src/http/authenticate.ts";
import { FreeCallLimiter } from "../../src/rate-limits/free-calls.ts";
import { createRateLimiter } from "../../src/rate-limits/limiter.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";

const nodes = { id: () => "node_1", live: () => ["node_1"] };
const log = createLog("silent");

async function errorOf(work: () => unknown): Promise<ApiError> {
  try {
    await work();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}

/** A clock that a test moves. */
function clock() {
  const now = { ms: 1_000 };
  return { now, nowMs: () => now.ms };
}

test("a key without a limit is never counted; a limit of 0 allows no request, at any time", async () => {
  const limits = createRateLimits({ nodes, log });
  for (let index = 0; index < 1_000; index++)
    expect(await limits.acquire("key_a", undefined)).toBe(undefined);
  const { reason, facts } = await errorOf(() => limits.acquire("key_a", 0));
  expect([reason, facts.retryAfterMs, facts.limit?.limit]).toStrictEqual([
    "requests_not_allowed",
    undefined,
    undefined,
  ]);
});

test("the error message uses the singular for a limit of one", async () => {
  const limits = createRateLimits({ nodes, log });
  await limits.acquire("key_a", 1);
  expect((await errorOf(() => limits.acquire("key_a", 1))).facts.message).toBe(
    "This key is limited to 1 request a minute.",
  );
});

test("an admitted request carries what remains, a refused one its limit and when to retry", async () => {
  const limits = createRateLimits({ nodes, log });
  const remaining: (number | undefined)[] = [];
  for (let index = 0; index < 3; index++)
    remaining.push((await limits.acquire("key_a", 3))?.rateLimit.remaining);
  expect(remaining).toStrictEqual([2, 1, 0]);
  const { reason, facts } = await errorOf(() => limits.acquire("key_a", 3));
  expect(reason).toBe("rate_limited");
  expect.assert(
    facts.retryAfterMs !== undefined && facts.retryAfterMs > 50_000 && facts.retryAfterMs <= 60_000,
  );
  const { name, limit, used, remaining: left } = facts.limit ?? {};
  expect([name, limit, used, left]).toStrictEqual(["requests_per_minute", 3n, 3n, 0n]);
  expect.assert(facts.limit?.resetsAt);
  expect((await limits.acquire("key_b", 3))?.rateLimit.remaining).toBe(2);
  expect(limits.state()).toStrictEqual("memory");
});

test("without Redis each of several nodes has its share of a limit, and says so once", async () => {
  const lines: string[] = [];
  const warned = Promise.withResolvers<void>();
  const warn = ({ code }: { code: string }) => {
    lines.push(code);
    warned.resolve();
  };
  const limitsOf = (id: string) =>
    createRateLimits({
      nodes: { id: () => id, live: () => ["node_1", "node_2"] },
      log: Object.assign(createLog("silent"), { warn }),
    });
  const [one, other] = [limitsOf("node_1"), limitsOf("node_2")];
  const admitted = async (limits: typeof one) => {
    const asked = Array.from({ length: 11 }, () => limits.acquire("key_a", 11));
    return (await Promise.allSettled(asked)).filter(({ status }) => status === "fulfilled").length;
  };
  expect([await admitted(one), await admitted(other)]).toEqual([6, 5]);
  expect([one.state(), other.state()]).toEqual(["degraded", "degraded"]);
  await one.start();
  await warned.promise;
  await one.stop();
  expect(lines).toEqual(["limits_divided"]);
});

test("the whole limit is available again after a minute without requests", async () => {
  const { now, nowMs } = clock();
  const limiter = createRateLimiter({ nodes, log, answerMsMax: 50, nowMs });
  for (let index = 0; index < 1_000; index++) await limiter.acquire(`rpm:${index}`, 1);
  now.ms += 60_000;
  expect((await limiter.acquire("rpm:0", 1)).admitted).toBe(true);
  expect((await limiter.acquire("rpm:0", 1)).admitted).toBe(false);
});

test("the places that were not returned decide, and a request fits exactly when fewer than the limit are left", async () => {
  const step = fc.oneof(
    fc.constant({ kind: "acquire" as const }),
    fc.record({ kind: fc.constant("cancel" as const), index: fc.nat(5) }),
    fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(40_000) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), fc.array(step), async (limit, steps) => {
      const { now, nowMs } = clock();
      const limiter = createRateLimiter({ nodes, log, answerMsMax: 50, nowMs });
      let taken: { id: number; atMs: number }[] = [];
      for (const one of steps) {
        taken = taken.filter(({ atMs }) => atMs > now.ms - 60_000);
        if (one.kind === "wait") now.ms += one.ms;
        else if (one.kind === "acquire") {
          expect(limiter.knownWaitMs("rpm:a", limit) === 0).toBe(taken.length < limit);
          const { admitted, id } = await limiter.acquire("rpm:a", limit);
          expect(admitted).toBe(taken.length < limit);
          if (admitted) taken.push({ id, atMs: now.ms });
        } else {
          const [returned] = taken.splice(one.index, 1);
          if (returned) limiter.cancel("rpm:a", returned.id);
        }
      }
    }),
  );
});

test("a full limit is known without reserving a place, and until when", async () => {
  const limits = createRateLimits({ nodes, log });
  limits.check("key_a", 1);
  const place = await limits.acquire("key_a", 1);
  const { reason, facts } = await errorOf(() => limits.check("key_a", 1));
  expect(reason).toBe("rate_limited");
  expect.assert(facts.retryAfterMs !== undefined && facts.retryAfterMs > 50_000);
  limits.check("key_a", 2);
  place?.cancel();
  limits.check("key_a", 1);
  expect((await errorOf(() => limits.check("key_a", 0))).reason).toBe("requests_not_allowed");
  limits.check("key_a", undefined);
});

test("a key may fail sixty times a minute, or twice its limit if that is more", async () => {
  const limits = createRateLimits({ nodes, log });
  const cases = [
    { keyId: "key_small", perMinute: 1, failures: 60 },
    { keyId: "key_large", perMinute: 50, failures: 100 },
    { keyId: "key_unlimited", perMinute: undefined, failures: 6_000 },
  ];
  for (const { keyId, perMinute, failures } of cases) {
    for (let index = 0; index < failures; index++) {
      expect(limits.tooManyFailed(keyId, perMinute)).toBe(undefined);
      await limits.recordFailed(keyId, perMinute, 10);
    }
    const error = limits.tooManyFailed(keyId, perMinute);
    expect([error?.reason, error?.facts.limit?.name, error?.facts.limit?.limit]).toStrictEqual([
      "too_many_failed",
      "failed_requests_per_minute",
      BigInt(failures),
    ]);
  }
});

test("the bodies of a key's failed requests may have 256 MiB a minute", async () => {
  const limits = createRateLimits({ nodes, log });
  for (let index = 0; index < 8; index++) {
    expect(limits.tooManyFailed("key_a", undefined)).toBe(undefined);
    await limits.recordFailed("key_a", undefined, 32 * 1024 * 1024);
  }
  const error = limits.tooManyFailed("key_a", undefined);
  expect([error?.reason, error?.facts.limit?.name]).toStrictEqual([
    "too_many_failed",
    "failed_bytes_per_minute",
  ]);
  expect(limits.tooManyFailed("key_b", undefined)).toBe(undefined);
});

test("a key may count 600 times a minute, apart from its requests per minute", async () => {
  const limits = createRateLimits({ nodes, log });
  await limits.acquire("key_a", 1);
  for (let index = 0; index < 600; index++) (await limits.acquireFreeCall("key_a", 1_000))();
  const { reason, facts } = await errorOf(() => limits.acquireFreeCall("key_a", 1_000));
  expect([reason, facts.limit?.name, facts.limit?.limit]).toStrictEqual([
    "count_rate_limited",
    "count_calls_per_minute",
    600n,
  ]);
  (await limits.acquireFreeCall("key_b", 1_000))();
});

test("four counting calls of a key run at once, the next ones wait their turn, and too many are refused", async () => {
  const limits = createRateLimits({ nodes, log });
  const ends: (() => void)[] = [];
  let begun = 0;
  const calls = Array.from({ length: 104 }, async () => {
    const end = await limits.acquireFreeCall("key_a", 10);
    begun += 1;
    ends.push(end);
  });
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  await settled();
  expect(begun).toBe(4);
  const { reason, facts } = await errorOf(() => limits.acquireFreeCall("key_a", 10));
  expect([reason, facts.limit?.name, facts.limit?.limit]).toStrictEqual([
    "count_rate_limited",
    "count_concurrency",
    4n,
  ]);
  ends[0]?.();
  ends[0]?.();
  await settled();
  expect(begun).toBe(5);
  for (let index = 1; index < 104; index++) {
    ends[index]?.();
    await settled();
  }
  await Promise.all(calls);
  (await limits.acquireFreeCall("key_a", 10))();
});

test("counting calls that take longer than a minute keep their turns", async () => {
  const { now, nowMs } = clock();
  const limiter = new FreeCallLimiter(nowMs);
  const ends = await Promise.all(Array.from({ length: 4 }, () => limiter.begin("key_a", 10)));
  now.ms += 120_000;
  let hasBegun = false;
  const fifth = limiter.begin("key_a", 10).then((end) => {
    hasBegun = true;
    return end;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(hasBegun).toBe(false);
  ends[0]?.("counted");
  (await fifth)("counted");
});

test("a key may count 256 MiB a minute; the wait lasts until enough expires, and refused bytes do not count", async () => {
  const { now, nowMs } = clock();
  const limiter = new FreeCallLimiter(nowMs);
  const mib = 1024 * 1024;
  const count = async (bytes: number, outcome: "counted" | "refused" = "counted") =>
    (await limiter.begin("key_a", bytes))(outcome);
  for (let index = 0; index < 8; index++) {
    await count(32 * mib);
    now.ms += 1_000;
  }
  const { facts } = await errorOf(() => count(33 * mib));
  expect([facts.limit?.name, facts.retryAfterMs]).toStrictEqual(["count_bytes_per_minute", 53_000]);
  expect((await errorOf(() => count(1))).facts.retryAfterMs).toBe(52_000);
  now.ms += 52_000;
  await count(32 * mib, "refused");
  await count(32 * mib);
  await errorOf(() => count(1));
});

test("an address that fails a hundred times in a minute is refused until the first failure is a minute old", () => {
  const { now, nowMs } = clock();
  const failed = createFailedCredentials(nowMs);
  for (let index = 0; index < 100; index++) {
    failed.check("192.0.2.1");
    failed.record("192.0.2.1");
    now.ms += 100;
  }
  assert.throws(
    () => failed.check("192.0.2.1"),
    (error: ApiError) =>
      error.reason === "auth_rate_limited" && error.facts.retryAfterMs === 50_000,
  );
  expect(() => failed.check("::ffff:192.0.2.1")).toThrow();
  failed.check("192.0.2.2");
  now.ms += 50_000;
  failed.check("192.0.2.1");
});

test("addresses of one IPv6 network count as one client, apart from other networks", () => {
  const failed = createFailedCredentials();
  for (let index = 0; index < 100; index++) failed.record(`2001:db8:0:7::${index.toString(16)}`);
  expect(() => failed.check("2001:0DB8::7:1:2:3:4")).toThrow();
  failed.check("2001:db8:0:8::1");
  failed.check("::1");
});

test("failures from ever new addresses take bounded memory and do not fail", () => {
  const failed = createFailedCredentials();
  const first = "192.0.2.1";
  for (let index = 0; index < 100; index++) failed.record(first);
  expect(() => failed.check(first)).toThrow(ApiError);
  for (let index = 0; index < 50_000; index++)
    failed.record(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`);
  // The newest addresses have taken its place.
  expect(() => failed.check(first)).not.toThrow();
});
