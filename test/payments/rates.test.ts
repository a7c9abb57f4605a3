// Rates: only from sources that are fresh and agree.

import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { agreedRate, createMarketRate } from "../../src/payments/rates.ts";
import { startRates } from "../support/onchain.ts";

const log = createLog("silent");
let rates: Awaited<ReturnType<typeof startRates>>;
beforeAll(async () => {
  rates = await startRates({ BTC: 65_000 });
});
afterAll(() => rates.stop());

let nowMs: number;
beforeEach(() => {
  nowMs = Date.UTC(2026, 10, 22, 12);
  rates.prices.BTC = 65_000;
  rates.troubles.length = 0;
});
const at = (seconds: number) => new Date(nowMs + seconds * 1000);
const source = () => createMarketRate(rates.sources, log, () => nowMs);

test("the median of sources that agree, in micro-dollars", async () => {
  expect(await source()?.({ asset: "BTC" }, at(0))).toBe(65_000_000_000n);
});

test.each([
  ["a source that is away", { kind: "hang-up" }],
  ["429", { kind: "status", status: 429 }],
  ["nonsense", { kind: "text", text: '{"data":{"amount":"a lot"}}' }],
  ["nothing", { kind: "text", text: "{}" }],
  ["0", { kind: "text", text: '{"data":{"amount":"0"}}' }],
  ["a negative price", { kind: "text", text: '{"data":{"amount":"-65000"}}' }],
  ["2 % more than the other", { kind: "text", text: '{"data":{"amount":"66300"}}' }],
] as const)("%s leaves no rate", async (_, trouble) => {
  rates.troubles.push({ path: "/BTC/a", trouble });
  expect(await source()?.({ asset: "BTC" }, at(0))).toBeUndefined();
});

test("a coin without sources has no rate, and without any source there is none to ask", async () => {
  expect(await source()?.({ asset: "USDT" }, at(0))).toBeUndefined();
  expect(createMarketRate(undefined, log)).toBeUndefined();
  expect(createMarketRate({}, log)).toBeUndefined();
});

test("calls at once and shortly after each other ask once; a minute later they ask again", async () => {
  const marketRate = source();
  const before = rates.calls.length;
  await Promise.all(Array.from({ length: 20 }, () => marketRate?.({ asset: "BTC" }, at(0))));
  nowMs += 10_000;
  await marketRate?.({ asset: "BTC" }, at(0));
  expect(rates.calls.length - before).toBe(2);
  nowMs += 10_000;
  rates.prices.BTC = 70_000;
  expect(await marketRate?.({ asset: "BTC" }, at(0))).toBe(70_000_000_000n);
});

test("the past is known as far as it was asked for, within a minute", async () => {
  const marketRate = source();
  await marketRate?.({ asset: "BTC" }, at(0));
  const then = at(0);
  nowMs += 600_000;
  rates.prices.BTC = 70_000;
  await marketRate?.({ asset: "BTC" }, at(0));
  expect(await marketRate?.({ asset: "BTC" }, then)).toBe(65_000_000_000n);
  expect(await marketRate?.({ asset: "BTC" }, at(-530))).toBeUndefined();
  expect(await marketRate?.({ asset: "BTC" }, at(-300))).toBeUndefined();
  expect(await marketRate?.({ asset: "BTC" }, at(-610))).toBe(65_000_000_000n);
});

test("a rate is agreed on only by two or more within 1 %, and lies between them", () => {
  const price = fc.bigInt({ min: 1n, max: 10n ** 12n });
  fc.assert(
    fc.property(fc.array(price, { maxLength: 6 }), (prices) => {
      const agreed = agreedRate(prices);
      const sorted = prices.toSorted((one, other) => (one < other ? -1 : 1));
      const [least = 0n, most = 0n] = [sorted.at(0), sorted.at(-1)];
      const isAgreed = prices.length >= 2 && (most - least) * 100n <= least;
      expect(agreed !== undefined).toBe(isAgreed);
      if (agreed !== undefined) expect(agreed >= least && agreed <= most).toBe(true);
    }),
  );
});
