// Data directories for gateways with an embedded database.

import { execFileSync } from "node:child_process";
import { appendFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { migrate } from "../../src/postgres/migrate.ts";

/** A migrated, empty embedded database that does not run. */
export type MadeDatabase = {
  /**
   * Gives a data directory such a database, in a tenth of the time in which the first start of a
   * gateway makes it.
   */
  copyTo(dataDir: string): void;
  remove(): Promise<void>;
};

export async function makeDatabase(): Promise<MadeDatabase> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-made-"));
  const embedded = await startEmbedded(folder, createLog("warn"));
  await migrate(embedded.url);
  await embedded.stop();
  // Tests kill processes, not machines.
  await appendFile(join(folder, "postgres/postgresql.auto.conf"), "fsync = off\n");
  return {
    // Node's own copy takes seven times as long.
    copyTo: (dataDir) => void execFileSync("cp", ["-a", join(folder, "postgres"), dataDir]),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
