import assert from "node:assert/strict";
import fc from "fast-check";
import { test } from "vitest";
import { decide, quotaOf, SlidingWindow, windowMs } from "../../src/rate-limits/sliding-window.ts";

/** Random arrivals, as the milliseconds between one and the next. */
const gaps = fc.array(fc.oneof(fc.nat(50), fc.nat(5_000), fc.nat(90_000)), {
  minLength: 1,
  maxLength: 300,
});

function admittedTimes(
  limit: number,
  gapsMs: readonly number[],
): { times: number[]; waits: [number, number | undefined][] } {
  const window = new SlidingWindow();
  const times: number[] = [];
  const waits: [number, number | undefined][] = [];
  let nowMs = 0;
  for (const gap of gapsMs) {
    nowMs += gap;
    const { admitted, waitMs } = decide(window, undefined, limit, nowMs);
    if (admitted) {
      window.add(nowMs, 0);
      times.push(nowMs);
    } else waits.push([nowMs, waitMs]);
  }
  return { times, waits };
}

test("no window of 60 seconds contains more requests than the limit, and no request that fits is refused", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), gaps, (limit, gapsMs) => {
      const { times, waits } = admittedTimes(limit, gapsMs);
      for (const [index, atMs] of times.entries()) {
        const before = times[index - limit];
        if (before !== undefined) assert.ok(atMs - before >= windowMs);
      }
      for (const [atMs] of waits) {
        assert.equal(times.filter((one) => one <= atMs && one > atMs - windowMs).length, limit);
      }
    }),
  );
});

test("the wait is exact: a request is refused one millisecond before its end and admitted at its end", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 10 }), gaps, fc.nat(3_000), (limit, gapsMs, laterMs) => {
      const window = new SlidingWindow();
      let nowMs = 0;
      for (const gap of gapsMs) {
        nowMs += gap;
        if (decide(window, undefined, limit, nowMs).admitted) window.add(nowMs, 0);
      }
      nowMs += laterMs;
      const { admitted, waitMs } = decide(window, undefined, limit, nowMs);
      if (admitted || waitMs === undefined) return;
      assert.ok(waitMs > 0 && waitMs <= windowMs);
      if (waitMs > 1)
        assert.equal(decide(window, undefined, limit, nowMs + waitMs - 1).admitted, false);
      assert.equal(decide(window, undefined, limit, nowMs + waitMs).admitted, true);
    }),
  );
});

test("refused requests are not counted: repeating them does not delay the next admission", () => {
  const window = new SlidingWindow();
  for (const atMs of [0, 1_000]) window.add(atMs, 0);
  for (let atMs = 2_000; atMs < 60_000; atMs += 10)
    assert.equal(decide(window, undefined, 2, atMs).admitted, false);
  assert.equal(decide(window, undefined, 2, 60_000).admitted, true);
});

test("after a limit is lowered, the next request waits until enough earlier ones have expired", () => {
  const window = new SlidingWindow();
  for (const atMs of [0, 100, 200, 300, 400]) window.add(atMs, 0);
  assert.deepEqual(decide(window, undefined, 2, 500), {
    admitted: false,
    used: 5,
    waitMs: 60_300 - 500,
  });
  assert.deepEqual(decide(window, undefined, 6, 500), { admitted: true, used: 5, waitMs: 0 });
});

test("a limit of 0 admits nothing, and waiting does not help", () => {
  assert.deepEqual(decide(new SlidingWindow(), undefined, 0, 0), {
    admitted: false,
    used: 0,
    waitMs: undefined,
  });
});

test("two windows decide as their merge does", () => {
  const times = fc
    .array(fc.nat(70_000), { maxLength: 40 })
    .map((all) => all.toSorted((a, b) => a - b));
  fc.assert(
    fc.property(times, times, fc.integer({ min: 1, max: 30 }), (mine, theirs, limit) => {
      const windowOf = (all: readonly number[]) => {
        const window = new SlidingWindow();
        for (const atMs of all) window.add(atMs, 0);
        return window;
      };
      const merged = [...mine, ...theirs].toSorted((a, b) => a - b);
      assert.deepEqual(
        decide(windowOf(mine), windowOf(theirs), limit, 70_000),
        decide(windowOf(merged), undefined, limit, 70_000),
      );
    }),
  );
});

test("a window removes expired entries and keeps the others in order, however long it runs", () => {
  const window = new SlidingWindow();
  for (let id = 0; id < 10_000; id++) {
    window.expire(id * 100);
    window.add(id * 100, id);
  }
  window.expire(999_900);
  const left = [...window.entries()];
  assert.equal(left.length, 600);
  assert.equal(window.size, 600);
  assert.deepEqual(
    [left[0], left.at(-1)],
    [
      { atMs: 940_000, id: 9_400 },
      { atMs: 999_900, id: 9_999 },
    ],
  );
});

test("the quotas of all nodes add up to the limit and differ by at most one, the first nodes having more", () => {
  fc.assert(
    fc.property(fc.nat(1_000_000), fc.integer({ min: 1, max: 50 }), (limit, nodes) => {
      const quotas = Array.from({ length: nodes }, (_, rank) => quotaOf(limit, nodes, rank));
      assert.equal(
        quotas.reduce((sum, quota) => sum + quota, 0),
        limit,
      );
      assert.deepEqual(
        quotas,
        quotas.toSorted((a, b) => b - a),
      );
      assert.ok((quotas[0] ?? 0) - (quotas.at(-1) ?? 0) <= 1);
    }),
  );
});
