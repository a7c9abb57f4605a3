// Prices of the configuration file: decimal US dollars per million tokens, turned exactly into micro-credits per token.

import type { Section } from "./section.ts";

/** Micro-credits (1e-6 credit; 1 credit = 0.005 USD) per token, by category. */
export type ModelPrice = Readonly<Record<PriceCategory, bigint>>;

export type PriceCategory = "input" | "output" | "cacheWrite5m" | "cacheWrite1h" | "cacheRead" | "thinking";

// Each derived category, its name in the file and the price it is a multiple of.
const derived = [
  { category: "cacheWrite5m", key: "cache_write_5m", of: "input" },
  { category: "cacheWrite1h", key: "cache_write_1h", of: "input" },
  { category: "cacheRead", key: "cache_read", of: "input" },
  { category: "thinking", key: "thinking", of: "output" },
] as const;

/** Decimal multipliers of the derived categories. One that is missing must be stated by every model. */
export type PriceMultipliers = Partial<Record<(typeof derived)[number]["category"], string>>;

/** The multipliers of a file. */
export function readMultipliers(section: Section): PriceMultipliers {
  const multipliers: PriceMultipliers = {};
  for (const { category, key } of derived) if (section.has(key)) multipliers[category] = section.text(key);
  section.end();
  return multipliers;
}

/** The price of a model, or the id of the model whose price it takes. Every problem is noted in the section. */
export function readPrice(section: Section, multipliers: PriceMultipliers): ModelPrice | { inherit: string } {
  if (section.has("inherit")) {
    const inherit = section.text("inherit");
    section.end();
    return { inherit };
  }
  const usd = { input: section.text("input"), output: section.text("output") };
  const priceOf = (key: string, dollars: string, times: string, least: bigint): bigint => {
    const price = dollars === "" || times === "" ? least : microPerToken(dollars, times);
    if (typeof price === "bigint" && price >= least) return price;
    section.problem(key, typeof price === "string" ? price : "must be more than 0");
    return least;
  };
  const price: Record<PriceCategory, bigint> = {
    input: priceOf("input", usd.input, "1", 1n),
    output: priceOf("output", usd.output, "1", 1n),
    cacheWrite5m: 0n,
    cacheWrite1h: 0n,
    cacheRead: 0n,
    thinking: 0n,
  };
  for (const { category, key, of } of derived) {
    const times = multipliers[category];
    if (section.has(key)) price[category] = priceOf(key, section.text(key), "1", 0n);
    else if (times !== undefined) price[category] = priceOf(key, usd[of], times, 0n);
    else section.problem(key, "is required: neither the model states it nor price_multipliers");
  }
  section.end();
  return price;
}

// 1 USD per million tokens = 1e-6 USD a token = 2e-4 credits = 200 micro-credits.
const microPerUsdPerMillion = 200n;

// Times 2^32 tokens, the largest count there is, this still fits the ledger's 64-bit amounts.
const priceMax = 1_000_000_000n;

/** Micro-credits per token of `usdPerMillion` × `times`, exactly, or what is wrong with it. */
export function microPerToken(usdPerMillion: string, times = "1"): bigint | string {
  const dollars = parseDecimal(usdPerMillion);
  const factor = parseDecimal(times);
  if (dollars === undefined) return `must be a decimal number of US dollars per million tokens, not ${usdPerMillion}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${times}`;
  const scaled = dollars.digits * factor.digits * microPerUsdPerMillion;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n) {
    const multiple = times === "1" ? "" : ` × ${times}`;
    return `${usdPerMillion}${multiple} USD per million tokens is not a whole number of micro-credits per token (steps of 0.005 USD)`;
  }
  const price = scaled / scale;
  return price <= priceMax ? price : `${usdPerMillion} USD per million tokens is more than can be billed`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const match = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text);
  if (match === null) return undefined;
  const [, whole = "", fraction = ""] = match;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}
