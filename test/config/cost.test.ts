// What the operator pays, as the file states it: in the form of prices, bounded, and where it is
// more than clients pay.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tokenCategories } from "../../src/base/token-categories.ts";
import {
  combinationsOf,
  costVersionOf,
  findLosses,
  levelsOf,
  offeredBy,
  readCatalogFile,
} from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { fileWithCost } from "../support/sales.ts";

const route = "{ provider: vendor, model: vendors-name }";

function problemsOf(cost: string, at = route): string[] {
  try {
    fileWithCost(cost, at);
    return [];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return error.message
      .split("\n")
      .slice(1)
      .map((line) => line.trim());
  }
}

function paidAt(cost: string, at = route) {
  const [model] = fileWithCost(cost, at).models;
  const paid = model?.routes[0]?.[0]?.paid;
  if (!model || !paid) throw new Error("a cost");
  return { model, paid };
}

describe("a cost that no provider takes is a problem at the start, with its place", () => {
  for (const [cost, problem] of [
    [
      "cost: { input: 10000000, output: 1 }",
      "models[0].cost.input: 10000000 USD per million tokens is more than 100000 USD, the most of a cost",
    ],
    [
      "cost: { input: 1, output: 10000000000000 }",
      "models[0].cost.output: must be a decimal number of US dollars per million tokens, not 10000000000000",
    ],
    [
      "cost: { input: 1, output: 1, per: { web_search: 100000.5 } }",
      "models[0].cost.per.web_search: 100000.5 USD per 1,000 searches is more than 100000 USD, the most of a cost",
    ],
    [
      "cost: { input: 1, output: 60000, when: [{ geo: us, multiply: 2 }] }",
      "models[0].cost: costs more than 100000 USD, the most of a cost with geography us",
    ],
    [
      "cost: { input: 0.0000001, output: 1 }",
      "models[0].cost.input: 0.0000001 USD per million tokens is not a whole number of pico-dollars per token (steps of 0.000001 USD)",
    ],
    [
      "cost: { input: 1, output: 2, when: [{ prompt_above: 1000000, multiply: 2 }] }",
      "models[0].cost: when[0].prompt_above: never holds: the model takes 1000000 tokens",
    ],
  ] as const)
    test(cost, () => {
      expect(problemsOf(cost)).toEqual([problem]);
    });

  test("a factor of a route, or its own prices", () => {
    expect(
      problemsOf("cost: { input: 1, output: 60000 }", "{ provider: vendor, cost: 2 }"),
    ).toEqual([
      "models[0].routes: the cost at vendor costs more than 100000 USD, the most of a cost with no condition",
    ]);
    expect(problemsOf("", "{ provider: vendor, cost: { input: 1, output: 200000 } }")).toEqual([
      "models[0].routes[0][0].cost.output: 200000 USD per million tokens is more than 100000 USD, the most of a cost",
    ]);
    expect(problemsOf("", "{ provider: vendor, cost: 1.1 }")).toEqual([
      "models[0].routes: the cost 1.1 at vendor is a factor of the model's cost, which is missing",
    ]);
  });

  test("the largest is none", () => {
    expect(problemsOf("cost: { input: 100000, output: 100000 }")).toEqual([]);
    expect(problemsOf("cost: { input: 0, output: 0 }")).toEqual([]);
  });
});

test("costs have the conditions of prices, and a request names the version of its own", () => {
  const when =
    "when: [{ speed: fast, input: 30, output: 150 }, { prompt_above: 100, input: 6, output: 20 }, " +
    "{ geo: us, multiply: 1.1 }, { tier: priority, multiply: 2 }]";
  const { paid } = paidAt(`cost: { input: 3, output: 10, ${when} }`);
  const [plain] = paid.cases;
  expect(plain?.versions.map(({ above, input }) => [above, input])).toEqual([
    [100, 3_000_000n],
    [null, 6_000_000n],
  ]);
  const [long, short] = [plain?.versions[1], plain?.versions[0]];
  expect(short?.aboveVersion).toBe(long?.costVersion);
  expect(costVersionOf(paid, {})).toBe(short?.costVersion);
  // What has no cost of its own is plain.
  expect(costVersionOf(paid, { speed: "slow", geo: "eu", tier: "standard" })).toBe(
    short?.costVersion,
  );
  for (const [facts, input] of [
    [{ speed: "fast" }, 30_000_000n],
    [{ geo: "us" }, 3_300_000n],
    [{ geo: "us", tier: "priority" }, 6_600_000n],
    [{ geo: "us", speed: "fast", tier: "flex" }, 33_000_000n],
  ] as const) {
    const named = costVersionOf(paid, facts);
    const versions = paid.cases.flatMap((one) => one.versions);
    expect(versions.find(({ costVersion }) => costVersion === named)?.input).toBe(input);
  }
  expect(costVersionOf(undefined, {})).toBe("");
});

