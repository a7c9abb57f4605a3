// Counts the calls to providers.

import type { Distribution, Metrics, Tally } from "../metrics/metrics.ts";

export class ProviderMetrics {
  readonly #metrics: Metrics;
  readonly #rows = new Map<string, { attempts: Tally; duration: Distribution }>();

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
}
