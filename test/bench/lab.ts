// The processes of a suite: started for it, ended after it, listening on the loopback only.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { migrate } from "../../src/postgres/migrate.ts";
import { nodeFlags, programPath as shippedMain, startVariables } from "../support/child-gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { freePort, isListening } from "../support/ports.ts";
import { redisBinary } from "../support/programs.ts";
import { connectLedger, findViolations, runSql, sumCharges } from "./books.ts";
import { benchCatalog, benchPrice, type CatalogOptions } from "./catalog.ts";
import type { LadderStep } from "./ladder.ts";
import type { LoadJob, LoadResult } from "./load.ts";

const log = createLog("silent");
const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));
const adminToken = "the-admin-token-of-the-bench";

/** A process of the bench. */
export type BenchProcess = { readonly pid: number; readonly port: number };

export type GatewayProcess = BenchProcess & {
  readonly key: string;
  readonly grpcAddress: string;
  readonly adminToken: string;
  readonly accountId: string;
  /** The link of the first operator. Empty: this gateway did not seed its database. */
  readonly ownerLink: string;
};

export type GatewayOptions = {
  readonly env?: NodeJS.ProcessEnv;
  readonly catalog?: CatalogOptions;
  /** Default: the lab's own database. */
  readonly databaseUrl?: string;
  /** The program, as a path beside this file. Default: the gateway as it is shipped. */
  readonly main?: string;
  /** Flags of Node, in addition to those of `npm start`. */
  readonly flags?: readonly string[];
  /** False: no account and no keys are created. Default: true. */
  readonly seed?: boolean;
};

export class Lab {
  readonly #stack = new AsyncDisposableStack();
  readonly #children = new Map<number, ChildProcess>();
  readonly #keys = new Map<string, { v1: string; accountId: string }>();
  #database: { url: string; pid: number } | undefined;
  #disposed: Promise<void> | undefined;

