// Rates: only from sources that are fresh and agree.

import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { Outbound } from "../../src/base/outbound.ts";
import type { RateSources } from "../../src/config/catalog.ts";
import { agreedRate, coinsWithoutHistory, createMarketRate } from "../../src/payments/rates.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { startRates } from "../support/onchain.ts";
import { query } from "../support/query.ts";

const log = createLog("silent");
let rates: Awaited<ReturnType<typeof startRates>>;
let database: FreshDatabase;
let store: Postgres;
beforeAll(async () => {
  rates = await startRates({ BTC: 65_000 });
  database = await freshDatabase();
  store = connectPostgres(database.url);
});
afterAll(async () => {
  await rates.stop();
  await store.close();
  await database.drop();
});

const outbound = new Outbound();
let nowMs: number;
beforeEach(async () => {
  nowMs = Date.UTC(2026, 10, 22, 12);
  await query(store, { name: "", text: "delete from rate_samples" });
  rates.prices.BTC = 65_000;
  rates.troubles.length = 0;
});
const at = (seconds: number) => new Date(nowMs + seconds * 1000);
const source = (sources: RateSources = rates.sources) =>
  createMarketRate(sources, { store, outbound, log, now: () => nowMs });

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
  expect(createMarketRate(undefined, { store, outbound, log })).toBeUndefined();
  expect(createMarketRate({}, { store, outbound, log })).toBeUndefined();
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

test("of the past, the nearest rate that was kept counts, within five minutes, at every process", async () => {
  const then = at(0);
  await source()?.({ asset: "BTC" }, then);
  nowMs += 900_000;
  rates.prices.BTC = 70_000;
  await source()?.({ asset: "BTC" }, at(0));
  const asked = rates.calls.length;
  const other = source();
  for (const [seconds, rate] of [
    [-900, 65_000_000_000n],
    [-1_190, 65_000_000_000n],
    [-1_210, undefined],
    [-610, 65_000_000_000n],
    [-450, undefined],
    [-290, 70_000_000_000n],
  ] as const)
    expect(await other?.({ asset: "BTC" }, at(seconds))).toBe(rate);
  expect(rates.calls.length).toBe(asked);
});

test("where none was kept, the histories of two sources are asked, once, for the minute", async () => {
  const withHistory = (rates.sources.BTC ?? []).map((one, index) => ({
    ...one,
    history: {
      url: `${rates.url}/BTC/${index === 0 ? "a" : "b"}?from={start_unix}&to={end}`,
      path: one.path,
    },
  }));
  const before = rates.calls.length;
  const then = at(-7_200);
  const marketRate = source({ BTC: withHistory });
  expect(await marketRate?.({ asset: "BTC" }, then)).toBe(65_000_000_000n);
  expect(await marketRate?.({ asset: "BTC" }, then)).toBe(65_000_000_000n);
  const asked = rates.calls.slice(before);
  expect(asked.map(({ query }) => [query.get("from"), query.get("to")])).toEqual(
    Array(2).fill([String(then.getTime() / 1000), "2026-11-22T10:01:00.000Z"]),
  );
  expect(coinsWithoutHistory({ BTC: withHistory, ETH: withHistory.slice(1) })).toEqual(["ETH"]);
});

test("no quote is given at a rate of the past, though it is known", async () => {
  const marketRate = source();
  await marketRate?.({ asset: "BTC" }, "now");
  nowMs += 120_000;
  for (let left = 0; left < 4; left++)
    rates.troubles.push({ path: "/BTC/a", trouble: { kind: "hang-up" } });
  expect(await marketRate?.({ asset: "BTC" }, "now")).toBeUndefined();
  expect(await marketRate?.({ asset: "BTC" }, at(0))).toBe(65_000_000_000n);
  expect(await marketRate?.({ asset: "BTC" }, "last")).toBe(65_000_000_000n);
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
