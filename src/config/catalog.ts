// The configuration file of models, prices, routes and providers (`CONFIG`). `default-catalog.yaml`
// is the built-in one and documents every member. One problem rejects the file; all problems are
// reported at once.

import { readFileSync } from "node:fs";
import * as v from "valibot";
import { parseDocument } from "yaml";
import { completeModels, type ModelEntry, modelIdForm, modelIdRule, modelsBy } from "./models.ts";
import { findMissingSecrets, payments } from "./payments.ts";
import { findMissingForPeople, people } from "./people.ts";
import { findMissingCredentials, problemIn, provider, proxyUrl, readProxy } from "./providers.ts";
import {
  anyList,
  checked,
  choice,
  flag,
  isMapping,
  named,
  placeOf,
  section,
  suggest,
  text,
} from "./schema.ts";
import { multipliers } from "./terms.ts";

export { readAccountKey } from "./account-key.ts";
export { chainKeysOf, checkCell } from "./cell.ts";
export { btc, type Coin, coins, eth } from "./coins.ts";
export { costVersionOf, findLosses } from "./cost.ts";
export { type Dialect, type DialectName, dialectOf, type IdForm } from "./dialects.ts";
export type { ModelEntry, Route } from "./models.ts";
export { type BitcoinSettings, type EvmChain, type OnchainSettings, rpcOf } from "./onchain.ts";
export {
  coinsOf,
  type PaymentSettings,
  type RateSource,
  type RateSources,
  type Seller,
  simulatedPayments,
} from "./payments.ts";
export { closedPeople, type OidcSettings, type PeopleSettings, type SignUp } from "./people.ts";
export { nanoPerToken } from "./price.ts";
export {
  apiKeyOf,
  type BtcpayMethod,
  type BtcpaySettings,
  type NowpaymentsSettings,
  nowpaymentsCoins,
  type ProcessorSettings,
  webhookSecretOf,
} from "./processors.ts";
export {
  type AzureSettings,
  type BedrockSettings,
  findMissingCredentials,
  type HttpProviderSettings,
  type HttpSettings,
  type ProviderFeatures,
  type ProviderSettings,
  readProxy,
  type SimulatedSettings,
  type VertexSettings,
} from "./providers.ts";
export {
  combinationsOf,
  isSameFacts,
  levelsOf,
  noteOf,
  type Offered,
  offeredBy,
  type PriceEntry,
  type PriceFacts,
  type PriceTerms,
  pricedFacts,
  problemOfStep,
  readTerms,
  searchPriceOf,
  writeTerms,
} from "./terms.ts";

const host = v.pipe(
  checked((name) =>
    URL.parse(`https://${name}/`)?.hostname.replace(/^\[|\]$/g, "") === name.toLowerCase()
      ? undefined
      : `must be a host name such as hooks.internal, not ${name}`,
  ),
  v.toLowerCase(),
);

const alerts = section({
  /** Hosts of webhooks that may have private addresses, in small letters. */
  allow_hosts: v.optional(anyList(host), []),
  /** The proxy that connects webhooks to their addresses. Absent: they connect directly. */
  proxy: v.exactOptional(proxyUrl),
});

export type AlertsConfig = v.InferOutput<typeof alerts>;

/** Webhooks reach public addresses only. */
export const publicAlerts = v.parse(alerts, {});

const alias = checked((name) => (modelIdForm.test(name) ? undefined : `the alias ${modelIdRule}`));

