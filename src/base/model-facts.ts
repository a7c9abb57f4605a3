// What people read of a model that is sold: its sizes, its prices and what a typical call costs.
// The open page and the console's page of models are both written from this.

import { chargeMicro, type Metered, type Prices } from "./cost.ts";
import { credits, microPerMillion, usd } from "./money.ts";
import {
  basePriceOf,
  byCategory,
  type TokenCategory,
  tokenCategories,
} from "./token-categories.ts";

/** A model as the catalogue has it. Prices are as in `Price`. */
export type SoldModel = {
  readonly modelId: string;
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

/** The cost of a call, in micro-credits: as a receipt of this usage has it. */
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
  const { modelId: id, displayName, price } = model;
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

type ModelPrices = Pick<SoldModel, "price" | "conditional">;

/**
 * A sentence for each condition under which a model costs something else than plain tokens do.
 * Beside `other` prices of the model, a condition that both have names the same categories in both.
 */
export function priceRules(model: ModelPrices, other?: ModelPrices): string[] {
  const { price } = model;
  const others = new Map(
    other && conditionalOf(other).map((one) => [conditionIn(one), { ...one, plain: other.price }]),
  );
  return [
    ...(price.webSearch ? [searchSentence(price.webSearch)] : []),
    ...conditionalOf(model).map((one) => {
      const same = others.get(conditionIn(one));
      const named = derivedCategories.filter(
        (category) =>
          !isInProportion(category, one, price) ||
          (same &&
            (one[category] !== same[category] || !isInProportion(category, same, same.plain))),
      );
      return conditionSentence(one, named);
    }),
  ];
}

/** Every price that does not hold for plain tokens. */
function conditionalOf({ price, conditional }: ModelPrices): SoldPrice[] {
  return [...stepsAbove(price), ...conditional.flatMap((one) => [one, ...stepsAbove(one)])];
}

/** The prices of longer prompts. */
function stepsAbove({ abovePrice }: SoldPrice): SoldPrice[] {
  return abovePrice ? [abovePrice, ...stepsAbove(abovePrice)] : [];
}

/** "geography us". Which price list the price is of is no condition, and stands last. */
function conditionIn({ note }: SoldPrice): string {
  return note.split("; list ")[0] ?? "";
}

/**
 * "Geography us: 3.85 USD (770 credits) in and 19.25 USD (3,850 credits) out." The `named` ones
 * follow: those that are not in the proportion of the plain prices.
 */
function conditionSentence(price: SoldPrice, named: readonly DerivedCategory[]): string {
  const textOf = (category: TokenCategory) => {
    const amount = amountOf(microPerMillion(price[category]));
    return `${amount.usd} USD (${amount.credits} credits)`;
  };
  const condition = conditionIn(price);
  const name = condition.slice(0, 1).toUpperCase() + condition.slice(1);
  const others = named.map((category) => `${textOf(category)} for ${derivedNames[category]}`);
  const rest = others.length === 0 ? "" : `; ${others.join(", ")}`;
  return `${name}: ${textOf("input")} in and ${textOf("output")} out${rest}.`;
}

type DerivedCategory = keyof typeof basePriceOf;
const derivedNames: Readonly<Record<DerivedCategory, string>> = {
  thinking: "thinking",
  cacheWrite5m: "cache writes of 5 minutes",
  cacheWrite1h: "cache writes of 1 hour",
  cacheRead: "cache reads",
};
const derivedCategories = tokenCategories.filter(
  (category): category is DerivedCategory => category in basePriceOf,
);

/** Whether a price is as many times its base, input or output, as the plain one is. */
function isInProportion(category: DerivedCategory, price: Prices, plain: Prices): boolean {
  const base = basePriceOf[category];
  if (plain[base] === 0n) return price[category] === plain[category];
  // Each of the four is rounded up by less than one, so a product may be off by as much as this.
  const excess = price[category] * plain[base] - plain[category] * price[base];
  return excess < plain[base] + price[category] && -excess < price[base] + plain[category];
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
