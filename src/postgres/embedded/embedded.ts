// A PostgreSQL server for one machine, with its data in a folder of the gateway. It runs detached:
// it outlives a killed gateway, and the next gateway finds it. Access is by a local socket and a
// generated password only.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
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
import { aborted, pause, systemClock } from "../../base/clock.ts";
import { randomSecret } from "../../base/ids.ts";
import type { Log } from "../../base/log.ts";
import { isLocalShortage } from "../../base/shortage.ts";
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
/** Of each attempt to start a server again. The watch makes several, with pauses. */
const restartsMax = 4;
/** After so many failures in a row a server is given up. */
const failuresMax = 6;
/** Between two attempts: first this, then twice as long each time. */
const failurePauseMs = { first: 1_000, max: 8_000 };
/** A server that ends sooner than that after its start has failed to start. */
const stableMs = 10_000;
/** A pid file without a whole content may be one that is just being written. */
const pidFileAgeMsMin = 1_000;
// A gateway opens up to 21. The rest is for commands, and for another gateway that takes over.
const connectionsPerProcess = 22;
const connectionsMin = 180;
const restartDelayMs = 250;
// The server still lists a connection for a moment after it was closed.
const sharedSettleMs = 1_000;
const askTimeoutMs = 2_000;
// The path of a socket has at most 107 bytes on Linux and 103 on macOS, including `/.s.PGSQL.5432`.
const socketFolderBytesMax = 88;
const watchName = `${applicationName} watch`;
/** SQLSTATE of a server that starts, stops or recovers. */
const cannotConnectNow = "57P03";
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
  /**
   * Present: a server that ends before `stop` is started again. Called once, when that has failed
   * six times in a row: nothing is tried any more.
   */
  readonly onLost?: () => void;
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
  const ending = new AbortController();
  const parts = { binaries, cluster, password, log, options, ending: ending.signal };
  const { server, state } = await ensureRunning(parts, startsMax);
  log.debug("the embedded PostgreSQL accepts connections");
  const url = urlOf(server, password, database);
  if (state === "lacks the database") await createDatabase(urlOf(server, password, "postgres"));
  const { onLost } = options;
  const watch = onLost && keepRunning(parts, server, onLost);
  return {
    url,
    async stop() {
      ending.abort();
      await watch;
      await stop(cluster, url, log);
    },
  };
}

type ServerParts = {
  readonly binaries: Binaries;
  /** The folder of the data. */
  readonly cluster: string;
  readonly password: string;
  readonly log: Log;
  readonly options: EmbeddedOptions;
  readonly ending: AbortSignal;
};

/** Starts the server again when it ends. Resolves when it ends for good. Never rejects. */
async function keepRunning(
  parts: ServerParts,
  { socketFolder, ...server }: Server,
  onLost: () => void,
): Promise<void> {
  const { log, password, ending } = parts;
  const url = urlOf({ socketFolder, ...server }, password, database);
  let failures = 0;
  /** Undefined: it does not run. */
  let startedAtMs: number | undefined = Number.NEGATIVE_INFINITY;
  for (;;) {
    const state = await untilClosed(url, ending);
    if (ending.aborted) return;
    if (state === "unknown") {
      await pause(systemClock, failurePauseMs.first, ending);
      continue;
    }
    if (startedAtMs !== undefined && performance.now() - startedAtMs >= stableMs) failures = 0;
    startedAtMs = undefined;
    if (failures === 0)
      log.warn(
        { code: "embedded_database_ended" },
        "the embedded PostgreSQL has ended: it is started again",
      );
    else {
      const { first, max } = failurePauseMs;
      await pause(systemClock, Math.min(max, first * 2 ** (failures - 1)), ending);
    }
    failures += 1;
    try {
      await ensureRunning(parts, restartsMax, socketFolder);
      startedAtMs = performance.now();
      log.info("the embedded PostgreSQL accepts connections again");
      continue;
    } catch (err) {
      if (ending.aborted) return;
      log.error(
        { code: "embedded_database_not_started", err, failures },
        "the embedded PostgreSQL does not start",
      );
    }
    if (failures < failuresMax) continue;
    log.fatal(
      { code: "embedded_database_lost" },
      "the embedded PostgreSQL does not start: ending the gateway",
    );
    return onLost();
  }
}

/**
 * Holds a connection, and resolves when the server has ended it, or `ending` fires. `unknown`: it
 * got none, but the server may well run.
 */
