// `npm run export -- --month 2026-10 --to DIR`: exports a closed month, or verifies the export that
// DIR has of it. Exit status: 0 when the export is whole, 1 if there is none, 64 for wrong
// arguments.

import { join } from "node:path";
import { plainCell } from "../base/cells.ts";
import { readCommandConfig } from "../config/environment.ts";
import { exportMonth, parseMonth } from "../history/history.ts";
import { exitUsage, onLedger, readArguments } from "./ledger.ts";

const { month, to } = readArguments(process.argv.slice(2), ["month", "to"]);
const asked = month === undefined ? undefined : parseMonth(month);
if (asked === undefined || to === undefined) {
  console.error("usage: npm run export -- --month YYYY-MM --to DIR");
  process.exit(exitUsage);
}

// Exports of several cells may be put side by side.
const { cell } = readCommandConfig(process.env);
const folderOf = cell === plainCell ? to : join(to, `cell-${cell}`);

await onLedger(async (ledger) => {
  const { folder, manifest } = await exportMonth(ledger, { month: asked, to: folderOf });
  console.log(
    `${folder}: verified, ${manifest.charges} charges, ${manifest.sums.amount} micro-credits, ` +
      `SHA-256 ${manifest.sha256}`,
  );
});
