// One embedded PostgreSQL for a whole test run, in a folder of its own, with a migrated database to
// clone from. The page of the console is bundled once, as after `npm install`.

import { mkdtemp, readdir, readFile, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import type { TestProject } from "vitest/node";
import { createLog } from "../../src/base/log.ts";
import { readBuilt, writeBundle } from "../../src/console/bundle.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { migrate } from "../../src/postgres/migrate.ts";

declare module "vitest" {
  interface ProvidedContext {
    /**
     * URL of the migrated database that `freshDatabase` clones. Nothing else may connect to it:
     * PostgreSQL does not clone a database in use.
     */
    templateUrl: string;
  }
}

/** In memory, where there is room: a cloned database has 1,000 files, each new on a disk. */
async function folderOfRun(): Promise<string> {
  const memory = await statfs("/dev/shm").catch(() => undefined);
  const hasRoom = memory !== undefined && memory.bavail * memory.bsize > 4 * 2 ** 30;
  const parent = hasRoom ? "/dev/shm" : tmpdir();
  await removeLeft(parent);
  return mkdtemp(join(parent, `gateway-test-${process.pid}-`));
}

/** Removes what runs have left that were killed, with their databases. */
async function removeLeft(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const [, pid] = /^gateway-test-(\d+)-/.exec(name) ?? [];
    if (pid === undefined || isAlive(Number(pid))) continue;
    const folder = join(parent, name);
    const file = await readFile(join(folder, "postgres/postmaster.pid"), "utf8").catch(() => "");
    const server = Number.parseInt(file, 10);
    // At once, since nobody needs its data.
    if (server > 0 && isAlive(server)) process.kill(server, "SIGQUIT");
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Tests kill processes, not machines, so that no write has to reach the disk. */
async function disableFsync(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query("alter system set fsync = off");
  await client.query("select pg_reload_conf()");
  await client.end();
}

/** Otherwise each process whose page is asked for would run the bundler. */
async function bundleOnce(): Promise<void> {
  if (!(await readBuilt())) await writeBundle();
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await folderOfRun();
  // The first process that exits normally fills it; later ones start faster.
  process.env.NODE_COMPILE_CACHE = join(folder, "compiled");
  const [embedded] = await Promise.all([startEmbedded(folder, createLog("warn")), bundleOnce()]);
  await migrate(embedded.url);
  await disableFsync(embedded.url);
  project.provide("templateUrl", embedded.url);
  return async () => {
    await embedded.stop();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  };
}
