import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Stopwatch } from "../../src/base/stopwatch.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance", "setTimeout"] }));
afterEach(() => void vi.useRealTimers());

test("waits that overlap count once, and one that is open counts so far", () => {
  const watch = new Stopwatch();
  expect(watch.ms).toBe(0);
  watch.start();
  vi.advanceTimersByTime(10);
  watch.start();
  vi.advanceTimersByTime(10);
  watch.stop();
  vi.advanceTimersByTime(10);
  expect(watch.ms).toBe(30);
  watch.stop();
  vi.advanceTimersByTime(10);
  expect(watch.ms).toBe(30);
  watch.start();
  vi.advanceTimersByTime(5);
  expect(watch.ms).toBe(35);
});

test("work that fails ends its wait, and fails as before", async () => {
  const watch = new Stopwatch();
  const failing = watch.around(Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
  vi.advanceTimersByTime(10);
  expect(watch.ms).toBe(0);
  expect(await watch.around(Promise.resolve(7))).toBe(7);
});
