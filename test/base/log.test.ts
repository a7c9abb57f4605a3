import fs from "node:fs";
import { afterEach, expect, test, vi } from "vitest";
import { createLog } from "../../src/base/log.ts";

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test("a log writes lines together after a tenth of a second, and nothing while there are none", () => {
  vi.useFakeTimers();
  const written: string[] = [];
  vi.spyOn(fs, "write").mockImplementation((...args: unknown[]) => {
    const [text, done] = [String(args[1]), args.at(-1)];
    written.push(text);
    if (typeof done === "function") done(null, Buffer.byteLength(text));
  });
  const log = createLog("info");
  vi.advanceTimersByTime(1_000);
  expect(written).toEqual([]);
  for (const round of [1, 2]) {
    log.info(`first of ${round}`);
    log.info(`second of ${round}`);
    vi.advanceTimersByTime(99);
    expect(written).toHaveLength(round - 1);
    vi.advanceTimersByTime(1_000);
    expect(written).toHaveLength(round);
    expect(written.at(-1)).toMatch(new RegExp(`first of ${round}.*\\n.*second of ${round}.*\\n$`));
  }
});
