// How numbers, money and times are written. Digits are grouped as in English; another language
// sets another locale. Nothing breaks inside of what is written here: a minus is one character
// (U+2212), and spaces are such that no line ends at them, but for the one before a time of day.

import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { nanoOf } from "../../base/cost.ts";
import { creditsPerUsd } from "../../base/shown-figures.ts";
import { shownZone, utc } from "./zone.ts";

const locale = "en";
const minus = "\u2212";
/** A space at which no line ends. */
const space = "\u00a0";
const microcreditsPerCredit = 1_000_000n;

/** "6,412.08", rounded. Receipts have four digits, so that the smallest charges can be seen. */
export function credits(micro: bigint, digits: 2 | 4 = 2): string {
  return decimal(micro, digits);
}

/** "140", "5.6": credits of a million tokens at so many nano-credits each, exactly. */
export function perMillion(nano: bigint): string {
  const thousand = nanoOf(1n);
  const rest = String(nano % thousand)
    .padStart(3, "0")
    .replace(/0+$/, "");
  return rest === "" ? count(nano / thousand) : `${count(nano / thousand)}.${rest}`;
}

/** "+200.00", "−12.50": what an amount changes. */
export function signedCredits(micro: bigint, digits: 2 | 4 = 2): string {
  return `${micro < 0n ? "" : "+"}${credits(micro, digits)}`;
}

/** "$32.06". */
export function dollars(micro: bigint, digits: 2 | 4 = 2): string {
  const text = decimal(micro / BigInt(creditsPerUsd), digits);
  return text.startsWith(minus) ? `${minus}$${text.slice(1)}` : `$${text}`;
}

/** "$0.009706": most requests cost less than a cent. `digits`: from one cent on. */
export function smallDollars(micro: bigint, digits: 2 | 4 = 2): string {
  const microDollars = micro / BigInt(creditsPerUsd);
  if (microDollars >= 10_000n || micro === 0n) return dollars(micro, digits);
  return `$${(Number(microDollars) / 1_000_000).toFixed(6)}`;
}

function decimal(micro: bigint, digits: 2 | 4): string {
  const unit = microcreditsPerCredit / 10n ** BigInt(digits);
  const size = micro < 0n ? -micro : micro;
  const rounded = (size + unit / 2n) / unit;
  const scale = 10n ** BigInt(digits);
  const whole = count(rounded / scale);
  const rest = String(rounded % scale).padStart(digits, "0");
  return `${micro < 0n && rounded > 0n ? minus : ""}${whole}.${rest}`;
}

/**
 * Micro-credits of a text that a person typed, such as "1,200.5". A comma stands before three
 * digits only: "1,5" is one and a half to some people, and fifteen to nobody. Undefined: it is no
 * amount.
 */
export function parseCredits(text: string): bigint | undefined {
  const match = /^(\d{1,15}|\d{1,3}(?:,\d{3}){1,4})(?:\.(\d{0,6}))?$/.exec(text.trim());
  if (!match) return undefined;
  const [, whole = "", rest = ""] = match;
  return BigInt(whole.replaceAll(",", "")) * microcreditsPerCredit + BigInt(rest.padEnd(6, "0"));
}

/** The same with a minus before it, of the keyboard or of print. */
export function parseSignedCredits(text: string): bigint | undefined {
  const [, minus, size = ""] = /^\s*([-−])?(.*)$/s.exec(text) ?? [];
  const micro = parseCredits(size);
  return micro !== undefined && minus !== undefined ? -micro : micro;
}

/** Micro-dollars, which have six digits as micro-credits have, of "5", "$1,200.50" and the like. */
export function parseDollars(text: string): bigint | undefined {
  return parseCredits(text.replace(/^\s*\$/, ""));
}

/** A whole number below a billion that a person typed, such as "1,200". Undefined: it is none. */
export function parseCount(text: string): number | undefined {
  const match = /^(?:\d{1,9}|\d{1,3}(?:,\d{3}){1,2})$/.exec(text.trim());
  return match ? Number(match[0].replaceAll(",", "")) : undefined;
}

/** "1200.5": what a field shows of an amount. */
export function plainCredits(micro: bigint): string {
  const rest = String(micro % microcreditsPerCredit).padStart(6, "0");
  return `${micro / microcreditsPerCredit}.${rest}`.replace(/\.?0+$/, "");
}

const whole = new Intl.NumberFormat(locale);
/** "18,204" */
export function count(n: bigint | number): string {
  return whole.format(n);
}

