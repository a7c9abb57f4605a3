// `npm run check-config -- FILE`: reads a configuration file as the gateway does, and prints its
// models, prices, routes and providers, or all its errors. With `--providers`, it also makes one
// smallest call to each provider, with the credentials and proxies of its environment.

import { readFileSync } from "node:fs";
import { Outbound } from "../base/outbound.ts";
import {
  type CatalogFile,
  defaultCatalog,
  findMissing,
  readCatalogFile,
} from "../config/catalog.ts";
import { describeCatalog } from "../config/describe.ts";
import { readCommandConfig } from "../config/environment.ts";

// EX_CONFIG of sysexits.h, as in main.ts.
const exitConfiguration = 78;
const exitProviders = 1;

const flag = "--providers";
const words = process.argv.slice(2);
const [path] = words.filter((word) => word !== flag);
try {
  const file = readCatalogFile(path === undefined ? defaultCatalog() : readFileSync(path, "utf8"));
  console.log(describeCatalog(file));
  // Only a note: the gateway may run elsewhere, with other environment variables.
  for (const message of findMissing(file, process.env)) console.log(`note: ${message}`);
  if (words.includes(flag) && !(await callProviders(file))) process.exitCode = exitProviders;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = exitConfiguration;
}

/** True: each of them answered. */
async function callProviders(file: CatalogFile): Promise<boolean> {
  // Imported by need: the description alone takes a moment.
  const { checkProviders } = await import("../providers/check-providers.ts");
  const { env } = process;
  const outbound = new Outbound(readCommandConfig(env).proxies);
  console.log("\none call to each provider that a model has a route to");
  let areWell = true;
  for await (const one of checkProviders(file, { env, outbound })) {
    areWell &&= one.isAnswered;
    const { provider, model, modelId, isAnswered, status, ms, reason } = one;
    const outcome = isAnswered ? "answered" : "failed";
    const what = `${outcome} with status ${status} in ${ms} ms, as ${model} (${modelId})`;
    console.log(`  ${provider}: ${what}${reason === "" ? "" : `: ${reason}`}`);
  }
  return areWell;
}
