// `npm run check-config -- FILE`: reads a configuration file as the gateway would, and prints what
// it comes to.

import { readFileSync } from "node:fs";
import { defaultCatalog, findMissingCredentials, readCatalogFile } from "../config/catalog.ts";
import { describeCatalog } from "../config/describe.ts";

const [path] = process.argv.slice(2);
try {
  const file = readCatalogFile(path === undefined ? defaultCatalog() : readFileSync(path, "utf8"));
  console.log(describeCatalog(file));
  // Credentials live where the gateway runs, which may be elsewhere.
  for (const problem of findMissingCredentials(file.providers, process.env))
    console.log(`note: ${problem}`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 78;
}
