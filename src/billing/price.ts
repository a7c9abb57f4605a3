// Versions of prices, and what of a usage they are charged for.

import { createHash } from "node:crypto";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Prices } from "../base/cost.ts";
import { decimal } from "../base/money.ts";
import { byCategory, tokenCategories } from "../base/token-categories.ts";

/** What a version of a price has beside the prices. */
export type VersionOf = {
  /** What makes it another price than the plain one, in words. Empty: nothing. */
  readonly note?: string;
  /** It is of prompts of more tokens than this. Absent: of the shortest, too. */
  readonly promptOver?: number | undefined;
  /** The price of longer prompts, which begins with its `promptOver`. */
  readonly abovePrice?: Price | undefined;
};

/**
 * The immutable version of a model's price. Its id is a hash of the model and the prices, so all
 * nodes give the same price the same id. Prices of tokens are in it as micro-credits, and all else
 * only where there is any, as it was before there was: so these prices keep their ids.
 */
export function priceVersion(
  model: string,
  prices: Prices,
  { note = "", promptOver, abovePrice }: VersionOf = {},
): Price {
  const { webSearch } = prices;
  const promptAbove = abovePrice?.promptOver;
  const content = [
    model,
    ...tokenCategories.map((category) => decimal(prices[category], 3, 0)),
    ...(webSearch > 0n ? [`web_search ${webSearch}`] : []),
    ...(promptOver === undefined ? [] : [`over ${promptOver}`]),
    ...(abovePrice ? [`above ${promptAbove} ${abovePrice.priceVersion}`] : []),
    ...(note === "" ? [] : [`note ${note}`]),
  ];
  const digest = createHash("sha256").update(content.join("|")).digest();
  const name = `price_${digest.toString("hex", 0, 12)}`;
  // A literal, and a text that is no part of another: there are thousands with price lists, and
  // `create` and a slice of a text take a third more memory.
  const price: Price = {
    $typeName: "gateway.common.v1.Price",
    priceVersion: Buffer.from(name, "latin1").toString("latin1"),
    ...byCategory((category) => prices[category]),
    webSearch,
    note,
  };
  if (promptOver !== undefined) price.promptOver = promptOver;
  if (abovePrice && promptAbove !== undefined) {
    price.promptAbove = promptAbove;
    price.abovePrice = abovePrice;
  }
  return price;
}

/** A price and those of longer prompts, the longest first: each names the one before it. */
export function stepsOf(price: Price): Price[] {
  return price.abovePrice ? [...stepsOf(price.abovePrice), price] : [price];
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
