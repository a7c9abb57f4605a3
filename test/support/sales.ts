// The roll-up of sales over a ledger of a test, and its sums.

import { type Attempt, AttemptOutcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import * as sql from "../../gen/sql/sales.ts";
import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { SalesRollup } from "../../src/sales/sales.ts";
import { log } from "./ledger.ts";

/** One that adds charges as soon as they are settled. */
export function openRollup(postgres: Pick<Postgres, "run" | "transaction">): SalesRollup {
  return new SalesRollup({ postgres, log, marginMs: 0, rests: false });
}

/** Adds all charges that are settled by now, when the transactions of other tests let it. */
export async function addAll(
  postgres: Pick<Postgres, "run" | "transaction">,
  rollup = openRollup(postgres),
): Promise<void> {
  const { now } = await postgres.run(sql.countSales);
  for (;;) {
    await rollup.run();
    const { isComplete } = await postgres.run(sql.readSalesProgress, { since: now });
    if (isComplete) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A file with one model at one provider, `vendor`. `cost`: the lines of the model. */
export function fileWithCost(cost: string, route = "{ provider: vendor, model: vendors-name }") {
  return readCatalogFile(`
models:
  - id: model-test
    created_at: 2026-02-05T00:00:00Z
    context_tokens: 1000000
    max_output_tokens: 100000
    thinking: none
    price: { input: 1, output: 5, thinking: 5, cache_write_5m: 1, cache_write_1h: 1, cache_read: 1 }
    ${cost}
    routes: [[${route}]]
providers: { vendor: { kind: simulated } }
`);
}

/** The versions of the cost of the only route of a file, under no condition. */
export function costsOf(file: CatalogFile) {
  return file.models[0]?.routes[0]?.[0]?.paid?.cases[0]?.versions ?? [];
}

export async function register(postgres: Pick<Postgres, "run">, file: CatalogFile): Promise<void> {
  for (const version of costsOf(file)) await postgres.run(sql.registerCost, version);
}

/** An attempt at `vendor` that was delivered. */
export function attemptAt(costVersion: string, provider = "vendor"): Attempt {
  return {
    $typeName: "gateway.billing.v1.Attempt",
    ...{
      provider,
      outcome: AttemptOutcome.DELIVERED,
      status: 200,
      model: "vendors-name",
      costVersion,
    },
  };
}

/** Adds the sums of days that a test wrote to those of months and of all accounts. */
export async function sumDays(run: (text: string) => Promise<unknown>): Promise<void> {
  const sums = `sum(requests), sum(uncosted), sum(input), sum(output), sum(thinking),
    sum(cache_write_5m), sum(cache_write_1h), sum(cache_read), sum(web_searches), sum(amount),
    sum(overrun), sum(cost_pico) from sales_daily`;
  await run(`insert into sales_monthly select date_trunc('month', day::timestamp)::date, account_id,
    "family", model, provider, cost_version, ${sums} group by 1, 2, 3, 4, 5, 6`);
  await run(`insert into sales_totals select day, "family", model, provider, cost_version, ${sums}
    group by 1, 2, 3, 4, 5`);
}
