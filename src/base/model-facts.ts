// What people read of a model that is sold: its sizes, its prices and what a typical call costs.
// The open page and the console's page of models are both written from this.

import { chargeMicro, type Metered, type Prices } from "./cost.ts";
import { credits, microPerMillion, usd } from "./money.ts";
import { byCategory, type TokenCategory, tokenCategories } from "./token-categories.ts";

/** A model as the catalogue has it. Prices are as in `Price`. */
export type SoldModel = {
  readonly id: string;
  readonly displayName: string;
  readonly aliases: readonly string[];
  readonly contextTokens: number;
  readonly maxOutputTokens: number;
  readonly price: SoldPrice;
  /** Its prices under other conditions, the plain one left out. */
  readonly conditional: readonly SoldPrice[];
};

export type SoldPrice = Prices & {
  /** Under which conditions it holds, in words. */
  readonly note: string;
  readonly promptAbove?: number | undefined;
  readonly abovePrice?: SoldPrice | undefined;
};

/** Decimal numbers of dollars and of credits, such as `19.25` and `3,850`. */
export type Amount = { readonly usd: string; readonly credits: string };

export type ModelFacts = {
  readonly name: string;
  readonly id: string;
  /** Sentences: the other names, the sizes, what costs beside tokens, a typical call. */
  readonly sentences: readonly string[];
  /** Of `sentences`: what web searches, longer prompts and other conditions cost. */
  readonly rules: readonly string[];
  /** Of a million tokens. */
  readonly prices: readonly (Amount & {
    readonly category: TokenCategory;
    readonly label: string;
  })[];
};

const labels: Readonly<Record<TokenCategory, string>> = {
  input: "Input",
  output: "Output",
  thinking: "Thinking",
  cacheWrite5m: "Cache write, 5 minutes",
  cacheWrite1h: "Cache write, 1 hour",
  cacheRead: "Cache read",
};

/** A request whose cost people want to know before they send it. Whole numbers. */
export type PlannedCall = {
  /** The tokens of its prompt. */
  readonly input: number;
  /** The tokens of its answer. */
  readonly output: number;
  /** Of the prompt, what is read from the cache: 0 to 100. */
  readonly cachedPercent: number;
};

export const typicalCall: PlannedCall = { input: 10_000, output: 1_000, cachedPercent: 80 };

/** What it will cost, in micro-credits: as a receipt of this usage has it. */
export function callMicro(price: SoldPrice, call: PlannedCall): bigint {
  return chargeMicro(price, usageOf(call));
}

/** Part of a token is not in the cache. */
export function usageOf({ input, output, cachedPercent }: PlannedCall): Metered {
  const cacheRead = Math.floor((input * cachedPercent) / 100);
  return {
    ...{ ...byCategory(() => 0), webSearches: 0 },
    ...{ input: input - cacheRead, cacheRead, output },
  };
}

export function modelFacts(model: SoldModel): ModelFacts {
  const { id, displayName, price } = model;
  const rules = priceRules(model);
  return {
    name: displayName || id,
    id,
    sentences: sentencesOf(model, rules),
    rules,
    prices: tokenCategories.map((category) => ({
      category,
      label: labels[category],
      ...amountOf(microPerMillion(price[category])),
    })),
  };
}

function sentencesOf(model: SoldModel, rules: readonly string[]): string[] {
  const { aliases, contextTokens, maxOutputTokens, price } = model;
  const sizes = `Context ${grouped(String(contextTokens))} tokens, answers up to ${grouped(String(maxOutputTokens))}.`;
  const call = amountOf(callMicro(price, typicalCall));
  return [
    ...(aliases.length > 0 ? [`Also called ${aliases.join(", ")}.`] : []),
    sizes,
    ...rules,
    `A call of 10,000 tokens in, 80 % of them cached, and 1,000 out costs ${call.usd} USD ` +
      `(${call.credits} credits).`,
  ];
}

/** A sentence for each condition under which a model costs something else than plain tokens do. */
export function priceRules({
  price,
  conditional,
}: Pick<SoldModel, "price" | "conditional">): string[] {
  const others = [...stepsAbove(price), ...conditional.flatMap((one) => [one, ...stepsAbove(one)])];
  return [
    ...(price.webSearch ? [searchSentence(price.webSearch)] : []),
    ...others.map(conditionSentence),
  ];
}

/** The prices of longer prompts. */
function stepsAbove({ abovePrice }: SoldPrice): SoldPrice[] {
  return abovePrice ? [abovePrice, ...stepsAbove(abovePrice)] : [];
}

/** "Geography us: 3.85 USD (770 credits) in and 19.25 USD (3850 credits) out." */
function conditionSentence({ note, input, output }: SoldPrice): string {
  const [inward, outward] = [input, output].map((nano) => amountOf(microPerMillion(nano)));
  const textOf = (amount: Amount | undefined) => `${amount?.usd} USD (${amount?.credits} credits)`;
  // Which price list it is of is no condition, and stands last.
  const [condition = ""] = note.split("; list ");
  const name = condition.slice(0, 1).toUpperCase() + condition.slice(1);
  return `${name}: ${textOf(inward)} in and ${textOf(outward)} out.`;
}

function searchSentence(webSearch: bigint): string {
  const thousand = amountOf(webSearch * 1_000n);
  return `1,000 web searches cost ${thousand.usd} USD (${thousand.credits} credits).`;
}

function amountOf(micro: bigint): Amount {
  return { usd: grouped(usd(micro)), credits: grouped(credits(micro)) };
}

/** "4,000.5", of a decimal number. */
export function grouped(number: string): string {
  const [whole = "", fraction] = number.split(".");
  const digits = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? digits : `${digits}.${fraction}`;
}
