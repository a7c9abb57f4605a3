// Two cells in this process, each a core with a database of its own, and a facade in front.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { createLog } from "../../src/base/log.ts";
import type { CatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { contentKey } from "./content-key.ts";
import { freshDatabase } from "./database.ts";
import { fastCatalog } from "./gateway.ts";

const publicUrl = "http://localhost:8080";

/** Starts a gateway of a cell, or a facade. */
export function startRole(
  env: NodeJS.ProcessEnv,
  dataDir: string,
  catalog: CatalogFile = fastCatalog(),
): Promise<Gateway> {
  const given = {
    PORT: "0",
    DATA_DIR: dataDir,
    LOG_LEVEL: process.env.LOG_LEVEL ?? "silent",
    CONTENT_KEY: contentKey,
    PUBLIC_URL: publicUrl,
    ...env,
  };
  const config = readConfig(given);
  const log = createLog(config.logLevel);
  return startGateway({ config, catalog, env: { ...process.env, ...given }, log });
}

export type TestCell = Awaited<ReturnType<typeof startCell>>;

/** The core of a cell, on a fresh database or the given one. */
export async function startCell(
  name: string,
  options: {
    readonly env?: NodeJS.ProcessEnv;
    readonly catalog?: CatalogFile;
    readonly databaseUrl?: string;
  } = {},
) {
  const database =
    options.databaseUrl === undefined
      ? await freshDatabase()
      : { url: options.databaseUrl, drop: async () => {} };
  const dataDir = await mkdtemp(join(tmpdir(), `gateway-cell-${name}-`));
  const adminToken = `the-admin-token-of-cell-${name}`;
  const env = {
    ROLE: "core",
    CELL: name,
    GRPC_PORT: "0",
    DATABASE_URL: database.url,
    ADMIN_TOKEN: adminToken,
    SEED: "true",
    ...options.env,
  };
  let core = await startRole(env, dataDir, options.catalog).catch(async (error: unknown) => {
    await database.drop();
    throw error;
  });
  const keys: unknown = JSON.parse(await readFile(join(dataDir, "first-keys.json"), "utf8"));
  const { v1, v2, accountId, ownerLink } = Object(keys);
  const address = core.grpcAddress ?? "";
  return {
    name,
    /** `host:port` of its gRPC listener. */
    address,
    databaseUrl: database.url,
    v1: String(v1),
    v2: String(v2),
    accountId: String(accountId),
    ownerLink: String(ownerLink),
    admin: { headers: { authorization: `Bearer ${adminToken}` } },
    /** Ends the core, and leaves its database. */
    halt: () => core.stop(),
    /** Starts it again at the same address. */
    async resume() {
      core = await startRole({ ...env, GRPC_PORT: address.split(":")[1] }, dataDir);
    },
    /** Ends it after a look at its ledger. */
    async stop() {
      const remote = grpcCore({ addresses: [address] });
      const { violations } = await remote.billing.verifyLedger({}, this.admin);
      remote.close();
      await core.stop();
      await database.drop();
      await rm(dataDir, { recursive: true, force: true });
      expect(violations).toEqual([]);
    },
  };
}

/** A facade of these cells. */
export async function startFacade(
  cells: readonly Pick<TestCell, "name" | "address">[],
  env: NodeJS.ProcessEnv = {},
) {
  const dataDir = await mkdtemp(join(tmpdir(), "gateway-facade-"));
  const facade = await startRole(
    {
      ROLE: "facade",
      CORE_ADDRESS: cells.map(({ name, address }) => `${name}=${address}`).join(","),
      GRPC_PORT: "0",
      ...env,
    },
    dataDir,
  );
  return {
    /** Base address of its HTTP listener. */
    address: facade.httpAddress ?? "",
    grpcAddress: facade.grpcAddress ?? "",
    async stop() {
      await facade.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
