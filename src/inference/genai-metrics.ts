// The same figures under the names of OpenTelemetry's conventions for generative AI, for dashboards
// that know them. `client` is the gateway towards a provider, `server` towards its own client.

import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Metrics } from "../metrics/metrics.ts";

/** A request that was answered or failed after its admission. */
export type GenaiRequest = {
  /** Name of the provider in the configuration. Empty: none answered. */
  readonly provider: string;
  /** The catalogue id: what a client calls a model may be any text. */
  readonly model: string;
  /** Undefined: it was not charged. */
  readonly usage: Usage | undefined;
  readonly durationMs: number;
  /** Undefined: there was no event. */
  readonly firstEventMs: number | undefined;
  /** As `ApiError.reason`. Undefined: the answer is complete. */
  readonly error?: string | undefined;
};

/** The tokens as these conventions count them: input with cached tokens, output with thinking. */
export function genaiTokens(usage: Usage) {
  const cacheWrite = usage.cacheWrite5m + usage.cacheWrite1h;
  return {
    input: usage.input + cacheWrite + usage.cacheRead,
    output: usage.output + usage.thinking,
    cacheRead: usage.cacheRead,
    cacheWrite,
    reasoning: usage.thinking,
  };
}

export class GenaiMetrics {
  readonly #metrics: Metrics;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
  }

  count(request: GenaiRequest): void {
    const { provider, model, error = "" } = request;
    const metrics = this.#metrics;
    const labels = ["chat", provider, model, model] as const;
    const seconds = request.durationMs / 1000;
    metrics
      .histogram("gen_ai_client_operation_duration_seconds", [...labels, error])
      .observe(seconds);
    metrics
      .histogram("gen_ai_server_request_duration_seconds", [...labels, error])
      .observe(seconds);
    const { firstEventMs, usage } = request;
    if (firstEventMs !== undefined)
      metrics
        .histogram("gen_ai_server_time_to_first_token_seconds", labels)
        .observe(firstEventMs / 1000);
    if (!usage) return;
    const tokens = genaiTokens(usage);
    if (error === "" && firstEventMs !== undefined && tokens.output > 1)
      metrics
        .histogram("gen_ai_server_time_per_output_token_seconds", labels)
        .observe((seconds - firstEventMs / 1000) / (tokens.output - 1));
    for (const type of ["input", "output"] as const)
      metrics.histogram("gen_ai_client_token_usage", [...labels, type]).observe(tokens[type]);
    const name = "gen_ai_client_inference_usage";
    const all = [...labels, "unknown"] as const;
    metrics.counter(`${name}_input_tokens_total`, all).value += tokens.input;
    metrics.counter(`${name}_output_tokens_total`, all).value += tokens.output;
    metrics.counter(`${name}_cache_read_input_tokens_total`, all).value += tokens.cacheRead;
    metrics.counter(`${name}_cache_write_input_tokens_total`, all).value += tokens.cacheWrite;
    metrics.counter(`${name}_reasoning_output_tokens_total`, all).value += tokens.reasoning;
  }
}
