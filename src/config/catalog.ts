// The configuration file of models, prices, routes and providers (`CONFIG`). `default-catalog.yaml`
// is the built-in one and documents every member. One problem rejects the file; all problems are
// reported at once.

import { readFileSync } from "node:fs";
import { parseDocument } from "yaml";
import { microCreditsPerMicroDollar } from "../base/money.ts";
import { nearestName } from "../base/nearest-name.ts";
import {
  basePriceOf,
  byCategory,
  categoryColumns,
  type TokenCategory,
  tokenCategories,
} from "../base/token-categories.ts";
import { type AlertsConfig, readAlerts } from "./alerts.ts";
import { findMissingSecrets, type PaymentSettings, readPayments } from "./payments.ts";
import { findMissingForPeople, type PeopleSettings, readPeople } from "./people.ts";
import { findMissingCredentials, type ProviderSettings, readProvider } from "./providers.ts";
import { Section } from "./section.ts";

export { readAccountKey } from "./account-key.ts";
export { type AlertsConfig, publicAlerts } from "./alerts.ts";
export { btc, type Coin, coins, eth } from "./coins.ts";
export { type Dialect, type DialectName, dialectOf, type IdForm } from "./dialects.ts";
export {
  type BitcoinSettings,
  type EvmChain,
  type OnchainSettings,
  rpcOf,
} from "./onchain.ts";
export { type PaymentSettings, type Seller, simulatedPayments } from "./payments.ts";
export type { OidcSettings, PeopleSettings, SignUp } from "./people.ts";
export { closedPeople } from "./people.ts";
export {
  apiKeyOf,
  type BtcpayMethod,
  type BtcpaySettings,
  type NowpaymentsSettings,
  nowpaymentsCoins,
  type ProcessorSettings,
  webhookSecretOf,
} from "./processors.ts";
export type { HttpProviderSettings, ProviderSettings, SimulatedSettings } from "./providers.ts";
export { findMissingCredentials } from "./providers.ts";

export type { RateSource, RateSources } from "./rates.ts";

export type CatalogFile = {
  /** When native endpoints accept the key as `authorization: Bearer`. */
  nativeBearer: "auto" | "always" | "never";
  /** Let an unknown version of a known tier mean the current model of that tier. */
  tierFallback: boolean;
  /** Features with costs beyond tokens that the operator has enabled. */
  features: { serverTools: boolean; fastSpeed: boolean; inferenceGeo: boolean };
  /** The fate of tools of a Responses request that its provider may not run itself. */
  hostedTools: "leave_out" | "refuse";
  /** In catalogue order. */
  models: ModelEntry[];
  /** Alias → model id. */
  aliases: Record<string, string>;
  /** By name. */
  providers: Record<string, ProviderSettings>;
  /** Who may sign up, and companies at which people sign in. */
  people: PeopleSettings;
  /** Where alerts may be posted. */
  alerts: AlertsConfig;
  /** What can be bought. Absent: the file does not say. */
  payments?: PaymentSettings;
};

export type ModelEntry = {
  id: string;
  displayName: string;
  tier: "opus" | "sonnet" | "haiku";
  /** RFC 3339. */
  createdAt: string;
  contextTokens: number;
  maxOutputTokens: number;
  /** How a request controls thinking: by effort, by a number of tokens, or not at all. */
  thinking: "adaptive" | "budget" | "none";
  /** Whether a provider that reports 0 input tokens for an answer means it, or did not count. */
  zeroUsage: "reported" | "missing";
  price: ModelPrice;
  /** Groups in the order in which they are tried. */
  routes: Route[][];
};

/** Micro-credits (1e-6 credit; 1 credit = 0.005 USD) per token, by category. */
type ModelPrice = Readonly<Record<TokenCategory, bigint>> & {
  /** Micro-credits of a web search. Absent: the file does not say. */
  readonly webSearch?: bigint;
};

