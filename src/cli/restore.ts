// `npm run restore -- FOLDER`: fills an empty database from a backup, migrates it, and checks the
// ledger. Exit status: 0 when it is in order, 1 otherwise, 64 for wrong arguments.

import { restore } from "../postgres/backup.ts";
import { exitUsage, onDatabase, verify, withLedger } from "./ledger.ts";

const [folder, ...others] = process.argv.slice(2);
if (folder === undefined || folder.startsWith("-") || others.length > 0) {
  console.error("usage: npm run restore -- FOLDER");
  process.exit(exitUsage);
}

await onDatabase(async (database) => {
  const { madeAt, tables } = await restore(database.owner, folder);
  const rows = tables.reduce((sum, one) => sum + one.rows, 0);
  console.log(`restored as of ${madeAt}: ${tables.length} tables, ${rows} rows`);
  await withLedger(database, (ledger) => verify(ledger, "restore"));
});
