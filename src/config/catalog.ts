// The configuration file of models, prices, routes and providers (`CONFIG`), judged as a whole: one
// wrong member refuses the file, and all problems are told at once. `default-catalog.yaml` is the
// built-in one, and documents the members.

import { readFileSync } from "node:fs";
import { parseDocument } from "yaml";
import {
  basePriceOf,
  byCategory,
  categoryColumns,
  type TokenCategory,
  tokenCategories,
} from "../base/token-categories.ts";
import { type ProviderSettings, readProvider } from "./providers.ts";
import { nearestName, Section } from "./section.ts";

export type { HttpProviderSettings, ProviderSettings, SimulatedSettings } from "./providers.ts";
export { findMissingCredentials } from "./providers.ts";

export type CatalogFile = {
  /** When native endpoints take the key as `authorization: Bearer`. */
  nativeBearer: "auto" | "always" | "never";
  /** Whether an unknown version of a known tier means that tier's current model. */
  tierFallback: boolean;
  /** Cost-affecting features that the operator has priced. */
  features: { serverTools: boolean; fastSpeed: boolean; inferenceGeo: boolean };
  /** In catalogue order. */
  models: ModelEntry[];
  /** Alias → model id. */
  aliases: Record<string, string>;
  /** By name. */
  providers: Record<string, ProviderSettings>;
};

export type ModelEntry = {
  id: string;
  displayName: string;
  tier: "opus" | "sonnet" | "haiku";
  /** RFC 3339. */
  createdAt: string;
  contextTokens: number;
  maxOutputTokens: number;
  /** How the model is told to think: by effort, by a budget of tokens, or not at all. */
  thinking: "adaptive" | "budget" | "none";
  /** Micro-credits per token. */
  price: ModelPrice;
  /** Groups in the order in which they are tried. */
  routes: Route[][];
};

/** One way to a model. */
export type Route = {
  /** Name in `providers`. */
  provider: string;
  /** Name of the model at that provider. */
  model: string;
  /** Share of the group's conversations. */
  weight: number;
  /**
   * What happens to `system` entries during a conversation: sent as they are, or folded into the
   * user message before.
   */
  systemEntries: "forward" | "fold";
};

/** The text of the built-in file. */
export function defaultCatalog(): string {
  return readFileSync(new URL("./default-catalog.yaml", import.meta.url), "utf8");
}

/** Reads a configuration file. Throws one Error whose lines name all problems. */
export function readCatalogFile(text: string): CatalogFile {
  // Failsafe: every scalar stays the text it was written as, so a price is never a binary fraction.
  const document = parseDocument(text, { schema: "failsafe", prettyErrors: true });
  const problems = document.errors.map((error) => error.message.split("\n")[0] ?? error.message);
  if (problems.length === 0) {
    const file = readFile(new Section(document.toJS({ mapAsMap: true }), "", problems), problems);
    if (problems.length === 0) return file;
  }
  throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
}

function readFile(top: Section, problems: string[]): CatalogFile {
  const features = top.optionalSection("features");
  const multipliers = top.optionalSection("price_multipliers");
  const file: CatalogFile = {
    nativeBearer: top.choice("native_bearer", ["auto", "always", "never"], "auto"),
    tierFallback: top.flag("tier_fallback", true),
    features: {
      serverTools: features?.flag("server_tools", false) ?? false,
      fastSpeed: features?.flag("fast_speed", false) ?? false,
      inferenceGeo: features?.flag("inference_geo", false) ?? false,
    },
    providers: readProviders(top.section("providers")),
    models: readModels(
      top.sections("models"),
      multipliers === undefined ? {} : readMultipliers(multipliers),
      problems,
    ),
    aliases: readAliases(top.optionalSection("aliases")),
  };
  features?.end();
  top.end();
  problems.push(...findBrokenReferences(file));
  return file;
}

function readProviders(section: Section): Record<string, ProviderSettings> {
  const providers: Record<string, ProviderSettings> = Object.create(null);
  for (const name of section.names()) providers[name] = readProvider(section.section(name));
  if (section.names().length === 0) section.problem(undefined, "must name at least one provider");
  return providers;
}

function readModels(
  sections: Section[],
  multipliers: PriceMultipliers,
  problems: string[],
): ModelEntry[] {
  const drafts = sections.map((section) => {
    const id = section.text("id");
    if (id !== "" && !modelIdForm.test(id))
      section.problem("id", `may hold letters, digits and . _ - / : only, not ${id}`);
    const model = {
      id,
      displayName: section.text("display_name", id),
      tier: section.choice("tier", ["opus", "sonnet", "haiku"]),
      createdAt: readInstant(section, "created_at"),
      contextTokens: section.whole("context_tokens", { min: 1024, max: 100_000_000 }),
      maxOutputTokens: section.whole("max_output_tokens", { min: 1, max: 10_000_000 }),
      thinking: section.choice("thinking", ["adaptive", "budget", "none"]),
      routes: section.groups("routes").map((group) => group.map((route) => readRoute(route, id))),
    };
    const price = readPrice(section.section("price"), multipliers);
    section.end();
    return { model, price, path: section.path };
  });

  // One step only: a row that is inherited is stated by the model it comes from.
  return drafts.map(({ model, price, path }) => {
    if (!("inherit" in price)) return { ...model, price };
    const giver = drafts.find((draft) => draft.model.id === price.inherit)?.price;
    if (giver !== undefined && !("inherit" in giver)) return { ...model, price: giver };
    const why =
      giver === undefined ? "there is no such model" : "that model inherits its own price";
    problems.push(`${path}.price.inherit: ${price.inherit}: ${why}`);
    return {
      ...model,
      price: byCategory(() => 1n),
    };
  });
}

