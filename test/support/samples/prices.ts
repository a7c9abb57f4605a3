// Arbitrary prices, usage and bounds for property tests.

import fc from "fast-check";
import type { UsageBounds } from "../../../src/billing/hold-size.ts";
import type { Prices } from "../../../src/billing/price.ts";
import { usage } from "../ledger.ts";

const tokensMax = 2 ** 31 - 1;
const micro = fc.oneof(fc.bigInt({ min: 0n, max: 4_000n }), fc.constantFrom(0n, 1n, 10n ** 12n));
const tokens = fc.oneof(fc.nat(5_000), fc.nat(tokensMax), fc.constantFrom(0, 1, tokensMax));

export const anyPrices: fc.Arbitrary<Prices> = fc.record({
  input: micro,
  output: micro,
  cacheWrite5m: micro,
  cacheWrite1h: micro,
  cacheRead: micro,
  thinking: micro,
  webSearch: micro,
});

export const anyUsage = fc
  .record({
    input: tokens,
    output: tokens,
    cacheWrite5m: tokens,
    cacheWrite1h: tokens,
    cacheRead: tokens,
    thinking: tokens,
    webSearches: tokens,
  })
  .map(usage);

export const anyBounds: fc.Arbitrary<UsageBounds> = fc
  .record({
    input: tokens,
    mostExpensiveInput: fc.constantFrom(0, 1, 2),
    webSearches: tokens,
    first: tokens,
    second: tokens,
  })
  .map(({ input, mostExpensiveInput, webSearches, first, second }) => ({
    input,
    mostExpensiveInput,
    webSearches,
    minOutput: Math.min(first, second),
    maxOutput: Math.max(first, second),
  }));

/** Bounds of a request whose input is uncertain. */
export const anyCountedBounds: fc.Arbitrary<UsageBounds & { readonly minInput: number }> = fc
  .tuple(anyBounds, tokens)
  .map(([bounds, minInput]) => ({ ...bounds, minInput: Math.min(minInput, bounds.input) }));
