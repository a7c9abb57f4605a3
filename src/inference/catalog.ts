// The models that can be asked for, under which names, at which price. Made from the configuration
// file; immutable.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import { type Model, ModelSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import { priceVersion } from "../billing/billing.ts";
import type { CatalogFile, ModelEntry } from "../config/catalog.ts";

/** A model that a name stood for. */
export type Resolved = {
  readonly model: ModelEntry;
  readonly price: Price;
  /** False for a name that only told the tier. */
  readonly exact: boolean;
};

export type Catalog = {
  readonly features: CatalogFile["features"];
  /** Undefined for an unknown name. */
  find(name: string): Resolved | undefined;
  /**
   * As `find`; throws `model_not_found`, naming what `allowed` (empty: all) leaves to choose from.
   */
  resolve(name: string, allowed: readonly string[]): Resolved;
  /** Models, then aliases, of those that `allowed` names; empty: all. */
  list(allowed: readonly string[]): Model[];
  /**
   * The entry of that list which `name` stands for. Throws as `resolve`, also for a model that
   * `allowed` leaves out.
   */
  describe(name: string, allowed: readonly string[]): Model;
  priceOf(model: string): Price | undefined;
};

export function createCatalog(file: CatalogFile): Catalog {
  const resolved = new Map(
    file.models.map(
      (model) =>
        [model.id, { model, price: priceVersion(model.id, model.price), exact: true }] as const,
    ),
  );
  const aliases = Object.entries(file.aliases);
  const byName = new Map([
    ...resolved,
    ...aliases.flatMap(([alias, id]) => entryOf(alias, resolved.get(id))),
  ]);
  // The tier's alias says which model is its current one; without an alias, the first of the tier.
  const current = (tier: string) =>
    byName.get(tier) ?? [...resolved.values()].find(({ model }) => model.tier === tier);

  const find = (name: string): Resolved | undefined => {
    const known = byName.get(name) ?? byName.get(canonicalName(name));
    if (known) return known;
    const tier = file.tierFallback ? tierOf(name) : undefined;
    const fallback = tier && current(tier);
    return fallback && { ...fallback, exact: false };
  };
  const list = (allowed: readonly string[]): Model[] => {
    const usable = [...resolved.values()].filter(
      ({ model }) => allowed.length === 0 || allowed.includes(model.id),
    );
    const aliasesOf = (id: string) =>
      aliases.flatMap(([alias, target]) => (target === id ? [alias] : []));
    return [
      ...usable.map((entry) =>
        toModel(entry, { id: entry.model.id, aliases: aliasesOf(entry.model.id) }),
      ),
      ...aliases.flatMap(([alias, id]) => {
        const target = usable.find(({ model }) => model.id === id);
        return target ? [toModel(target, { id: alias, aliasFor: id })] : [];
      }),
    ];
  };
  return {
    features: file.features,
    find,
    list,
    resolve(name, allowed) {
      const found = find(name);
      if (found) return found;
      throw notFound(name, list(allowed));
    },
    describe(name, allowed) {
      const models = list(allowed);
      const found =
        models.find(({ id }) => id === name) ??
        models.find(({ id }) => id === find(name)?.model.id);
      if (found) return found;
      throw notFound(name, models);
    },
    priceOf: (model) => resolved.get(model)?.price,
  };
}

function notFound(name: string, models: readonly Model[]): ApiError {
  const valid = models.map(({ id }) => id);
  // A name can be as long as a body: what is echoed is not.
  const message = `model: ${name.slice(0, 100)} is not one of ${valid.join(", ")}`;
  return new ApiError("model_not_found", { field: "model", allowed: valid, message });
}

function entryOf(name: string, entry: Resolved | undefined): (readonly [string, Resolved])[] {
  return entry ? [[name, entry]] : [];
}

function toModel(
  { model, price }: Resolved,
  names: { id: string; aliasFor?: string; aliases?: string[] },
): Model {
  return create(ModelSchema, {
    ...names,
    displayName: names.aliasFor === undefined ? model.displayName : `${model.displayName} (alias)`,
    tier: model.tier,
    createdAt: timestampFromDate(new Date(model.createdAt)),
    contextTokens: model.contextTokens,
    maxOutputTokens: model.maxOutputTokens,
    price,
  });
}

// The ways in which clients write a model's name. Pure.

/**
 * What a name may be rewritten to before it is looked up: `claude-haiku-4-5-20251001` is read as
 * `model-haiku-4.5`.
 */
export function canonicalName(name: string): string {
  return name
    .toLowerCase()
    .replace(/\[1m\]$/, "")
    .replace(/^(anthropic|vendor)\//, "")
    .replace(/^claude-/, "model-")
    .replace(/(-\d{8}|@\d{8}|-latest)$/, "")
    .replace(/(\d)-(\d+)$/, "$1.$2");
}

const tiers = ["opus", "sonnet", "haiku"] as const;

/**
 * The tier that a vendor's name for an unknown version speaks of. Undefined for every other name.
 */
export function tierOf(name: string): (typeof tiers)[number] | undefined {
  const lower = name.toLowerCase();
  return lower.includes("claude") ? tiers.find((tier) => lower.includes(tier)) : undefined;
}