async function untilClosed(url: string, ending: AbortSignal): Promise<"closed" | "unknown"> {
  // Under another name, so that `stop` of another gateway does not count it.
  const client = new Client({ ...connectionConfig(url), application_name: watchName });
  client.on("error", () => {});
  const closed = once(client, "end");
  try {
    // A client that is ended while it connects may never settle.
    await Promise.race([client.connect().then(() => closed), aborted(ending)]);
  } catch (error) {
    const isAnswer = error instanceof DatabaseError && error.code !== cannotConnectNow;
    if (isAnswer || isLocalShortage(error)) return "unknown";
  } finally {
    void client.end().catch(() => {});
  }
  return "closed";
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
type Server = { pid: number; folder: string; port: string; socketFolder: string };

/** Members are `NaN` or empty where the file lacks them yet. Undefined: there is no file. */
async function readPidFile(cluster: string): Promise<Server | undefined> {
  const text = await readFile(join(cluster, "postmaster.pid"), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const [pid = "", folder = "", , port = "", socketFolder = ""] = text.split("\n");
  return { pid: Number.parseInt(pid, 10), folder, port, socketFolder };
}

function urlOf(
  { port, socketFolder }: Pick<Server, "port" | "socketFolder">,
  password: string,
  database: string,
): string {
  return `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(socketFolder)}`;
}

/**
 * Starts the server, at most `startsLeft` times, unless it runs. Resolves when it accepts
 * connections. `socketFolder`: where its clients expect its socket.
 */
async function ensureRunning(
  { binaries, cluster, password, log, options, ending }: ServerParts,
  startsLeft: number,
  socketFolder?: string,
): Promise<{ server: Server; state: "ready" | "lacks the database" }> {
  const deadline = Date.now() + startTimeoutMs;
  const logFile = join(cluster, "..", "postgres.log");
  let starting = false;
  let failure: unknown;
  while (Date.now() < deadline && failure === undefined && !ending.aborted) {
    const server = await readPidFile(cluster);
    const isAlive = server !== undefined && (await isServerOf(cluster, server));
    const isWhole = isAlive && server.socketFolder !== "";
    const state = isWhole ? await connectTo(urlOf(server, password, database)) : undefined;
    if (server && state !== undefined) return { server, state };
    if (!starting && !isAlive && startsLeft-- > 0) {
      await removeStalePidFile(cluster);
      log.debug({ cluster }, "starting the embedded PostgreSQL");
      starting = true;
      // Clients of a server that was killed wait for it at the same socket.
      const known = socketFolder ?? (await findSocketFolder(server));
      startServer(binaries, cluster, logFile, known, options)
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

async function findSocketFolder(server: Server | undefined): Promise<string | undefined> {
  if (!server?.socketFolder) return undefined;
  return (await exists(server.socketFolder)) ? server.socketFolder : undefined;
}

/** Resolves when the server exits. */
async function startServer(
  binaries: Binaries,
  cluster: string,
  logFile: string,
  knownSocketFolder: string | undefined,
  { processes = 1, settings = [], onLaunched }: EmbeddedOptions,
): Promise<void> {
  const socketFolder =
    Buffer.byteLength(cluster) <= socketFolderBytesMax
      ? cluster
      : (knownSocketFolder ?? (await mkdtemp(join(tmpdir(), "gateway-"))));
  await mkdir(socketFolder, { recursive: true, mode: 0o700 });
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

/**
 * True if the process of the pid file is the server of this folder. Its id may be that of another
 * program by now, and a copied folder has the file of another installation's server.
 */
async function isServerOf(cluster: string, { pid, folder }: Server): Promise<boolean> {
  if (!(pid > 0)) return false;
  if (process.platform !== "linux") return folder === cluster && isProcess(pid);
  const command = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "");
  if (command.trim() !== "postgres") return false;
  try {
    const [its, own] = await Promise.all([stat(`/proc/${pid}/cwd`), stat(cluster)]);
    return its.ino === own.ino && its.dev === own.dev;
  } catch (error) {
    // In a container, root may not see the folder of another user's process.
    return isCode(error, "EACCES") && folder === cluster;
  }
}

function isProcess(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return isCode(error, "EPERM");
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

// PostgreSQL refuses to start beside a pid file that it cannot read, or whose process lives, even
// if that is another program by now.
async function removeStalePidFile(cluster: string): Promise<void> {
  const path = join(cluster, "postmaster.pid");
  const found = await stat(path).catch(() => undefined);
  const server = await readPidFile(cluster);
  if (!found || !server) return;
  if (Date.now() - found.mtimeMs < pidFileAgeMsMin) return;
  if (!(await isServerOf(cluster, server))) await rm(path, { force: true });
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
  const server = await readPidFile(cluster);
  if (!server) return;
  // A server that was killed leaves its file.
  if (!(await isServerOf(cluster, server))) {
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
    const still = await readPidFile(cluster);
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

declare module "../../base/log.ts" {
  interface LogCodes {
    /**
     * the embedded database was killed or crashed, and is started again; its log (postgres.log) and
     * that of the machine may say why
     */
    embedded_database_ended: true;
    /**
     * the embedded database was killed while the gateway ran; its log (postgres.log) may say why
     */
    embedded_database_gone: true;
    /**
     * the embedded database did not start six times in a row, and the gateway ends with 1; look at
     * postgres.log, and at the disk, and let a supervisor start the gateway again
     */
    embedded_database_lost: true;
    /** it is tried again after a pause; look at postgres.log, and at the disk */
    embedded_database_not_started: true;
    /** the embedded database takes long to stop; wait, or look at its disk */
    embedded_database_slow: true;
  }
}
