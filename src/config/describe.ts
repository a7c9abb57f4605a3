// The text of `check-config`: the models with their prices and routes, and the providers.

import { decimal } from "../base/money.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type {
  CatalogFile,
  ModelEntry,
  OnchainSettings,
  PaymentSettings,
  PeopleSettings,
  ProcessorSettings,
  ProviderSettings,
  SignUp,
  SimulatedSettings,
} from "./catalog.ts";
import { btc } from "./coins.ts";
import { findLosses, type Loss } from "./cost.ts";
import { assetsOf } from "./onchain.ts";
import {
  combinationsOf,
  levelsOf,
  noteOf,
  offeredBy,
  type PriceTerms,
  searchPriceOf,
} from "./terms.ts";

/** Describes a configuration file to an operator. The last line has no line feed. */
export function describeCatalog(file: CatalogFile): string {
  const aliasesOf = (id: string) =>
    Object.keys(file.aliases).filter((alias) => file.aliases[alias] === id);
  const features = Object.entries(file.features).flatMap(([name, isOn]) => (isOn ? [name] : []));
  const source = (name: CatalogFile["builtIn"][number]) =>
    file.builtIn.includes(name) ? " (the built-in ones: the file has none)" : "";
  return [
    `models${source("models")}, with prices in micro-credits per token and search (1 credit = 0.005 USD)`,
    ...describePrices(file.models, aliasesOf),
    ...describeConditions(file.models),
    "",
    "routes, in the order in which they are tried",
    ...file.models.flatMap(describeRoutes),
    "",
    `providers${source("providers")}`,
    ...Object.entries(file.providers).map(
      ([name, settings]) => `  ${name}: ${describeProvider(settings)}`,
    ),
    "",
    ...describePeople(file.people),
    "",
    `webhooks of alerts at private addresses: ${file.alerts.allowHosts.join(", ") || "none"}${
      file.alerts.proxy ? `; proxy from ${file.alerts.proxy.urlEnv}` : ""
    }`,
    "",
    ...describePayments(file.payments),
    "",
    ...describeLosses(file.models),
    `native bearer: ${file.nativeBearer}; tier fallback: ${file.tierFallback ? "on" : "off"}; features: ${features.join(", ") || "none"}; hosted tools: ${file.hostedTools}`,
  ].join("\n");
}

function describePeople({ signUp, oidc }: PeopleSettings): string[] {
  return [
    `people sign up with an address: ${describeSignUp(signUp)}`,
    ...Object.entries(oidc).map(([name, one]) => {
      const secret =
        one.clientSecretEnv === undefined ? "no secret" : `secret from ${one.clientSecretEnv}`;
      const groups = one.groups.map(({ group }) => group).join(", ") || "none";
      return `  OIDC ${name}: ${one.issuer.href} as ${one.clientId}; ${secret}; sign up: ${describeSignUp(one.signUp)}; groups: ${groups}`;
    }),
  ];
}

function describeSignUp({ mode, domains, join }: SignUp): string {
  const where = mode === "domains" ? domains.join(", ") : mode;
  return join ? `${where}, into ${join.accountId} as ${join.role}` : where;
}

function describePrices(
  models: readonly ModelEntry[],
  aliasesOf: (id: string) => string[],
): string[] {
  const rows = [
    [
      "model",
      "aliases",
      "context",
      "output ≤",
      ...tokenCategories.map((category) => categoryColumns[category].replaceAll("_", " ")),
      "web search",
    ],
    ...models.map(({ id, contextTokens, maxOutputTokens, price }) => [
      id,
      aliasesOf(id).join(" ") || "-",
      ...[contextTokens, maxOutputTokens].map(String),
      ...tokenCategories.map((category) => decimal(price[category], 3, 0)),
      String(price.webSearch ?? "-"),
    ]),
  ];
  return table(rows);
}

/** Lines of columns. The first two are of words. */
function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  const align = (cell: string, column: number) =>
    column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  return rows.map((row) => `  ${row.map(align).join("  ")}`);
}

