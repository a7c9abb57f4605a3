// Columns that go together: a statement that has two of a family has all of them, equally often.
// The generator of statements checks it, so that a new one is missing nowhere.

import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import { firstEventColumns } from "../base/usage-sums.ts";

export const families: Readonly<Record<string, readonly string[]>> = {
  category: tokenCategories.map((category) => categoryColumns[category]),
  firstEvent: firstEventColumns,
  amountPart: ["amount_input", "amount_output", "amount_cache", "amount_thinking"],
  ending: ["completed", "failed", "cut"],
};
