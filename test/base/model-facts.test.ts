// What people read of the prices of a model under conditions.

import fc from "fast-check";
import { expect, test } from "vitest";
import { priceRules } from "../../src/base/model-facts.ts";
import { byCategory } from "../../src/base/token-categories.ts";
import { levelsOf, readTerms } from "../../src/config/terms.ts";

const factors = { thinking: "1", cacheWrite5m: "1.25", cacheWrite1h: "2", cacheRead: "0.1" };

type Stated = Readonly<Record<string, string>>;

/** The prices of a model and of its fast answers, after a discount. */
function modelWith(fast: Stated, discountBp = 0, own: Stated = {}) {
  const given = { input: "3", output: "15", ...own, when: [{ speed: "fast", ...fast }] };
  const terms = readTerms(given, factors);
  if (Array.isArray(terms)) throw new Error(terms.join("\n"));
  const priceOf = (speed?: string) => {
    const prices = levelsOf(terms, { speed }, discountBp)[0]?.prices ?? byCategory(() => 0n);
    return { ...prices, webSearch: 0n, note: speed ?? "" };
  };
  return { price: priceOf(), conditional: [priceOf("fast")] };
}
const rulesOf = (fast: Stated, discountBp = 0) => priceRules(modelWith(fast, discountBp));

const plain = "Fast: 3.00 USD (600 credits) in and 15.00 USD (3,000 credits) out";

test("a condition names the prices that do not follow input and output", () => {
  expect(rulesOf({ input: "3", output: "15", cache_read: "0.3" })).toEqual([`${plain}.`]);
  expect(rulesOf({ input: "3", output: "15", cache_read: "3" })).toEqual([
    `${plain}; 3.00 USD (600 credits) for cache reads.`,
  ]);
  const writes = { cache_write_5m: "3", cache_write_1h: "5" };
  expect(rulesOf({ input: "3", output: "15", thinking: "20", ...writes })).toEqual([
    `${plain}; 20.00 USD (4,000 credits) for thinking, ` +
      "3.00 USD (600 credits) for cache writes of 5 minutes, " +
      "5.00 USD (1,000 credits) for cache writes of 1 hour.",
  ]);
  expect(rulesOf({ input: "6", output: "20" })).toEqual([
    "Fast: 6.00 USD (1,200 credits) in and 20.00 USD (4,000 credits) out.",
  ]);
});

test("a factor of all prices names none of them, however a discount rounds them", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 999_999 }), fc.nat(9_999), (factor, discountBp) => {
      const multiply = `${Math.floor(factor / 10_000)}.${String(factor % 10_000).padStart(4, "0")}`;
      expect(rulesOf({ multiply }, discountBp).join()).not.toContain(";");
    }),
  );
});

test("prices beside others name what differs, and are the same where nothing does", () => {
  const change = (one: ReturnType<typeof modelWith>, other: ReturnType<typeof modelWith>) => [
    ...priceRules(one, other),
    ...priceRules(other, one),
  ];
  const tenth = { input: "3", output: "15", cache_read: "0.3" };
  expect(change(modelWith(tenth), modelWith({ ...tenth, cache_read: "3" }))).toEqual([
    `${plain}; 0.30 USD (60 credits) for cache reads.`,
    `${plain}; 3.00 USD (600 credits) for cache reads.`,
  ]);
  // Each is in the proportion of its plain prices.
  const both = modelWith({ ...tenth, cache_read: "0.6" }, 0, { cache_read: "0.6" });
  expect(change(modelWith(tenth), both)).toEqual([
    `${plain}; 0.30 USD (60 credits) for cache reads.`,
    `${plain}; 0.60 USD (120 credits) for cache reads.`,
  ]);
  const [was, is] = change(modelWith(tenth), modelWith(tenth, 0, { cache_read: "0.6" }));
  expect(was).toBe(is);
});