/** One route to a model. */
export type Route = {
  /** Name in `providers`. */
  provider: string;
  /** Name of the model at that provider. */
  model: string;
  /** Share of the group's conversations, relative to the other weights. */
  weight: number;
  /**
   * How `system` entries within a conversation are sent: as they are, or folded into the user
   * message before them.
   */
  systemEntries: "forward" | "fold";
};

/** The text of the built-in file. */
export function defaultCatalog(): string {
  return readFileSync(new URL("./default-catalog.yaml", import.meta.url), "utf8");
}

/** Reads a configuration file. Throws one Error that lists every problem, one a line. */
export function readCatalogFile(text: string): CatalogFile {
  // The failsafe schema leaves every scalar as its text, so a price is never a binary fraction.
  const document = parseDocument(text, { schema: "failsafe", prettyErrors: true });
  const problems = document.errors.map((error) => error.message.split("\n")[0] ?? error.message);
  if (problems.length === 0) {
    const file = readFile(new Section(document.toJS({ mapAsMap: true }), "", problems));
    problems.push(...findBrokenReferences(file));
    if (problems.length === 0) return file;
  }
  throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
}

/**
 * A problem for each secret and setting that the file needs and the environment lacks. A process of
 * the role `facade` serves no people and takes no payments.
 */
export function findMissing(
  { providers, people, payments }: CatalogFile,
  env: NodeJS.ProcessEnv,
): string[] {
  const isFacade = env.ROLE?.trim() === "facade";
  return [
    ...findMissingCredentials(providers, env),
    ...(isFacade ? [] : findMissingForPeople(people, env)),
    ...(isFacade ? [] : findMissingSecrets(payments, env)),
  ];
}

function readFile(top: Section): CatalogFile {
  const features = top.optionalSection("features");
  const multipliers = top.optionalSection("price_multipliers");
  const payments = top.optionalSection("payments");
  const file: CatalogFile = {
    nativeBearer: top.choice("native_bearer", ["auto", "always", "never"], "auto"),
    tierFallback: top.flag("tier_fallback", true),
    features: {
      serverTools: features?.flag("server_tools", false) ?? false,
      fastSpeed: features?.flag("fast_speed", false) ?? false,
      inferenceGeo: features?.flag("inference_geo", false) ?? false,
    },
    hostedTools: top.choice("hosted_tools", ["leave_out", "refuse"], "leave_out"),
    providers: readProviders(top.section("providers")),
    models: readModels(
      top.sections("models"),
      multipliers === undefined ? {} : readMultipliers(multipliers),
    ),
    aliases: readAliases(top.optionalSection("aliases")),
    people: readPeople(top.optionalSection("people")),
    alerts: readAlerts(top.optionalSection("alerts")),
    ...(payments && { payments: readPayments(payments) }),
  };
  for (const { id, price } of file.models)
    if (file.features.serverTools && price.webSearch === undefined)
      features?.problem("server_tools", `needs a price of web searches: per.web_search of ${id}`);
  features?.rejectUnknown();
  top.rejectUnknown();
  return file;
}

function readProviders(section: Section): Record<string, ProviderSettings> {
  const providers: Record<string, ProviderSettings> = Object.create(null);
  for (const name of section.names()) providers[name] = readProvider(section.section(name));
  if (section.names().length === 0) section.problem(undefined, "must name at least one provider");
  return providers;
}

function readModels(sections: Section[], multipliers: PriceMultipliers): ModelEntry[] {
  const drafts = sections.map((section) => {
    const model = readModel(section);
    const priceSection = section.section("price");
    const price = readPrice(priceSection, multipliers);
    section.rejectUnknown();
    return { model, price, priceSection };
  });
  return drafts.map(({ model, price, priceSection }) => {
    if (!("inherit" in price)) return { ...model, price };
    const { inherit } = price;
    const inherited = drafts.find((draft) => draft.model.id === inherit)?.price;
    if (inherited !== undefined && !("inherit" in inherited)) return { ...model, price: inherited };
    // One step only: the named model states its own price.
    priceSection.problem(
      "inherit",
      inherited === undefined
        ? `there is no model ${inherit}`
        : `${inherit} inherits its own price; name the model that states it`,
    );
    return { ...model, price: byCategory(() => 0n) };
  });
}

