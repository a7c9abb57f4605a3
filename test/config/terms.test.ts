// Prices under conditions, as the file states them: what is wrong with them, and what they come to.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tokenCategories } from "../../src/base/token-categories.ts";
import {
  combinationsOf,
  levelsOf,
  noteOf,
  offeredBy,
  readCatalogFile,
  searchPriceOf,
} from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { anyTerms } from "../support/arbitraries.ts";

const fileOf = (price: string) => `
price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }
providers: { sim: { kind: simulated } }
models:
  - { id: m, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000, max_output_tokens: 64000,
      thinking: none, routes: [[{ provider: sim }]], price: ${price} }
`;

const withWhen = (when: string) => fileOf(`{ input: 3, output: 15, when: ${when} }`);

function problemsOf(when: string): string[] {
  try {
    readCatalogFile(withWhen(when));
  } catch (error) {
    if (error instanceof Error)
      return error.message
        .split("\n")
        .slice(1)
        .map((one) => one.trim());
  }
  return [];
}

function termsOf(when: string) {
  const [read] = readCatalogFile(withWhen(when)).models;
  if (!read) throw new Error("no model");
  return read.price;
}

describe("conditions that are refused", () => {
  const at = "models[0].price.when";
  for (const [when, ...problems] of [
    ["x", `${at}: must be a list, and not empty`],
    ["[]", `${at}: must be a list, and not empty`],
    ["[{ input: 1, output: 2 }]", `${at}[0]: needs a condition: prompt_above, speed, geo, tier`],
    ["[{ speed: fast }]", `${at}[0]: needs input and output, or multiply`],
    [
      "[{ speed: fast, input: 1, output: 2, multiply: 2 }]",
      `${at}[0]: has prices and multiply, which contradict each other`,
    ],
    ["[{ speed: fast, input: 1 }]", `${at}[0].output: is required`],
    ["[{ speed: slow, multiply: 2 }]", `${at}[0].speed: must be one of fast, not slow`],
    [
      "[{ sped: fast, multiply: 2 }]",
      `${at}[0]: needs a condition: prompt_above, speed, geo, tier`,
      `${at}[0].sped: is not a known member; did you mean speed?`,
    ],
    [
      "[{ geo: US, multiply: 2 }]",
      `${at}[0].geo: must be a geography in small letters, such as us, not US`,
    ],
    ["[{ tier: default, multiply: 2 }]", `${at}[0].tier: never holds: default has the plain price`],
    [
      "[{ tier: Priority, multiply: 2 }]",
      `${at}[0].tier: must be a tier in small letters, such as priority, not Priority`,
    ],
    [
      "[{ prompt_above: 0, multiply: 2 }]",
      `${at}[0].prompt_above: must be a whole number from 1 to 99999999, not 0`,
    ],
    [
      "[{ prompt_above: 1.5, multiply: 2 }]",
      `${at}[0].prompt_above: must be a whole number from 1 to 99999999, not 1.5`,
    ],
    ...["0", "0.0", "-1", "1e3", "1.23456", "1000", "x"].map((factor) => [
      `[{ speed: fast, multiply: ${factor} }]`,
      `${at}[0].multiply: must be a factor above 0 and below 1000 with at most 4 decimals, such as 1.1, not ${factor}`,
    ]),
    [
      "[{ speed: fast, input: 1, output: 2 }, { speed: fast, input: 2, output: 3 }]",
      `${at}[1]: contradicts when[0]: both have the same conditions`,
    ],
    [
      "[{ geo: us, multiply: 2 }, { geo: us, multiply: 3 }]",
      `${at}[1]: contradicts when[0]: both have the same conditions`,
    ],
    [
      "[{ prompt_above: 100, input: 1, output: 2 }, { prompt_above: 200, input: 2, output: 3 }]",
      `${at}[1]: never applies, because when[0] holds wherever it does: put it before`,
    ],
    [
      "[{ speed: fast, input: 1, output: 2 }, { speed: fast, geo: us, input: 2, output: 3 }]",
      `${at}[1]: never applies, because when[0] holds wherever it does: put it before`,
    ],
    [
      "[{ prompt_above: 200000, multiply: 2 }]",
      "models[0].price: when[0].prompt_above: never holds: the model takes 200000 tokens",
    ],
    [
      "[{ prompt_above: 4, multiply: 2 }, { prompt_above: 3, multiply: 2 }, { prompt_above: 2, multiply: 2 }, { prompt_above: 1, multiply: 2 }]",
      "models[0].price: has more than 3 steps by the length of the prompt",
    ],
    [
      `[${[..."abcdefghijklmnopqrstuvwxyzabcdef"].map((letter, n) => `{ geo: ${letter}${n}, multiply: 2 }`).join(", ")}]`,
      "models[0].price: has 33 combinations of conditions, more than 32",
    ],
    [
      "[{ speed: fast, multiply: 150 }, { geo: us, multiply: 2 }]",
      "models[0].price: costs more than can be billed with fast; geography us",
    ],
  ] as const)
    test(when.slice(0, 90), () => {
      expect(problemsOf(when)).toEqual(problems);
    });
});