const modelIdForm = /^[A-Za-z0-9][A-Za-z0-9._\-/:]{0,127}$/;

function readRoute(section: Section, modelId: string): Route {
  const route: Route = {
    provider: section.text("provider"),
    model: section.text("model", modelId),
    weight: section.whole("weight", { min: 1, max: 1_000_000, otherwise: 1 }),
    systemEntries: section.choice("system_entries", ["forward", "fold"], "forward"),
  };
  section.end();
  return route;
}

function readInstant(section: Section, key: string): string {
  const text = section.text(key);
  if (text !== "" && (!instantForm.test(text) || Number.isNaN(Date.parse(text)))) {
    section.problem(key, `must be a time such as 2026-02-05T00:00:00Z, not ${text}`);
  }
  return text;
}

const instantForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

function readAliases(section: Section | undefined): Record<string, string> {
  const aliases: Record<string, string> = Object.create(null);
  for (const name of section?.names() ?? []) {
    if (!modelIdForm.test(name))
      section?.problem(name, "may hold letters, digits and . _ - / : only");
    aliases[name] = section?.text(name) ?? "";
  }
  return aliases;
}

function findBrokenReferences({ models, aliases, providers }: CatalogFile): string[] {
  const problems: string[] = [];
  const ids = new Set<string>();
  const missing = (name: string, names: readonly string[]) => {
    const nearest = nearestName(name, names);
    return nearest === undefined ? "" : `; did you mean ${nearest}?`;
  };
  for (const [index, model] of models.entries()) {
    if (ids.has(model.id)) problems.push(`models[${index}].id: ${model.id} is there twice`);
    ids.add(model.id);
    for (const { provider } of model.routes.flat()) {
      if (provider === "" || provider in providers) continue;
      problems.push(
        `models[${index}].routes: there is no provider ${provider}${missing(provider, Object.keys(providers))}`,
      );
    }
  }
  for (const [alias, id] of Object.entries(aliases)) {
    if (ids.has(alias)) problems.push(`aliases.${alias}: is the id of a model`);
    if (id !== "" && !ids.has(id))
      problems.push(`aliases.${alias}: there is no model ${id}${missing(id, [...ids])}`);
  }
  return problems;
}

// Prices of the configuration file: decimal US dollars per million tokens, turned exactly into
// micro-credits per token.

/** Micro-credits (1e-6 credit; 1 credit = 0.005 USD) per token, by category. */
export type ModelPrice = Readonly<Record<TokenCategory, bigint>>;

type DerivedCategory = keyof typeof basePriceOf;

const derived = tokenCategories.filter(
  (category): category is DerivedCategory => category in basePriceOf,
);

/**
 * Decimal multipliers of the derived categories. One that is missing must be stated by every model.
 */
export type PriceMultipliers = Partial<Record<DerivedCategory, string>>;

/** The multipliers of a file. */
export function readMultipliers(section: Section): PriceMultipliers {
  const multipliers: PriceMultipliers = {};
  for (const category of derived) {
    const key = categoryColumns[category];
    if (section.has(key)) multipliers[category] = section.text(key);
  }
  section.end();
  return multipliers;
}

/**
 * The price of a model, or the id of the model whose price it takes. Every problem is noted in the
 * section.
 */
export function readPrice(
  section: Section,
  multipliers: PriceMultipliers,
): ModelPrice | { inherit: string } {
  if (section.has("inherit")) {
    const inherit = section.text("inherit");
    section.end();
    return { inherit };
  }
  const usd = { input: section.text("input"), output: section.text("output") };
  const priceOf = (key: string, dollars: string, times: string, least: bigint): bigint => {
    const price = dollars === "" || times === "" ? least : microPerToken(dollars, times);
    if (typeof price === "bigint" && price >= least) return price;
    section.problem(key, typeof price === "string" ? price : "must be more than 0");
    return least;
  };
  const price = {
    ...byCategory(() => 0n),
    input: priceOf("input", usd.input, "1", 1n),
    output: priceOf("output", usd.output, "1", 1n),
  };
  for (const category of derived) {
    const key = categoryColumns[category];
    const times = multipliers[category];
    if (section.has(key)) price[category] = priceOf(key, section.text(key), "1", 0n);
    else if (times !== undefined)
      price[category] = priceOf(key, usd[basePriceOf[category]], times, 0n);
    else section.problem(key, "is required: neither the model states it nor price_multipliers");
  }
  section.end();
  return price;
}

// 1 USD per million tokens = 1e-6 USD a token = 2e-4 credits = 200 micro-credits.
const microPerUsdPerMillion = 200n;

// Times 2^32 tokens, the largest count there is, this still fits the ledger's 64-bit amounts.
const priceMax = 1_000_000_000n;

/** Micro-credits per token of `usdPerMillion` × `times`, exactly, or what is wrong with it. */
export function microPerToken(usdPerMillion: string, times = "1"): bigint | string {
  const dollars = parseDecimal(usdPerMillion);
  const factor = parseDecimal(times);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per million tokens, not ${usdPerMillion}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${times}`;
  const scaled = dollars.digits * factor.digits * microPerUsdPerMillion;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n) {
    const multiple = times === "1" ? "" : ` × ${times}`;
    return `${usdPerMillion}${multiple} USD per million tokens is not a whole number of micro-credits per token (steps of 0.005 USD)`;
  }
  const price = scaled / scale;
  return price <= priceMax
    ? price
    : `${usdPerMillion} USD per million tokens is more than can be billed`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const match = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text);
  if (match === null) return undefined;
  const [, whole = "", fraction = ""] = match;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}
