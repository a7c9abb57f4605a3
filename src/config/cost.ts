// What the operator pays: costs of models and routes in the configuration file, made versions that
// charges name. A version is whole pico-dollars (1e-12 USD) per token, which are micro-dollars per
// million tokens, so tokens × cost is exact.

import { createHash } from "node:crypto";
import * as v from "valibot";
import {
  basePriceOf,
  byCategory,
  type TokenCategory,
  tokenCategories,
} from "../base/token-categories.ts";
import { picoDollarsPerToken } from "./price.ts";
import { formed, integer, list, section } from "./schema.ts";

/** A factor of the model's cost at a route. */
export const costFactor = formed(/^\d{1,4}(\.\d{1,6})?$/, "a factor such as 1.1, or prices");
const paid = formed(/^\d{1,9}(\.\d{1,6})?$/, "a number of US dollars with at most 6 decimals");

const prices = {
  ...{ input: paid, output: paid, thinking: v.exactOptional(paid) },
  ...{ cache_write_5m: v.exactOptional(paid), cache_write_1h: v.exactOptional(paid) },
  cache_read: v.exactOptional(paid),
};

/** Of requests with a longer prompt than so many tokens of input, caches included. */
const step = section({ prompt_above: integer(1, 100_000_000), ...prices });
const stepsMax = 3;

/** Prices that the operator pays, in US dollars, by the names of those that clients pay. */
export const cost = section({
  ...prices,
  per: v.optional(section({ web_search: v.exactOptional(paid) }), {}),
  when: v.optional(
    v.pipe(
      list(step),
      v.maxLength(stepsMax, `has more than ${stepsMax} steps`),
      v.check(
        (steps) =>
          steps.every(({ promptAbove }, n) => n === 0 || promptAbove > stepAt(steps, n - 1)),
        "must have its steps in ascending order of prompt_above, each once",
      ),
    ),
  ),
});

export type Cost = v.InferOutput<typeof cost>;
type CostPrices = Pick<Cost, TokenCategory>;

const stepAt = (steps: readonly v.InferOutput<typeof step>[], n: number) =>
  steps[n]?.promptAbove ?? 0;

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

type CostedRoute = {
  readonly provider: string;
  readonly model: string;
  readonly cost?: string | Cost | undefined;
};

/** Factors of the prices that a cost does not state, as decimals. */
type Factors = Readonly<Partial<Record<TokenCategory, string>>>;

const microDecimals = 6;
const picoPerMicroDollarOfSearch = 1_000n;

/** Micro-units of a decimal with at most six places. */
function micro(text: string): bigint {
  const [whole = "", fraction = ""] = text.split(".");
  return BigInt(whole + fraction.padEnd(microDecimals, "0"));
}

/** A product of micro-units, rounded up. */
function times(amount: bigint, factor: bigint): bigint {
  return (amount * factor + 999_999n) / 1_000_000n;
}

/**
 * The versions of a route's cost: that of a short prompt first, then those of its steps. Empty: the
 * file does not say what the operator pays there.
 */
export function costVersionsOf(
  { provider, model, cost: own }: CostedRoute,
  usual: Cost | undefined,
  factors: Factors,
): readonly CostVersion[] {
  const stated = typeof own === "object" ? own : usual;
  if (stated === undefined) return [];
  const factor = typeof own === "string" ? micro(own) : 1_000_000n;
  const webSearch = times(micro(stated.per.webSearch ?? "0"), factor) * picoPerMicroDollarOfSearch;
  const steps = [{ promptAbove: 0, ...stated }, ...(stated.when ?? [])];
  const versions: CostVersion[] = [];
  for (const [n, prices] of [...steps.entries()].reverse()) {
    const [next] = versions;
    const content = {
      ...{ provider, model, webSearch },
      ...byCategory((category) => times(priceOf(prices, category, factors), factor)),
      above: next ? (steps[n + 1]?.promptAbove ?? null) : null,
      aboveVersion: next?.costVersion ?? null,
    };
    versions.unshift({ ...content, costVersion: hashOf(content) });
  }
  return versions;
}

function priceOf(prices: CostPrices, category: TokenCategory, factors: Factors): bigint {
  const own = prices[category];
  if (own !== undefined) return micro(own);
  if (!isDerived(category)) return 0n;
  const base = priceOf(prices, basePriceOf[category], factors);
  return times(base, micro(factors[category] ?? "1"));
}

const isDerived = (category: TokenCategory): category is keyof typeof basePriceOf =>
  category in basePriceOf;

function hashOf({ provider, model, webSearch, above, aboveVersion, ...prices }: Unnamed): string {
  const of = tokenCategories.map((category) => prices[category]);
  const content = [provider, model, ...of, webSearch, above ?? "", aboveVersion ?? ""].join("|");
  return `cost_${createHash("sha256").update(content).digest("hex").slice(0, 24)}`;
}
type Unnamed = Omit<CostVersion, "costVersion">;

type SoldModel = {
  readonly id: string;
  /** In nano-credits. */
  readonly price: Readonly<Record<TokenCategory, bigint>>;
  readonly routes: readonly (readonly {
    readonly provider: string;
    readonly costs?: readonly CostVersion[];
  }[])[];
};

/** Sentences about routes at which a model costs the operator more than its clients pay. */
export function findLosses(models: readonly SoldModel[]): string[] {
  return models.flatMap(({ id, price, routes }) =>
    routes.flat().flatMap(({ provider, costs = [] }) =>
      costs.slice(0, 1).flatMap((version) => {
        const dearer = tokenCategories.filter(
          (category) => version[category] > picoDollarsPerToken(price[category]),
        );
        return dearer.length === 0
          ? []
          : [`${id} costs more at ${provider} than its clients pay: ${dearer.join(", ")}`];
      }),
    ),
  );
}