test("a reload with wrong conditions names all of them at once, and one that is right is taken", () => {
  const when = "[{ speed: slow, multiply: 0 }, { geo: us, multiply: 2 }, { multiply: 2 }]";
  expect(problemsOf(when)).toHaveLength(3);
  expect(problemsOf("[{ geo: us, multiply: 2 }]")).toEqual([]);
});

test("the first entry with prices counts, and every factor on top, rounded up once", () => {
  const terms = termsOf(`[
    { prompt_above: 200, speed: fast, input: 60, output: 300 },
    { prompt_above: 200, input: 6.00, output: 22.50 },
    { speed: fast, input: 30.00, output: 150.00 },
    { geo: us, multiply: 1.1 },
    { tier: priority, multiply: 2.5001 }]`);
  const inputs = (facts: Parameters<typeof levelsOf>[1], discountBp?: number) =>
    levelsOf(terms, facts, discountBp).map(({ over, prices }) => [over, prices.input]);
  expect(inputs({})).toEqual([
    [0, 600_000n],
    [200, 1_200_000n],
  ]);
  expect(inputs({ speed: "fast" })).toEqual([
    [0, 6_000_000n],
    [200, 12_000_000n],
  ]);
  expect(inputs({ geo: "us" })).toEqual([
    [0, 660_000n],
    [200, 1_320_000n],
  ]);
  expect(inputs({ geo: "us", tier: "priority" })).toEqual([
    [0, 1_650_066n],
    [200, 3_300_132n],
  ]);
  // 600,000 x 1.1 x 2.5001 x 0.6667 = 1,100,099.0022
  expect(inputs({ geo: "us", tier: "priority" }, 3_333)[0]).toEqual([0, 1_100_100n]);
  expect(inputs({}, 10_000)).toEqual([[0, 0n]]);
  // What has no price of its own derives from that of the entry.
  expect(levelsOf(terms, {})[1]?.prices).toMatchObject({
    cacheRead: 120_000n,
    thinking: 4_500_000n,
  });
  const offered = offeredBy(terms);
  expect(combinationsOf(offered)).toHaveLength(8);
  expect(noteOf({ speed: "fast", geo: "us", tier: "flex" }, 200_000)).toBe(
    "fast; geography us; tier flex; above 200,000 tokens of prompt",
  );
});

test("a discount never raises a price, and takes its share to a nano-credit", () => {
  fc.assert(
    fc.property(anyTerms, fc.integer({ min: 0, max: 10_000 }), (terms, discountBp) => {
      for (const facts of combinationsOf(offeredBy(terms))) {
        const [plain, less] = [levelsOf(terms, facts), levelsOf(terms, facts, discountBp)];
        for (const { over, prices } of plain) {
          const same = less.findLast((one) => one.over <= over)?.prices;
          for (const category of tokenCategories) {
            const after = same?.[category] ?? -1n;
            expect(after <= prices[category]).toBe(true);
            const exact = prices[category] * BigInt(10_000 - discountBp);
            // Rounded up once from the exact price, which may be below the public one.
            expect(after * 10_000n <= exact + 10_000n).toBe(true);
          }
        }
      }
      expect(searchPriceOf(terms, discountBp) <= searchPriceOf(terms)).toBe(true);
    }),
  );
});

test("the description of a file has a row for each combination of conditions", () => {
  const when = "[{ prompt_above: 1000, input: 6, output: 30 }, { geo: us, multiply: 1.1 }]";
  const text = describeCatalog(readCatalogFile(withWhen(when)));
  const rows = text.slice(text.indexOf("prices under conditions")).split("\n").slice(0, 5);
  expect(rows.map((row) => row.trim().replace(/ {2,}/g, " | "))).toEqual([
    "prices under conditions",
    "model | conditions | input | output | thinking | cache write 5m | cache write 1h | cache read",
    "m | above 1,000 tokens of prompt | 1200 | 6000 | 6000 | 1500 | 2400 | 120",
    "m | geography us | 660 | 3300 | 3300 | 825 | 1320 | 66",
    "m | geography us; above 1,000 tokens of prompt | 1320 | 6600 | 6600 | 1650 | 2640 | 132",
  ]);
  expect(describeCatalog(readCatalogFile(fileOf("{ input: 3, output: 15 }")))).not.toContain(
    "under conditions",
  );
});
