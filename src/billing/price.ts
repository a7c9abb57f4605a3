// Versions of prices, and what of a usage they are charged for.

import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema, type Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Prices } from "../base/cost.ts";
import { decimal } from "../base/money.ts";
import { byCategory, tokenCategories } from "../base/token-categories.ts";

/**
 * The immutable version of a model's price. Its id is a hash of the model and the prices, so all
 * nodes give the same price the same id. Prices of tokens are in it as micro-credits, and those of
 * searches where there are any, as they were before there were others: so these keep their ids.
 */
export function priceVersion(model: string, prices: Prices): Price {
  const { webSearch } = prices;
  const content = [model, ...tokenCategories.map((category) => decimal(prices[category], 3, 0))];
  const named = webSearch > 0n ? [...content, `web_search ${webSearch}`] : content;
  const hash = createHash("sha256").update(named.join("|")).digest("hex").slice(0, 24);
  const ofCategories = byCategory((category) => prices[category]);
  return create(PriceSchema, { priceVersion: `price_${hash}`, ...ofCategories, webSearch });
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

/** The highest price of an output token, in nano-credits. */
export function maxOutputPriceNano(prices: Prices): bigint {
  return max(prices.output, prices.thinking);
}

/**
 * The highest price of an input token, in nano-credits, for a request whose most expensive input
 * is `mostExpensive`.
 */
export function maxInputPriceNano(prices: Prices, mostExpensive: InputCategory): bigint {
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
