// Figures that the services keep to and the pages of the console show. They import this file, which
// imports nothing, so that no page has a copy.

/**
 * Upper bounds of all but the last of the counts of first events, in milliseconds, as
 * `UsageSums.first_event_counts` has them.
 */
export const firstEventBoundsMs = [
  100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000,
] as const;

/** Orders are of a multiple of so many US cents. */
export const packStepUsdCents = 500;

/** One credit is half a cent. */
export const microcreditsPerUsdCent = 2_000_000n;

/** Reports may ask for single hours of this many days before today. */
export const hoursKeptDays = 100;

/** The most rows in one page of a report. */
export const reportRowsMax = 2_000;

/** The fewest characters of a password. */
export const passwordLengthMin = 12;
