// Columns that go together: a statement that has two of a family has all of them, equally often.
// The generator of statements checks it, so that a new one is missing nowhere.

import { categoryColumns, tokenCategories } from "../base/token-categories.ts";

export const families: Readonly<Record<string, readonly string[]>> = {
  // All that is metered. The price of a web search is named for one of them.
  category: [...tokenCategories.map((category) => categoryColumns[category]), "web_search(?:es)?"],
  firstEvent: Array.from({ length: 21 }, (_, index) => `first_event_${index + 1}`),
  amountPart: ["amount_input", "amount_output", "amount_cache", "amount_thinking"],
  // Of which prompts a price is.
  step: ["prompt_over", "prompt_above", "above_price"],
  ending: ["completed", "failed", "cut"],
};
