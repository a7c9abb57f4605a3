// The catalogue of the bench: models whose names say how the mock provider answers.

import type { BenchProcess } from "./lab.ts";

/** haiku 4.5, in micro-credits per token. */
export const benchPrice = { input: 140n, output: 700n };

export type CatalogOptions = {
  /** Members of all three providers, such as `concurrency: 20, queue: 20`. */
  readonly members?: string;
  /**
   * Models `failover-0`, … whose first provider does not listen. Each has a provider of its own, so
   * that the failures of one are not those of another.
   */
  readonly failovers?: { readonly count: number; readonly deadPort: number };
  /** Further sections. */
  readonly more?: string;
};

/** The text of a catalogue file whose models are served by `provider`. */
export function benchCatalog(
  provider: BenchProcess,
  { members = "concurrency: 20000", failovers, more = "" }: CatalogOptions = {},
): string {
  const numbers = failovers ? Array.from({ length: failovers.count }, (_, index) => index) : [];
  const models = [
    modelText("native", ["anthropic"], "bench"),
    modelText("chat", ["openai"], "bench"),
    modelText("responses", ["responses"], "bench"),
    modelText("native-paced", ["anthropic"], "bench-2"),
    modelText("chat-paced", ["openai"], "bench-2"),
    modelText("responses-paced", ["responses"], "bench-2"),
    modelText("native-slow", ["anthropic"], "bench-50"),
    modelText("native-first", ["anthropic"], "bench-first20"),
    modelText("native-idle", ["anthropic"], "bench-idle"),
    ...numbers.map((number) =>
      modelText(`failover-${number}`, [`dead${number}`, "anthropic"], "bench"),
    ),
  ];
  const address = `http://127.0.0.1:${provider.port}`;
  const providers = [
    `  anthropic: { kind: anthropic, base_url: "${address}", ${members} }`,
    `  openai: { kind: openai, base_url: "${address}/v1", ${members} }`,
    `  responses: { kind: openai, api: responses, base_url: "${address}/v1", ${members} }`,
    ...numbers.map(
      (number) =>
        `  dead${number}: { kind: anthropic, base_url: "http://127.0.0.1:${failovers?.deadPort}" }`,
    ),
  ];
  const multipliers =
    "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }";
  return `${multipliers}\nmodels:${models.join("")}\nproviders:\n${providers.join("\n")}\n${more}`;
}

function modelText(id: string, providers: readonly string[], name: string): string {
  return `
  - id: ${id}
    display_name: ${id}
    tier: haiku
    created_at: 2025-10-15T00:00:00Z
    context_tokens: 200000
    max_output_tokens: 64000
    thinking: budget
    price: { input: 0.70, output: 3.50 }
    routes:${providers.map((provider) => `\n      - [{ provider: ${provider}, model: ${name} }]`).join("")}`;
}
