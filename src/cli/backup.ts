// `npm run backup -- FOLDER`: writes all tables, as they are at one moment, to a new folder. Exit
// status: 0 when it is whole, 1 if there is none, 64 for wrong arguments.

import { backUp } from "../postgres/backup.ts";
import { exitUsage, onDatabase } from "./ledger.ts";

const [folder, ...others] = process.argv.slice(2);
if (folder === undefined || folder.startsWith("-") || others.length > 0) {
  console.error("usage: npm run backup -- FOLDER");
  process.exit(exitUsage);
}

await onDatabase(async ({ owner }) => {
  const { tables } = await backUp(owner, folder);
  const rows = tables.reduce((sum, one) => sum + one.rows, 0);
  console.log(`${folder}: ${tables.length} tables, ${rows} rows`);
});
