// The catalogue: models, their names and their prices. Immutable; built from the configuration
// file.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import { type Model, ModelSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import { PriceBook, type PriceLists } from "../billing/billing.ts";
import type { CatalogFile, ModelEntry, Offered, PriceFacts } from "../config/catalog.ts";

/** The model that a name selects. */
export type Resolved = {
  readonly model: ModelEntry;
  /** False if the name is unknown and only its tier selected the model. */
  readonly exact: boolean;
  /** Whether a provider of it knows the tools that the vendor of the Responses format runs. */
  readonly hasHostedTools: boolean;
};

export type Catalog = Pick<CatalogFile, "features" | "hostedTools"> & {
  /** Undefined for an unknown name. */
  find(name: string): Resolved | undefined;
  /**
   * As `find`, but throws `model_not_found`, with a list of the models in `allowed` (empty: all).
   */
  resolve(name: string, allowed: readonly string[]): Resolved;
  /** The models in `allowed` (empty: all), then their aliases, with the prices of a list. */
  list(allowed: readonly string[], priceListId?: string): Model[];
  /**
   * The entry of that list that `name` selects. Throws `model_not_found` also for a model that is
   * not in `allowed`.
   */
  describe(name: string, allowed: readonly string[], priceListId?: string): Model;
  /** As `PriceBook.priceOf`. */
  priceOf(model: string, facts?: PriceFacts, priceListId?: string): Price | undefined;
  /** As `PriceBook.pricesOf`. */
  pricesOf(model: string, priceListId?: string): (facts: PriceFacts) => Price | undefined;
  /** The public prices of a model under other conditions than the plain one. */
  conditionalPricesOf(model: string): Price[];
  /** As `PriceBook.offered`. */
  offered(model: string, priceListId?: string): Offered | undefined;
};

export function createCatalog(file: CatalogFile, lists?: PriceLists): Catalog {
  const resolved = new Map(
    file.models.map((model) => {
      const hasHostedTools = model.routes.flat().some(({ provider }) => {
        const settings = file.providers[provider];
        return settings?.kind === "openai" && settings.api === "responses";
      });
      return [model.id, { model, exact: true, hasHostedTools }] as const;
    }),
  );
  const prices = new PriceBook((model) => resolved.get(model)?.model.price, lists);
  const aliases = Object.entries(file.aliases);
  const byName = new Map([
    ...resolved,
    ...aliases.flatMap(([alias, id]) => entryOf(alias, resolved.get(id))),
  ]);
  // The alias with the name of the tier selects its current model. Without one, the first does.
  const current = (tier: string) =>
    byName.get(tier) ?? [...resolved.values()].find(({ model }) => model.tier === tier);

  const find = (name: string): Resolved | undefined => {
    const known = byName.get(name) ?? byName.get(canonicalName(name));
    if (known) return known;
    const tier = file.tierFallback ? tierOf(name) : undefined;
    const fallback = tier && current(tier);
    return fallback && { ...fallback, exact: false };
  };
  const list = (allowed: readonly string[], priceListId?: string): Model[] => {
    const usable = [...resolved.values()].filter(
      ({ model }) => allowed.length === 0 || allowed.includes(model.id),
    );
    const aliasesOf = (id: string) =>
      aliases.flatMap(([alias, target]) => (target === id ? [alias] : []));
    const entryOf = ({ model }: Resolved, names: Names) =>
      toModel(model, names, pricesFor(prices, model, priceListId));
    return [
      ...usable.map((entry) =>
        entryOf(entry, { modelId: entry.model.id, aliases: aliasesOf(entry.model.id) }),
      ),
      ...aliases.flatMap(([alias, id]) => {
        const target = usable.find(({ model }) => model.id === id);
        return target ? [entryOf(target, { modelId: alias, aliasFor: id })] : [];
      }),
    ];
  };
  return {
    features: file.features,
    hostedTools: file.hostedTools,
    find,
    list,
    resolve(name, allowed) {
      const found = find(name);
      if (found) return found;
      throw notFound(name, list(allowed));
    },
    describe(name, allowed, priceListId) {
      const models = list(allowed, priceListId);
      const found =
        models.find(({ modelId: id }) => id === name) ??
        models.find(({ modelId: id }) => id === find(name)?.model.id);
      if (found) return found;
      throw notFound(name, models);
    },
    priceOf: (model, facts, priceListId) => prices.priceOf(model, facts, priceListId),
    conditionalPricesOf: (model) => prices.conditional(model).map(({ price }) => price),
    pricesOf: (model, priceListId) => prices.pricesOf(model, priceListId),
    offered: (model, priceListId) => prices.offered(model, priceListId),
  };
}

function notFound(name: string, models: readonly Model[]): ApiError {
  const valid = models.map(({ modelId: id }) => id);
  // A name can be as long as a body, so the message quotes only its beginning.
  const message = `model: ${name.slice(0, 100)} is not one of ${valid.join(", ")}`;
  return new ApiError("model_not_found", { field: "model", allowed: valid, message });
}

function entryOf(name: string, entry: Resolved | undefined): (readonly [string, Resolved])[] {
  return entry ? [[name, entry]] : [];
}

type Names = { readonly modelId: string; readonly aliasFor?: string; readonly aliases?: string[] };

/** The prices of a model for an account with this list. */
function pricesFor(prices: PriceBook, { id }: ModelEntry, priceListId?: string) {
  const price = prices.priceOf(id, {}, priceListId);
  const publicPrice = prices.priceOf(id);
  return {
    ...(price && { price }),
    ...(publicPrice && publicPrice !== price && { publicPrice }),
    conditional: prices
      .conditional(id, priceListId)
      .map(({ facts, price: one }) => ({ ...withoutAbsent(facts), price: one })),
  };
}

function withoutAbsent({ speed = "", geo = "", tier = "" }: PriceFacts) {
  return { speed, geo, tier };
}

function toModel(model: ModelEntry, names: Names, prices: ReturnType<typeof pricesFor>): Model {
  return create(ModelSchema, {
    ...names,
    displayName: names.aliasFor === undefined ? model.displayName : `${model.displayName} (alias)`,
    tier: model.tier ?? "",
    createdAt: timestampFromDate(new Date(model.createdAt)),
    contextTokens: model.contextTokens,
    maxOutputTokens: model.maxOutputTokens,
    ...prices,
  });
}

/**
 * The catalogue's spelling of a name that a client wrote in the spelling of a vendor or a router:
 * `claude-haiku-4-5-20251001` and `us.anthropic.claude-haiku-4-5-20251001-v1:0` become
 * `model-haiku-4.5`.
 */
function canonicalName(name: string): string {
  return name
    .toLowerCase()
    .replace(/^.*[/.](?=claude-)|^(anthropic|vendor)\//, "")
    .replace(/\[\w+\]$|[:@][\w.-]*$/, "")
    .replace(/^claude-/, "model-")
    .replace(/-v\d+$/, "")
    .replace(/-(\d{8}|latest)$/, "")
    .replace(/(\d)-(\d+)$/, "$1.$2");
}

const tiers = ["opus", "sonnet", "haiku"] as const;

/**
 * The tier in a vendor's name of an unknown model, or in a tier's name with a version. Undefined
 * for every other name.
 */
function tierOf(name: string): (typeof tiers)[number] | undefined {
  const lower = name.toLowerCase();
  const isVendors = lower.includes("claude") || /^(opus|sonnet|haiku)-\d[\d.-]*$/.test(lower);
  return isVendors ? tiers.find((tier) => lower.includes(tier)) : undefined;
}
