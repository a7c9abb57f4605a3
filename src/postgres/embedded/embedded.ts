// A PostgreSQL server for one machine, with its data in a folder of the gateway. It runs detached:
// it outlives a killed gateway, and the next gateway finds it. Access is by a local socket and a
// generated password only.

import { execFile, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import {
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { Client, DatabaseError } from "pg";
import { randomSecret } from "../../base/ids.ts";
import type { Log } from "../../base/log.ts";
import { applicationName, connectionConfig } from "../session.ts";
import { type Binaries, findBinaries } from "./binaries.ts";
import { digestSources, findTemplate, unpackTemplate } from "./template.ts";

export { templateFolder } from "./template.ts";

const run = promisify(execFile);

export type Embedded = {
  /** URL of the gateway's database on this server. */
  url: string;
  /** Stops the server, unless another gateway uses it. */
  stop(): Promise<void>;
};

// Long enough to replay a long log after a crash.
const startTimeoutMs = 60_000;
const draftAgeMsMax = 600_000;
// A slow checkpoint takes longer. The server then ends by itself, and the next start waits for it.
const stopTimeoutMs = 10_000;
const pollMs = 20;
const startsMax = 20;
// A gateway opens up to 21. The rest is for commands, and for another gateway that takes over.
const connectionsPerProcess = 22;
const connectionsMin = 180;
const restartDelayMs = 250;
// The server still lists a connection for a moment after it was closed.
const sharedSettleMs = 1_000;
const askTimeoutMs = 2_000;
// The path of a socket has at most 107 bytes on Linux and 103 on macOS, including `/.s.PGSQL.5432`.
const socketFolderBytesMax = 88;
const user = "gateway";
const database = "gateway";
const passwordFile = "gateway.password";
/** Files of one data folder: no other may have them. */
export const ownFiles = [passwordFile, "postmaster.opts", "postmaster.pid"];
// One call for all files, instead of a thousand.
const syncMethod = process.platform === "linux" ? ["--sync-method=syncfs"] : [];

export type EmbeddedOptions = {
  /** How many gateways will connect. Default: 1. */
  readonly processes?: number;
  /**
   * The folder of the template from which a first start makes the data. Absent, or without one of
   * these sources: it makes an empty database.
   */
  readonly templates?: string;
  /** More settings of the server, `name=value`. */
  readonly settings?: readonly string[];
  /** Called when other processes do the rest: this one may block its thread without a delay. */
  readonly onLaunched?: () => void;
};

/**
 * Starts the server with its data in `dataDir`, unless it runs already. Creates the data on the
 * first start.
 */
export async function startEmbedded(
  dataDir: string,
  log: Log,
  options: EmbeddedOptions = {},
): Promise<Embedded> {
  const binaries = await findBinaries();
  const cluster = join(resolve(dataDir), "postgres");
  await mkdir(resolve(dataDir), { recursive: true });
  if (!(await exists(cluster))) await createCluster(binaries, cluster, options, log);
  await removeOldDrafts(cluster);
  await giveTo(binaries.ownerId, cluster);
  const password = await readFile(join(cluster, passwordFile), "utf8");
  const { server, state } = await ensureRunning({ binaries, cluster, password, log, options });
  log.debug("the embedded PostgreSQL accepts connections");
  const url = urlOf(server, password, database);
  if (state === "lacks the database") await createDatabase(urlOf(server, password, "postgres"));
  return { url, stop: () => stop(cluster, url, log) };
}

// Creates the data under another name and renames it. So of two processes the slower one finds the
// data of the other, and a crash leaves no incomplete data under the final name.
async function createCluster(
  binaries: Binaries,
  cluster: string,
  { templates, onLaunched }: EmbeddedOptions,
  log: Log,
): Promise<void> {
  const draft = await mkdtemp(`${cluster}.new-`);
  try {
    await giveTo(binaries.ownerId, draft);
    const data =
      (await makeFromTemplate(binaries, join(draft, "template"), templates, log)) ??
      (await makeFromNothing(binaries, join(draft, "data"), onLaunched));
    await rename(data, cluster);
  } catch (error) {
    if (!(await exists(cluster))) throw error;
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

// Undefined: there is no template, or it is of no use.
async function makeFromTemplate(
  binaries: Binaries,
  data: string,
  templates: string | undefined,
  log: Log,
): Promise<string | undefined> {
  if (templates === undefined) return undefined;
  try {
    const template = findTemplate(templates, digestSources(binaries.programs));
    if (template === undefined) {
      log.debug({ templates }, "no database template of these sources");
      return undefined;
    }
    const password = randomSecret(24);
    await mkdir(data, { mode: 0o700 });
    unpackTemplate(template, data);
    await writeFile(join(data, passwordFile), password, { mode: 0o600 });
    await giveTo(binaries.ownerId, data);
    await runAlone(binaries, data, `alter role ${user} password '${password}'`);
    // Without it, a crash of the machine after the rename could leave empty files.
    const [file, args] = binaries.command("initdb", [
      ...["--sync-only", `--pgdata=${data}`],
      ...syncMethod,
    ]);
    await run(file, args);
    log.debug({ template }, "the database is made from a template");
    return data;
  } catch (err) {
    log.debug({ err }, "the database template is of no use");
    await rm(data, { recursive: true, force: true });
    return undefined;
  }
}

async function makeFromNothing(
  binaries: Binaries,
  data: string,
  onLaunched: (() => void) | undefined,
): Promise<string> {
  const password = `${data}.password`;
  await mkdir(data, { mode: 0o700 });
  await writeFile(password, randomSecret(24), { mode: 0o600 });
  for (const path of [data, password]) await giveTo(binaries.ownerId, path);
  const [file, args] = binaries.command("initdb", [
    `--pgdata=${data}`,
    `--username=${user}`,
    `--pwfile=${password}`,
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    // Commits wait while the server fills a new segment with zeros: 45 ms for the default of 16
    // MB, 3 ms for 1 MB.
    "--wal-segsize=1",
    ...syncMethod,
  ]);
  const made = run(file, args);
  onLaunched?.();
  await made;
  await rename(password, join(data, passwordFile));
  return data;
}

/** Runs a statement on data without a server. Nobody has to log in for it. */
async function runAlone(binaries: Binaries, data: string, statement: string): Promise<void> {
  const [file, args] = binaries.command("postgres", [
    ...["--single", "-D", data],
    ...["-c", "exit_on_error=on"],
    ...["-c", "log_checkpoints=off"],
    "postgres",
  ]);
  const running = run(file, args);
  // It may exit before it reads.
  running.child.stdin?.on("error", () => {});
  running.child.stdin?.end(`${statement}\n`);
  await running;
}

// Removes the drafts of killed starts. A younger draft may belong to a start that still runs.
async function removeOldDrafts(cluster: string): Promise<void> {
  const folder = dirname(cluster);
  for (const name of await readdir(folder)) {
    if (!name.startsWith(`${basename(cluster)}.new-`)) continue;
    const draft = join(folder, name);
    const made = await stat(draft).catch(() => undefined);
    if (made && Date.now() - made.mtimeMs > draftAgeMsMax)
      await rm(draft, { recursive: true, force: true });
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

// PostgreSQL must own its data. The owner depends on how PostgreSQL runs on this machine.
async function giveTo(ownerId: number, path: string): Promise<void> {
  const found = await lstat(path);
  if (found.uid === ownerId) return;
  await chown(path, ownerId, -1);
  if (found.isDirectory())
    for (const name of await readdir(path)) await giveTo(ownerId, join(path, name));
}

/** A server, as described by its `postmaster.pid`. */
type Server = { pid: number; port: string; socketFolder: string };

async function findRunning(cluster: string): Promise<Server | undefined> {
  const text = await readFile(join(cluster, "postmaster.pid"), "utf8").catch(() => "");
  const [pid, , , port, socketFolder] = text.split("\n");
  if (!pid || !port || !socketFolder) return undefined;
  return { pid: Number(pid), port, socketFolder };
}

function urlOf({ port, socketFolder }: Server, password: string, database: string): string {
  return `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(socketFolder)}`;
}

async function ensureRunning({
  binaries,
  cluster,
  password,
  log,
  options,
}: {
  binaries: Binaries;
  cluster: string;
  password: string;
  log: Log;
  options: EmbeddedOptions;
}): Promise<{ server: Server; state: "ready" | "lacks the database" }> {
  const deadline = Date.now() + startTimeoutMs;
  const logFile = join(cluster, "..", "postgres.log");
  let starting = false;
  let startsLeft = startsMax;
  let failure: unknown;
  while (Date.now() < deadline && failure === undefined) {
    const server = await findRunning(cluster);
    const state = server && (await connectTo(urlOf(server, password, database)));
    if (server && state !== undefined) return { server, state };
    if (!starting && startsLeft-- > 0) {
      if (server && !(await isPostgres(server.pid)))
        await rm(join(cluster, "postmaster.pid"), { force: true });
      log.debug({ cluster }, "starting the embedded PostgreSQL");
      starting = true;
      startServer(binaries, cluster, logFile, options)
        // The server exited: another process started one, which will accept connections soon, or
        // processes of an earlier server still run.
        .then(() => delay(restartDelayMs))
        .catch((error: unknown) => {
          failure = error;
        })
        .finally(() => {
          starting = false;
        });
    }
    if (!starting && startsLeft < 0) break;
    await delay(pollMs);
  }
  throw new Error(`the embedded PostgreSQL did not start; see ${logFile}`, { cause: failure });
}

/** Resolves when the server exits. */
async function startServer(
  binaries: Binaries,
  cluster: string,
  logFile: string,
  { processes = 1, settings = [], onLaunched }: EmbeddedOptions,
): Promise<void> {
  const socketFolder =
    Buffer.byteLength(cluster) <= socketFolderBytesMax
      ? cluster
      : await mkdtemp(join(tmpdir(), "gateway-"));
  await giveTo(binaries.ownerId, socketFolder);
  const [file, args] = binaries.command("postgres", [
    ...["-D", cluster, "-k", socketFolder],
    ...["-c", "listen_addresses="],
    ...["-c", "unix_socket_permissions=0700"],
    ...["-c", `max_connections=${connectionsMin + connectionsPerProcess * processes}`],
    ...["-c", "log_checkpoints=off"],
    // `initdb` would choose multiples of the small segment size.
    ...["-c", "min_wal_size=160MB"],
    ...["-c", "max_wal_size=1GB"],
    ...settings.flatMap((setting) => ["-c", setting]),
  ]);
  // A file, not a pipe: the server continues to write after this process has exited.
  const output = openSync(logFile, "a", 0o600);
  // A session of its own: a Ctrl-C in the gateway's terminal must not stop the server before the
  // gateway has settled its requests.
  const child = spawn(file, args, {
    cwd: cluster,
    detached: true,
    stdio: ["ignore", output, output],
  });
  closeSync(output);
  child.unref();
  onLaunched?.();
  return new Promise((resolve, reject) => {
    child.on("exit", () => resolve());
    child.on("error", reject);
  });
}

// Connects, since a live process id proves nothing: it may be a zombie's or, after a restart of the
// machine, another program's. Undefined: the server accepts no connections.
async function connectTo(url: string): Promise<"ready" | "lacks the database" | undefined> {
  const client = new Client(connectionConfig(url));
  client.on("error", () => {});
  try {
    await client.connect();
    return "ready";
  } catch (error) {
    const isMissing = error instanceof DatabaseError && error.code === "3D000";
    return isMissing ? "lacks the database" : undefined;
  } finally {
    await client.end().catch(() => {});
  }
}

// PostgreSQL refuses to start while a process with the id in its old pid file lives, even if that
// is another program by now.
async function isPostgres(pid: number): Promise<boolean> {
  if (process.platform !== "linux") return true;
  const command = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "");
  return command.trim() === "postgres";
}

async function createDatabase(url: string): Promise<void> {
  const client = new Client(connectionConfig(url));
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query(`create database ${database}`);
  } catch (error) {
    // Another gateway created it at the same time.
    const taken =
      error instanceof DatabaseError && (error.code === "42P04" || error.code === "23505");
    if (!taken) throw error;
  } finally {
    await client.end();
  }
}

async function stop(cluster: string, url: string, log: Log): Promise<void> {
  const server = await findRunning(cluster);
  if (!server) return;
  // A server that was killed leaves its file, and its id may be that of another program by now.
  if (!(await isPostgres(server.pid))) {
    log.warn(
      { code: "embedded_database_gone", pid: server.pid },
      "the embedded PostgreSQL had ended before; the next start recovers it",
    );
    return;
  }
  if (await isShared(url)) {
    log.debug("the embedded PostgreSQL keeps running: another gateway uses it");
    return;
  }
  // The fast shutdown; SIGTERM would wait for clients.
  try {
    process.kill(server.pid, "SIGINT");
  } catch {
    // It has ended meanwhile.
    return;
  }
  const deadline = Date.now() + stopTimeoutMs;
  while (Date.now() < deadline) {
    const still = await findRunning(cluster);
    if (still?.pid !== server.pid) return;
    await delay(pollMs);
  }
  log.warn(
    { code: "embedded_database_slow", pid: server.pid },
    "the embedded PostgreSQL has not stopped yet",
  );
}

async function isShared(url: string): Promise<boolean> {
  const client = new Client({
    ...connectionConfig(url),
    connectionTimeoutMillis: askTimeoutMs,
    query_timeout: askTimeoutMs,
  });
  client.on("error", () => {});
  const others = {
    text: "select 1 from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid() and backend_type = 'client backend'",
    values: [applicationName],
  };
  try {
    await client.connect();
    const deadline = Date.now() + sharedSettleMs;
    while ((await client.query(others)).rows.length > 0) {
      if (Date.now() > deadline) return true;
      await delay(pollMs);
    }
    return false;
  } catch {
    return false;
  } finally {
    // A server that hangs would keep us waiting here.
    void client.end().catch(() => {});
  }
}
