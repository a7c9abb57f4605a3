// The configuration file in use, and what follows from it.

import { PriceLists } from "../billing/billing.ts";
import type { CatalogFile } from "../config/catalog.ts";
import { hostAndPort, isLocalhost } from "../config/environment.ts";
import { createCatalog } from "../inference/inference.ts";
import type { GatewayParts } from "./parts.ts";

/** Its members change when the file is read again. */
export type SettingsInUse = {
  readonly file: CatalogFile;
  readonly catalog: ReturnType<typeof createCatalog>;
  /** The price lists in force, whatever the file. */
  readonly priceLists: PriceLists;
  /** The address under which people reach the console. */
  publicUrl(): URL;
  /** The most micro-dollars that a person gives away alone in a UTC day. Undefined: no limit. */
  approvalLimit(): bigint | undefined;
  /** Takes another file. */
  replace(next: CatalogFile): void;
  /** Without PUBLIC_URL, people reach the listener at localhost. */
  listensOn(port: number): void;
  /** The port of the gRPC listener, once it is open. */
  servesGrpcOn(port: number): void;
  /** `host:port` for people. Empty: they come from elsewhere, and this machine alone reaches it. */
  grpcAddress(): string;
};

export function createSettings({
  config,
  catalog: file,
}: Pick<GatewayParts, "config" | "catalog">): SettingsInUse {
  let publicUrl = config.publicUrl ?? new URL(`http://localhost:${config.port}`);
  let { grpcPort = 0 } = config;
  const priceLists = new PriceLists();
  const settings = {
    file,
    priceLists,
    catalog: createCatalog(file, priceLists),
    publicUrl: () => publicUrl,
    approvalLimit() {
      const above = settings.file.payments?.secondApprovalAboveUsd;
      return above === undefined ? undefined : BigInt(above) * 1_000_000n;
    },
    replace(next: CatalogFile) {
      settings.catalog = createCatalog(next, priceLists);
      settings.file = next;
    },
    listensOn(port: number) {
      if (!config.publicUrl) publicUrl = new URL(`http://localhost:${port}`);
    },
    servesGrpcOn(port: number) {
      grpcPort = port;
    },
    grpcAddress() {
      // Without a zone, which no URL has.
      const [host = ""] = config.grpcHost.split("%");
      const listener = new URL(`http://${hostAndPort(host, grpcPort)}`);
      // The public address of a core is that of its facades, which have no gRPC.
      const isBeyond = !isLocalhost(listener) && config.role !== "core";
      const isReached = isLocalhost(publicUrl) || isBeyond;
      return isReached ? `${publicUrl.hostname}:${grpcPort}` : "";
    },
  };
  return settings;
}
