// `npm run close-month -- --month 2026-10`: closes a past month for good. Exit status: 0 when the
// month is closed, 1 if it cannot be closed now, 64 for wrong arguments.

import { closeMonth, nameOfMonth, parseMonth } from "../history/history.ts";
import { exitUsage, onLedger, readArguments } from "./ledger.ts";

const { month } = readArguments(process.argv.slice(2), ["month"]);
const asked = month === undefined ? undefined : parseMonth(month);
if (asked === undefined) {
  console.error("usage: npm run close-month -- --month YYYY-MM");
  process.exit(exitUsage);
}

await onLedger(async (ledger) => {
  const { charges, amountMicro, sha256 } = await closeMonth(ledger, asked);
  console.log(
    `${nameOfMonth(asked)} is closed: ${charges} charges, ${amountMicro} micro-credits, ` +
      `SHA-256 ${sha256.toString("hex")}`,
  );
});
