// Counts what the ledger does: transactions, charges, and requests of dead processes.

import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type { Distribution, Metrics, Tally } from "../metrics/metrics.ts";
import type { Failure } from "./batch-queue.ts";
import { outcomeName } from "./rows.ts";
import type { Charge } from "./settlement.ts";

export type QueueName = "admit" | "settle";

/** What a batch queue reports. */
export type QueueMetrics = {
  /** A transaction of so many items took so long. */
  onBatch(ms: number, items: number): void;
  onFailure(failure: Failure): void;
};

/** The counts of charges of the same model, family and outcome. */
type Row = {
  readonly charges: Tally;
  readonly microcredits: Tally;
  readonly overrun: Tally;
  readonly webSearches: Tally;
  readonly tokens: readonly Tally[];
};

export class LedgerMetrics {
  readonly #metrics: Metrics;
  readonly #rows = new Map<string, Row>();
  /** Requests that were settled for dead processes. */
  readonly reaped: Tally;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
    this.reaped = metrics.counter("gateway_reaped_total", []);
  }

  queue(name: QueueName): QueueMetrics {
    const seconds: Distribution = this.#metrics.histogram("gateway_ledger_batch_seconds", [name]);
    const sizes = this.#metrics.histogram("gateway_ledger_batch_items", [name]);
    return {
      onBatch(ms, items) {
        seconds.observe(ms / 1000);
        sizes.observe(items);
      },
      onFailure: (kind) => {
        this.#metrics.counter("gateway_ledger_failures_total", [name, kind]).value += 1;
      },
    };
  }

  /** A charge is durable. */
  count({ hold, outcome, charged, amountMicro, overrunMicro }: Charge): void {
    const { model, payer } = hold;
    const key = `${model} ${payer.family} ${outcome}`;
    const row = this.#rows.get(key) ?? this.#addRow(key, model, payer.family, outcomeName(outcome));
    row.charges.value += 1;
    row.microcredits.value += Number(amountMicro);
    row.overrun.value += Number(overrunMicro);
    tokenCategories.forEach((category, index) => {
      const tally = row.tokens[index];
      if (tally) tally.value += charged[category];
    });
    row.webSearches.value += charged.webSearches;
  }

  #addRow(key: string, model: string, family: string, outcome: string): Row {
    const metrics = this.#metrics;
    const row: Row = {
      charges: metrics.counter("gateway_charges_total", [model, family, outcome]),
      microcredits: metrics.counter("gateway_charged_microcredits_total", [model, family]),
      overrun: metrics.counter("gateway_overrun_microcredits_total", [model]),
      webSearches: metrics.counter("gateway_web_searches_total", [model]),
      tokens: tokenCategories.map((category) =>
        metrics.counter("gateway_tokens_total", [model, categoryColumns[category]]),
      ),
    };
    this.#rows.set(key, row);
    return row;
  }
}
