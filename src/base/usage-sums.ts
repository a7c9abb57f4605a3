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

/** The outcomes of each ending, as the database names them. */
const outcomesOf = {
  completed: ["completed"],
  failed: ["provider_failed", "provider_broke", "gateway_failed", "reaped", "input_above_hold"],
  cut: [
    "client_left_before_acceptance",
    "client_left_before_content",
    "client_left",
    "revoked",
    "time_limit",
  ],
} as const satisfies Readonly<Record<EndingColumn, readonly string[]>>;

/**
 * What one charge adds to each of `chargedColumns`, named so. `c` and `p` are the names of the
 * charge and of its price. A hold that is too small covers the input first, then the cache, then
 * thinking, then output.
 */
function chargedOf(c: string, p: string): string {
  const costOf = (categories: readonly TokenCategory[]) =>
    categories
      .map((category) => categoryColumns[category])
      .map((column) => `${c}.${column} * ${p}.${column}`)
      .join(" + ");
  const upTo = (...categories: TokenCategory[]) => `least(${costOf(categories)}, ${c}.hold)`;
  const cache = ["cacheWrite5m", "cacheWrite1h", "cacheRead"] as const;
  const [input, withCache] = [upTo("input"), upTo("input", ...cache)];
  const withThinking = upTo("input", ...cache, "thinking");
  const amounts: Readonly<Record<AmountColumn, string>> = {
    amount_input: input,
    amount_output: `${c}.amount - ${withThinking}`,
    amount_cache: `${withCache} - ${input}`,
    amount_thinking: `${withThinking} - ${withCache}`,
  };
  const is = (ending: EndingColumn) =>
    `(${c}.outcome in (${outcomesOf[ending].map((name) => `'${name}'`).join(", ")}))::int`;
  return [
    ...tokenCategories.map((category) => categoryColumns[category]).map((name) => `${c}.${name}`),
    `${c}.amount`,
    ...amountColumns.map((column) => `${amounts[column]} as ${column}`),
    "1 as requests",
    ...endingColumns.map((column) => `${is(column)} as ${column}`),
  ].join(", ");
}

/**
 * Expands in SQL, as `expandEach`: `each_sum(…)` over the columns of the sums, `each_charged(…)`
 * over those without the first events, `each_first_event(…)` over the numbers of these. And
 * `charged_of(c, p)`, as `chargedOf`.
 */
export function expandSums(sql: string): string {
  const sums = expandEach(sql, "each_sum", sumColumns);
  const charged = expandEach(sums, "each_charged", chargedColumns);
  const firstEvents = expandEach(
    charged,
    "each_first_event",
    firstEventColumns.map((_, index) => String(index + 1)),
  );
  return firstEvents.replace(/\bcharged_of\((\w+), (\w+)\)/g, (_, c: string, p: string) =>
    chargedOf(c, p),
  );
}