/** The prices under every combination of conditions, of the models that have some. */
function describeConditions(models: readonly ModelEntry[]): string[] {
  const rows = models.flatMap(({ id, price }) =>
    combinationsOf(offeredBy(price)).flatMap((facts) =>
      levelsOf(price, facts).flatMap(({ over, prices }) => {
        const note = noteOf(facts, over);
        const cells = tokenCategories.map((category) => decimal(prices[category], 3, 0));
        return note === "" ? [] : [[id, note, ...cells]];
      }),
    ),
  );
  if (rows.length === 0) return [];
  const names = tokenCategories.map((category) => categoryColumns[category].replaceAll("_", " "));
  return ["", "prices under conditions", ...table([["model", "conditions", ...names], ...rows])];
}

function describeRoutes({ id, routes, cost: usual }: ModelEntry): string[] {
  const lines = routes.map((group, index) => {
    const routesOfGroup = group.map(({ provider, model, weight, systemEntries, cost }) => {
      const folded = systemEntries === "fold" ? ", system entries folded" : "";
      const paid = cost === undefined ? "" : `, cost ${describeCost(cost)}`;
      return `${provider} as ${model} (weight ${weight}${folded}${paid})`;
    });
    return `  ${id} ${index + 1}. ${routesOfGroup.join(" | ")}`;
  });
  return usual === undefined ? lines : [`  ${id}: cost ${describeCost(usual)}`, ...lines];
}

/** Notes about what is sold below its cost, and what has no cost. */
function describeLosses(models: readonly ModelEntry[]): string[] {
  const uncosted = models.flatMap(({ id, routes }) =>
    routes
      .flat()
      .filter(({ paid }) => paid === undefined)
      .map(({ provider }) => `${id} has no cost at ${provider}: its margin is not known`),
  );
  const hasCosts = models.some(({ routes }) => routes.flat().some(({ paid }) => paid));
  const notes = [...findLosses(models).map(describeLoss), ...(hasCosts ? uncosted : [])];
  return notes.length === 0 ? [] : [...notes.map((one) => `note: ${one}`), ""];
}

function describeLoss({ model, provider, note, of }: Loss): string {
  const names = of.map((name) => (name === "webSearch" ? "web_search" : categoryColumns[name]));
  const where = note === "" ? "" : ` (${note})`;
  return `${model} costs more at ${provider} than its clients pay${where}: ${names.join(", ")}`;
}

/** A factor, or the prices under each combination of conditions. */
function describeCost(cost: string | PriceTerms): string {
  if (typeof cost === "string") return cost;
  const webSearch = searchPriceOf(cost);
  const cases = combinationsOf(offeredBy(cost)).flatMap((facts) =>
    levelsOf(cost, facts).map(({ over, prices }) => {
      const note = noteOf(facts, over);
      const usd = tokenCategories.map(
        (category) => `${categoryColumns[category]} ${decimal(prices[category], 6, 2)}`,
      );
      return (note === "" ? usd : [`(${note})`, ...usd]).join(" ");
    }),
  );
  return [...cases, ...(webSearch > 0n ? [`web_search ${decimal(webSearch, 9, 2)}`] : [])].join(
    "; ",
  );
}

function describeProvider(settings: ProviderSettings): string {
  const load = `${settings.concurrency} at once, ${settings.queue} waiting up to ${settings.queueMs} ms`;
  if (settings.kind === "simulated") {
    const timing = `first token after ${settings.firstTokenMs} ms, then ${settings.tokenMs} ms each`;
    return `simulated; ${timing}; directives ${settings.directives ? "obeyed" : "ignored"}; ${load}`;
  }
  const {
    kind,
    dialect,
    baseUrl,
    credentialEnv,
    credentialHeader,
    headers,
    connectMs,
    firstByteMs,
    idleMs,
    totalMs,
  } = settings;
  const credential =
    credentialEnv === undefined
      ? describeCloudCredential(settings)
      : `credential from ${credentialEnv} in ${credentialHeader}`;
  const extra = [
    ...(Object.keys(headers).length === 0 ? [] : [`headers ${Object.keys(headers).join(", ")}`]),
    ...describeWay(settings),
  ]
    .map((one) => `; ${one}`)
    .join("");
  const limits = `connect ${connectMs} ms, first byte ${firstByteMs} ms, idle ${idleMs} ms, total ${totalMs} ms`;
  const what = `${kind} (${describeApi(settings)}dialect: ${dialect})`;
  return `${what} at ${baseUrl}; ${credential}${extra}; ${limits}; ${load}`;
}

