// GET /health says whether requests can be paid, not only whether a database answers.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { log } from "../support/ledger.ts";
import { startTestServer } from "../support/server-pair.ts";

let folder: string;
let database: Awaited<ReturnType<typeof startTestServer>>;
let gateway: Gateway;
let secret: string;
const waiting = { timeout: 15_000, interval: 100 };

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-health-"));
  database = await startTestServer();
  const env = {
    DATABASE_URL: database.server.url(),
    ADMIN_TOKEN: "the-admin-token-of-health",
    DATA_DIR: folder,
    PORT: "0",
    GRPC_PORT: "0",
    SEED: "true",
  };
  const catalog = readCatalogFile(defaultCatalog());
  gateway = await startGateway({ config: readConfig(env), catalog, env, log });
  const keys: unknown = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
  secret = String(Object(keys).v1);
});
afterAll(async () => {
  await gateway.stop();
  await database.stop();
  await rm(folder, { recursive: true, force: true });
});

async function health(): Promise<{ status: number; database: unknown }> {
  const response = await fetch(`${gateway.httpAddress}/health`);
  const body: unknown = await response.json();
  return { status: response.status, database: Object(body).parts.database };
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

const ok = { status: 200, database: { state: "ok" } };
const down = (message: string) => ({ status: 503, database: { state: "down", message } });

test("a database that was made read-only is down, until it takes writes", async () => {
  expect(await health()).toEqual(ok);
  await database.server.set("default_transaction_read_only", "on");
  await vi.waitFor(async () => expect(await health()).toEqual(down("takes no writes")), waiting);
  await database.server.set("default_transaction_read_only", "off");
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
  expect(await pay()).toBe(200);
});

test("a database that answers, and admits no request, is down until it does", {
  timeout: 60_000,
}, async () => {
  const locking = new Client({ connectionString: database.server.url() });
  await locking.connect();
  await locking.query("begin; lock table pools");
  const paying = pay();
  await vi.waitFor(async () => expect(await health()).toEqual(down("admits no requests")), waiting);
  await locking.query("commit");
  await locking.end();
  expect(await paying).toBe(200);
  await vi.waitFor(async () => expect(await health()).toEqual(ok), waiting);
});
