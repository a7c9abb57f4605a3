// PgBouncer in front of a server, where it is installed.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { freePort, isListening } from "./ports.ts";
import { findProgram } from "./programs.ts";
import type { TestServer } from "./server-pair.ts";

/** Path of PgBouncer; undefined when it is not installed. */
export const pgbouncerBinary = findProgram("pgbouncer");

export type Pooler = {
  /** URL of the gateway's database behind the pooler. */
  readonly url: string;
  stop(): Promise<void>;
};

/** Starts PgBouncer with the settings that Debian ships, apart from `mode`. */
export async function startPgbouncer(
  server: TestServer,
  mode: "session" | "transaction" | "statement",
): Promise<Pooler> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-pooler-"));
  const port = await freePort();
  await writeFile(join(folder, "users.txt"), '"gateway" ""\n');
  const lines = [
    "[databases]",
    `* = host=127.0.0.1 port=${server.port}`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = trust",
    `auth_file = ${join(folder, "users.txt")}`,
    `pool_mode = ${mode}`,
    "default_pool_size = 50",
  ];
  // It refuses to run as root, and gives that up itself.
  if (process.getuid?.() === 0) lines.push("user = nobody");
  const path = join(folder, "pgbouncer.ini");
  await writeFile(path, `${lines.join("\n")}\n`);
  for (const name of ["", "users.txt", "pgbouncer.ini"]) await chmod(join(folder, name), 0o755);
  const child = spawn(pgbouncerBinary ?? "pgbouncer", ["-q", path], { stdio: "ignore" });
  while (!(await isListening(port))) {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended with ${child.exitCode}`);
    await delay(20);
  }
  return {
    url: `postgres://gateway@127.0.0.1:${port}/gateway`,
    async stop() {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
