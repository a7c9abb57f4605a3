import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  isRequestId,
  mayBeOld,
  monthsNear,
  newRequestId,
  randomId,
  randomSecret,
  timeOf,
  timeOrderedId,
} from "../../src/base/ids.ts";
import { anyMonthsAway, anyRequestId } from "../support/arbitraries.ts";

const now = Date.UTC(2026, 2, 1, 12);
const dayMs = 86_400_000;
beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now }));
afterEach(() => void vi.useRealTimers());

test("ids sort as they were made, however many fall into one millisecond", () => {
  const ids = Array.from({ length: 10_000 }, () => timeOrderedId("key_"));
  expect(ids).toStrictEqual(ids.toSorted());
  expect(new Set(ids).size).toBe(ids.length);
});

test("ids go on upwards when the clock is set back", () => {
  const before = timeOrderedId("key_");
  vi.setSystemTime(Date.now() - 60_000);
  const after = timeOrderedId("key_");
  expect(after > before, `${after} after ${before}`).toBe(true);
});

test("an id is a UUIDv7 without hyphens", () => {
  for (let index = 0; index < 100; index++) {
    expect(timeOrderedId("req_")).toMatch(/^req_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/);
  }
});

/** An id as a gateway makes it at this time. */
const idMadeAt = (ms: number) => `req_${ms.toString(16).padStart(12, "0")}7fff8123456789abcdef`;

test("a request id has 8 to 64 letters, digits, _ and -, and no time of another day to come", () => {
  fc.assert(
    fc.property(anyRequestId, fc.constantFrom("!", " ", ".", "/", "é", "\n"), (id, other) => {
      expect(isRequestId(id)).toBe(true);
      for (const wrong of [id.slice(1), ` ${id}`, id.slice(0, -1) + other, id + other])
        expect(isRequestId(wrong)).toBe(false);
    }),
  );
  expect(["req_1234567", `req_${"a".repeat(65)}`, "req_", ""].filter(isRequestId)).toEqual([]);
  expect(isRequestId(idMadeAt(now + dayMs))).toBe(true);
  expect(isRequestId(idMadeAt(now + dayMs + 1))).toBe(false);
  // Of another version or variant, it is no UUIDv7 and tells no time.
  for (const other of ["6fff8", "7fff7", "7fffc", "7fffg"])
    expect(isRequestId(idMadeAt(now + 2 * dayMs).replace("7fff8", other))).toBe(true);
});

test("an id may be old from a day after its time on, or if it tells none", () => {
  expect([now, now - dayMs, now - dayMs - 1].map((ms) => mayBeOld(idMadeAt(ms)))).toEqual([
    false,
    false,
    true,
  ]);
  expect(mayBeOld("req_of-a-caller")).toBe(true);
  expect([timeOf(idMadeAt(now)), timeOf("req_of-a-caller")]).toEqual([now, undefined]);
});

test("an id of a gateway was admitted in the month of its time, give or take an hour", () => {
  const hourMs = 3_600_000;
  fc.assert(
    fc.property(anyMonthsAway, (away) => {
      const start = Date.UTC(2026, 2 + away, 1);
      const [before, after] = [start - 1, start].map((ms) =>
        new Date(ms).toISOString().slice(0, 7),
      );
      const months = (ms: number) => monthsNear(idMadeAt(ms));
      for (const ms of [start - hourMs, start + hourMs - 1])
        expect(months(ms)).toEqual([`${before}-01`, `${after}-01`]);
      expect(months(start - hourMs - 1)).toEqual([`${before}-01`]);
      expect(months(start + hourMs)).toEqual([`${after}-01`]);
    }),
  );
  expect(monthsNear("req_of-a-caller")).toBeUndefined();
});

test("new ids of requests tell their time, and none comes twice", () => {
  const ids = Array.from({ length: 1_000 }, newRequestId);
  expect(new Set(ids).size).toBe(1_000);
  for (const id of ids) expect([isRequestId(id), mayBeOld(id)]).toEqual([true, false]);
  // A millisecond has 4,096 of them, and each has random digits of its own.
  vi.setSystemTime(now + dayMs);
  const more = Array.from({ length: 4_097 }, newRequestId);
  expect(more.map(timeOf)).toEqual(more.map((_, index) => now + dayMs + (index < 4_096 ? 0 : 1)));
  expect(new Set(more.map((id) => id.slice(-15))).size).toBe(4_097);
  // A clock that is set back a little is waited for, one that is set back by days is followed.
  vi.setSystemTime(now + dayMs - 3_599_000);
  expect(timeOf(newRequestId())).toBe(now + dayMs + 1);
  vi.setSystemTime(now - dayMs);
  expect(timeOf(newRequestId())).toBe(now - dayMs);
});

test("random ids have their length, and secrets their bytes, in all of their letters", () => {
  const counts = new Map<string, number>();
  const draws = [...[1, 23, 24], ...Array.from({ length: 250 }, () => 500)];
  for (const length of draws) {
    const id = randomId("x_", length);
    expect(id).toMatch(/^x_[0-9A-Za-z]*$/);
    expect(id).toHaveLength(2 + length);
    for (const letter of id.slice(2)) counts.set(letter, (counts.get(letter) ?? 0) + 1);
  }
  const expected = draws.reduce((sum, length) => sum + length, 0) / 62;
  expect(counts.size).toBe(62);
  // Eight standard deviations: a fair draw fails this once in 10^13 runs.
  for (const count of counts.values())
    expect(Math.abs(count - expected)).toBeLessThan(8 * Math.sqrt(expected));
  expect(randomId("x_")).toHaveLength(26);
  expect(Buffer.from(randomSecret(32), "base64url")).toHaveLength(32);
});
