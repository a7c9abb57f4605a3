// Configuration files for tests.

import { defaultCatalog } from "../../src/config/catalog.ts";

/** A provider of `catalogFor`. `more` holds further settings in YAML flow style: `idle_ms: 100`. */
type CatalogProvider = {
  readonly kind: "anthropic" | "openai";
  readonly url: string;
  readonly more?: string;
};

/**
 * The text of a configuration file: the three models of the product, served by these providers.
 * Without `routes`, every model tries the providers in the given order, each in a group of its own,
 * under the model name `provider-model`. A simulated provider answers without pauses. With
 * `searches`, US dollars per 1,000, the tools that providers run are offered.
 */
export function catalogFor(
  providers: Readonly<Record<string, CatalogProvider | "simulated">>,
  routes?: string,
  more: { readonly searches?: string } = {},
): string {
  const lines = Object.entries(providers).map(([name, provider]) => {
    if (provider === "simulated")
      return `  ${name}: { kind: simulated, first_token_ms: 0, token_ms: 0 }`;
    const base = provider.kind === "openai" ? `${provider.url}/v1` : provider.url;
    const more = provider.more === undefined ? "" : `, ${provider.more}`;
    return `  ${name}: { kind: ${provider.kind}, base_url: ${JSON.stringify(base)}${more} }`;
  });
  const groups = Object.keys(providers).map(
    (name) => `[{ provider: ${name}, model: provider-model }]`,
  );
  const per = more.searches === undefined ? "" : `, per: { web_search: ${more.searches} }`;
  const model = (
    id: string,
    tier: string,
    thinking: string,
    context: number,
    output: number,
    price: string,
  ) =>
    `  - { id: ${id}, display_name: ${tier}, tier: ${tier}, created_at: 2026-02-05T00:00:00Z, context_tokens: ${context}, ` +
    `max_output_tokens: ${output}, thinking: ${thinking}, price: ${price.replace(" }", `${per} }`)}, routes: ${routes ?? `[${groups.join(", ")}]`} }`;
  return [
    ...(more.searches === undefined ? [] : ["features: { server_tools: true }"]),
    "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }",
    "models:",
    model(
      "model-opus-4.6",
      "opus",
      "adaptive",
      1_000_000,
      128_000,
      "{ input: 3.50, output: 17.50 }",
    ),
    model(
      "model-sonnet-4.6",
      "sonnet",
      "adaptive",
      200_000,
      64_000,
      "{ input: 2.10, output: 10.50 }",
    ),
    model("model-haiku-4.5", "haiku", "budget", 200_000, 64_000, "{ input: 0.70, output: 3.50 }"),
    "aliases: { opus: model-opus-4.6, sonnet: model-sonnet-4.6, haiku: model-haiku-4.5 }",
    "providers:",
    ...lines,
    "",
  ].join("\n");
}

/** The text of the built-in configuration file, with a simulated provider that does not pause. */
export function defaultCatalogWithoutPauses(): string {
  return defaultCatalog()
    .replace(/first_token_ms: \d+/, "first_token_ms: 0")
    .replace(/ token_ms: \d+/, " token_ms: 0");
}