  constructor() {
    // The database runs in a session of its own and would survive Ctrl-C.
    const interrupt = () => void this[Symbol.asyncDispose]().finally(() => process.exit(130));
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.once(signal, interrupt);
      this.#stack.defer(() => void process.off(signal, interrupt));
    }
  }

  /** The embedded PostgreSQL of this lab. */
  async database(): Promise<{ url: string; pid: number }> {
    if (this.#database) return this.#database;
    const folder = await this.folder();
    const { url, stop } = await startEmbedded(folder, log);
    this.#stack.defer(stop);
    const [pid] = (await readFile(join(folder, "postgres", "postmaster.pid"), "utf8")).split("\n");
    this.#database = { url, pid: Number(pid) };
    return this.#database;
  }

  /** The URL of one more database on the same server, migrated and empty. */
  async emptyDatabase(name: string): Promise<string> {
    const { url } = await this.database();
    const postgres = connectLedger(url);
    await runSql(postgres, `create database ${name}`);
    await postgres.close();
    const address = new URL(url);
    address.pathname = `/${name}`;
    await migrate(address.href);
    return address.href;
  }

  async folder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), "bench-"));
    this.#stack.defer(() => rm(folder, { recursive: true, force: true }));
    return folder;
  }

  provider(): Promise<BenchProcess> {
    return this.start([here("./provider.ts")]);
  }

  forwarder(to: BenchProcess): Promise<BenchProcess> {
    return this.start([here("./forwarder.ts"), urlOf(to)]);
  }

  /** A step of the ladder in front of the provider, with the flags of a gateway. */
  ladderStep(step: LadderStep, to: BenchProcess, databaseUrl: string): Promise<BenchProcess> {
    return this.start([...nodeFlags, here("./ladder-step.ts"), step, urlOf(to), databaseUrl]);
  }

  /** A gateway process in front of the provider, with one account that cannot run out. */
  async gateway(provider: BenchProcess, options: GatewayOptions = {}): Promise<GatewayProcess> {
    const { env = {}, catalog = {}, main, flags = [], seed = true } = options;
    const databaseUrl = options.databaseUrl ?? (await this.database()).url;
    const folder = await this.folder();
    await writeFile(join(folder, "catalog.yaml"), benchCatalog(provider, catalog));
    const { child, http, grpc } = await this.#startGateway(
      [...flags, main === undefined ? shippedMain : here(main)],
      {
        DATABASE_URL: databaseUrl,
        ADMIN_TOKEN: adminToken,
        CONTENT_KEY: contentKey,
        SEED: String(seed),
        DATA_DIR: folder,
        CONFIG: join(folder, "catalog.yaml"),
        ...env,
      },
    );
    // An earlier gateway of this lab may have seeded the database: then no file is written.
    const written = JSON.parse(
      await readFile(join(folder, "first-keys.json"), "utf8").catch(() => "{}"),
    );
    if (written.v1 !== undefined) {
      this.#keys.set(databaseUrl, { v1: written.v1, accountId: written.accountId });
      await fund(grpc, written.accountId);
    }
    const { v1: key, accountId } = this.#keys.get(databaseUrl) ?? { v1: "", accountId: "" };
    const ownerLink = String(written.ownerLink ?? "");
    const process = { pid: pidOf(child), port: portOf(http) };
    return { ...process, key, accountId, ownerLink, grpcAddress: grpc, adminToken };
  }

  /** A process of the role `facade` in front of one of the role `core`, or of several cells. */
  async facade(core: GatewayProcess, coreAddress = core.grpcAddress): Promise<GatewayProcess> {
    const env = {
      ROLE: "facade",
      PUBLIC_URL: "http://localhost:8080",
      CORE_ADDRESS: coreAddress,
      CONTENT_KEY: contentKey,
      DATA_DIR: await this.folder(),
    };
    const { child, http } = await this.#startGateway([shippedMain], env);
    return { ...core, pid: pidOf(child), port: portOf(http) };
  }

  /** Starts a Node process that prints its port as a line of JSON when it is ready. */
  async start(args: readonly string[]): Promise<BenchProcess> {
    const child = this.#spawn(process.execPath, args, {}, "inherit");
    const { port } = await firstLine(child);
    return { pid: pidOf(child), port: Number(port) };
  }

  /** Starts another project's server and waits until it listens at `port`. */
  async server(command: string, args: readonly string[], port: number): Promise<BenchProcess> {
    const child = this.#spawn(command, args, {}, "ignore");
    child.stdout?.resume();
    for (let attempt = 0; attempt < 200 && child.exitCode === null; attempt++) {
      if (await isListening(port)) return { pid: pidOf(child), port };
      await delay(50);
    }
    throw new Error(`${command} did not listen at port ${port}`);
  }

  /** A Redis that keeps nothing on disk. Undefined: none is installed. */
  async redis(): Promise<BenchProcess | undefined> {
    if (redisBinary === undefined) return undefined;
    const [port, folder] = [await freePort(), await this.folder()];
    const args = [
      "--bind",
      "127.0.0.1",
      "--port",
      String(port),
      "--dir",
      folder,
      "--save",
      "",
      "--appendonly",
      "no",
    ];
    return this.server(redisBinary, args, port);
  }

  /** A further account with these credits in its pool. Returns its id. */
  async createAccount(
    { grpcAddress }: GatewayProcess,
    amountMicrocredits: bigint,
  ): Promise<string> {
    const core = grpcCore({ addresses: [grpcAddress] });
    const headers = { authorization: `Bearer ${adminToken}` };
    const { account } = await core.billing.createAccount(
      { settings: { name: "bench" } },
      { headers },
    );
    const accountId = account?.accountId ?? "";
    core.close();
    if (amountMicrocredits > 0n) await fund(grpcAddress, accountId, amountMicrocredits);
    return accountId;
  }

  /** A further key of the gateway's account, as its secret. */
  async createKey(
    { grpcAddress, accountId }: GatewayProcess,
    key: { requestsPerMinute: number },
  ): Promise<string> {
    const core = grpcCore({ addresses: [grpcAddress] });
    const headers = { authorization: `Bearer ${adminToken}` };
    const { secret } = await core.keys.createKey(
      { accountId, family: Family.V1, settings: { name: "bench", ...key } },
      { headers },
    );
    core.close();
    return secret;
  }

  /** Ends a process before the lab ends. */
  async end({ pid }: BenchProcess): Promise<void> {
    const child = this.#children.get(pid);
    this.#children.delete(pid);
    if (child) await end(child);
  }

  /** Sends a load from a process of its own. */
  load(job: LoadJob): Promise<LoadResult> {
    return this.runProgram("./load.ts", job);
  }

  /** Runs a program of the bench with a job on its stdin, and returns the JSON that it prints. */
  async runProgram<Answer>(program: string, job: object): Promise<Answer> {
    const child = spawn(process.execPath, [...nodeFlags, here(program)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#children.set(pidOf(child), child);
    child.stdin.end(JSON.stringify(job));
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
    const [code] = await once(child, "close");
    this.#children.delete(pidOf(child));
    if (code !== 0) throw new Error(`${program} ended with ${code}`);
    return JSON.parse(printed);
  }

  /**
   * Violations of the ledgers at `urls`, and the difference between their charges and the usage
   * that the provider served at list price. `uncounted` requests did not pass a ledger. Empty: the
   * run is good.
   */
  async faults(
    provider: BenchProcess,
    uncounted = 0,
    urls: readonly string[] = [],
  ): Promise<string[]> {
    const faults: string[] = [];
    let charged = 0n;
    for (const url of urls.length > 0 ? urls : [(await this.database()).url]) {
      const postgres = connectLedger(url);
      faults.push(...(await findViolations(postgres)));
      charged += await sumCharges(postgres);
      await postgres.close();
    }
    const { requests, input, output } = await served(provider);
    // All answers have the same usage.
    const each =
      requests > 0
        ? { input: BigInt(input / requests), output: BigInt(output / requests) }
        : { input: 0n, output: 0n };
    const expected =
      BigInt(requests - uncounted) *
      (each.input * benchPrice.input + each.output * benchPrice.output);
    if (charged !== expected)
      faults.push(`charged ${charged} micro-credits, the provider served ${expected}`);
    return faults;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed ??= this.#dispose();
    return this.#disposed;
  }

  async #dispose(): Promise<void> {
    await Promise.all([...this.#children.values()].map((child) => end(child)));
    await this.#stack.disposeAsync();
  }

  async #startGateway(args: readonly string[], env: NodeJS.ProcessEnv) {
    const anyPort = { ...startVariables, PORT: "0", GRPC_PORT: "0", LOG_LEVEL: "info" };
    const child = this.#spawn(
      process.execPath,
      [...nodeFlags, ...args],
      { ...anyPort, ...env },
      "pipe",
    );
    const { http, grpc } = await readyLine(child);
    return { child, http: String(http), grpc: String(grpc) };
  }

  #spawn(
    command: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv,
    stderr: "pipe" | "inherit" | "ignore",
  ): ChildProcess {
    const child = spawn(command, args, {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", stderr],
    });
    // A command that cannot be started has no process: its reader gets the error.
    child.once("error", (error) => child.stdout?.destroy(error));
    if (child.pid !== undefined) this.#children.set(child.pid, child);
    return child;
  }
}

