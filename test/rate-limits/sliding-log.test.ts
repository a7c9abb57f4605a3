import assert from "node:assert/strict";
import fc from "fast-check";
import { test } from "vitest";
import { decide, quotaOf, SlidingWindow, windowMs } from "../../src/rate-limits/sliding-window.ts";

/** Random arrivals: milliseconds between one and the next. */
const gaps = fc.array(fc.oneof(fc.nat(50), fc.nat(5_000), fc.nat(90_000)), {
  minLength: 1,
  maxLength: 300,
});

function admittedTimes(
  limit: number,
  gapsMs: readonly number[],
): { times: number[]; waits: [number, number | undefined][] } {
  const log = new SlidingWindow();
  const times: number[] = [];
  const waits: [number, number | undefined][] = [];
  let nowMs = 0;
  for (const gap of gapsMs) {
    nowMs += gap;
    const { admitted, waitMs } = decide(log, undefined, limit, nowMs);
    if (admitted) {
      log.add(nowMs, 0);
      times.push(nowMs);
    } else waits.push([nowMs, waitMs]);
  }
  return { times, waits };
}

test("no window of 60 seconds, wherever it begins, holds more than the limit, and none is refused that would have fitted", () => {
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

test("the wait is exact: a request is refused one millisecond before it ends and admitted when it ends", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 10 }), gaps, fc.nat(3_000), (limit, gapsMs, laterMs) => {
      const log = new SlidingWindow();
      let nowMs = 0;
      for (const gap of gapsMs) {
        nowMs += gap;
        if (decide(log, undefined, limit, nowMs).admitted) log.add(nowMs, 0);
      }
      nowMs += laterMs;
      const { admitted, waitMs } = decide(log, undefined, limit, nowMs);
      if (admitted || waitMs === undefined) return;
      assert.ok(waitMs > 0 && waitMs <= windowMs);
      if (waitMs > 1)
        assert.equal(decide(log, undefined, limit, nowMs + waitMs - 1).admitted, false);
      assert.equal(decide(log, undefined, limit, nowMs + waitMs).admitted, true);
    }),
  );
});

test("refused requests are not counted: hammering a full limit does not delay the next admission", () => {
  const log = new SlidingWindow();
  for (const atMs of [0, 1_000]) log.add(atMs, 0);
  for (let atMs = 2_000; atMs < 60_000; atMs += 10)
    assert.equal(decide(log, undefined, 2, atMs).admitted, false);
  assert.equal(decide(log, undefined, 2, 60_000).admitted, true);
});

test("a limit that was lowered waits until enough of the earlier requests have left", () => {
  const log = new SlidingWindow();
  for (const atMs of [0, 100, 200, 300, 400]) log.add(atMs, 0);
  assert.deepEqual(decide(log, undefined, 2, 500), {
    admitted: false,
    used: 5,
    waitMs: 60_300 - 500,
  });
  assert.deepEqual(decide(log, undefined, 6, 500), { admitted: true, used: 5, waitMs: 0 });
});

test("a limit of none admits nothing, and no wait helps", () => {
  assert.deepEqual(decide(new SlidingWindow(), undefined, 0, 0), {
    admitted: false,
    used: 0,
    waitMs: undefined,
  });
});

test("two logs decide as their merge does", () => {
  const times = fc
    .array(fc.nat(70_000), { maxLength: 40 })
    .map((all) => all.toSorted((a, b) => a - b));
  fc.assert(
    fc.property(times, times, fc.integer({ min: 1, max: 30 }), (mine, theirs, limit) => {
      const logOf = (all: readonly number[]) => {
        const log = new SlidingWindow();
        for (const atMs of all) log.add(atMs, 0);
        return log;
      };
      const merged = [...mine, ...theirs].toSorted((a, b) => a - b);
      assert.deepEqual(
        decide(logOf(mine), logOf(theirs), limit, 70_000),
        decide(logOf(merged), undefined, limit, 70_000),
      );
    }),
  );
});

test("a log forgets what has left the window and keeps the rest in order, however long it runs", () => {
  const log = new SlidingWindow();
  for (let id = 0; id < 10_000; id++) {
    log.forget(id * 100);
    log.add(id * 100, id);
  }
  log.forget(999_900);
  const kept = [...log.entries()];
  assert.equal(kept.length, 600);
  assert.equal(log.size, 600);
  assert.deepEqual(
    [kept[0], kept.at(-1)],
    [
      { atMs: 940_000, id: 9_400 },
      { atMs: 999_900, id: 9_999 },
    ],
  );
});

test("the shares of all nodes add up to the limit and differ by one at most, the first nodes having more", () => {
  fc.assert(
    fc.property(fc.nat(1_000_000), fc.integer({ min: 1, max: 50 }), (limit, nodes) => {
      const shares = Array.from({ length: nodes }, (_, place) => quotaOf(limit, nodes, place));
      assert.equal(
        shares.reduce((sum, share) => sum + share, 0),
        limit,
      );
      assert.deepEqual(
        shares,
        shares.toSorted((a, b) => b - a),
      );
      assert.ok((shares[0] ?? 0) - (shares.at(-1) ?? 0) <= 1);
    }),
  );
});
