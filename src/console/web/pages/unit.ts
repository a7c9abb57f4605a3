// Money on the page of usage, in credits or in dollars: the same amounts, by one switch.

import { compact, credits, dollars, smallDollars } from "../format.ts";
import { whyWords } from "../words-why.ts";

export type Unit = keyof typeof whyWords.units;

export type Money = {
  readonly unit: Unit;
  /** "48.20", "$0.24" */
  readonly text: (micro: bigint) => string;
  /** "48.20 credits", "$0.24" */
  readonly named: (micro: bigint) => string;
  /** As short as can be, at an axis. */
  readonly tick: (micro: bigint) => string;
  /** The smallest step of an axis, in micro-credits. */
  readonly leastTick: bigint;
};

const oneCredit = 1_000_000n;
const minus = "\u2212";

/** `0.005`, `1.5`, `20`, `1.5 M`. Ticks from 10 on are whole: below, they may be halves. */
function creditsAt(micro: bigint): string {
  if (micro < 0n) return `${minus}${creditsAt(-micro)}`;
  if (micro >= 10n * oneCredit) return compact(micro / oneCredit);
  return String(Number(micro) / Number(oneCredit));
}

/** `$0.005`, `$20` */
function dollarsAt(micro: bigint): string {
  return micro < 0n ? `${minus}$${creditsAt(-micro / 200n)}` : `$${creditsAt(micro / 200n)}`;
}

function dollarsOf(micro: bigint): string {
  return micro < 0n && micro > -oneCredit * 2n
    ? `${minus}${smallDollars(-micro)}`
    : micro < 0n
      ? dollars(micro)
      : smallDollars(micro);
}

const inCredits: Money = {
  unit: "credits",
  text: (micro) => credits(micro),
  named: (micro) => whyWords.named(credits(micro)),
  tick: creditsAt,
  leastTick: oneCredit / 1_000n,
};

const inDollars: Money = {
  unit: "dollars",
  text: dollarsOf,
  named: dollarsOf,
  tick: dollarsAt,
  // A tenth of a cent.
  leastTick: oneCredit / 5n,
};

export function moneyIn(unit: Unit): Money {
  return unit === "dollars" ? inDollars : inCredits;
}
