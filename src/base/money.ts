// Amounts and prices as exact decimals, computed from integers without floating point.

import { creditsPerUsd } from "./shown-figures.ts";

/** 1 credit is 0.005 USD, so this is exact. */
export const microCreditsPerMicroDollar = BigInt(creditsPerUsd);
const nanoUsdPerMicroCredit = 1_000n / microCreditsPerMicroDollar;

/** Micro-credits of a million tokens at nano-credits each. */
export function microPerMillion(nanoPerToken: bigint): bigint {
  return nanoPerToken * 1_000n;
}

/** Nano-credits as a decimal number of credits: `28500n` is `0.0000285`. */
export function creditsOfNano(nano: bigint): string {
  return decimal(nano, 9, 0);
}

/** The smaller of two amounts. */
export function min(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}

/** The larger of two amounts. */
export function max(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}

/** Micro-credits as a decimal number of credits: `1500000n` is `1.5`. */
export function credits(microCredits: bigint): string {
  return decimal(microCredits, 6, 0);
}

/** The micro-dollars of an amount that somebody gives away, rounded up. */
export function usdMicroOf(microCredits: bigint): bigint {
  return (microCredits + microCreditsPerMicroDollar - 1n) / microCreditsPerMicroDollar;
}

/** Micro-credits as a decimal number of dollars with two places or more: `1000000n` is `0.005`. */
export function usd(microCredits: bigint): string {
  return decimal(microCredits * nanoUsdPerMicroCredit, 9, 2);
}

/** The micro-credits of a decimal number of credits, up to six places. Undefined: it is none. */
export function parseCredits(text: string): bigint | undefined {
  const [, whole, fraction = ""] = /^(\d{1,12})(?:\.(\d{1,6}))?$/.exec(text) ?? [];
  return whole === undefined ? undefined : BigInt(whole + fraction.padEnd(6, "0"));
}

/** `units / 10 ** places` as a decimal, without trailing zeros after the first `least` places. */
export function decimal(units: bigint, places: number, least: number): string {
  const digits = (units < 0n ? -units : units).toString().padStart(places + 1, "0");
  const whole = digits.slice(0, digits.length - places);
  const fraction = digits
    .slice(digits.length - places)
    .replace(/0+$/, "")
    .padEnd(least, "0");
  return `${units < 0n ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`;
}
