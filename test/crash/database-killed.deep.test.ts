// PostgreSQL is killed and comes back. Running requests continue, and are settled when the ledger
// is available again.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { createLedgerStore, type LedgerStore } from "../../src/billing/store.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig } from "../../src/config/environment.ts";
import { type Embedded, startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { type Gateway, startGateway } from "../../src/server/gateway.ts";
import { catalogFor } from "../support/catalog.ts";
import { contentKey } from "../support/content-key.ts";
import {
  answerOf,
  type ClientView,
  createClients,
  numbered,
  usageOf,
} from "../support/crash-cluster.ts";
import { log } from "../support/ledger.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { query } from "../support/query.ts";

let folder: string;
let embedded: Embedded;
let provider: FakeProvider;
let gateway: Gateway;
let postgres: Postgres;
let store: LedgerStore;
let secret: string;
const clients = createClients();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-outage-"));
  embedded = await startEmbedded(folder, log);
  postgres = connectPostgres(embedded.url);
  // Only power cuts need fsync, and with it the server writes out every file after a kill, however
  // busy the disk.
  await run("alter system set fsync = off");
  await run("select pg_reload_conf()");
  provider = await startFakeProvider();
  const env = {
    DATABASE_URL: embedded.url,
    ADMIN_TOKEN: "the-admin-token-of-an-outage",
    CONTENT_KEY: contentKey,
    DATA_DIR: folder,
    PORT: "0",
    GRPC_PORT: "0",
    SEED: "true",
    LOG_LEVEL: "silent",
  };
  const catalog = readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url } }));
  gateway = await startGateway({ config: readConfig(env), catalog, env, log });
  const keys: unknown = JSON.parse(await readFile(join(folder, "first-keys.json"), "utf8"));
  secret = String(Object(keys).v1);
  store = createLedgerStore(postgres);
});
afterEach(async () => {
  // Holds of unconfirmed requests are released soon after the ledger is back.
  await expect.poll(() => run("select request_id from holds")).toEqual([]);
  expect(await store.verifyLedger()).toEqual([]);
  expect(await run("select request_id from charges where outcome = 'reaped'")).toEqual([]);
});
afterAll(async () => {
  await gateway.stop();
  await postgres.close();
  await clients.close();
  await provider.stop();
  await embedded.stop();
  await rm(folder, { recursive: true, force: true });
});

const run = (text: string) => query<Record<string, unknown>>(postgres, { name: "", text }, []);
const send = (body: JsonObject, onText?: (text: string) => void) =>
  clients.send({ address: gateway.httpAddress ?? "", secret, body, ...(onText && { onText }) });

/** Kills all processes of the server, as a crash does. */
async function killPostgres(): Promise<void> {
  const backends = await query<{ pid: number }>(
    postgres,
    { name: "", text: "select pid from pg_stat_activity" },
    [],
  );
  const [postmaster] = (await readFile(join(folder, "postgres/postmaster.pid"), "utf8")).split(
    "\n",
  );
  process.kill(Number(postmaster), "SIGKILL");
  // On their own they would exit after a moment, and commit until then.
  for (const { pid } of backends) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has exited.
    }
  }
}

async function expectExact(seen: ClientView, number: number): Promise<void> {
  const { input, output, cost } = usageOf(number);
  const [charge] = await store.findCharges(seen.requestId ?? "");
  expect(charge).toMatchObject({
    outcome: Outcome.COMPLETED,
    usage: { input, output },
    chargedMicrocredits: cost,
  });
}

test("an outage ends no answer and admits none, and every answer is charged exactly when it is over", async () => {
  const rest = new Gate();
  provider.always((request) => {
    const { writes = [], ...script } = answerOf(request);
    return { ...script, writes: [...writes.slice(0, 3), rest, ...writes.slice(3)] };
  });
  const running = Array.from({ length: 10 }, async (_, number) => ({
    number,
    seen: await send({ ...numbered(number), stream: number % 2 === 0 }),
  }));
  await provider.received(10);
  await killPostgres();
  rest.open();

  // Admissions wait for a while and then fail.
  const refused = await Promise.all([send({ stream: true }), send({ stream: false })]);
  // Beside its hold, a provider is called once at most.
  const called = provider.requests.length;
  await startEmbedded(folder, log);
  expect(called).toBeLessThanOrEqual(10 + refused.length);
  for (const { status, text, requestId } of refused) {
    expect(status).toBe(503);
    expect(text).toMatch(/(billing|database)_unavailable/);
    expect(await store.findCharges(requestId ?? "")).toEqual([]);
  }
  for (const { number, seen } of await Promise.all(running)) {
    expect(seen.complete).toBe(true);
    await expectExact(seen, number);
  }
});

test("a request that arrives during a short outage waits for its end", async () => {
  provider.always(answerOf);
  await killPostgres();
  const waiting = send({ ...numbered(7), stream: true });
  await startEmbedded(folder, log);
  const seen = await waiting;
  expect(seen.complete).toBe(true);
  await expectExact(seen, 7);
});

test("after repeated kills under load, every answer that was seen complete is charged exactly", async () => {
  provider.always(answerOf);
  const all: { number: number; seen: ClientView }[] = [];
  let running = true;
  let sent = 100;
  const load = Array.from({ length: 8 }, async () => {
    while (running) {
      const number = sent++;
      all.push({ number, seen: await send({ ...numbered(number), stream: number % 3 > 0 }) });
    }
  });
  try {
    for (let kill = 0; kill < 4; kill++) {
      await provider.received(provider.requests.length + 40);
      await killPostgres();
      await startEmbedded(folder, log);
    }
  } finally {
    running = false;
  }
  await Promise.all(load);
  const complete = all.filter(({ seen }) => seen.complete);
  expect(complete.length).toBeGreaterThan(100);
  for (const { number, seen } of complete) await expectExact(seen, number);
});
