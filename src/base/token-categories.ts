// The token categories that are metered, priced and billed: the fields of `Usage`. Prices, columns,
// receipts, logs, the price hash and the console's pages are written from this list. A new category
// is a field of the messages in `usage.proto` and `UsageSums`, and a migration. Then the compiler,
// the generator of statements and `test/base/token-categories.test.ts` name every place that is
// missing. The pages of the console import this file, which imports nothing but generated types.

import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";

/** Things that are metered by the piece and not by the token, by their field names in `Usage`. */
export type UsageCount = "webSearches";

/** By its field name in the messages of `usage.proto`. */
export type TokenCategory = Exclude<keyof Usage, `$${string}` | UsageCount>;

/**
 * One value per category, in the order in which hashes, columns and reports list them. A literal,
 * not a loop: every object gets the same hidden class, and the compiler reports a missing category.
 */
export function byCategory<Value>(
  read: (category: TokenCategory) => Value,
): Record<TokenCategory, Value> {
  return {
    input: read("input"),
    output: read("output"),
    thinking: read("thinking"),
    cacheWrite5m: read("cacheWrite5m"),
    cacheWrite1h: read("cacheWrite1h"),
    cacheRead: read("cacheRead"),
  };
}

export const tokenCategories: readonly TokenCategory[] = Object.values(
  byCategory((category) => category),
);

/** Name of each category in database columns, in JSON and in the configuration file. */
export const categoryColumns = {
  input: "input",
  output: "output",
  thinking: "thinking",
  cacheWrite5m: "cache_write_5m",
  cacheWrite1h: "cache_write_1h",
  cacheRead: "cache_read",
} as const satisfies Readonly<Record<TokenCategory, string>>;

/** Which part of an amount a category is charged in. */
export const sideOf = {
  input: "input",
  output: "output",
  thinking: "thinking",
  cacheWrite5m: "cache",
  cacheWrite1h: "cache",
  cacheRead: "cache",
} as const satisfies Readonly<Record<TokenCategory, "input" | "output" | "cache" | "thinking">>;

/** The categories whose price may be a multiple of another one, and which one that is. */
export const basePriceOf = {
  thinking: "output",
  cacheWrite5m: "input",
  cacheWrite1h: "input",
  cacheRead: "input",
} as const satisfies Partial<Record<TokenCategory, TokenCategory>>;
