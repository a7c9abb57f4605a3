// PostgreSQL 15 as Debian has it.

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

/** Starts a server with the database `gateway`, at `url`. `stop` removes its data. */
export async function startDebian(): Promise<{ url: string; stop(): Promise<void> }> {
  const home = await mkdtemp(join(tmpdir(), "gateway-debian-"));
  const binaries = debianBinaries();
  execFileSync("chown", [String(binaries.ownerId), home]);
  const server = new TestServer("n0", await freePort(), home, binaries);
  await server.create();
  await server.start();
  await server.query("create database gateway", "postgres");
  return {
    url: server.url(),
    async stop() {
      await server.stop();
      await rm(home, { recursive: true, force: true });
    },
  };
}