/** The whole file. `factors`: its `price_multipliers`, or undefined where they are wrong. */
const fileWith = (factors: Parameters<typeof modelsBy>[0]) =>
  section({
    /** When native endpoints accept the key as `authorization: Bearer`. */
    native_bearer: v.optional(choice(["auto", "always", "never"]), "auto"),
    /** Let an unknown version of a known tier mean the current model of that tier. */
    tier_fallback: v.optional(flag, "true"),
    /** Features with costs beyond tokens that the operator has enabled. */
    features: v.optional(
      section({
        server_tools: v.optional(flag, "false"),
      }),
      {},
    ),
    /** The fate of tools of a Responses request that its provider may not run itself. */
    hosted_tools: v.optional(choice(["leave_out", "refuse"]), "leave_out"),
    price_multipliers: v.optional(multipliers, {}),
    /** By name. */
    providers: v.pipe(
      named(provider),
      v.check((all) => Object.keys(all).length > 0, "must name at least one provider"),
    ),
    /** In catalogue order. */
    models: modelsBy(factors),
    /** Alias → model id. */
    aliases: v.optional(named(text, alias), {}),
    /** The people who may sign up, and companies at which people sign in. */
    people: v.optional(people, {}),
    /** Where alerts may be posted. */
    alerts: v.optional(alerts, {}),
    /** The goods that can be bought. Absent: the file does not say. */
    payments: v.exactOptional(payments),
  });

type FileSettings = v.InferOutput<ReturnType<typeof fileWith>>;

export type CatalogFile = Omit<FileSettings, "models"> & {
  readonly models: ModelEntry[];
  /** The sections that the file leaves out, so that the built-in ones are used. */
  readonly builtIn: readonly BuiltIn[];
};

/** The text of the built-in file. */
export function defaultCatalog(): string {
  return readFileSync(new URL("./default-catalog.yaml", import.meta.url), "utf8");
}

/** Reads a configuration file. Throws one Error that lists its problems, one a line. */
export function readCatalogFile(text: string): CatalogFile {
  const { file, problems } = parseYaml(text);
  if (problems.length === 0) {
    const builtIn = addBuiltIn(file);
    const broken = builtIn.join() === "models" ? [modelsAlone] : findBrokenReferences(file);
    const factors = isMapping(file)
      ? v.safeParse(multipliers, file.price_multipliers ?? {})
      : undefined;
    // A price that is inherited from nowhere has its message there, and none here.
    const schema = fileWith(factors?.success ? factors.output : undefined);
    const { success, output, issues } = v.safeParse(schema, file);
    if (success && broken.length === 0) {
      const { models, ...settings } = output;
      const complete = completeModels(models, broken);
      broken.push(...findWrongNames(complete, settings.providers));
      if (broken.length === 0) return { ...settings, models: complete, builtIn };
    }
    problems.push(...(issues ?? []).map((one) => `${placeOf(one)}: ${one.message}`), ...broken);
  }
  const more = problems.length - problemsMax;
  if (more > 0) problems.splice(problemsMax, more, `and ${more} more problems`);
  throw new Error(`configuration file:\n  ${problems.join("\n  ")}`);
}

/** More are counted, and not listed. */
const problemsMax = 200;

/** The values of a text in YAML. */
function parseYaml(text: string): { file: unknown; problems: string[] } {
  try {
    // The failsafe schema leaves every scalar as its text, so a price is never a binary fraction.
    const document = parseDocument(text, { schema: "failsafe", stringKeys: true });
    const problems = document.errors.map(({ message }) => message.split("\n")[0] ?? message);
    return { file: problems.length > 0 ? undefined : document.toJS(), problems };
  } catch (error) {
    // An alias that repeats itself a million times.
    return { file: undefined, problems: [error instanceof Error ? error.message : `${error}`] };
  }
}

const builtInSections = ["models", "providers"] as const;
type BuiltIn = (typeof builtInSections)[number];

/** Adds the built-in sections that a file leaves out, with what belongs to them. */
function addBuiltIn(file: unknown): BuiltIn[] {
  if (!isMapping(file)) return [];
  const builtIn = builtInSections.filter((name) => file[name] === undefined);
  if (builtIn.length === 0) return [];
  const { file: usual } = parseYaml(defaultCatalog());
  const names = ["price_multipliers", "aliases"].filter(() => file.models === undefined);
  for (const name of [...builtIn, ...names])
    if (isMapping(usual) && file[name] === undefined) file[name] = usual[name];
  return builtIn;
}

const modelsAlone =
  "models: is required with providers, because the built-in models have the built-in provider";

