// Counts the calls to providers.

import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { leftOutReasonName } from "../base/left-out.ts";
import type { Fit } from "../formats/fit.ts";
import type { Distribution, Metrics, Tally } from "../metrics/metrics.ts";

export class ProviderMetrics {
  readonly #metrics: Metrics;
  readonly #rows = new Map<string, { attempts: Tally; duration: Distribution }>();
  readonly #tallies = new Map<string, Tally>();

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
  }

  /** A call has ended. `model`: the catalogue id. `outcome`: as in the receipt. */
  count(call: { provider: string; model: string; outcome: string; ms: number }): void {
    const { provider, model, outcome, ms } = call;
    const key = `${provider} ${model} ${outcome}`;
    let row = this.#rows.get(key);
    if (!row) {
      const metrics = this.#metrics;
      row = {
        attempts: metrics.counter("gateway_provider_attempts_total", [provider, model, outcome]),
        duration: metrics.histogram("gateway_provider_duration_seconds", [provider, model]),
      };
      this.#rows.set(key, row);
    }
    row.attempts.value += 1;
    row.duration.observe(ms / 1000);
  }

  /** A request was written for a provider. What its listener left out is counted with it. */
  countCarried({ carried, leftOut: fitted }: Fit, { origin }: GenerateRequest): void {
    const leftOut = origin?.leftOut ?? [];
    for (const [result, count] of Object.entries(carried))
      this.#add("gateway_carried_total", result, count);
    for (const { why, count } of leftOut)
      this.#add("gateway_carried_total", leftOutReasonName(why), count);
    for (const { why, count } of [...leftOut, ...fitted])
      this.#add("gateway_left_out_total", leftOutReasonName(why), count);
  }

  #add(name: "gateway_carried_total" | "gateway_left_out_total", label: string, n: number): void {
    const key = `${name} ${label}`;
    const tally = this.#tallies.get(key) ?? this.#metrics.counter(name, [label]);
    this.#tallies.set(key, tally);
    tally.value += n;
  }
}
