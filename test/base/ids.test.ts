import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { timeOrderedId } from "../../src/base/ids.ts";

beforeEach(
  () =>
    void vi.useFakeTimers({ toFake: ["Date"], now: new Date("2026-03-01T12:00:00Z").getTime() }),
);
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
