// The configuration file in use, and what follows from it.

import type { CatalogFile } from "../config/catalog.ts";
import { createCatalog } from "../inference/inference.ts";
import type { GatewayParts } from "./parts.ts";

export type SettingsInUse = {
  file(): CatalogFile;
  catalog(): ReturnType<typeof createCatalog>;
  /** The address under which people reach the console. */
  publicUrl(): URL;
  /** The most micro-dollars that a person gives away alone in a UTC day. Undefined: no limit. */
  approvalLimit(): bigint | undefined;
  /** Takes another file. */
  replace(next: CatalogFile): void;
  /** Without PUBLIC_URL, people reach the listener at localhost. */
  listensOn(port: number): void;
};

export function createSettings({ config, catalog }: GatewayParts): SettingsInUse {
  let file = catalog;
  let prices = createCatalog(file);
  let publicUrl = config.publicUrl ?? new URL(`http://localhost:${config.port}`);
  return {
    file: () => file,
    catalog: () => prices,
    publicUrl: () => publicUrl,
    approvalLimit() {
      const above = file.payments?.secondApprovalAboveUsd;
      return above === undefined ? undefined : BigInt(above) * 1_000_000n;
    },
    replace(next) {
      prices = createCatalog(next);
      file = next;
    },
    listensOn(port) {
      if (!config.publicUrl) publicUrl = new URL(`http://localhost:${port}`);
    },
  };
}
