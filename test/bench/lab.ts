// Everything a suite measures with: processes started for it and ended after it, on loopback only.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { createLog } from "../../src/log.ts";
import { startEmbedded } from "../../src/postgres/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { grpcCore } from "../../src/rpc/client.ts";
import type { Done, Job } from "./load.ts";

const log = createLog("silent");
const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** A process of the bench. */
export type Part = { readonly pid: number; readonly port: number };

export type GatewayPart = Part & {
  readonly key: string;
  readonly grpcAddress: string;
  readonly adminToken: string;
  readonly accountId: string;
};

export class Lab {
  readonly #stack = new AsyncDisposableStack();
  readonly #children = new Set<ChildProcess>();
  #database: { url: string; pid: number } | undefined;

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

  async folder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), "bench-"));
    this.#stack.defer(() => rm(folder, { recursive: true, force: true }));
    return folder;
  }

  provider(): Promise<Part> {
    return this.#start(here("./provider.ts"), []);
  }

  forwarder(to: Part): Promise<Part> {
    return this.#start(here("./forwarder.ts"), [`http://127.0.0.1:${to.port}`]);
  }

  /** A gateway process in front of the provider, with one account that cannot run out. */
  async gateway(provider: Part, env: NodeJS.ProcessEnv = {}): Promise<GatewayPart> {
    const database = await this.database();
    const folder = await this.folder();
    await writeFile(join(folder, "catalog.yaml"), catalogFor(provider));
    const child = this.#spawn(here("../../src/main.ts"), [], {
      DATABASE_URL: database.url,
      ADMIN_TOKEN: adminToken,
      SEED: "true",
      DATA_DIR: folder,
      CONFIG: join(folder, "catalog.yaml"),
      PORT: "0",
      GRPC_PORT: "0",
      LOG_LEVEL: "info",
      ...env,
    });
    const { http, grpc } = await readyLine(child);
    // A database of an earlier gateway in this lab is seeded already.
    const keys = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8").catch(() => "{}"));
    this.#keys ??= { v1: String(keys.v1), accountId: String(keys.accountId) };
    if (keys.v1 !== undefined) await fund(String(grpc), this.#keys.accountId);
    return {
      pid: child.pid ?? 0,
      port: Number(new URL(String(http)).port),
      key: this.#keys.v1,
      accountId: this.#keys.accountId,
      grpcAddress: String(grpc),
      adminToken,
    };
  }
  #keys: { v1: string; accountId: string } | undefined;

  /** Sends a load from a process of its own. */
  async load(job: Job): Promise<Done> {
    const child = spawn(process.execPath, [here("./load.ts")], { stdio: ["pipe", "pipe", "inherit"] });
    this.#children.add(child);
    child.stdin.end(JSON.stringify(job));
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
    const [code] = await once(child, "close");
    this.#children.delete(child);
    if (code !== 0) throw new Error(`the load ended with ${code}`);
    return JSON.parse(printed);
  }

  /** Violations of the ledger, and whether its charges are what the provider served at list price. Empty: the run is good. */
  async faults(provider: Part, priceMicro: { input: bigint; output: bigint }, uncounted = 0): Promise<string[]> {
    const { url } = await this.database();
    const postgres = connectPostgres(url);
    try {
      const audit = await readFile(here("../../src/billing/sql/audit.sql"), "utf8");
      const violations = await postgres.query<{ invariant: string; subject: string }>({ name: "audit", text: audit }, []);
      const sum = { name: "sum", text: "select coalesce(sum(amount), 0)::bigint as amount, count(*) as requests from charges" };
      const [charged] = await postgres.query<{ amount: bigint; requests: bigint }>(sum, []);
      const served = await (await fetch(`http://127.0.0.1:${provider.port}/served`)).json();
      const { requests, input, output } = Object(served);
      const direct = BigInt(uncounted);
      const each =
        requests > 0 ? { input: BigInt(input / requests), output: BigInt(output / requests) } : { input: 0n, output: 0n };
      const owed = (BigInt(requests) - direct) * (each.input * priceMicro.input + each.output * priceMicro.output);
      const faults = violations.map(({ invariant, subject }) => `${invariant}: ${subject}`);
      if (charged?.amount !== owed) faults.push(`charged ${charged?.amount} micro-credits, the provider served ${owed}`);
      return faults;
    } finally {
      await postgres.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#children].map((child) => end(child)));
    await this.#stack.disposeAsync();
  }

  async #start(file: string, args: readonly string[]): Promise<Part> {
    const child = this.#spawn(file, args, {});
    const { port } = await firstLine(child);
    return { pid: child.pid ?? 0, port: Number(port) };
  }

  #spawn(file: string, args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
    const stderr = env.DATABASE_URL === undefined ? "inherit" : "pipe";
    const child = spawn(process.execPath, [file, ...args], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", stderr],
    });
    this.#children.add(child);
    return child;
  }
}

const adminToken = "the-admin-token-of-the-bench";

/** haiku 4.5, in micro-credits per token. */
export const benchPrice = { input: 140n, output: 700n };

function catalogFor(provider: Part): string {
  const upstream = (kind: string, path: string) =>
    `  ${kind}: { kind: ${kind}, base_url: "http://127.0.0.1:${provider.port}${path}", concurrency: 20000 }`;
  const model = (id: string, kind: string, name: string) => `
  - id: ${id}
    display_name: ${id}
    tier: haiku
    created_at: 2025-10-15T00:00:00Z
    context_tokens: 200000
    max_output_tokens: 64000
    thinking: budget
    price: { input: 0.70, output: 3.50 }
    routes:
      - [{ upstream: ${kind}, model: ${name} }]`;
  const models = [
    model("native", "anthropic", "bench"),
    model("chat", "openai", "bench"),
    model("native-paced", "anthropic", "bench-2"),
    model("chat-paced", "openai", "bench-2"),
    model("native-idle", "anthropic", "bench-60000"),
  ];
  const multipliers = "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }";
  return `${multipliers}\nmodels:${models.join("")}\nupstreams:\n${upstream("anthropic", "")}\n${upstream("openai", "/v1")}\n`;
}

async function fund(address: string, accountId: string): Promise<void> {
  const core = grpcCore({ addresses: [address] });
  const headers = { authorization: `Bearer ${adminToken}` };
  const amountMicrocredits = 2n ** 52n;
  const transfer = { accountId, family: 1, kind: TransferKind.BONUS, amountMicrocredits, idempotencyKey: "bench" } as const;
  await core.billing.createTransfer(transfer, { headers });
  core.close();
}

async function firstLine(child: ChildProcess): Promise<Record<string, unknown>> {
  if (!child.stdout) throw new Error("no output to read");
  for await (const line of createInterface(child.stdout)) return JSON.parse(line);
  throw new Error("a part of the bench ended before it was ready");
}

/** The line by which a gateway tells its addresses. */
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
