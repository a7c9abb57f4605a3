// A catalogue whose models everybody may see, with names that nobody may.

import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import { defaultCatalogWithoutPauses } from "./catalog.ts";

/** Names of providers and of models there, and what the operator pays. */
export const secretNames = ["hidden-vendor", "hidden-model", "second-vendor", "12.345678"];

/** `seller`: more members of that section. */
export function openCatalog(seller = ""): CatalogFile {
  return readCatalogFile(
    `${defaultCatalogWithoutPauses()
      .replaceAll("provider: simulated", "provider: hidden-vendor, model: hidden-model")
      .replace(/^providers:\n {2}simulated:/m, "providers:\n  hidden-vendor:")
      .replaceAll(/^( {4})routes:/gm, "$1cost: { input: 12.345678, output: 1 }\n$1routes:")}
payments:
  packs_usd: [5, 20, 1000]
  seller:
    name: "Olga & <Sons>"
    contact: help@sons.example
    terms_url: https://sons.example/terms
    privacy_url: https://sons.example/privacy
    ${seller}
  processors: [{ type: simulated, name: second-vendor }]
`,
  );
}
