// Prices, and the cost of usage. All amounts are whole micro-credits, so nothing is rounded.

import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema, type Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  byCategory,
  type TokenCategory,
  tokenCategories,
  type UsageCount,
} from "../base/token-categories.ts";

/** Micro-credits per token, by category, and of a web search. */
export type Prices = Readonly<Record<TokenCategory | "webSearch", bigint>>;

/** Tokens by category, and web searches. */
export type Metered = Readonly<Record<TokenCategory | UsageCount, number>>;

/**
 * The immutable version of a model's price. Its id is a hash of the model and the prices, so all
 * nodes give the same price the same id. Without a price of searches it is the same as before there
 * were any.
 */
export function priceVersion(model: string, prices: Prices): Price {
  const { webSearch } = prices;
  const content = [model, ...tokenCategories.map((category) => prices[category])];
  const named = webSearch > 0n ? [...content, `web_search ${webSearch}`] : content;
  const hash = createHash("sha256").update(named.join("|")).digest("hex").slice(0, 24);
  const ofCategories = byCategory((category) => prices[category]);
  return create(PriceSchema, { priceVersion: `price_${hash}`, ...ofCategories, webSearch });
}

/** The price of `usage`, in micro-credits. */
export function costMicro(prices: Prices, usage: Metered): bigint {
  let sum = searchesMicro(prices, usage.webSearches);
  for (const category of tokenCategories)
    if (usage[category] > 0) sum += prices[category] * BigInt(usage[category]);
  return sum;
}

/** The price of web searches, in micro-credits. */
export function searchesMicro({ webSearch }: Prices, searches: number): bigint {
  return searches > 0 ? webSearch * BigInt(searches) : 0n;
}

/**
 * The price of `usage` in the order in which a hold covers it, each sum with the ones before it:
 * input and web searches, cache, thinking, output.
 */
export function costsUpTo(prices: Prices, usage: Metered) {
  const costOf = (category: TokenCategory) =>
    usage[category] > 0 ? prices[category] * BigInt(usage[category]) : 0n;
  const inputMicro = costOf("input") + searchesMicro(prices, usage.webSearches);
  const withCacheMicro =
    inputMicro + costOf("cacheWrite5m") + costOf("cacheWrite1h") + costOf("cacheRead");
  const withThinkingMicro = withCacheMicro + costOf("thinking");
  return {
    inputMicro,
    withCacheMicro,
    withThinkingMicro,
    allMicro: withThinkingMicro + costOf("output"),
  };
}

/**
 * The part of `usage` that is charged: all of its input, and output up to the tokens that were
 * granted, thinking first.
 */
export function chargedUsage(usage: Usage, grantedOutput: number): Usage {
  if (usage.output + usage.thinking <= grantedOutput) return usage;
  const thinking = Math.min(usage.thinking, grantedOutput);
  return { ...usage, thinking, output: grantedOutput - thinking };
}

/** The highest price of an output token, in micro-credits. */
export function maxOutputPriceMicro(prices: Prices): bigint {
  return max(prices.output, prices.thinking);
}

/**
 * The highest price of an input token, in micro-credits, for a request whose most expensive input
 * is `mostExpensive`.
 */
export function maxInputPriceMicro(prices: Prices, mostExpensive: InputCategory): bigint {
  const plain = max(prices.input, prices.cacheRead);
  if (mostExpensive === InputCategory.CACHE_WRITE_1H)
    return max(plain, prices.cacheWrite1h, prices.cacheWrite5m);
  if (mostExpensive === InputCategory.CACHE_WRITE_5M) return max(plain, prices.cacheWrite5m);
  return plain;
}

function max(first: bigint, ...others: bigint[]): bigint {
  let largest = first;
  for (const other of others) if (other > largest) largest = other;
  return largest;
}
