import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { withTimeout } from "../../src/base/clock.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const never = new Promise<string>(() => {});
const onTimeout = () => "late";

test("work that settles in time settles the promise and stops the timer", async () => {
  expect(await withTimeout(Promise.resolve("done"), 1000, onTimeout)).toBe("done");
  await expect(withTimeout(Promise.reject(new Error("broken")), 1000, onTimeout)).rejects.toThrow(
    /broken/,
  );
  expect(vi.getTimerCount()).toBe(0);
});

test("after the time, the callback decides: its value or its exception", async () => {
  const value = withTimeout(never, 1000, onTimeout);
  const failure = withTimeout(never, 1000, () => {
    throw new Error("too late");
  });
  const refused = expect(failure).rejects.toThrow(/too late/);
  await vi.advanceTimersByTimeAsync(1000);
  expect(await value).toBe("late");
  await refused;
});

test("a result that arrives in the same turn as the timer wins, and nothing else happens", async () => {
  const work = Promise.withResolvers<string>();
  const callback = vi.fn(onTimeout);
  const limited = withTimeout(work.promise, 1000, callback);
  vi.advanceTimersByTime(1000);
  work.resolve("just in time");
  await setImmediate();
  expect(await limited).toBe("just in time");
  expect(callback.mock.calls.length).toBe(0);
});
