// Figures that the services keep to and the pages of the console show. They import this file, which
// imports nothing, so that no page has a copy.

/**
 * Upper bounds of all but the last of the counts of first events, in milliseconds, as
 * `UsageSums.first_event_counts` has them: steps of 100 ms up to 1 s, then half as much again each.
 */
export const firstEventBoundsMs = [
  ...[100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000],
  ...[1_500, 2_250, 3_400, 5_100, 7_600, 11_400, 17_000, 26_000, 38_000, 58_000],
] as const;

/** Orders are of a multiple of so many US cents. */
export const packStepUsdCents = 500;

/** One credit is half a cent. */
export const microcreditsPerUsdCent = 2_000_000n;
export const creditsPerUsd = Number(microcreditsPerUsdCent / 10_000n);

/** Reports may ask for single hours of this many days before today. */
export const hoursKeptDays = 100;

/** The most rows in one page of a report. */
export const reportRowsMax = 2_000;

/** The fewest characters of a password. */
export const passwordLengthMin = 12;

/** A node sends a heartbeat each second. So many missed ones in a row are a sign of trouble. */
export const heartbeatsLate = 3;

/** A node that missed so many heartbeats in a row is dead: others settle its requests. */
export const heartbeatsMissedMax = 12;

/** Hours for which links work that confirm an address, or replace lost ways to sign in. */
export const linkHours = 24;

/** Minutes for which a sign-in or a confirmation permits methods marked `strong`. */
export const strongMinutes = 15;

/** Minutes for which an order that was opened again can be paid at its rate. */
export const reopenedMinutes = 15;

/** The least USD that a permanent address is credited for. Less waits there for more. */
export const leastDepositUsd = 1;

/** The fewest characters of the reason for which an operator acts. */
export const reasonCharactersMin = 5;

/** Days for which alerts are kept, and their deliveries. */
export const alertsKeptDays = 180;
export const deliveriesKeptDays = 30;

/** The longest that a sweep of deposit addresses lasts, in hours. */
export const sweepHoursMax = 7 * 24;

/** A key that was charged nothing for so many days since it was made deserves a look. */
export const keyUnusedDays = 90;

/** So does one that expires within so many days. */
export const keyExpiresSoonDays = 7;

/** And one that was charged so many percent of a limit. */
export const keyNearBudgetPercent = 80;

/** Days that the line of a key in a list shows. */
export const keyDaysShown = 30;