function describeApi(settings: Exclude<ProviderSettings, SimulatedSettings>): string {
  switch (settings.kind) {
    case "bedrock":
      return settings.api === "invoke"
        ? "api: invoke, "
        : `api: messages at ${settings.endpoint}, `;
    case "vertex":
      return `${settings.project} in ${settings.location}, `;
    case "azure":
      return `api: ${settings.api}, `;
    default:
      return settings.api === "responses" ? "api: responses, " : "";
  }
}

function describeCloudCredential(settings: Exclude<ProviderSettings, SimulatedSettings>): string {
  switch (settings.kind) {
    case "bedrock":
      return settings.assumeRole === undefined
        ? "credentials of AWS"
        : `AWS role ${settings.assumeRole}`;
    case "vertex": {
      const account = settings.impersonate === undefined ? "" : ` for ${settings.impersonate}`;
      return `credentials of Google from ${settings.credentialFile ?? "the machine"}${account}`;
    }
    case "azure":
      return "tokens of Entra";
    default:
      if (settings.auth !== undefined && settings.auth !== "key") return `auth: ${settings.auth}`;
      return settings.credentialFile === undefined
        ? "no credential"
        : `credential from ${settings.credentialFile} in ${settings.credentialHeader}`;
  }
}

/** The way to a provider, where it is not the usual one. */
function describeWay({ proxy, caFile }: Exclude<ProviderSettings, SimulatedSettings>): string[] {
  return [
    ...(proxy === "none" ? ["no proxy"] : []),
    ...(typeof proxy === "object" ? [`proxy from ${proxy.urlEnv}`] : []),
    ...(caFile === undefined ? [] : [`authorities of ${caFile} too`]),
  ];
}

function describePayments(payments: PaymentSettings | undefined): string[] {
  if (!payments)
    return ["payments: not configured; simulated while PUBLIC_URL is on localhost, else none"];
  const { packsUsd, mostUsd, seller, secondApprovalAboveUsd, processors, rates } = payments;
  const approval =
    secondApprovalAboveUsd === undefined
      ? "no second approval"
      : `second approval above ${secondApprovalAboveUsd} USD`;
  return [
    `payments: packs of ${packsUsd.join(", ")} USD; at most ${mostUsd} USD; ${approval}`,
    `  seller ${seller.id}: ${
      [seller.name, seller.address, seller.taxId]
        .filter((text) => text !== "")
        .join(", ")
        .replaceAll("\n", ", ") || "none"
    }`,
    ...processors.map(describeProcessor),
    ...Object.entries(rates ?? {}).map(
      ([coin, sources]) =>
        `  rate of ${coin}: ${sources.map(({ url, path }) => `${path} of ${url}`).join(", ")}`,
    ),
  ];
}

function describeChains({ bitcoin, evm }: OnchainSettings): string {
  const chains = (evm?.chains ?? []).map(({ name, takesEther, tokens, depth, rpcEnv }) => {
    const assets = assetsOf({ takesEther, tokens });
    const final = depth === undefined ? "when final" : `after ${depth} blocks`;
    return `${assets.join(", ")} on ${name} ${final}, node from ${rpcEnv}`;
  });
  return [
    ...(bitcoin ? [`${btc.asset} on ${bitcoin.chain}, node from ${bitcoin.rpcEnv}`] : []),
    ...chains,
  ]
    .join("; ")
    .concat("; no webhook");
}

function describeProcessor(processor: ProcessorSettings): string {
  const { name, type, webhookSecretEnv } = processor;
  const webhook =
    webhookSecretEnv === undefined
      ? "no webhook"
      : `webhook /payments/${name}/webhook, secret from ${webhookSecretEnv}`;
  if (type === "simulated") return `  ${name}: ${type} (no real money); ${webhook}`;
  if (type === "onchain") return `  ${name}: ${type}; ${describeChains(processor)}`;
  const offers =
    type === "btcpay"
      ? `store ${processor.store}; ${processor.methods.map(({ id }) => id).join(", ")}`
      : processor.coins.join(", ");
  const key = `API key from ${processor.apiKeyEnv}`;
  return `  ${name}: ${type} at ${processor.url}; ${offers}; ${key}; ${webhook}`;
}
