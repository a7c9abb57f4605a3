// GET /health says whether requests can be paid, not only whether a database answers. gRPC health
// says the same.

import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, open, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { grpcCore, type RemoteCore } from "../../src/grpc/client.ts";
import { findBinaries } from "../../src/postgres/embedded/binaries.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { log } from "../support/ledger.ts";
import { freePort } from "../support/ports.ts";
import { TestServer } from "../support/server-pair.ts";

let folder: string;
let database: TestServer;
let gateway: Gateway;
let facade: Gateway;
let core: RemoteCore;
let secret: string;
/** The folder of the tables, on a small disk. Undefined: this user may not mount one. */
let disk: string | undefined;
const waiting = { interval: 100 };
const maxWaitMs = 2_000;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-health-"));
  database = new TestServer("a", await freePort(), folder, await findBinaries());
  await database.create();
  disk = await mountDisk(join(folder, "a"));
  await database.start();
  await database.query("create database gateway", "postgres");
  const env = {
    DATABASE_URL: database.url(),
    LEDGER_MAX_WAIT_SECONDS: String(maxWaitMs / 1000),
    ADMIN_TOKEN: "the-admin-token-of-health",
    CONTENT_KEY: contentKey,
    DATA_DIR: folder,
    PORT: "0",
    GRPC_PORT: "0",
    SEED: "true",
  };
  const catalog = readCatalogFile(defaultCatalog());
  const start = (more: NodeJS.ProcessEnv = {}) =>
    startGateway({ config: readConfig({ ...env, ...more }), catalog, env, log });
  gateway = await start();
  const address = gateway.grpcAddress ?? "";
  const PUBLIC_URL = "http://localhost:8080";
  facade = await start({ ROLE: "facade", CORE_ADDRESS: address, PUBLIC_URL });
  core = grpcCore({ addresses: [address] });
  const keys: unknown = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
  secret = String(Object(keys).v1);
});
afterAll(async () => {
  core.close();
  await facade.stop();
  await gateway.stop();
  await database.stop();
  if (disk !== undefined) execFileSync("umount", [disk]);
  await rm(folder, { recursive: true, force: true });
});

/** Moves the tables of a server that is not started to a disk of 96 MiB. */
async function mountDisk(data: string): Promise<string | undefined> {
  const mounted = join(folder, "disk");
  await mkdir(mounted);
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=96m", "tmpfs", mounted], { stdio: "ignore" });
  } catch {
    console.warn("skipped: a full disk, because this user may not mount a small one");
    return undefined;
  }
  execFileSync("cp", ["-a", join(data, "base"), mounted]);
  await rm(join(data, "base"), { recursive: true });
  await symlink(join(mounted, "base"), join(data, "base"));
  return mounted;
}

type State = { status: number; database: unknown };

/** What /health, the health of a facade and gRPC health say. The last two have a yes or no. */
async function health(): Promise<State & { facade: boolean; grpc: boolean }> {
  const response = await fetch(`${gateway.httpAddress}/health`);
  const body: unknown = await response.json();
  const ofFacade = await fetch(`${facade.httpAddress}/health`);
  await ofFacade.text();
  return {
    status: response.status,
    database: Object(body).parts.database,
    facade: ofFacade.status === 200,
    grpc: await core.isServing(2_000),
  };
}

async function pay(): Promise<number> {
  const response = await fetch(`${gateway.httpAddress}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 20,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  await response.text();
  return response.status;
}

const ok = { status: 200, database: { state: "ok" }, facade: true, grpc: true };
const down = (message: string) => ({
  status: 503,
  database: { state: "down", message },
  facade: false,
  grpc: false,
});

test("a database that was made read-only is down, until it takes writes", async () => {
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
  await database.set("default_transaction_read_only", "on");
  await vi.waitFor(async () => expect(await health()).toEqual(down("takes no writes")), waiting);
  await database.set("default_transaction_read_only", "off");
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
  expect(await pay()).toBe(200);
});

test("a database that answers, and admits no request, is down until it does", async () => {
  const locking = new Client({ connectionString: database.url() });
  await locking.connect();
  await locking.query("begin; lock table pools");
  expect(await pay()).toBe(503);
  await vi.waitFor(async () => expect(await health()).toEqual(down("admits no requests")), waiting);
  // Nobody asks for anything now, and a balancer must not come back for that.
  for (const untilMs = performance.now() + 7_000; performance.now() < untilMs; await delay(200))
    expect((await health()).status).toBe(503);
  await locking.query("commit");
  await locking.end();
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
  expect(await pay()).toBe(200);
});

const allDown = { status: 503, facade: false, grpc: false };

test("a full disk is down until there is room, and no answer goes without its charge", async ({
  skip,
}) => {
  if (disk === undefined) return skip();
  const ballast = join(disk, "ballast");
  // The pages that exist have room for some requests. Vacuum makes more of it, and so do those that
  // failed, so that the gateway is up again for a moment.
  const paying: Promise<number>[] = [];
  const isDown = async () => {
    await fill(ballast);
    paying.push(pay(), pay(), pay());
    expect(await health()).toMatchObject(allDown);
  };
  for (const untilMs = performance.now() + 7_000; performance.now() < untilMs; await delay(200))
    await vi.waitFor(isDown, { interval: 50 });
  await rm(ballast);
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
  const statuses = await Promise.all(paying);
  const sql = "select count(*)::int as charges from charges where outcome = 'completed'";
  const [before] = await database.query<{ charges: number }>(sql);
  expect(await pay()).toBe(200);
  const [after] = await database.query<{ charges: number }>(sql);
  expect(after?.charges).toBe((before?.charges ?? 0) + 1);
  // Two requests of the tests before, and each of this one that has an answer.
  expect(before?.charges).toBe(2 + statuses.filter((status) => status === 200).length);
});

/** Lengthens a file until its disk is full. */
async function fill(path: string): Promise<void> {
  const file = await open(path, "a");
  for (const bytes of [65_536, 4_096]) {
    const block = Buffer.alloc(bytes);
    const writeAll = async () => {
      for (;;) await file.write(block);
    };
    await expect(writeAll()).rejects.toMatchObject({ code: "ENOSPC" });
  }
  await file.close();
}
