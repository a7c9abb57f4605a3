// Two PostgreSQL servers with streaming replication, that tests promote, kill and bring back.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, chown, cp, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client, type QueryResultRow } from "pg";
import { type Binaries, findBinaries } from "../../src/postgres/embedded/binaries.ts";
import { freePort } from "./ports.ts";

const user = "gateway";

/** One server of a pair. Its data survive `stop` and `kill`. */
export class TestServer {
  readonly name: string;
  readonly port: number;
  readonly #binaries: Binaries;
  readonly #data: string;
  readonly #settings: readonly string[];
  #process: ChildProcess | undefined;

  /** `settings`: more settings of the server, each `name=value`. */
  constructor(
    name: string,
    port: number,
    folder: string,
    binaries: Binaries,
    settings: readonly string[] = [],
  ) {
    this.name = name;
    this.port = port;
    this.#data = join(folder, name);
    this.#binaries = binaries;
    this.#settings = settings;
  }

  /** `host:port`, as in a list of servers. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** URL of a database of this server alone. */
  url(database = "gateway"): string {
    return `postgres://${user}@${this.address}/${database}`;
  }

  async create(): Promise<void> {
    await mkdir(this.#data, { mode: 0o700 });
    await this.#own();
    const [file, args] = this.#binaries.command("initdb", [
      ...[`--pgdata=${this.#data}`, `--username=${user}`, "--auth=trust", "--no-sync"],
      ...["--encoding=UTF8", "--locale=C", "--wal-segsize=1"],
    ]);
    const [code] = await once(spawn(file, args, { stdio: "ignore" }), "exit");
    if (code !== 0) throw new Error(`initdb ended with ${code}`);
  }

  /** Takes the data of a stopped server, to follow it as a standby. */
  async copyFrom(primary: TestServer): Promise<void> {
    await rm(this.#data, { recursive: true, force: true });
    await cp(primary.#data, this.#data, { recursive: true, preserveTimestamps: true });
    await this.#own();
    await this.follow(primary);
  }

  /** The next start is that of a standby. */
  async follow(primary: TestServer): Promise<void> {
    await writeFile(join(this.#data, "standby.signal"), "");
    await appendFile(
      join(this.#data, "postgresql.auto.conf"),
      `primary_conninfo = 'host=127.0.0.1 port=${primary.port} user=${user} application_name=${this.name}'\n`,
    );
    await this.#own();
  }

  /** Starts the server and waits until it accepts connections. */
  async start(): Promise<void> {
    const [file, args] = this.#binaries.command("postgres", [
      ...["-D", this.#data, "-p", String(this.port), "-c", "listen_addresses=127.0.0.1"],
      ...["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "wal_keep_size=64MB"],
      ...["-c", "max_connections=200", "-c", "shared_buffers=32MB"],
      ...["-c", "wal_retrieve_retry_interval=100ms"],
      ...this.#settings.flatMap((setting) => ["-c", setting]),
    ]);
    for (;;) {
      const child = spawn(file, args, { cwd: this.#data, stdio: "ignore" });
      this.#process = child;
      while (child.exitCode === null && child.signalCode === null) {
        if (await this.query("select 1", "postgres").catch(() => undefined)) return;
        await delay(20);
      }
      // Processes of a killed server still run for a moment.
      await delay(100);
    }
  }

  /** Stops the server. It ends its connections, and a standby gets everything. */
  stop(): Promise<void> {
    return this.#end("SIGINT");
  }

  /** Kills all its processes, as a crash of the machine does. */
  async kill(): Promise<void> {
    const pids = await this.#backends();
    const killed = this.#end("SIGKILL");
    signalAll(pids, "SIGKILL");
    await killed;
  }

  /** Stops all its processes where they are, until the result is called: it hangs. */
  async hang(): Promise<() => void> {
    const pids = await this.#backends();
    if (this.#process?.pid !== undefined) pids.push(this.#process.pid);
    signalAll(pids, "SIGSTOP");
    return () => signalAll(pids, "SIGCONT");
  }

  async promote(): Promise<void> {
    await this.query("select pg_promote()", "postgres");
  }

  /** Changes a setting for all sessions, those that are open too. */
  async set(setting: string, value: string): Promise<void> {
    const client = await this.#connect("postgres");
    await client.query(`alter system set ${setting} = '${value}'`);
    await client.query("select pg_reload_conf()");
    await client.end();
  }

  async query<Row extends QueryResultRow>(sql: string, database = "gateway"): Promise<Row[]> {
    const client = await this.#connect(database);
    try {
      return (await client.query<Row>(sql)).rows;
    } finally {
      await client.end();
    }
  }

  async #backends(): Promise<number[]> {
    const backends = await this.query<{ pid: number }>("select pid from pg_stat_activity");
    return backends.map(({ pid }) => pid);
  }

  async #connect(database: string): Promise<Client> {
    const client = new Client({ connectionString: this.url(database) });
    client.on("error", () => {});
    await client.connect();
    return client;
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  async #own(): Promise<void> {
    const { ownerId } = this.#binaries;
    if (process.getuid?.() !== 0 || ownerId === 0) return;
    const names = await readdir(this.#data, { recursive: true });
    for (const name of ["", ...names]) await chown(join(this.#data, name), ownerId, -1);
  }
}

/** Starts one server without a standby. `stop` removes its data. */
export async function startTestServer(): Promise<{ server: TestServer; stop(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-server-"));
  const server = new TestServer("a", await freePort(), folder, await findBinaries());
  await server.create();
  await server.start();
  await server.query("create database gateway", "postgres");
  return {
    server,
    async stop() {
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // It has exited.
    }
  }
}

export type ServerPair = {
  /** The first primary and the first standby. */
  readonly a: TestServer;
  readonly b: TestServer;
  /** Both, with these parameters. */
  url(parameters?: string): string;
  stop(): Promise<void>;
};

/** Starts `a`, which replicates to `b`. `synchronous`: a commit waits for the standby. */
export async function startServerPair({
  synchronous,
}: {
  synchronous: boolean;
}): Promise<ServerPair> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-pair-"));
  const binaries = await findBinaries();
  const a = new TestServer("a", await freePort(), folder, binaries);
  const b = new TestServer("b", await freePort(), folder, binaries);
  await a.create();
  await a.start();
  await a.query("create database gateway", "postgres");
  await a.stop();
  await b.copyFrom(a);
  await a.start();
  await b.start();
  if (synchronous) await a.set("synchronous_standby_names", "*");
  return {
    a,
    b,
    url: (parameters = "") =>
      `postgres://${user}@${a.address},${b.address}/gateway${parameters && `?${parameters}`}`,
    async stop() {
      await Promise.all([b.stop(), a.stop()]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Waits until `standby` has everything that `primary` has written. */
export async function caughtUp(primary: TestServer, standby: TestServer): Promise<void> {
  const [row] = await primary.query<{ lsn: string }>("select pg_current_wal_lsn() as lsn");
  const sql = `select pg_last_wal_replay_lsn() >= '${row?.lsn}' as done`;
  while (!(await standby.query<{ done: boolean }>(sql))[0]?.done) await delay(20);
}
