// What the operator pays: costs of models and routes in the configuration file, made versions that
// charges name. A version is whole pico-dollars (1e-12 USD) per token, which are micro-dollars per
// million tokens, so tokens × cost is exact.

import { createHash } from "node:crypto";
import { byCategory, type TokenCategory, tokenCategories } from "../base/token-categories.ts";
import { picoDollarsPerSearch, picoDollarsPerToken } from "./price.ts";
import { formed } from "./schema.ts";
import {
  combinationsOf,
  isSameFacts,
  levelsOf,
  noteOf,
  type Offered,
  offeredBy,
  type PriceFacts,
  type PriceTerms,
  pricedFacts,
  searchPriceOf,
  timesCost,
} from "./terms.ts";

/** A factor of the model's cost at a route. */
export const costFactor = formed(
  /^\d{1,3}(\.\d{1,4})?$/,
  "a factor below 1000 with at most 4 decimals, such as 1.1, or prices",
);

/** Pico-dollars per token, by category, and of a web search, at one provider. */
export type CostVersion = Readonly<Record<TokenCategory | "webSearch", bigint>> & {
  /** A hash of everything else. */
  readonly costVersion: string;
  /** The name of the provider, and of the model there. */
  readonly provider: string;
  readonly model: string;
  /** From more tokens of input on, caches included, another version counts. Null: none does. */
  readonly above: number | null;
  readonly aboveVersion: string | null;
};

/** The versions under a combination of conditions: that of a short prompt first. */
type CostCase = { readonly facts: PriceFacts; readonly versions: readonly CostVersion[] };

/** What the operator pays at a route. */
export type RouteCost = {
  readonly terms: PriceTerms;
  readonly offered: Offered;
  /** Each combination of conditions, the plain one first. */
  readonly cases: readonly CostCase[];
};

type CostedRoute = {
  readonly provider: string;
  readonly model: string;
  /** Of its own, or a factor of the model's cost. */
  readonly cost?: string | PriceTerms | undefined;
};

/**
 * What the operator pays at a route. Undefined: the file does not say. A string is the message of a
 * problem.
 */
export function costAt(
  { provider, model, cost: own }: CostedRoute,
  usual: PriceTerms | undefined,
): RouteCost | string | undefined {
  if (own === undefined && usual === undefined) return undefined;
  if (typeof own === "string" && usual === undefined)
    return `the cost ${own} at ${provider} is a factor of the model's cost, which is missing`;
  const terms = typeof own === "string" && usual ? timesCost(usual, own) : (own ?? usual);
  if (terms === undefined || typeof terms === "string")
    return `the cost at ${provider} ${terms ?? ""}`;
  const offered = offeredBy(terms);
  const cases = combinationsOf(offered).map((facts) => ({
    facts,
    versions: versionsOf({ provider, model }, terms, facts),
  }));
  return { terms, offered, cases };
}

function versionsOf(
  at: { readonly provider: string; readonly model: string },
  terms: PriceTerms,
  facts: PriceFacts,
): readonly CostVersion[] {
  const webSearch = searchPriceOf(terms);
  const versions: CostVersion[] = [];
  let above: number | null = null;
  for (const { over, prices } of levelsOf(terms, facts).reverse()) {
    const aboveVersion = versions[0]?.costVersion ?? null;
    const content = { ...at, ...prices, webSearch, above, aboveVersion };
    versions.unshift({ ...content, costVersion: hashOf(content) });
    above = over;
  }
  return versions;
}

function hashOf({ provider, model, webSearch, above, aboveVersion, ...prices }: Unnamed): string {
  const of = tokenCategories.map((category) => prices[category]);
  const content = [provider, model, ...of, webSearch, above ?? "", aboveVersion ?? ""].join("|");
  return `cost_${createHash("sha256").update(content).digest("hex").slice(0, 24)}`;
}
type Unnamed = Omit<CostVersion, "costVersion">;

/** The version that a request with these facts names. Empty: the file does not say. */
export function costVersionOf(cost: RouteCost | undefined, facts: PriceFacts): string {
  if (!cost) return "";
  const known = pricedFacts(facts, cost.offered);
  const found = cost.cases.find((one) => isSameFacts(one.facts, known));
  return found?.versions[0]?.costVersion ?? "";
}

type SoldModel = {
  readonly id: string;
  readonly price: PriceTerms;
  /** Hundredths of a percent off the price. Default: none. */
  readonly discountBp?: number;
  readonly routes: readonly (readonly {
    readonly provider: string;
    readonly paid?: RouteCost | undefined;
  }[])[];
};

/** A route at which a model costs the operator more than its clients pay. */
export type Loss = {
  readonly model: string;
  readonly provider: string;
  /** The first condition under which it does, in words. Empty: under none. */
  readonly note: string;
  /** What of it costs more. */
  readonly of: readonly (TokenCategory | "webSearch")[];
};

/** The routes at which models cost the operator more than their clients pay. */
export function findLosses(models: readonly SoldModel[]): Loss[] {
  return models.flatMap((model) =>
    model.routes.flat().flatMap(({ provider, paid }) => {
      const loss = paid && lossAt(model, paid.terms);
      return loss ? [{ model: model.id, provider, ...loss }] : [];
    }),
  );
}

function lossAt({ price, discountBp }: SoldModel, paid: PriceTerms) {
  const searchesLose =
    price.webSearch !== undefined &&
    searchPriceOf(paid) > picoDollarsPerSearch(searchPriceOf(price, discountBp));
  for (const facts of combinationsOf(offeredBy(price))) {
    const [sold, bought] = [levelsOf(price, facts, discountBp), levelsOf(paid, facts)];
    const steps = new Set([...sold, ...bought].map(({ over }) => over));
    for (const over of [...steps].sort((one, other) => one - other)) {
      const [gets, gives] = [pricesAt(sold, over), pricesAt(bought, over)];
      const of = [
        ...tokenCategories.filter((name) => gives[name] > picoDollarsPerToken(gets[name])),
        ...(searchesLose ? ["webSearch" as const] : []),
      ];
      if (of.length > 0) return { note: noteOf(facts, over), of };
    }
  }
  return undefined;
}

/** The prices for prompts of more than so many tokens. */
function pricesAt(levels: ReturnType<typeof levelsOf>, over: number) {
  const level = levels.findLast((one) => one.over <= over);
  return level?.prices ?? byCategory(() => 0n);
}
