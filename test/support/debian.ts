// PostgreSQL 15 as Debian has it, where it is installed, with Citus where that is.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Binaries } from "../../src/postgres/embedded/binaries.ts";
import { freePort } from "./ports.ts";
import { TestServer } from "./server-pair.ts";

const folder = "/usr/lib/postgresql/15";

export const hasDebian = existsSync(`${folder}/bin/initdb`);
export const hasCitus = hasDebian && existsSync(`${folder}/lib/citus.so`);

/** The programs of Debian, which run as the user `postgres` where this one is root. */
function debianBinaries(): Binaries {
  const isRoot = process.getuid?.() === 0;
  const asPostgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];
  return {
    programs: folder,
    ownerId: isRoot
      ? Number(execFileSync("id", ["-u", "postgres"], { encoding: "utf8" }))
      : (process.getuid?.() ?? 0),
    command(program, args) {
      const all = [...(isRoot ? asPostgres : []), `${folder}/bin/${program}`, ...args];
      const [file = "", ...rest] = all;
      return [file, rest];
    },
  };
}

export type Servers = {
  /** URL of the database `gateway`: of Citus at the coordinator. */
  readonly url: string;
  readonly servers: readonly TestServer[];
  stop(): Promise<void>;
};

/** Starts one server. `stop` removes its data. */
export function startDebian(): Promise<Servers> {
  return startServers(1, []);
}

/** Starts a coordinator and `workers` servers for the rows. `settings`: of each, `name=value`. */
export async function startCitus(workers = 2, settings: readonly string[] = []): Promise<Servers> {
  const all = await startServers(workers + 1, [
    "shared_preload_libraries=citus",
    // Otherwise a server connects to another one with the certificate of its caller's home.
    "citus.node_conninfo=sslmode=disable",
    ...settings,
  ]);
  const [coordinator, ...others] = all.servers;
  for (const server of all.servers) await server.query("create extension citus");
  await coordinator?.query(`select citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`);
  for (const { port } of others)
    await coordinator?.query(`select citus_add_node('127.0.0.1', ${port})`);
  return all;
}

async function startServers(count: number, settings: readonly string[]): Promise<Servers> {
  const home = await mkdtemp(join(tmpdir(), "gateway-debian-"));
  const binaries = debianBinaries();
  execFileSync("chown", [String(binaries.ownerId), home]);
  const servers: TestServer[] = [];
  for (let index = 0; index < count; index++) {
    const server = new TestServer(`n${index}`, await freePort(), home, binaries, settings);
    await server.create();
    await server.start();
    await server.query("create database gateway", "postgres");
    servers.push(server);
  }
  return {
    url: servers[0]?.url() ?? "",
    servers,
    async stop() {
      for (const server of [...servers].reverse()) await server.stop();
      await rm(home, { recursive: true, force: true });
    },
  };
}