function readModel(section: Section): Omit<ModelEntry, "price"> {
  const id = section.text("id");
  if (id !== "" && !modelIdForm.test(id)) section.problem("id", `${modelIdRule}, not ${id}`);
  return {
    id,
    displayName: section.text("display_name", id),
    tier: section.choice("tier", ["opus", "sonnet", "haiku"]),
    createdAt: readInstant(section, "created_at"),
    contextTokens: section.integer("context_tokens", { min: 1024, max: 100_000_000 }),
    maxOutputTokens: section.integer("max_output_tokens", { min: 1, max: 10_000_000 }),
    thinking: section.choice("thinking", ["adaptive", "budget", "none"]),
    zeroUsage: section.choice("zero_usage", ["reported", "missing"], "reported"),
    routes: section.groups("routes").map((group) => group.map((route) => readRoute(route, id))),
  };
}

const modelIdForm = /^[A-Za-z0-9][A-Za-z0-9._\-/:]{0,127}$/;
const modelIdRule =
  "must be 1 to 128 letters, digits and . _ - / : and begin with a letter or digit";

function readRoute(section: Section, modelId: string): Route {
  const route: Route = {
    provider: section.text("provider"),
    model: section.text("model", modelId),
    weight: section.integer("weight", { min: 1, max: 1_000_000, fallback: 1 }),
    systemEntries: section.choice("system_entries", ["forward", "fold"], "forward"),
  };
  section.rejectUnknown();
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
    if (!modelIdForm.test(name)) section?.problem(name, `the alias ${modelIdRule}`);
    aliases[name] = section?.text(name) ?? "";
  }
  return aliases;
}

/** Names in routes and aliases that do not exist, and names that are used twice. */
function findBrokenReferences({ models, aliases, providers }: CatalogFile): string[] {
  const problems: string[] = [];
  const ids = new Set<string>();
  const suggest = (name: string, names: readonly string[]) => {
    const nearest = nearestName(name, names);
    return nearest === undefined ? "" : `; did you mean ${nearest}?`;
  };
  for (const [index, model] of models.entries()) {
    if (ids.has(model.id)) problems.push(`models[${index}].id: there are two models ${model.id}`);
    ids.add(model.id);
    for (const { provider } of model.routes.flat()) {
      if (provider === "" || provider in providers) continue;
      const suggestion = suggest(provider, Object.keys(providers));
      problems.push(`models[${index}].routes: there is no provider ${provider}${suggestion}`);
    }
  }
  for (const [alias, id] of Object.entries(aliases)) {
    if (ids.has(alias)) problems.push(`aliases.${alias}: there is a model with this id`);
    if (id !== "" && !ids.has(id))
      problems.push(`aliases.${alias}: there is no model ${id}${suggest(id, [...ids])}`);
  }
  return problems;
}

// Categories whose price may be derived as a multiple of another price.
type DerivedCategory = keyof typeof basePriceOf;
const derivedCategories = tokenCategories.filter(
  (category): category is DerivedCategory => category in basePriceOf,
);

/** Decimal multipliers of the derived categories. A model states each price that has none. */
type PriceMultipliers = Partial<Record<DerivedCategory, string>>;

function readMultipliers(section: Section): PriceMultipliers {
  const multipliers: PriceMultipliers = {};
  for (const category of derivedCategories) {
    const key = categoryColumns[category];
    if (section.has(key)) multipliers[category] = section.text(key);
  }
  section.rejectUnknown();
  return multipliers;
}

