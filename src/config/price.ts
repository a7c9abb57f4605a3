// Prices of the configuration file: decimals of US dollars, made whole units. What clients pay is
// in nano- and micro-credits, what the operator pays in pico-dollars (1e-12 USD).

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
  /** The most units a piece, and the reason. */
  readonly max: bigint;
  readonly bound: string;
};
/** The most nano-credits of a token. */
const nanoMax = 600_000_000n;

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
  bound: "more than can be billed",
};
const searches: Unit = {
  pieces: 1_000n,
  name: "1,000 searches",
  one: "search",
  perMicroDollar: microCreditsPerMicroDollar,
  unit: "micro-credits",
  step: "0.000005",
  max: 1_000_000_000n,
  bound: "more than can be billed",
};

/** The most that the operator can pay for a million tokens, or for 1,000 searches. */
const paidUsdMax = 100_000n;
const picoPerMicroDollar = 1_000_000n;
const ofCost = {
  perMicroDollar: picoPerMicroDollar,
  unit: "pico-dollars",
  bound: `more than ${paidUsdMax} USD, the most of a cost`,
};
const paidTokens: Unit = {
  ...ofCost,
  ...{ pieces: tokens.pieces, name: tokens.name, one: tokens.one, step: "0.000001" },
  max: (paidUsdMax * 1_000_000n * picoPerMicroDollar) / tokens.pieces,
};
const paidSearches: Unit = {
  ...ofCost,
  ...{ pieces: searches.pieces, name: searches.name, one: searches.one, step: "0.000000001" },
  max: (paidUsdMax * 1_000_000n * picoPerMicroDollar) / searches.pieces,
};

/** How the prices of a file are read. A string is the message of a problem. */
export type PriceReading = {
  /** Units a token of `usdPerMillion` × `multiplier`. */
  readonly token: (usdPerMillion: string, multiplier?: string) => bigint | string;
  /** Units a search. */
  readonly search: (usdPerThousand: string) => bigint | string;
  /** The most units of a token and of a search, by whatever conditions. */
  readonly max: bigint;
  readonly searchMax: bigint;
  /** Why not more. */
  readonly bound: string;
  /** Whether input and output may cost nothing. */
  readonly mayBeFree: boolean;
  /** The factor of a price that is not stated. Absent: such a factor is required. */
  readonly otherwise?: string;
};

/** What clients pay: nano-credits of a token, micro-credits of a search, exactly. */
export const chargedPrices: PriceReading = {
  ...{ token: nanoPerToken, search: microPerSearch, mayBeFree: false },
  ...{ max: tokens.max, searchMax: searches.max, bound: tokens.bound },
};

/** What the operator pays: pico-dollars. What a multiplier makes finer is rounded up. */
export const paidPrices: PriceReading = {
  token: (usd, multiplier) =>
    multiplier === undefined
      ? unitsPer(paidTokens, usd)
      : unitsPer(paidTokens, usd, { multiplier, roundsUp: true }),
  search: (usd) => unitsPer(paidSearches, usd),
  ...{ max: paidTokens.max, searchMax: paidSearches.max, bound: paidTokens.bound },
  ...{ mayBeFree: true, otherwise: "1" },
};

/**
 * Nano-credits per token of `usdPerMillion` × `multiplier`, exactly. A string is the message of a
 * problem.
 */
export function nanoPerToken(usdPerMillion: string, multiplier = "1"): bigint | string {
  return unitsPer(tokens, usdPerMillion, { multiplier });
}

/** As `nanoPerToken`: micro-credits of a search at US dollars per 1,000 searches. */
function microPerSearch(usdPerThousand: string): bigint | string {
  return unitsPer(searches, usdPerThousand);
}

function unitsPer(
  of: Unit,
  usd: string,
  { multiplier = "1", roundsUp = false }: { multiplier?: string; roundsUp?: boolean } = {},
): bigint | string {
  const dollars = parseDecimal(usd);
  const factor = parseDecimal(multiplier);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per ${of.name}, not ${usd}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${multiplier}`;
  const scaled = (dollars.digits * factor.digits * 1_000_000n * of.perMicroDollar) / of.pieces;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n && !roundsUp) {
    const given = multiplier === "1" ? usd : `${usd} × ${multiplier}`;
    const rule = `a whole number of ${of.unit} per ${of.one} (steps of ${of.step} USD)`;
    return `${given} USD per ${of.name} is not ${rule}`;
  }
  const price = (scaled + scale - 1n) / scale;
  return price <= of.max ? price : `${usd} USD per ${of.name} is ${of.bound}`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const [, whole, fraction = ""] = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}

/** A price of a token, in nano-credits, in pico-dollars. */
export function picoDollarsPerToken(nano: bigint): bigint {
  return (nano * picoPerMicroDollar) / nanoOf(microCreditsPerMicroDollar);
}

/** A price of a search, in micro-credits, in pico-dollars. */
export function picoDollarsPerSearch(micro: bigint): bigint {
  return (micro * picoPerMicroDollar) / microCreditsPerMicroDollar;
}
