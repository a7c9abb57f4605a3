// The sums that roll-ups keep of charges: tokens by category, credits by what they were charged
// for, requests by outcome, and requests by the time to their first event. Statements and reports
// are written from this list.

import {
  categoryColumns,
  expandEach,
  type TokenCategory,
  tokenCategories,
} from "./token-categories.ts";

/** What a charge pays for. */
const amountColumns = ["amount_input", "amount_output", "amount_cache", "amount_thinking"] as const;

type AmountColumn = (typeof amountColumns)[number];

/** How requests end. Every request is in one of them. */
const endingColumns = ["completed", "failed", "cut"] as const;

type EndingColumn = (typeof endingColumns)[number];

/** Upper bounds of all but the last count of first events, in milliseconds. */
const firstEventBoundsMs = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000] as const;

/** One count for each bound, and one for what is later. */
export const firstEventColumns = [
  "first_event_1",
  "first_event_2",
  "first_event_3",
  "first_event_4",
  "first_event_5",
  "first_event_6",
  "first_event_7",
  "first_event_8",
  "first_event_9",
  "first_event_10",
] as const;

type FirstEventColumn = (typeof firstEventColumns)[number];

export type SumColumn =
  | (typeof categoryColumns)[TokenCategory]
  | "amount"
  | AmountColumn
  | "requests"
  | EndingColumn
  | FirstEventColumn;

/** The sums that the tokens, the price and the outcome of charges give. */
const chargedColumns: readonly SumColumn[] = [
  ...tokenCategories.map((category) => categoryColumns[category]),
  "amount",
  ...amountColumns,
  "requests",
  ...endingColumns,
];

/** Every sum, in the order in which statements list them. */
const sumColumns: readonly SumColumn[] = [...chargedColumns, ...firstEventColumns];

/** The number of the count that a first event after `ms` belongs to. */
export function firstEventNumber(ms: number): number {
  const index = firstEventBoundsMs.findIndex((bound) => ms <= bound);
  return index === -1 ? firstEventColumns.length : index + 1;
}

/**
 * Expands in SQL, as `expandEach`: `each_sum(…)` over the columns of the sums, `each_charged(…)`
 * over those without the first events, `each_first_event(…)` over the numbers of these.
 */
export function expandSums(sql: string): string {
  const sums = expandEach(sql, "each_sum", sumColumns);
  const charged = expandEach(sums, "each_charged", chargedColumns);
  return expandEach(
    charged,
    "each_first_event",
    firstEventColumns.map((_, index) => String(index + 1)),
  );
}
