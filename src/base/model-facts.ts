// What people read of a model that is sold: its sizes, its prices and what a typical call costs.
// The open page and the console's page of models are both written from this.

import { costMicro, type Prices, stepOf } from "./cost.ts";
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

type SoldPrice = Prices & {
  /** Under which conditions it holds, in words. */
  readonly note: string;
  readonly promptAbove?: number | undefined;
  readonly abovePrice?: SoldPrice | undefined;
};

/** A decimal number of dollars, and one of credits. */
export type Amount = { readonly usd: string; readonly credits: string };

export type ModelFacts = {
  readonly name: string;
  readonly id: string;
  /** Sentences: the other names, the sizes, what costs beside tokens, a typical call. */
  readonly sentences: readonly string[];
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

/** 10,000 tokens of prompt, of which four fifths are in the cache, and 1,000 of answer. */
const typicalUsage = {
  ...{ ...byCategory(() => 0), webSearches: 0 },
  ...{ input: 2_000, cacheRead: 8_000, output: 1_000 },
};
const typicalPrompt = 10_000;

export function modelFacts(model: SoldModel): ModelFacts {
  const { id, displayName, price } = model;
  return {
    name: displayName || id,
    id,
    sentences: sentencesOf(model),
    prices: tokenCategories.map((category) => ({
      category,
      label: labels[category],
      ...amountOf(microPerMillion(price[category])),
    })),
  };
}

function sentencesOf(model: SoldModel): string[] {
  const { aliases, contextTokens, maxOutputTokens, price, conditional } = model;
  const sizes = `Context ${sizeOf(contextTokens)} tokens, answers up to ${sizeOf(maxOutputTokens)}.`;
  const call = amountOf(costMicro(stepOf(price, typicalPrompt), typicalUsage));
  return [
    ...(aliases.length > 0 ? [`Also called ${aliases.join(", ")}.`] : []),
    sizes,
    ...(price.webSearch ? [searchSentence(price.webSearch)] : []),
    ...[...stepsAbove(price), ...conditional.flatMap((one) => [one, ...stepsAbove(one)])].map(
      conditionSentence,
    ),
    `A call of 10,000 tokens in, 80 % of them cached, and 1,000 out costs ${call.usd} USD ` +
      `(${call.credits} credits).`,
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
  const name = note.slice(0, 1).toUpperCase() + note.slice(1);
  return `${name}: ${textOf(inward)} in and ${textOf(outward)} out.`;
}

function searchSentence(webSearch: bigint): string {
  const thousand = amountOf(webSearch * 1_000n);
  return `1,000 web searches cost ${thousand.usd} USD (${thousand.credits} credits).`;
}

function amountOf(micro: bigint): Amount {
  return { usd: usd(micro), credits: credits(micro) };
}

/** "1,000,000" */
function sizeOf(tokens: number): string {
  return String(tokens).replace(/\B(?=(\d{3})+$)/g, ",");
}
