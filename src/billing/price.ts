// Prices, and the cost of usage. All amounts are whole micro-credits, so nothing is rounded.

import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema, type Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { byCategory, type TokenCategory, tokenCategories } from "../base/token-categories.ts";

/** Micro-credits per token, by category. */
export type TokenPrices = Readonly<Record<TokenCategory, bigint>>;

/**
 * The immutable version of a model's price. Its id is a hash of the model and the prices, so all
 * nodes give the same price the same id.
 */
export function priceVersion(model: string, prices: TokenPrices): Price {
  const content = [model, ...tokenCategories.map((category) => prices[category])].join("|");
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 24);
  const ofCategories = byCategory((category) => prices[category]);
  return create(PriceSchema, { priceVersion: `price_${hash}`, ...ofCategories });
}

/** The price of `usage`, in micro-credits. */
export function costMicro(
  prices: TokenPrices,
  usage: Readonly<Record<TokenCategory, number>>,
): bigint {
  let sum = 0n;
  for (const category of tokenCategories)
    if (usage[category] > 0) sum += prices[category] * BigInt(usage[category]);
  return sum;
}

/**
 * The price of `usage` in the order in which a hold covers it, each sum with the ones before it:
 * input, cache, thinking, output.
 */
export function costsUpTo(prices: TokenPrices, usage: Readonly<Record<TokenCategory, number>>) {
  const costOf = (category: TokenCategory) =>
    usage[category] > 0 ? prices[category] * BigInt(usage[category]) : 0n;
  const inputMicro = costOf("input");
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
export function maxOutputPriceMicro(prices: TokenPrices): bigint {
  return max(prices.output, prices.thinking);
}

/**
 * The highest price of an input token, in micro-credits, for a request whose most expensive input
 * is `mostExpensive`.
 */
export function maxInputPriceMicro(prices: TokenPrices, mostExpensive: InputCategory): bigint {
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
