// Prices and what use costs. Everything is a whole number of micro-credits, so nothing is ever
// rounded.

import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema, type Usage } from "../../gen/gateway/common/v1/usage_pb.ts";

/** Micro-credits per token, by category. */
export type TokenPrices = Pick<
  Price,
  "input" | "output" | "cacheWrite5m" | "cacheWrite1h" | "cacheRead" | "thinking"
>;

/** The six categories, in the order in which hashes, rows and reports name them. */
export const categories = [
  "input",
  "output",
  "cacheWrite5m",
  "cacheWrite1h",
  "cacheRead",
  "thinking",
] as const;

/**
 * The immutable version of a model's price. The id is a hash of the content, so every node names
 * the same price alike.
 */
export function priceVersion(model: string, prices: TokenPrices): Price {
  const content = [model, ...categories.map((category) => prices[category])].join("|");
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 24);
  const { input, output, cacheWrite5m, cacheWrite1h, cacheRead, thinking } = prices;
  return create(PriceSchema, {
    priceVersion: `price_${hash}`,
    input,
    output,
    cacheWrite5m,
    cacheWrite1h,
    cacheRead,
    thinking,
  });
}

/** What `usage` costs, in micro-credits. */
export function costMicro(
  prices: TokenPrices,
  usage: Pick<Usage, (typeof categories)[number]>,
): bigint {
  let sum = 0n;
  for (const category of categories)
    if (usage[category] > 0) sum += prices[category] * BigInt(usage[category]);
  return sum;
}

/** The price of an output token in the worst case, in micro-credits. */
export function maxOutputPriceMicro(prices: TokenPrices): bigint {
  return max(prices.output, prices.thinking);
}

/**
 * The price of an input token in the worst case that the request can bring about, in micro-credits.
 */
export function maxInputPriceMicro(prices: TokenPrices, dearest: InputCategory): bigint {
  const plain = max(prices.input, prices.cacheRead);
  if (dearest === InputCategory.CACHE_WRITE_1H)
    return max(plain, prices.cacheWrite1h, prices.cacheWrite5m);
  if (dearest === InputCategory.CACHE_WRITE_5M) return max(plain, prices.cacheWrite5m);
  return plain;
}

function max(first: bigint, ...others: bigint[]): bigint {
  let largest = first;
  for (const other of others) if (other > largest) largest = other;
  return largest;
}