const name = v.fallback(v.string(), "");
const noPrice = { inherit: "", per: {} };
const features = v.object({ server_tools: name });
const noModel = { id: "", price: noPrice, routes: [] };
/** The names in a file, whatever else is wrong with it. */
const names = v.object({
  features: v.fallback(features, { server_tools: "" }),
  models: v.fallback(
    v.array(
      v.fallback(
        v.object({
          id: name,
          price: v.fallback(
            v.object({
              inherit: name,
              per: v.fallback(v.object({ web_search: v.optional(v.unknown()) }), {}),
            }),
            noPrice,
          ),
          routes: v.fallback(
            v.array(
              v.fallback(v.array(v.fallback(v.object({ provider: name }), { provider: "" })), []),
            ),
            [],
          ),
        }),
        noModel,
      ),
    ),
    [],
  ),
  aliases: v.fallback(v.record(v.string(), name), {}),
  providers: v.fallback(v.record(v.string(), v.unknown()), {}),
});

/** A problem for each name that another place of the file lacks. */
function findBrokenReferences(file: unknown): string[] {
  const { success, output } = v.safeParse(names, file);
  if (!success) return [];
  const { features, models, aliases, providers } = output;
  const problems: string[] = [];
  const ids = models.map(({ id }) => id);
  const providerNames = Object.keys(providers);
  for (const [index, { id, price, routes }] of models.entries()) {
    const hasSearches = price.per.web_search !== undefined || price.inherit !== "";
    if (features.server_tools === "true" && !hasSearches)
      problems.push(
        `features.server_tools: needs a price of web searches: per.web_search of ${id}`,
      );
    for (const { provider } of routes.flat())
      if (provider !== "" && !providerNames.includes(provider))
        problems.push(
          `models[${index}].routes: there is no provider ${provider}${suggest(provider, providerNames)}`,
        );
    const problem = findWrongSource(price.inherit, models, ids);
    if (problem) problems.push(`models[${index}].price.inherit: ${problem}`);
  }
  for (const [alias, id] of Object.entries(aliases)) {
    if (ids.includes(alias)) problems.push(`aliases.${alias}: there is a model with this id`);
    if (id !== "" && !ids.includes(id))
      problems.push(`aliases.${alias}: there is no model ${id}${suggest(id, ids)}`);
  }
  return problems;
}

/** The problem of the model that gives its price, if there is one. */
function findWrongSource(
  name: string,
  models: v.InferOutput<typeof names>["models"],
  ids: readonly string[],
): string | undefined {
  if (name === "") return undefined;
  const from = models.find(({ id }) => id === name);
  if (from === undefined) return `there is no model ${name}${suggest(name, ids)}`;
  // One step only: the named model states its own price.
  return from.price.inherit === ""
    ? undefined
    : `${name} inherits its own price; name the model that states it`;
}

/** A problem for each model whose name at Vertex would be a path. */
function findWrongNames(
  models: readonly ModelEntry[],
  providers: FileSettings["providers"],
): string[] {
  return models.flatMap(({ routes }, index) =>
    routes
      .flat()
      .filter(
        ({ provider, model }) =>
          providers[provider]?.kind === "vertex" && !/^[A-Za-z0-9._~@:-]+$/.test(model),
      )
      .map(
        ({ provider, model }) =>
          `models[${index}].routes: ${provider} has models such as claude-opus-4-6, not ${model}`,
      ),
  );
}

/**
 * A problem for each secret and setting that the file needs and the environment lacks. A process of
 * the role `facade` serves no people and takes no payments.
 */
export function findMissing(
  { providers, people, payments, alerts }: CatalogFile,
  env: NodeJS.ProcessEnv,
): string[] {
  const isFacade = env.ROLE?.trim() === "facade";
  return [
    ...findMissingCredentials(providers, env),
    ...findMissingForAlerts(alerts, env),
    ...(isFacade ? [] : findMissingForPeople(people, env)),
    ...(isFacade ? [] : findMissingSecrets(payments, env)),
  ];
}

/** A problem if the environment lacks the proxy of webhooks. */
function findMissingForAlerts({ proxy }: AlertsConfig, env: NodeJS.ProcessEnv): string[] {
  return proxy ? problemIn(() => readProxy(proxy, env), "alerts.proxy.url_env") : [];
}
