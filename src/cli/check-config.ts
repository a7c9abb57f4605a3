// `npm run check-config -- FILE`: reads a configuration file as the gateway does, and prints its
// models, prices, routes and providers, or all its errors.

import { readFileSync } from "node:fs";
import { defaultCatalog, findMissing, readCatalogFile } from "../config/catalog.ts";
import { describeCatalog } from "../config/describe.ts";

// EX_CONFIG of sysexits.h, as in main.ts.
const exitConfiguration = 78;

const [path] = process.argv.slice(2);
try {
  const file = readCatalogFile(path === undefined ? defaultCatalog() : readFileSync(path, "utf8"));
  console.log(describeCatalog(file));
  // Only a note: the gateway may run elsewhere, with other environment variables.
  for (const message of findMissing(file, process.env)) console.log(`note: ${message}`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = exitConfiguration;
}