test("each version is what the resolver of prices says of its case, times the factor of the route", () => {
  const usd = fc.integer({ min: 0, max: 50_000_000 }).map((micro) => (micro / 1e6).toFixed(6));
  const factor = fc.integer({ min: 0, max: 29_999 }).map((one) => (one / 1e4).toFixed(4));
  fc.assert(
    fc.property(usd, usd, usd, factor, (input, output, long, times) => {
      const { paid, model } = paidAt(
        `cost: { input: ${input}, output: ${output}, when: [{ prompt_above: 9, input: ${long}, ` +
          `output: ${long} }, { tier: flex, multiply: 0.5 }] }`,
        `{ provider: vendor, cost: ${times} }`,
      );
      const { cost } = model;
      if (!cost) throw new Error("a cost");
      for (const facts of combinationsOf(offeredBy(cost))) {
        const levels = levelsOf(paid.terms, facts);
        const versions = paid.cases.find((one) => one.facts.tier === facts.tier)?.versions;
        expect(versions?.map(({ above }) => above)).toEqual(
          levels.map((_, n) => levels[n + 1]?.over ?? null),
        );
        for (const [n, { prices }] of levels.entries())
          for (const category of tokenCategories)
            expect(versions?.[n]?.[category]).toBe(prices[category]);
        // One rounding up, at the end.
        const half = facts.tier === "flex" ? 5_000n : 10_000n;
        const exact = BigInt(Math.round(Number(input) * 1e6)) * half;
        const scaled = exact * BigInt(Math.round(Number(times) * 1e4));
        expect(versions?.[0]?.input).toBe((scaled + 99_999_999n) / 100_000_000n);
      }
    }),
    { numRuns: 100 },
  );
});

test("a loss is found under the condition where it is, after a discount, and by a search", () => {
  const price = (more: string) => `
models:
  - id: m
    created_at: 2026-02-05T00:00:00Z
    context_tokens: 1000000
    max_output_tokens: 100000
    thinking: none
    price: { input: 3, output: 15, thinking: 15, cache_write_5m: 3, cache_write_1h: 3,
      cache_read: 3, per: { web_search: 10 }, when: [{ prompt_above: 200000, multiply: 2 },
      { tier: priority, multiply: 1.5 }] }
    cost: { input: 2, output: 10, ${more} }
    routes: [[{ provider: vendor }]]
providers: { vendor: { kind: simulated } }
`;
  const lossesOf = (more: string, discountBp = 0) => {
    const { models } = readCatalogFile(price(more));
    return findLosses(models.map((model) => ({ ...model, discountBp })));
  };
  const at = { model: "m", provider: "vendor" };
  expect(lossesOf("thinking: 1")).toEqual([]);
  // A cost under a condition that clients cannot ask for is none.
  expect(lossesOf("thinking: 1, when: [{ speed: fast, multiply: 9 }]")).toEqual([]);
  expect(lossesOf("thinking: 1", 4_000)).toMatchObject([{ ...at, note: "" }]);
  expect(lossesOf("thinking: 1, per: { web_search: 11 }")).toEqual([
    { ...at, note: "", of: ["webSearch"] },
  ]);
  // Clients pay 8 for a search then.
  const search = (usd: number) => lossesOf(`thinking: 1, per: { web_search: ${usd} }`, 2_000);
  expect([search(8), search(9)]).toEqual([[], [{ ...at, note: "", of: ["webSearch"] }]]);
  expect(lossesOf("thinking: 1, when: [{ tier: priority, multiply: 4 }]")).toMatchObject([
    { ...at, note: "tier priority", of: expect.arrayContaining(["output"]) },
  ]);
  const long = "thinking: 1, when: [{ prompt_above: 300000, input: 20, output: 10 }]";
  expect(lossesOf(long)).toMatchObject([
    { ...at, note: "above 300,000 tokens of prompt", of: expect.arrayContaining(["input"]) },
  ]);
  expect(describeCatalog(readCatalogFile(price(long)))).toContain(
    "note: m costs more at vendor than its clients pay (above 300,000 tokens of prompt): input",
  );
});
