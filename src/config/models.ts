// The section `models` of the configuration file, and the prices of models.

import * as v from "valibot";
import { costAt, costFactor, type RouteCost } from "./cost.ts";
import {
  checked,
  choice,
  distinct,
  formed,
  integer,
  isMapping,
  list,
  section,
  text,
} from "./schema.ts";
import { costBy, type Multipliers, type PriceTerms, problemOfStep, termsBy } from "./terms.ts";

/** Prices, or the model that states them. */
function priceBy(factors: Multipliers | undefined) {
  const own = termsBy(factors);
  const inherited = section({ inherit: text });
  return v.lazy(
    (input): v.GenericSchema<unknown, PriceTerms | { readonly inherit: string }> =>
      isMapping(input) && "inherit" in input ? inherited : own,
  );
}

/** Prices that the operator pays at a route, or a factor of the model's cost. */
function routeCostBy(factors: Multipliers | undefined) {
  const own = costBy(factors);
  return v.lazy(
    (input): v.GenericSchema<unknown, string | PriceTerms> => (isMapping(input) ? own : costFactor),
  );
}

/** One route to a model. */
const routeBy = (factors: Multipliers | undefined) =>
  section({
    /** Name in `providers`. */
    provider: text,
    /** Name of the model at that provider. Default: its id here. */
    model: v.exactOptional(text),
    /** Share of the group's conversations, relative to the other weights. */
    weight: v.optional(integer(1, 1_000_000), "1"),
    /**
     * How `system` entries within a conversation are sent: as they are, or folded into the user
     * message before them.
     */
    system_entries: v.optional(choice(["forward", "fold"]), "forward"),
    /** What the operator pays here: prices, or a factor of the model's `cost`. */
    cost: v.exactOptional(routeCostBy(factors)),
  });

export const modelIdForm = /^[A-Za-z0-9][A-Za-z0-9._\-/:]{0,127}$/;
export const modelIdRule =
  "must be 1 to 128 letters, digits and . _ - / : and begin with a letter or digit";
const instantForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

const model = {
  id: checked((id) => (modelIdForm.test(id) ? undefined : `${modelIdRule}, not ${id}`)),
  /** Default: the id. */
  display_name: v.exactOptional(text),
  /**
   * Its class, in the operator's words. Names of `opus`, `sonnet` and `haiku` with an unknown
   * version mean the current model of that tier.
   */
  tier: v.exactOptional(formed(/^[\x20-\x7e]{1,64}$/, "at most 64 characters of ASCII")),
  /** RFC 3339. */
  created_at: checked((given) =>
    instantForm.test(given) && !Number.isNaN(Date.parse(given))
      ? undefined
      : `must be a time such as 2026-02-05T00:00:00Z, not ${given}`,
  ),
  context_tokens: integer(1024, 100_000_000),
  max_output_tokens: integer(1, 10_000_000),
  /** How a request controls thinking: by effort, by a number of tokens, or not at all. */
  thinking: choice(["adaptive", "budget", "none"]),
  /** Whether a provider that reports 0 input tokens for an answer means it, or did not count. */
  zero_usage: v.optional(choice(["reported", "missing"]), "reported"),
};

type RouteSettings = v.InferOutput<ReturnType<typeof routeBy>>;
export type Route = Required<Omit<RouteSettings, "cost">> &
  Pick<RouteSettings, "cost"> & {
    /** What the operator pays here. Absent: the file does not say. */
    readonly paid?: RouteCost;
  };

/** What is wrong with prices of a model with this context. Undefined: nothing. */
const problemOfSteps = (terms: string | PriceTerms | undefined, context: number) =>
  typeof terms === "object" ? problemOfStep(terms, context) : undefined;

/** The section `models`. `factors`: its `price_multipliers`, or undefined where they are wrong. */
export const modelsBy = (factors: Multipliers | undefined) =>
  v.pipe(
    list(
      section(
        {
          ...model,
          price: priceBy(factors),
          /** What the operator pays. Absent: the file does not say. */
          cost: v.exactOptional(costBy(factors)),
          /** Groups in the order in which they are tried. */
          routes: list(list(routeBy(factors))),
        },
        (rule) => {
          rule("price", ["price", "context_tokens"], ({ price, context_tokens: context }) =>
            "inherit" in price ? undefined : problemOfSteps(price, context),
          );
          rule("cost", ["cost", "context_tokens"], ({ cost, context_tokens: context }) =>
            problemOfSteps(cost, context),
          );
          rule("routes", ["routes", "context_tokens"], ({ routes, context_tokens: context }) => {
            const problems = routes.flat().map(({ cost }) => problemOfSteps(cost, context));
            const problem = problems.find((one) => one !== undefined);
            return problem && `cost.${problem}`;
          });
        },
      ),
    ),
    distinct("id", "models"),
  );

type Draft = v.InferOutput<ReturnType<typeof modelsBy>>[number];

export type ModelEntry = Omit<Draft, "price" | "routes" | "displayName"> & {
  readonly displayName: string;
  readonly price: PriceTerms;
  readonly routes: Route[][];
};

/**
 * Gives models the prices that they inherit, the names that they do not state, and their routes
 * what the operator pays there. Throws where a price is inherited from nowhere. Adds to `problems`
 * what is wrong with a cost.
 */
export function completeModels(drafts: readonly Draft[], problems: string[]): ModelEntry[] {
  const priceOf = ({ price }: Draft): PriceTerms => {
    if (!("inherit" in price)) return price;
    const stated = drafts.find(({ id }) => id === price.inherit)?.price;
    if (!stated || "inherit" in stated) throw new Error(`${price.inherit} states no price`);
    return stated;
  };
  return drafts.map((draft, index) => ({
    displayName: draft.id,
    ...draft,
    price: priceOf(draft),
    routes: draft.routes.map((group) =>
      group.map((one) => {
        const route = { model: draft.id, ...one };
        const paid = costAt(route, draft.cost);
        if (typeof paid === "string") problems.push(`models[${index}].routes: ${paid}`);
        return { ...route, ...(typeof paid === "object" && { paid }) };
      }),
    ),
  }));
}
