// `npm run bench` runs every suite, `npm run bench -- plain stream` some. Prints tables and writes
// bench-results/latest.json. Exits with 1 when a run is void; asserts nothing about time.

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { printResult, type Result } from "./report.ts";
import { billingPrice } from "./suites/billing-price.ts";
import { budgets } from "./suites/budgets.ts";
import { cells } from "./suites/cells.ts";
import { chains } from "./suites/chains.ts";
import { closing } from "./suites/closing.ts";
import { codec } from "./suites/codec.ts";
import { consolePages } from "./suites/console.ts";
import { days } from "./suites/days.ts";
import { desk } from "./suites/desk.ts";
import { failover } from "./suites/failover.ts";
import { flood } from "./suites/flood.ts";
import { history } from "./suites/history.ts";
import { hostile } from "./suites/hostile.ts";
import { idleStreams } from "./suites/idle-streams.ts";
import { keys } from "./suites/keys.ts";
import { ladder } from "./suites/ladder.ts";
import { latency } from "./suites/latency.ts";
import { ledger } from "./suites/ledger.ts";
import { limits } from "./suites/limits.ts";
import { overload } from "./suites/overload.ts";
import { paymentsRules } from "./suites/payments-rules.ts";
import { plain } from "./suites/plain.ts";
import { processes } from "./suites/processes.ts";
import { profile } from "./suites/profile.ts";
import { reports } from "./suites/reports.ts";
import { road } from "./suites/road.ts";
import { sales } from "./suites/sales.ts";
import { signing } from "./suites/signing.ts";
import { split } from "./suites/split.ts";
import { start } from "./suites/start.ts";
import { stream } from "./suites/stream.ts";
import { tags } from "./suites/tags.ts";
import { verification } from "./suites/verification.ts";
import { watching } from "./suites/watching.ts";
import { webhooks } from "./suites/webhooks.ts";
import { why } from "./suites/why.ts";
import { workers } from "./suites/workers.ts";

const suites: Record<string, () => Promise<Result>> = {
  plain,
  stream,
  ladder,
  latency,
  "billing-price": billingPrice,
  ledger,
  budgets,
  codec,
  failover,
  overload,
  flood,
  hostile,
  "idle-streams": idleStreams,
  split,
  cells,
  processes,
  workers,
  limits,
  webhooks,
  watching,
  tags,
  start,
  keys,
  history,
  reports,
  closing,
  days,
  verification,
  sales,
  why,
  desk,
  signing,
  "payments-rules": paymentsRules,
  chains,
  console: consolePages,
  road,
  profile,
};
const onlyWhenNamed = [
  "reports",
  "closing",
  "days",
  "verification",
  "sales",
  "why",
  "desk",
  "console",
  "profile",
];

const names = process.argv.slice(2);
const unknown = names.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(
    `no such suite: ${unknown.join(", ")}; the suites are ${Object.keys(suites).join(", ")}`,
  );
  process.exit(2);
}
if (process.platform !== "linux") {
  console.error("the bench reads processor time from /proc and runs on Linux only");
  process.exit(2);
}

const machine = `${cpus().length} × ${cpus()[0]?.model}`;
console.log(`Node ${process.version}, ${machine}`);
const results: Record<string, unknown> = {
  at: new Date().toISOString(),
  node: process.version,
  machine,
};
let isVoid = false;
const startedAll = performance.now();
for (const [name, run] of Object.entries(suites)) {
  if (names.length > 0 ? !names.includes(name) : onlyWhenNamed.includes(name)) continue;
  const started = performance.now();
  const result = await run().catch(
    (error: unknown): Result => ({ rows: [], faults: [messageOf(error)] }),
  );
  const seconds = (performance.now() - started) / 1000;
  printResult(name, seconds, result);
  isVoid ||= result.faults.length > 0;
  results[name] = { seconds, ...result };
}
console.log(`\n${Math.round((performance.now() - startedAll) / 1000)} s in all`);
mkdirSync("bench-results", { recursive: true });
writeFileSync("bench-results/latest.json", `${JSON.stringify(results, null, 2)}\n`);
process.exit(isVoid ? 1 : 0);

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message} (${messageOf(error.cause)})`;
}
