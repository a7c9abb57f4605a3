// The roll-up of sales over a ledger of a test, and its sums.

import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
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
    ...{ provider, outcome: "delivered", status: 200, model: "vendors-name", costVersion },
  };
}
