// One embedded PostgreSQL for a whole test run, in a folder of its own, with a migrated database to clone from.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { createLog } from "../../src/log.ts";
import { startEmbedded } from "../../src/postgres/embedded.ts";
import { migrate } from "../../src/postgres/migrate.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Of the migrated database that `freshDatabase` clones. Nobody else connects to it: a database in use cannot be cloned. */
    templateUrl: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-test-"));
  const embedded = await startEmbedded(folder, createLog("warn"));
  await migrate(embedded.url);
  project.provide("templateUrl", embedded.url);
  return async () => {
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  };
}
