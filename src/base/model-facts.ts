// What people read of a model that is sold: its sizes, its prices and what a typical call costs.
// The open page and the console's page of models are both written from this.

import { microRoundedUp } from "./cost.ts";
import { credits, microPerMillion, usd } from "./money.ts";
import { type TokenCategory, tokenCategories } from "./token-categories.ts";

/** A model as the catalogue has it. Prices are as in `Price`. */
export type SoldModel = {
  readonly id: string;
  readonly displayName: string;
  readonly aliases: readonly string[];
  readonly contextTokens: number;
  readonly maxOutputTokens: number;
  readonly price: Readonly<Record<TokenCategory, bigint>> & {
    /** Micro-credits of a web search. 0 or absent: there are none. */
    readonly webSearch?: bigint;
  };
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
const typicalTokens = { input: 2_000n, cacheRead: 8_000n, output: 1_000n } as const;

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

function sentencesOf({ aliases, contextTokens, maxOutputTokens, price }: SoldModel): string[] {
  const sizes = `Context ${sizeOf(contextTokens)} tokens, answers up to ${sizeOf(maxOutputTokens)}.`;
  const { input, cacheRead, output } = typicalTokens;
  const call = amountOf(
    microRoundedUp(price.input * input + price.cacheRead * cacheRead + price.output * output),
  );
  return [
    ...(aliases.length > 0 ? [`Also called ${aliases.join(", ")}.`] : []),
    sizes,
    ...(price.webSearch ? [searchSentence(price.webSearch)] : []),
    `A call of 10,000 tokens in, 80 % of them cached, and 1,000 out costs ${call.usd} USD ` +
      `(${call.credits} credits).`,
  ];
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
