// Arbitrary values of property tests, which reach their borders often: the least and the largest of
// each bound, amounts beside what is free, months beside the current one, equal times, ids over
// their whole alphabet, numbers as people type them, several streams that end in any order.

import fc from "fast-check";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Prices } from "../../src/base/cost.ts";
import type { Funds, UsageBounds } from "../../src/billing/hold-size.ts";
import type { PriceEntry, PriceFacts, PriceTerms } from "../../src/config/catalog.ts";
import { usage } from "./ledger.ts";

/** An amount between both, often one of them or beside one. */
export function within(min: bigint, max: bigint): fc.Arbitrary<bigint> {
  return fc.oneof(
    fc.bigInt({ min, max }),
    fc
      .constantFrom(min, min + 1n, max - 1n, max)
      .map((one) => (one < min ? min : one > max ? max : one)),
  );
}

/** One of these amounts, or one more or less than it. Never below zero. */
export function beside(...amounts: readonly bigint[]): fc.Arbitrary<bigint> {
  return fc
    .tuple(fc.constantFrom(...amounts), fc.constantFrom(-1n, 0n, 1n))
    .map(([amount, more]) => (amount + more < 0n ? 0n : amount + more));
}

/** Micro-credits. */
export const anyAmount = fc.oneof(within(0n, 10n ** 9n), within(0n, 10n ** 18n));

const tokensMax = 2 ** 31 - 1;
const micro = fc.oneof(fc.bigInt({ min: 0n, max: 4_000n }), fc.constantFrom(0n, 1n, 10n ** 12n));
export const anyTokens = fc.oneof(
  fc.nat(5_000),
  fc.nat(tokensMax),
  fc.constantFrom(0, 1, tokensMax),
);

/** One value for each token category. */
export function ofCategories<Value>(value: fc.Arbitrary<Value>) {
  return fc.record({
    input: value,
    output: value,
    cacheWrite5m: value,
    cacheWrite1h: value,
    cacheRead: value,
    thinking: value,
  });
}

export const anyPrices: fc.Arbitrary<Prices> = fc
  .tuple(ofCategories(micro), micro)
  .map(([prices, webSearch]) => ({ ...prices, webSearch }));

const anyEntry = fc
  .record({
    promptAbove: fc.option(fc.constantFrom(100, 1_000, 200_000), { nil: undefined }),
    speed: fc.constantFrom(undefined, "fast"),
    geo: fc.constantFrom(undefined, "us", "eu"),
    tier: fc.constantFrom(undefined, "flex"),
    prices: ofCategories(fc.bigInt({ min: 0n, max: 99_999n })),
    multiply: fc.option(fc.bigInt({ min: 1n, max: 30_000n }), { nil: undefined }),
  })
  .map(
    ({ prices, multiply, ...when }): PriceEntry =>
      multiply === undefined ? { ...when, prices } : { ...when, multiply },
  );

/** The prices of a model, with up to five conditions. */
export const anyTerms: fc.Arbitrary<PriceTerms> = fc
  .record({
    prices: ofCategories(fc.bigInt({ min: 0n, max: 99_999n })),
    webSearch: fc.bigInt({ min: 0n, max: 9_999n }),
    when: fc.array(anyEntry, { maxLength: 5 }),
  })
  .map(({ prices, ...more }) => ({ ...prices, ...more }));

/** What a request may ask for, priced or not. */
export const anyFacts: fc.Arbitrary<PriceFacts> = fc.record({
  speed: fc.constantFrom(undefined, "fast"),
  geo: fc.constantFrom(undefined, "us", "eu"),
  tier: fc.constantFrom(undefined, "flex"),
});

export const anyUsage = fc
  .tuple(ofCategories(anyTokens), anyTokens)
  .map(([tokens, webSearches]) => usage({ ...tokens, webSearches }));

export const anyBounds: fc.Arbitrary<UsageBounds> = fc
  .record({
    input: anyTokens,
    mostExpensiveInput: fc.constantFrom(...Object.values(InputCategory)),
    webSearches: anyTokens,
    first: anyTokens,
    second: anyTokens,
  })
  .map(({ input, mostExpensiveInput, webSearches, first, second }) => ({
    input,
    mostExpensiveInput,
    webSearches,
    minOutput: Math.min(first, second),
    maxOutput: Math.max(first, second),
  }));

