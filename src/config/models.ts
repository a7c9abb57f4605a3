// The section `models` of the configuration file, and the prices of models.

import * as v from "valibot";
import { type Cost, type CostVersion, cost, costFactor, costVersionsOf } from "./cost.ts";
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
import { type Multipliers, type PriceTerms, problemOfStep, termsBy } from "./terms.ts";

/** Prices, or the model that states them. */
function priceBy(factors: Multipliers | undefined) {
  const own = termsBy(factors);
  const inherited = section({ inherit: text });
  return v.lazy(
    (input): v.GenericSchema<unknown, PriceTerms | { readonly inherit: string }> =>
      isMapping(input) && "inherit" in input ? inherited : own,
  );
}

/** One route to a model. */
const route = section({
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
  /** What the operator pays here: prices, or a factor of the model's `cost`. Clients pay alike. */
  cost: v.exactOptional(
    v.lazy(
      (input): v.GenericSchema<unknown, string | Cost> => (isMapping(input) ? cost : costFactor),
    ),
  ),
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
  cost: v.exactOptional(cost),
  /** Groups in the order in which they are tried. */
  routes: list(list(route)),
};

type RouteSettings = v.InferOutput<typeof route>;
export type Route = Required<Omit<RouteSettings, "cost">> &
  Pick<RouteSettings, "cost"> & {
    /** That of a short prompt first. Absent: the file does not say. */
    readonly costs?: readonly CostVersion[];
  };

/** The section `models`. `factors`: its `price_multipliers`, or undefined where they are wrong. */
export const modelsBy = (factors: Multipliers | undefined) =>
  v.pipe(
    list(
      section({ ...model, price: priceBy(factors) }, (rule) =>
        rule("price", ["price", "context_tokens"], ({ price, context_tokens: context }) =>
          "inherit" in price ? undefined : problemOfStep(price, context),
        ),
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
 * Gives models the prices that they inherit, the names that they do not state, and their routes the
 * versions of their cost. Throws where a price is inherited from nowhere.
 */
export function completeModels(drafts: readonly Draft[], factors: Multipliers): ModelEntry[] {
  const priceOf = ({ price }: Draft): PriceTerms => {
    if (!("inherit" in price)) return price;
    const stated = drafts.find(({ id }) => id === price.inherit)?.price;
    if (!stated || "inherit" in stated) throw new Error(`${price.inherit} states no price`);
    return stated;
  };
  return drafts.map((draft) => ({
    displayName: draft.id,
    ...draft,
    price: priceOf(draft),
    routes: draft.routes.map((group) =>
      group.map((one) => {
        const route = { model: draft.id, ...one };
        const costs = costVersionsOf(route, draft.cost, factors);
        return { ...route, ...(costs.length > 0 && { costs }) };
      }),
    ),
  }));
}
