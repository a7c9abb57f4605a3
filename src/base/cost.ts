// What usage costs: the one formula of holds, charges and receipts. The price of a token is a whole
// number of nano-credits, so a sum is exact; it is rounded up once, to a whole micro-credit. The
// pages of the console import this file.

import { max } from "./money.ts";
import {
  byCategory,
  type TokenCategory,
  tokenCategories,
  type UsageCount,
} from "./token-categories.ts";

/** Nano-credits per token, by category, and micro-credits of a web search. */
export type Prices = Readonly<Record<TokenCategory | "webSearch", bigint>>;

/** Prices, and those of longer prompts. */
export type SteppedPrices = Prices & {
  /** Prompts of more tokens than this have `abovePrice`. Absent: there is none. */
  readonly promptAbove?: number | undefined;
  readonly abovePrice?: SteppedPrices | undefined;
};

/** Tokens by category, and web searches. */
export type Metered = Readonly<Record<TokenCategory | UsageCount, number>>;

const nanoPerMicro = 1_000n;

/** Whole micro-credits of nano-credits that are not negative, rounded up. */
export function microRoundedUp(nano: bigint): bigint {
  return (nano + nanoPerMicro - 1n) / nanoPerMicro;
}

/** Whole micro-credits of nano-credits that are not negative, rounded down. */
export function microRoundedDown(nano: bigint): bigint {
  return nano / nanoPerMicro;
}

/** Nano-credits of micro-credits. */
export function nanoOf(micro: bigint): bigint {
  return micro * nanoPerMicro;
}

/** The price of `usage`, in micro-credits, rounded up. */
export function costMicro(prices: Prices, usage: Metered): bigint {
  return microRoundedUp(tokensNano(prices, usage)) + searchesMicro(prices, usage.webSearches);
}

/** The exact price of the tokens of `usage`, in nano-credits. */
export function tokensNano(prices: Prices, usage: Metered): bigint {
  let nano = 0n;
  for (const category of tokenCategories)
    if (usage[category] > 0) nano += prices[category] * BigInt(usage[category]);
  return nano;
}

/** The price of web searches, in micro-credits. */
export function searchesMicro({ webSearch }: Prices, searches: number): bigint {
  return searches > 0 ? webSearch * BigInt(searches) : 0n;
}

/**
 * The price of `usage` in the order in which a hold covers it, each sum with the ones before it:
 * input and web searches, cache, thinking, output. Each part is rounded down, in micro-credits; the
 * rest of all belongs to the output. The view `charge_sums` computes the same.
 */
export function costsUpTo(prices: Prices, usage: Metered) {
  const costOf = (category: TokenCategory) =>
    usage[category] > 0 ? prices[category] * BigInt(usage[category]) : 0n;
  const inputNano = costOf("input");
  const cacheNano = costOf("cacheWrite5m") + costOf("cacheWrite1h") + costOf("cacheRead");
  const thinkingNano = costOf("thinking");
  const allNano = inputNano + cacheNano + thinkingNano + costOf("output");
  const ofSearches = searchesMicro(prices, usage.webSearches);
  const inputMicro = microRoundedDown(inputNano) + ofSearches;
  const withCacheMicro = inputMicro + microRoundedDown(cacheNano);
  const withThinkingMicro = withCacheMicro + microRoundedDown(thinkingNano);
  return {
    inputMicro,
    withCacheMicro,
    withThinkingMicro,
    allMicro: microRoundedUp(allNano) + ofSearches,
  };
}

const cached = ["cacheRead", "cacheWrite5m", "cacheWrite1h"] as const;

/**
 * Savings by the prompt cache, in nano-credits: the price of its tokens as plain input, less their
 * own price. Negative where more was paid to write than was saved by reading. A hold that is too
 * small changes nothing of it. The view `charge_sums` computes the same.
 */
export function cacheSavedNano(prices: Prices, usage: Metered): bigint {
  let nano = 0n;
  for (const category of cached)
    if (usage[category] > 0) nano += (prices.input - prices[category]) * BigInt(usage[category]);
  return nano;
}

/** The tokens of a prompt: all of its input. */
export function promptOf(
  usage: Pick<Metered, "input" | "cacheRead" | "cacheWrite5m" | "cacheWrite1h">,
): number {
  return usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h;
}

/** The price of a request whose prompt has so many tokens. */
export function stepOf<
  P extends { readonly promptAbove?: number | undefined; readonly abovePrice?: P | undefined },
>(price: P, prompt: number): P {
  let step = price;
  while (step.promptAbove !== undefined && step.abovePrice && prompt > step.promptAbove)
    step = step.abovePrice;
  return step;
}

/** The charge of a request for `usage`, in micro-credits: by the step of its prompt. */
export function chargeMicro(price: SteppedPrices, usage: Metered): bigint {
  return costMicro(stepOf(price, promptOf(usage)), usage);
}

/** By category, the highest price of a request whose prompt has at most so many tokens. */
export function dearestUpTo(price: SteppedPrices, prompt: number): Prices {
  let dearest: Prices = price;
  let step = price;
  while (step.promptAbove !== undefined && step.abovePrice && prompt > step.promptAbove) {
    step = step.abovePrice;
    const [one, other] = [dearest, step];
    const larger = (name: keyof Prices) => max(one[name], other[name]);
    dearest = { ...byCategory(larger), webSearch: larger("webSearch") };
  }
  return dearest;
}