/** The totals of the provider so far; `waiting` is the number of streams that are idle now. */
export async function served(
  provider: BenchProcess,
): Promise<{ requests: number; input: number; output: number; waiting: number }> {
  const answer = await fetch(`${urlOf(provider)}/served`);
  const totals: unknown = await answer.json();
  const { requests, input, output, waiting } = Object(totals);
  return { requests, input, output, waiting };
}

export function urlOf({ port }: BenchProcess): string {
  return `http://127.0.0.1:${port}`;
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error(`${child.spawnfile} could not be started`);
  return child.pid;
}

/** 0 when the gateway has no HTTP listener. */
function portOf(address: string): number {
  return Number(URL.parse(address)?.port ?? 0);
}

async function fund(
  address: string,
  accountId: string,
  amountMicrocredits = 2n ** 52n,
): Promise<void> {
  const core = grpcCore({ addresses: [address] });
  const headers = { authorization: `Bearer ${adminToken}` };
  const transfer = {
    accountId,
    family: 1,
    kind: TransferKind.BONUS,
    amountMicrocredits,
    idempotencyKey: "bench",
  } as const;
  await core.billing.createTransfer(transfer, { headers });
  core.close();
}

async function firstLine(child: ChildProcess): Promise<Record<string, unknown>> {
  if (!child.stdout) throw new Error("no output to read");
  for await (const line of createInterface(child.stdout)) return JSON.parse(line);
  throw new Error("a process of the bench ended before it was ready");
}

/** The log line in which a gateway reports its addresses. */
async function readyLine(child: ChildProcess): Promise<Record<string, unknown>> {
  if (!child.stderr) throw new Error("no log to read");
  const lines: string[] = [];
  const reader = createInterface(child.stderr);
  for await (const line of reader) {
    lines.push(line);
    const entry = line.startsWith("{") ? JSON.parse(line) : {};
    if (entry.msg === "ready") {
      child.stderr.resume();
      child.stdout?.resume();
      return entry;
    }
  }
  throw new Error(`the gateway did not start:\n${lines.join("\n")}`);
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 5_000);
  await once(child, "exit");
  clearTimeout(timer);
}