const short = new Intl.NumberFormat(locale, {
  notation: "compact",
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
/** "41.7 M" */
export function compact(n: bigint | number): string {
  if (n < 10_000) return count(n);
  const parts = short.formatToParts(n);
  const unit = parts.find(({ type }) => type === "compact")?.value ?? "";
  const number = parts.filter(({ type }) => type !== "compact" && type !== "literal");
  return `${number.map(({ value }) => value).join("")}${space}${unit}`.trim();
}

/** 0.0035 → "0.35 %" */
export function percent(share: number): string {
  const value = share * 100;
  const digits = value !== 0 && Math.abs(value) < 10 ? 2 : 0;
  return `${new Intl.NumberFormat(locale, { maximumFractionDigits: digits }).format(value)}${space}%`;
}

/** "0.84 s", "12 s", "3 min", "2 h 5 min" */
export function duration(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)}${space}s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds}${space}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes}${space}min`;
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  if (hours < 48)
    return rest === 0 ? `${hours}${space}h` : `${hours}${space}h${space}${rest}${space}min`;
  return `${Math.round(hours / 24)}${space}days`;
}

export type Moment = Timestamp | Date;

export function toDate(at: Moment): Date {
  return at instanceof Date ? at : new Date(Number(at.seconds) * 1000 + at.nanos / 1_000_000);
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** The clock and the calendar of a zone. An hour that comes twice differs in `zone`. */
function partsOf(at: Moment, timeZone: string) {
  let format = formats.get(timeZone);
  if (!format) {
    const number = "2-digit";
    format = new Intl.DateTimeFormat(locale, {
      ...{ year: "numeric", month: "short", day: "numeric" },
      ...{ hour: number, minute: number, second: number, hourCycle: "h23" },
      ...{ timeZone, timeZoneName: "shortOffset" },
    });
    formats.set(timeZone, format);
  }
  const parts = format.formatToParts(toDate(at));
  const of = (wanted: Intl.DateTimeFormatPartTypes) =>
    parts.find(({ type }) => type === wanted)?.value ?? "";
  return {
    ...{ year: of("year"), month: of("month"), day: of("day") },
    ...{ hour: of("hour"), minute: of("minute"), second: of("second") },
    zone: of("timeZoneName").replace("GMT", utc).replace(/\+0$/, "").replace("-", minus),
  };
}

/** "22 Nov 2026". As all that follow: in the zone of the person, unless another one is named. */
export function day(at: Moment, zone = shownZone.value): string {
  const { day, month, year } = partsOf(at, zone);
  return [day, month, year].join(space);
}

/** "22 Nov" */
export function dayOfYear(at: Moment, zone = shownZone.value): string {
  const { day, month } = partsOf(at, zone);
  return [day, month].join(space);
}

/** "Nov 2026" */
export function month(at: Moment, zone = shownZone.value): string {
  const { month, year } = partsOf(at, zone);
  return [month, year].join(space);
}

/** "14:02" */
export function minutes(at: Moment, zone = shownZone.value): string {
  const { hour, minute } = partsOf(at, zone);
  return `${hour}:${minute}`;
}

/** "14:02:31" */
export function seconds(at: Moment, zone = shownZone.value): string {
  const { hour, minute, second } = partsOf(at, zone);
  return `${hour}:${minute}:${second}`;
}

/** "14:02 UTC", "15:02 UTC+1" */
export function clock(at: Moment, zone = shownZone.value): string {
  const { hour, minute, zone: offset } = partsOf(at, zone);
  return `${hour}:${minute}${space}${offset}`;
}

/** "14:02:31 UTC", "15:02:31 UTC+1" */
export function exactClock(at: Moment, zone = shownZone.value): string {
  return `${seconds(at, zone)}${space}${partsOf(at, zone).zone}`;
}

/** "22 Nov 2026, 14:02:31 UTC" */
export function moment(at: Moment, zone = shownZone.value): string {
  const { day, month, year, hour, minute, second, zone: offset } = partsOf(at, zone);
  return `${[day, month, year].join(space)}, ${hour}:${minute}:${second}${space}${offset}`;
}

/** "22 Nov, 14:02:31 UTC": of a row of a list. Without the year where it is the one of now. */
export function rowTime(at: Moment, zone = shownZone.value): string {
  const { year } = partsOf(at, zone);
  const whole = moment(at, zone);
  return year === partsOf(new Date(), zone).year ? whole.replace(`${space}${year},`, ",") : whole;
}

/** "2026-11-22": a day of UTC, as fields and addresses hold it. */
export function fieldDay(at: Date): string {
  return at.toISOString().slice(0, 10);
}

const relativeFormat = new Intl.RelativeTimeFormat(locale, { numeric: "always" });
const units = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
] as const;

/** "4 minutes ago", "in 3 days" */
export function relative(at: Moment, now: Date = new Date()): string {
  const seconds = (toDate(at).getTime() - now.getTime()) / 1000;
  for (const [unit, size] of units)
    if (Math.abs(seconds) >= size) {
      const text = relativeFormat.format(Math.trunc(seconds / size), unit);
      return text.replaceAll(" ", space);
    }
  return seconds > 0 ? "in less than a minute" : "just now";
}
