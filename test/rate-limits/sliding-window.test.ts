import fc from "fast-check";
import { expect, test } from "vitest";
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
    const { admitted, waitMs } = decide(window, limit, nowMs);
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
        if (before !== undefined) expect.assert(atMs - before >= windowMs);
      }
      for (const [atMs] of waits) {
        expect(times.filter((one) => one <= atMs && one > atMs - windowMs).length).toBe(limit);
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
        if (decide(window, limit, nowMs).admitted) window.add(nowMs, 0);
      }
      nowMs += laterMs;
      const { admitted, waitMs } = decide(window, limit, nowMs);
      if (admitted || waitMs === undefined) return;
      expect.assert(waitMs > 0 && waitMs <= windowMs);
      if (waitMs > 1) expect(decide(window, limit, nowMs + waitMs - 1).admitted).toBe(false);
      expect(decide(window, limit, nowMs + waitMs).admitted).toBe(true);
    }),
  );
});

test("refused requests are not counted: repeating them does not delay the next admission", () => {
  const window = new SlidingWindow();
  for (const atMs of [0, 1_000]) window.add(atMs, 0);
  for (let atMs = 2_000; atMs < 60_000; atMs += 10)
    expect(decide(window, 2, atMs).admitted).toBe(false);
  expect(decide(window, 2, 60_000).admitted).toBe(true);
});

test("after a limit is lowered, the next request waits until enough earlier ones have expired", () => {
  const window = new SlidingWindow();
  for (const atMs of [0, 100, 200, 300, 400]) window.add(atMs, 0);
  expect(decide(window, 2, 500)).toStrictEqual({
    admitted: false,
    used: 5,
    waitMs: 60_300 - 500,
  });
  expect(decide(window, 6, 500)).toStrictEqual({ admitted: true, used: 5, waitMs: 0 });
});

test("a limit of 0 admits nothing, and waiting does not help", () => {
  expect(decide(new SlidingWindow(), 0, 0)).toStrictEqual({
    admitted: false,
    used: 0,
    waitMs: undefined,
  });
});

test("a window removes expired entries and keeps the others in order, however long it runs", () => {
  const window = new SlidingWindow();
  for (let id = 0; id < 10_000; id++) {
    window.expire(id * 100);
    window.add(id * 100, id);
  }
  window.expire(999_900);
  const left = [...window.entries()];
  expect(left.length).toBe(600);
  expect(window.size).toBe(600);
  expect([left[0], left.at(-1)]).toStrictEqual([
    { atMs: 940_000, id: 9_400 },
    { atMs: 999_900, id: 9_999 },
  ]);
});

test("the quotas of all nodes add up to the limit and differ by at most one, the first nodes having more", () => {
  fc.assert(
    fc.property(fc.nat(1_000_000), fc.integer({ min: 1, max: 50 }), (limit, nodes) => {
      const quotas = Array.from({ length: nodes }, (_, rank) => quotaOf(limit, nodes, rank));
      expect(quotas.reduce((sum, quota) => sum + quota, 0)).toBe(limit);
      expect(quotas).toStrictEqual(quotas.toSorted((a, b) => b - a));
      expect.assert((quotas[0] ?? 0) - (quotas.at(-1) ?? 0) <= 1);
    }),
  );
});
