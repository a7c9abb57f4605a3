// The token categories that are metered, priced and billed. Prices, columns, receipts, logs and the
// price hash are written from this list. A new category is an entry here, a field of the messages
// in `usage.proto` and a migration. The compiler and `test/base/token-categories.test.ts` report
// every place that is missing.

/** The categories, in the order in which hashes, columns and reports list them. */
export const tokenCategories = [
  "input",
  "output",
  "thinking",
  "cacheWrite5m",
  "cacheWrite1h",
  "cacheRead",
] as const;

/** A token category, by its field name in the messages of `usage.proto`. */
export type TokenCategory = (typeof tokenCategories)[number];

/** Name of each category in database columns, in JSON and in the configuration file. */
export const categoryColumns = {
  input: "input",
  output: "output",
  thinking: "thinking",
  cacheWrite5m: "cache_write_5m",
  cacheWrite1h: "cache_write_1h",
  cacheRead: "cache_read",
} as const satisfies Readonly<Record<TokenCategory, string>>;

/** The categories whose price may be a multiple of another one, and which one that is. */
export const basePriceOf = {
  thinking: "output",
  cacheWrite5m: "input",
  cacheWrite1h: "input",
  cacheRead: "input",
} as const satisfies Partial<Record<TokenCategory, TokenCategory>>;

/**
 * One value per category. A literal, not a loop: every object gets the same hidden class, and the
 * compiler reports a missing category.
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

/** Expands `each_category(…)` in SQL, as `expandEach`, over the columns of the categories. */
export function expandCategories(sql: string): string {
  return expandEach(
    sql,
    "each_category",
    tokenCategories.map((category) => categoryColumns[category]),
  );
}

/**
 * Expands `<word>(…)` in SQL: one copy of the text in brackets per name, separated by commas. In
 * a copy `#` is the name, and a parameter `$n` counts up from n. The text may contain one more
 * level of brackets.
 */
export function expandEach(sql: string, word: string, names: readonly string[]): string {
  const call = new RegExp(`\\b${word}\\(((?:[^()]|\\([^()]*\\))*)\\)`, "g");
  return sql.replace(call, (_, template: string) =>
    names
      .map((name, index) =>
        template
          .replaceAll("#", name)
          .replace(/\$(\d+)/g, (_, first: string) => `$${Number(first) + index}`),
      )
      .join(", "),
  );
}
