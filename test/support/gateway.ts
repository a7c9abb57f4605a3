// A whole gateway in this process, on a fresh database, with an account, two keys and a simulated
// model without pauses.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import type { Clock } from "../../src/base/clock.ts";
import { createLog, type Log } from "../../src/base/log.ts";
import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { defaultCatalogWithoutPauses } from "./catalog.ts";
import { contentKey } from "./content-key.ts";
import { freshDatabase } from "./database.ts";

export type TestGateway = {
  /** Base address of the HTTP listener, without a slash at the end. */
  address: string;
  /** `host:port` of the gRPC listener. */
  grpcAddress: string;
  databaseUrl: string;
  /** Base address of the metrics of the services, where METRICS_PORT is set. */
  metricsAddress: string | undefined;
  /** As `metricsAddress`, of the process that serves HTTP. */
  httpMetricsAddress: string | undefined;
  accountId: string;
  v1: string;
  v2: string;
  adminToken: string;
  /** The link of the first operator. */
  ownerLink: string;
  /** Calls the services as the operator. */
  admin: AdminCore;
  reload(catalog: CatalogFile): void;
  /** Drains the gateway, checks that the ledger is in order, and drops the database. */
  stop(): Promise<void>;
};

type AdminCore = {
  core: ReturnType<typeof grpcCore>;
  call: { headers: { authorization: string } };
};

/** Of a gateway whose roles are apart, which cannot know its port beforehand. */
const publicUrl = "http://localhost:8080";

export type TestGatewayOptions = {
  /** Further settings, as in docs/operating/settings.md. */
  env?: NodeJS.ProcessEnv;
  /** Default: the built-in catalogue without pauses. */
  catalog?: CatalogFile;
  /** One that creeps, if it is moved by hand. Default: the clock of this machine. */
  clock?: Clock;
  /** Default: one of LOG_LEVEL, or none. */
  log?: Log;
  /** True: a gateway of the role `facade` serves HTTP, one of the role `core` the services. */
  split?: boolean;
};

/** The built-in catalogue, with a simulated model that answers without pauses. */
export function fastCatalog(): CatalogFile {
  return readCatalogFile(defaultCatalogWithoutPauses());
}

/** Starts a gateway in this process. */
export async function startTestGateway(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const database = await freshDatabase();
  const dataDir = await mkdtemp(join(tmpdir(), "gateway-data-"));
  const adminToken = "the-admin-token-of-a-test";
  const { split = false } = options;
  const catalog = options.catalog ?? fastCatalog();
  const start = (env: NodeJS.ProcessEnv): Promise<Gateway> => {
    const ports = {
      PORT: "0",
      GRPC_PORT: "0",
      DATA_DIR: dataDir,
      LOG_LEVEL: process.env.LOG_LEVEL ?? "silent",
      CONTENT_KEY: contentKey,
    };
    const config = readConfig({ ...ports, ...env, ...options.env });
    return startGateway({
      config,
      catalog,
      env: { ...process.env, ...env, ...options.env },
      log: options.log ?? createLog(config.logLevel),
      ...(options.clock && { clock: options.clock }),
    });
  };

  const services = { DATABASE_URL: database.url, ADMIN_TOKEN: adminToken, SEED: "true" };
  const core = await start({ ...services, ...(split && { ROLE: "core", PUBLIC_URL: publicUrl }) });
  const facade = split
    ? await start({
        ROLE: "facade",
        PUBLIC_URL: publicUrl,
        CORE_ADDRESS: text(core.grpcAddress),
        // It opens no gRPC listener of its own.
        GRPC_PORT: "",
      })
    : core;
  const keys: unknown = JSON.parse(await readFile(join(dataDir, "first-keys.json"), "utf8"));
  const { v1, v2, accountId, ownerLink } = Object(keys);

  const admin = {
    core: grpcCore({ addresses: [text(core.grpcAddress)] }),
    call: { headers: { authorization: `Bearer ${adminToken}` } },
  };
  return {
    address: text(facade.httpAddress),
    grpcAddress: text(core.grpcAddress),
    databaseUrl: database.url,
    metricsAddress: core.metricsAddress,
    httpMetricsAddress: facade.metricsAddress,
    accountId: text(accountId),
    v1: text(v1),
    v2: text(v2),
    adminToken,
    ownerLink: text(ownerLink),
    admin,
    reload: (file) => core.reload(file),
    async stop() {
      const { violations } = await admin.core.billing.verifyLedger({}, admin.call);
      admin.core.close();
      if (facade !== core) await facade.stop();
      await core.stop();
      await database.drop();
      await rm(dataDir, { recursive: true, force: true });
      expect(violations).toEqual([]);
    },
  };
}

function text(value: unknown): string {
  if (typeof value !== "string") throw new Error("an address or a key of the gateway is missing");
  return value;
}