/** Bounds of a request whose input is uncertain; its least may be above the most. */
export const anyCountedBounds: fc.Arbitrary<UsageBounds & { readonly minInput: number }> = fc
  .tuple(anyBounds, anyTokens)
  .map(([bounds, minInput]) => ({ ...bounds, minInput }));

/** Funds of which about these amounts are free, in the pool and of each limit. */
export function fundsBeside(...amounts: readonly bigint[]): fc.Arbitrary<Required<Funds>> {
  const free = fc.oneof({ weight: 3, arbitrary: beside(...amounts) }, anyAmount);
  const used = fc.oneof(beside(0n, ...amounts), anyAmount);
  // What is bought, spent and held comes near the amounts as well, not only their difference.
  const limit = fc
    .record({ free, held: used, isOverheld: fc.boolean() })
    .map(({ free, held, isOverheld }) => ({ left: isOverheld ? free : free + held, held }));
  return fc
    .record({
      poolFree: free,
      poolHeld: used,
      isPoolOverheld: fc.boolean(),
      limits: fc.array(limit, { maxLength: 3 }),
    })
    .map(({ poolFree, poolHeld, isPoolOverheld, limits }) => ({
      posted: isPoolOverheld ? poolFree : poolFree + poolHeld,
      poolHeld,
      limits,
    }));
}

/** The share of the values with this property, of the same thousand each time. */
export function shareOf<Value>(
  values: fc.Arbitrary<Value>,
  has: (value: Value) => boolean,
): number {
  const sample = fc.sample(values, { seed: 1, numRuns: 1_000 });
  return sample.filter(has).length / sample.length;
}

const base64url = [..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"];
/** A text over `letters`, of the least or the largest length as often as of any other. */
export function textOver(
  letters: readonly string[],
  [minLength, maxLength]: readonly [number, number],
): fc.Arbitrary<string> {
  const unit = fc.constantFrom(...letters);
  return fc.oneof(
    fc.string({ unit, minLength, maxLength }),
    fc.string({ unit, minLength, maxLength: minLength }),
    fc.string({ unit, minLength: maxLength, maxLength }),
  );
}

/** The id of a request, as a caller may make it. */
export const anyRequestId = textOver(base64url, [8, 64]).map((text) => `req_${text}`);

/** The id of a tool call in the native format. */
export const anyNativeId = textOver(base64url, [1, 16]).map((text) => `toolu_${text}`);

/** The id of a tool call in the other formats, which know no alphabet. */
export const anyCallId = fc.oneof(
  textOver(base64url, [1, 8]).map((text) => `call_${text}`),
  textOver([...base64url, " ", ".", ":", "/", "|", "漢", "\u{1F642}"], [1, 8]),
  fc.constantFrom("functions.f:0", "id64_", "id64_YSBi", "1"),
);

/** The name of a tool. */
export const anyToolName = textOver(base64url, [1, 12]);

/** Months from `now`: of three before it to the next one. */
export const anyMonthsAway = fc.constantFrom(-3, -2, -1, 0, 1);

/** Each index below `count`, in any order. */
export function anyOrder(count: number): fc.Arbitrary<number[]> {
  const all = Array.from({ length: count }, (_, index) => index);
  return fc.shuffledSubarray(all, { minLength: count });
}

/** Times of which many are equal or a millisecond apart. */
export function timesFrom(start: Date): fc.Arbitrary<Date> {
  return fc
    .oneof(fc.constantFrom(0, 0, 1, 2), fc.nat(86_400_000))
    .map((ms) => new Date(start.getTime() + ms));
}

/** An amount as a person types it, and its micro-credits. */
export const anyTyped = fc
  .record({
    whole: within(0n, 10n ** 15n - 1n),
    places: textOver([..."0123456789"], [0, 6]),
    isGrouped: fc.boolean(),
    hasPoint: fc.boolean(),
    around: fc.constantFrom("", " ", "\t"),
  })
  .map(({ whole, places, isGrouped, hasPoint, around }) => {
    const digits = String(whole);
    const grouped = isGrouped ? digits.replace(/(?<=\d)(?=(?:\d{3})+$)/g, ",") : digits;
    const fraction = places === "" && !hasPoint ? "" : `.${places}`;
    return {
      text: around + grouped + fraction + around,
      micro: whole * 10n ** 6n + BigInt(places || "0") * 10n ** BigInt(6 - places.length),
    };
  });