// The price of a model, or the id of the model whose price it inherits.
function readPrice(
  section: Section,
  multipliers: PriceMultipliers,
): ModelPrice | { inherit: string } {
  if (section.has("inherit")) {
    const inherit = section.text("inherit");
    section.rejectUnknown();
    return { inherit };
  }
  const usd = { input: section.text("input"), output: section.text("output") };
  const priceOf = (key: string, dollars: string, multiplier: string, min: bigint): bigint => {
    const price = dollars === "" || multiplier === "" ? min : microPerToken(dollars, multiplier);
    if (typeof price === "bigint" && price >= min) return price;
    section.problem(key, typeof price === "string" ? price : "must be more than 0");
    return min;
  };
  const price = {
    ...byCategory(() => 0n),
    input: priceOf("input", usd.input, "1", 1n),
    output: priceOf("output", usd.output, "1", 1n),
  };
  for (const category of derivedCategories) {
    const key = categoryColumns[category];
    const multiplier = multipliers[category];
    if (section.has(key)) price[category] = priceOf(key, section.text(key), "1", 0n);
    else if (multiplier !== undefined)
      price[category] = priceOf(key, usd[basePriceOf[category]], multiplier, 0n);
    else section.problem(key, "is required, because price_multipliers does not state it either");
  }
  const webSearch = readWebSearch(section.optionalSection("per"));
  section.rejectUnknown();
  return { ...price, ...(webSearch !== undefined && { webSearch }) };
}

/** Micro-credits of a web search, of which the file states the price of 1,000 in US dollars. */
function readWebSearch(per: Section | undefined): bigint | undefined {
  if (!per?.has("web_search")) {
    per?.rejectUnknown();
    return undefined;
  }
  const price = microPerSearch(per.text("web_search"));
  per.rejectUnknown();
  if (typeof price === "bigint") return price;
  per.problem("web_search", price);
  return undefined;
}

// Times 2^32 tokens, the largest possible count, this still fits the ledger's 64-bit amounts.
const priceMax = 1_000_000_000n;

/**
 * Micro-credits per token of `usdPerMillion` × `multiplier`, exactly. A string is the message of a
 * problem.
 */
export function microPerToken(usdPerMillion: string, multiplier = "1"): bigint | string {
  const dollars = parseDecimal(usdPerMillion);
  const factor = parseDecimal(multiplier);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per million tokens, not ${usdPerMillion}`;
  if (factor === undefined) return `the multiplier must be a decimal number, not ${multiplier}`;
  // 1 USD per million tokens is a micro-dollar a token.
  const scaled = dollars.digits * factor.digits * microCreditsPerMicroDollar;
  const scale = 10n ** BigInt(dollars.decimals + factor.decimals);
  if (scaled % scale !== 0n) {
    const multiple = multiplier === "1" ? "" : ` × ${multiplier}`;
    return `${usdPerMillion}${multiple} USD per million tokens is not a whole number of micro-credits per token (steps of 0.005 USD)`;
  }
  const price = scaled / scale;
  return price <= priceMax
    ? price
    : `${usdPerMillion} USD per million tokens is more than can be billed`;
}

/** As `microPerToken`, of a search at US dollars per 1,000 searches. */
function microPerSearch(usdPerThousand: string): bigint | string {
  const dollars = parseDecimal(usdPerThousand);
  if (dollars === undefined)
    return `must be a decimal number of US dollars per 1,000 searches, not ${usdPerThousand}`;
  // 1 USD per 1,000 searches is 1,000 micro-dollars a search.
  const scaled = dollars.digits * 1_000n * microCreditsPerMicroDollar;
  const scale = 10n ** BigInt(dollars.decimals);
  if (scaled % scale !== 0n)
    return `${usdPerThousand} USD per 1,000 searches is not a whole number of micro-credits per search (steps of 0.000005 USD)`;
  const price = scaled / scale;
  return price <= priceMax
    ? price
    : `${usdPerThousand} USD per 1,000 searches is more than can be billed`;
}

function parseDecimal(text: string): { digits: bigint; decimals: number } | undefined {
  const match = /^(\d{1,9})(?:\.(\d{1,12}))?$/.exec(text);
  if (match === null) return undefined;
  const [, whole = "", fraction = ""] = match;
  return { digits: BigInt(whole + fraction), decimals: fraction.length };
}
