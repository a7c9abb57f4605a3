// `npm run bench`, or `npm run bench -- plain stream` for some of it. Prints tables, writes bench-results/, asserts nothing about time.

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { printRows, type Row } from "./report.ts";
import { latency } from "./suites/latency.ts";
import { ledger } from "./suites/ledger.ts";
import { plain } from "./suites/plain.ts";
import { stream } from "./suites/stream.ts";

/** `faults`: what makes the run void, such as a charge that is not what the provider served. */
const suites: Record<string, () => Promise<{ rows: Row[]; faults: string[] }>> = { plain, stream, latency, ledger };

const asked = process.argv.slice(2);
const unknown = asked.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(`no such suite: ${unknown.join(", ")}; there are ${Object.keys(suites).join(", ")}`);
  process.exit(2);
}
if (process.platform !== "linux") {
  console.error("the bench reads processor time from /proc and runs on Linux only");
  process.exit(2);
}

console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model}`);
const results: Record<string, unknown> = { at: new Date().toISOString(), node: process.version, processors: cpus().length };
let isVoid = false;
for (const [name, run] of Object.entries(suites)) {
  if (asked.length > 0 && !asked.includes(name)) continue;
  const { rows, faults } = await run();
  printRows(name, rows);
  if (faults.length > 0) {
    isVoid = true;
    console.log(`  VOID: ${faults.slice(0, 5).join("; ")}`);
  }
  results[name] = { rows, faults };
}
mkdirSync("bench-results", { recursive: true });
writeFileSync("bench-results/latest.json", `${JSON.stringify(results, null, 2)}\n`);
process.exit(isVoid ? 1 : 0);
