// The check before the body: how long an error is known, and which events end that.

import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KeySchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  createEarlyCheck,
  type EarlyCheck,
  type OnPayerChange,
  type PayerChange,
} from "../../src/http/early-check.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";

const key = create(KeySchema, { keyId: "key_1", accountId: "acc_1", requestsPerMinute: 1 });
const empty = new ApiError("credits_exhausted", {
  limit: { name: "pool_microcredits", limit: 0n, exhausted: true },
});
const tooSmall = new ApiError("credits_exhausted", {
  limit: { name: "pool_microcredits", limit: 1n },
});
const malformed = new ApiError("invalid_request");
const statuses: Record<string, number> = { credits_exhausted: 402, invalid_request: 400 };

function setUp() {
  const now = { ms: 1_000 };
  const listeners: ((change: PayerChange) => void)[] = [];
  const onPayerChange: OnPayerChange = (listener) => void listeners.push(listener);
  const limits = createRateLimits({
    nodes: { id: () => "node_1", live: () => ["node_1"] },
    log: createLog("silent"),
  });
  return {
    now,
    check: createEarlyCheck(limits, onPayerChange, () => now.ms),
    report: (change: PayerChange) => {
      for (const listener of listeners) listener(change);
    },
  };
}

/** The error that the check answers. Undefined: the body is read. */
function errorOf(check: EarlyCheck): ApiError | undefined {
  try {
    check(key);
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** Runs requests that fail after their body was read. */
function fail(check: EarlyCheck, error: ApiError, times = 1, bytes = 100): void {
  for (let index = 0; index < times; index++)
    check(key).fail(error, statuses[error.reason] ?? 0, bytes);
}

describe("an empty pool", () => {
  test("is known for one second after the last error", () => {
    const { check, now } = setUp();
    expect(errorOf(check)).toBeUndefined();
    fail(check, empty);
    now.ms += 999;
    expect(errorOf(check)).toBe(empty);
    now.ms += 1;
    expect(errorOf(check)).toBeUndefined();
  });

  test("is not concluded from credits that are too few for one request", () => {
    const { check } = setUp();
    fail(check, tooSmall);
    expect(errorOf(check)).toBeUndefined();
  });

  const changes: PayerChange[] = [
    { kind: "transfer", accountId: "acc_1" },
    { kind: "settlement", accountId: "acc_1" },
    { kind: "key", keyId: "key_1" },
  ];
  for (const change of changes) {
    test(`is known no longer after a change of this kind: ${change.kind}`, () => {
      const { check, report } = setUp();
      fail(check, empty);
      report(change);
      expect(errorOf(check)).toBeUndefined();
      fail(check, empty);
      expect(errorOf(check)).toBe(empty);
    });

    test(`is not learnt from a request that began before a change of this kind: ${change.kind}`, () => {
      const { check, report } = setUp();
      const running = check(key);
      report(change);
      running.fail(empty, 402, 100);
      expect(errorOf(check)).toBeUndefined();
    });
  }

  test("is still known after changes of other accounts and keys", () => {
    const { check, report } = setUp();
    fail(check, empty);
    report({ kind: "transfer", accountId: "acc_2" });
    report({ kind: "key", keyId: "key_2" });
    expect(errorOf(check)).toBe(empty);
  });

  test("is known only from errors of requests that began after the last transfer, in any order", () => {
    const step = fc.constantFrom("begin", "fail", "transfer", "wait");
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const { check, now, report } = setUp();
        const running: { request: ReturnType<EarlyCheck>; transfers: number }[] = [];
        let transfers = 0;
        let known: { transfers: number; atMs: number } | undefined;
        for (const one of steps) {
          const isKnown = known?.transfers === transfers && now.ms < known.atMs + 1_000;
          expect(errorOf(check)).toBe(isKnown ? empty : undefined);
          if (one === "begin" && !isKnown) running.push({ request: check(key), transfers });
          else if (one === "transfer") {
            transfers += 1;
            report({ kind: "transfer", accountId: "acc_1" });
          } else if (one === "wait") now.ms += 400;
          else {
            const ended = running.shift();
            // Not one of the statuses that the window of failed requests counts.
            ended?.request.fail(empty, 0, 100);
            if (ended) known = { transfers: ended.transfers, atMs: now.ms };
          }
        }
      }),
    );
  });
});

describe("sixty requests that failed after their body was read", () => {
  test("make the next ones 429, answered from their headers", () => {
    const { check } = setUp();
    fail(check, malformed, 60);
    const error = errorOf(check);
    expect(error?.reason).toBe("too_many_failed");
    expect(error?.facts.retryAfterMs).toBeGreaterThan(50_000);
  });

  test("make the next ones the same 402, if the last one was a 402", () => {
    const { check } = setUp();
    fail(check, malformed, 59);
    fail(check, tooSmall);
    expect(errorOf(check)).toBe(tooSmall);
    expect(errorOf(check)).toBe(tooSmall);
  });

  test("are answered with what is free, never with the need of another request", () => {
    const { check } = setUp();
    const message = "has 2 credits free, and this request needs 9 set aside";
    const limit = { name: "pool_microcredits" as const, limit: 2_000_000n, remaining: 2_000_000n };
    fail(check, new ApiError("credits_exhausted", { message, limit }), 60);
    const error = errorOf(check);
    expect(error?.reason).toBe("credits_exhausted");
    expect(error?.message).toContain("has 2 credits free");
    expect(error?.message).not.toContain("needs");
    expect(error?.facts.limit).toEqual(limit);
  });

  test("lock out nobody who buys credits, and nobody whose credits another process added", () => {
    const { check, now, report } = setUp();
    fail(check, tooSmall, 60);
    expect(errorOf(check)).toBe(tooSmall);
    report({ kind: "transfer", accountId: "acc_1" });
    expect(errorOf(check)).toBeUndefined();
    fail(check, tooSmall);
    expect(errorOf(check)).toBe(tooSmall);
    now.ms += 1_000;
    expect(errorOf(check)).toBeUndefined();
    expect(errorOf(check)).toBe(tooSmall);
  });

  test("do not include those whose body was not read, or that failed for another reason", () => {
    const { check } = setUp();
    for (let index = 0; index < 100; index++) {
      check(key).fail(malformed, 400, undefined);
      check(key).fail(new ApiError("overloaded"), 529, 100);
    }
    expect(errorOf(check)).toBeUndefined();
  });
});

test("256 MiB of failed bodies make the next requests 429", () => {
  const { check } = setUp();
  fail(check, malformed, 8, 32 * 1024 * 1024);
  expect(errorOf(check)?.facts.limit?.name).toBe("failed_bytes_per_minute");
});
