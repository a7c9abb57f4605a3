// The check before the body: how long an error is known, and which events end that.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeySchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { systemClock } from "../../src/base/clock.ts";
import { ApiError, type LimitName } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import type { KeyLoad, OnPayerChange, PayerChange, Turn } from "../../src/http/key-load.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import { keyLoad } from "../support/limits.ts";

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
  const rateLimits = createRateLimits({
    nodes: { id: () => "node_1", live: () => ["node_1"] },
    log: createLog("silent"),
  });
  return {
    now,
    load: keyLoad({ rateLimits, onPayerChange, clock: { ...systemClock, now: () => now.ms } }),
    report: (change: PayerChange) => {
      for (const listener of listeners) listener(change);
    },
  };
}

function begin(load: KeyLoad, of = key): Turn {
  return load.check(of, "192.0.2.1");
}

/** Fails a request after `bytes` of its body were read. */
function failAfter(turn: Turn | undefined, error: ApiError, status: number, bytes = 100): void {
  void turn?.take(bytes);
  turn?.read(bytes);
  turn?.readWhole();
  turn?.fail(error, status);
}

/** The error that the check answers. Undefined: the body is read. */
function errorOf(load: KeyLoad, of = key): ApiError | undefined {
  try {
    begin(load, of);
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** Runs requests that fail after their body was read. */
function fail(load: KeyLoad, error: ApiError, times = 1, bytes = 100): void {
  for (let index = 0; index < times; index++)
    failAfter(begin(load), error, statuses[error.reason] ?? 0, bytes);
}

test("the end of a manager's budget is known of all his keys in the pool, and of no others", () => {
  const { load, now, report } = setUp();
  const ofAna = (keyId: string, more: MessageInitShape<typeof KeySchema> = {}) =>
    create(KeySchema, {
      ...{ keyId, accountId: "acc_1", family: Family.V1, managedBy: toActor("person:ana") },
      ...more,
    });
  const over = (name: LimitName) =>
    new ApiError("budget_reached", { limit: { name, limit: 0n, exhausted: true } });
  const [one, next] = [ofAna("key_1"), ofAna("key_2")];
  const reached = over("manager_daily_microcredits");
  failAfter(begin(load, one), reached, 402);
  expect(errorOf(load, one)).toBe(reached);
  expect(errorOf(load, next)).toBe(reached);
  for (const more of [
    { family: Family.V2 },
    { accountId: "acc_2" },
    { managedBy: toActor("person:ben") },
    { managedBy: undefined },
  ])
    expect(errorOf(load, ofAna("key_3", more))).toBeUndefined();
  now.ms += 1_000;
  expect(errorOf(load, next)).toBeUndefined();
  // It ends by the events that end it for one key.
  failAfter(begin(load, one), reached, 402);
  report({ kind: "key", keyId: "key_2" });
  expect(errorOf(load, next)).toBeUndefined();
  // A budget of the key is its own.
  failAfter(begin(load, next), over("key_daily_microcredits"), 402);
  expect(errorOf(load, ofAna("key_4"))).toBe(reached);
  report({ kind: "transfer", accountId: "acc_1" });
  failAfter(begin(load, next), over("key_daily_microcredits"), 402);
  expect(errorOf(load, ofAna("key_4"))).toBeUndefined();
});

test("a budget that begins anew is known no longer, however much of the key has failed", () => {
  const { load, now } = setUp();
  const endMs = now.ms + 40_000;
  /** As the services have it, whose clock is that of the day. */
  const reached = () =>
    new ApiError("budget_reached", {
      limit: {
        ...{ name: "key_daily_microcredits", limit: 0n, exhausted: true },
        resetsAt: { seconds: BigInt(Math.round((Date.now() + endMs - now.ms) / 1_000)) },
      },
    });
  const failing = () => failAfter(begin(load), reached(), 402, 32 * 1024 * 1024);
  failing();
  expect(errorOf(load)?.reason).toBe("budget_reached");
  // Each is known for a second alone, until so many bytes of them have failed.
  for (let times = 1; times < 8; times++) {
    now.ms += 1_100;
    failing();
  }
  now.ms += 20_000;
  expect(errorOf(load)?.reason).toBe("budget_reached");
  now.ms = endMs - 2_000;
  expect(errorOf(load)?.reason).toBe("budget_reached");
  now.ms = endMs + 2_000;
  expect(errorOf(load)).toBeUndefined();
});

test("a budget that begins anew within the second is known until then", () => {
  const { load, now } = setUp();
  const resetsAt = { seconds: BigInt(Math.floor(Date.now() / 1_000)) };
  const reached = new ApiError("budget_reached", {
    limit: { name: "key_daily_microcredits", limit: 0n, exhausted: true, resetsAt },
  });
  failAfter(begin(load), reached, 402);
  now.ms += 1;
  expect(errorOf(load)).toBeUndefined();
});

describe("an empty pool", () => {
  test("is known for one second after the last error", () => {
    const { load, now } = setUp();
    expect(errorOf(load)).toBeUndefined();
    fail(load, empty);
    now.ms += 999;
    expect(errorOf(load)).toBe(empty);
    now.ms += 1;
    expect(errorOf(load)).toBeUndefined();
  });

  test("is not concluded from credits that are too few for one request", () => {
    const { load } = setUp();
    fail(load, tooSmall);
    expect(errorOf(load)).toBeUndefined();
  });

  const changes: PayerChange[] = [
    { kind: "transfer", accountId: "acc_1" },
    { kind: "settlement", accountId: "acc_1" },
    { kind: "budget", accountId: "acc_1" },
    { kind: "key", keyId: "key_1" },
  ];
  for (const change of changes) {
    test(`is known no longer after a change of this kind: ${change.kind}`, () => {
      const { load, report } = setUp();
      fail(load, empty);
      report(change);
      expect(errorOf(load)).toBeUndefined();
      fail(load, empty);
      expect(errorOf(load)).toBe(empty);
    });

    test(`is not learnt from a request that began before a change of this kind: ${change.kind}`, () => {
      const { load, report } = setUp();
      const running = begin(load);
      report(change);
      failAfter(running, empty, 402);
      expect(errorOf(load)).toBeUndefined();
    });
  }

  test("is still known after changes of other accounts and keys", () => {
    const { load, report } = setUp();
    fail(load, empty);
    report({ kind: "transfer", accountId: "acc_2" });
    report({ kind: "key", keyId: "key_2" });
    expect(errorOf(load)).toBe(empty);
  });

  test("is known only from errors of requests that began after the last transfer, in any order", () => {
    const step = fc.constantFrom("begin", "fail", "transfer", "wait");
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const { load, now, report } = setUp();
        const running: { request: Turn; transfers: number }[] = [];
        let transfers = 0;
        let known: { transfers: number; atMs: number } | undefined;
        for (const one of steps) {
          const isKnown = known?.transfers === transfers && now.ms < known.atMs + 1_000;
          expect(errorOf(load)).toBe(isKnown ? empty : undefined);
          if (one === "begin" && !isKnown) running.push({ request: begin(load), transfers });
          else if (one === "transfer") {
            transfers += 1;
            report({ kind: "transfer", accountId: "acc_1" });
          } else if (one === "wait") now.ms += 400;
          else {
            const ended = running.shift();
            // Not one of the statuses that the window of failed requests counts.
            failAfter(ended?.request, empty, 0);
            if (ended) known = { transfers: ended.transfers, atMs: now.ms };
          }
        }
      }),
    );
  });
});

