// Prices of the configuration file: exact decimals of US dollars, made micro-credits.

import { microCreditsPerMicroDollar } from "../base/money.ts";

// Times 2^32 tokens, the largest possible count, this still fits the ledger's 64-bit amounts.
const priceMax = 1_000_000_000n;

/** How a price is written: dollars of so many pieces. `step`: of one micro-credit a piece. */
type Unit = {
  readonly pieces: bigint;
  readonly name: string;
  readonly one: string;
  readonly step: string;
};
const tokens: Unit = { pieces: 1_000_000n, name: "million tokens", one: "token", step: "0.005" };
const searches: Unit = { pieces: 1_000n, name: "1,000 searches", one: "search", step: "0.000005" };

/**
 * Micro-credits per token of `usdPerMillion` × `multiplier`, exactly. A string is the message of a
 * problem.
 */
export function microPerToken(usdPerMillion: string, multiplier = "1"): bigint | string {
  return microPer(tokens, usdPerMillion, multiplier);
}

/** As `microPerToken`, of a search at US dollars per 1,000 searches. */
export function microPerSearch(usdPerThousand: string): bigint | string {
  return microPer(searches, usdPerThousand, "1");
}

function microPer(unit: Unit, usd: string, multiplier: string): bigint | string {
  const dollars = parseDecimal(usd);
  const factor = parseDecimal(multiplier);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per ${unit.name}, not ${usd}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${multiplier}`;
  const perPiece = (1_000_000n * microCreditsPerMicroDollar) / unit.pieces;
  const scaled = dollars.digits * factor.digits * perPiece;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n) {
    const given = multiplier === "1" ? usd : `${usd} × ${multiplier}`;
    const rule = `a whole number of micro-credits per ${unit.one} (steps of ${unit.step} USD)`;
    return `${given} USD per ${unit.name} is not ${rule}`;
  }
  const price = scaled / scale;
  return price <= priceMax ? price : `${usd} USD per ${unit.name} is more than can be billed`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const [, whole, fraction = ""] = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}

/** A price of a token, as `microPerToken` returns it, in pico-dollars. */
export function picoDollarsPerToken(price: bigint): bigint {
  return (price * 1_000_000n) / microCreditsPerMicroDollar;
}
