// What the operator earns, owes and pays: sums of charges beside the ledger, with the costs of the
// configuration file, and the reports about them. The ledger is never changed from here.

import * as sql from "../../gen/sql/sales.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Postgres } from "../postgres/postgres.ts";
import {
  listProviderBills,
  queryLiabilities,
  queryRevenue,
  querySales,
  type ReportParts,
  setProviderBill,
} from "./reports.ts";
import { SalesRollup } from "./rollup.ts";

export { SalesRollup } from "./rollup.ts";

export type Sales = ReturnType<typeof createSales>;

const retryMs = 1_000;
const registerEveryMs = 3_600_000;

/** What a report gets besides its parts. */
type Asked<Report> = Report extends (parts: ReportParts, ...asked: infer All) => unknown
  ? All
  : never;

export function createSales({
  postgres,
  file,
  log,
  metrics,
}: {
  readonly postgres: Postgres;
  readonly file: Pick<CatalogFile, "models">;
  readonly log: Log;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
}) {
  const rollup = new SalesRollup({ postgres, log });
  const parts = { reports: postgres.reports, postgres };
  let { models } = file;
  /** Stores every version that can be stored. Throws the first problem of those that cannot. */
  const registerAll = async () => {
    const problems: unknown[] = [];
    for (const { paid } of models.flatMap(({ routes }) => routes.flat()))
      for (const version of paid?.cases.flatMap(({ versions }) => versions) ?? [])
        await postgres.run(sql.registerCost, version).catch((error) => problems.push(error));
    if (problems.length > 0) throw problems[0];
  };
  let hasRegistered = false;
  // A charge is looked at a minute after its settlement at the earliest. Until then, the versions
  // that it names are stored.
  const registering = new Task({
    async run() {
      hasRegistered = false;
      await registerAll();
      hasRegistered = true;
    },
    everyMs: () => (hasRegistered ? registerEveryMs : retryMs),
    report: warnOnce(log, {
      code: "costs_not_registered",
      failed: "what providers cost cannot be stored yet",
    }),
  });
  if (metrics) {
    metrics.readOne("gateway_sales_lag_seconds", () => rollup.lag);
    metrics.readOne("gateway_sales_charges_total", () => rollup.added);
  }
  return {
    querySales: (...asked: Asked<typeof querySales>) => querySales(parts, ...asked),
    queryRevenue: (...asked: Asked<typeof queryRevenue>) => queryRevenue(parts, ...asked),
    queryLiabilities: (request: Parameters<typeof queryLiabilities>[1]) =>
      queryLiabilities(parts, request),
    listProviderBills: (...asked: Asked<typeof listProviderBills>) =>
      listProviderBills(parts, ...asked),
    setProviderBill: (...asked: Asked<typeof setProviderBill>) => setProviderBill(parts, ...asked),
    /** Takes the costs of another file. */
    reload(next: Pick<CatalogFile, "models">): void {
      ({ models } = next);
      registering.wake();
    },
    start(): void {
      registering.start();
      rollup.start();
    },
    async stop(): Promise<void> {
      await Promise.all([registering.stop(), rollup.stop()]);
    },
  };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * charges are added to the sums of sales without their cost if it goes on for a minute; look at
     * the database, and run `npm run rebuild-sales` then
     */
    costs_not_registered: true;
  }
}