describe("sixty requests that failed after their body was read", () => {
  test("make the next ones 429, answered from their headers", () => {
    const { load } = setUp();
    fail(load, malformed, 60);
    const error = errorOf(load);
    expect(error?.reason).toBe("too_many_failed");
    expect(error?.facts.retryAfterMs).toBeGreaterThan(50_000);
  });

  test("make the next ones the same 402, if the last one was a 402", () => {
    const { load } = setUp();
    fail(load, malformed, 59);
    fail(load, tooSmall);
    expect(errorOf(load)).toBe(tooSmall);
    expect(errorOf(load)).toBe(tooSmall);
  });

  test("are answered with what is free, never with the need of another request", () => {
    const { load } = setUp();
    const message = "has 2 credits free, and this request needs 9 set aside";
    const limit = { name: "pool_microcredits" as const, limit: 2_000_000n, remaining: 2_000_000n };
    fail(load, new ApiError("credits_exhausted", { message, limit }), 60);
    const error = errorOf(load);
    expect(error?.reason).toBe("credits_exhausted");
    expect(error?.message).toContain("has 2 credits free");
    expect(error?.message).not.toContain("needs");
    expect(error?.facts.limit).toEqual(limit);
  });

  test("lock out nobody who buys credits, and nobody whose credits another process added", () => {
    const { load, now, report } = setUp();
    fail(load, tooSmall, 60);
    expect(errorOf(load)).toBe(tooSmall);
    report({ kind: "transfer", accountId: "acc_1" });
    expect(errorOf(load)).toBeUndefined();
    fail(load, tooSmall);
    expect(errorOf(load)).toBe(tooSmall);
    now.ms += 1_000;
    expect(errorOf(load)).toBeUndefined();
    expect(errorOf(load)).toBe(tooSmall);
  });

  test("do not include those whose body was not read, or that failed for another reason", () => {
    const { load } = setUp();
    for (let index = 0; index < 100; index++) {
      begin(load).fail(malformed, 400);
      failAfter(begin(load), new ApiError("overloaded"), 529);
    }
    expect(errorOf(load)).toBeUndefined();
  });
});

test("256 MiB of failed bodies make the next requests 429", () => {
  const { load } = setUp();
  fail(load, malformed, 8, 32 * 1024 * 1024);
  expect(errorOf(load)?.facts.limit?.name).toBe("failed_bytes_per_minute");
});
