// Prices of the configuration file: exact decimals of US dollars, made nano- and micro-credits.

import { nanoOf } from "../base/cost.ts";
import { microCreditsPerMicroDollar } from "../base/money.ts";

/** How a price is written: dollars of so many pieces. `step`: of one unit a piece. */
type Unit = {
  readonly pieces: bigint;
  readonly name: string;
  readonly one: string;
  /** Units of a micro-dollar. */
  readonly perMicroDollar: bigint;
  readonly unit: string;
  readonly step: string;
  /** The most units a piece. */
  readonly max: bigint;
};
/** The most nano-credits of a token. */
export const nanoMax = 600_000_000n;

const tokens: Unit = {
  pieces: 1_000_000n,
  name: "million tokens",
  one: "token",
  perMicroDollar: nanoOf(microCreditsPerMicroDollar),
  unit: "nano-credits",
  step: "0.000005",
  // Times 2^31 tokens of each category, the largest possible counts, this still fits a sum of
  // 64 bits, as the database adds it up.
  max: nanoMax,
};
const searches: Unit = {
  pieces: 1_000n,
  name: "1,000 searches",
  one: "search",
  perMicroDollar: microCreditsPerMicroDollar,
  unit: "micro-credits",
  step: "0.000005",
  max: 1_000_000_000n,
};

/**
 * Nano-credits per token of `usdPerMillion` × `multiplier`, exactly. A string is the message of a
 * problem.
 */
export function nanoPerToken(usdPerMillion: string, multiplier = "1"): bigint | string {
  return unitsPer(tokens, usdPerMillion, multiplier);
}

/** As `nanoPerToken`: micro-credits of a search at US dollars per 1,000 searches. */
export function microPerSearch(usdPerThousand: string): bigint | string {
  return unitsPer(searches, usdPerThousand, "1");
}

function unitsPer(of: Unit, usd: string, multiplier: string): bigint | string {
  const dollars = parseDecimal(usd);
  const factor = parseDecimal(multiplier);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per ${of.name}, not ${usd}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${multiplier}`;
  const scaled = (dollars.digits * factor.digits * 1_000_000n * of.perMicroDollar) / of.pieces;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n) {
    const given = multiplier === "1" ? usd : `${usd} × ${multiplier}`;
    const rule = `a whole number of ${of.unit} per ${of.one} (steps of ${of.step} USD)`;
    return `${given} USD per ${of.name} is not ${rule}`;
  }
  const price = scaled / scale;
  return price <= of.max ? price : `${usd} USD per ${of.name} is more than can be billed`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const [, whole, fraction = ""] = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}

/** A price of a token, in nano-credits, in pico-dollars. */
export function picoDollarsPerToken(price: bigint): bigint {
  return (price * 1_000n) / microCreditsPerMicroDollar;
}
