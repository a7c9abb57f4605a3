// The embedded database of a started gateway ends, and is started again by the gateway or by the
// parent of its workers. A gateway whose database cannot start ends, for its supervisor.

import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test } from "vitest";
import { createLedgerStore } from "../../src/billing/store.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import { type ClientView, createClients, numbered } from "../support/crash-cluster.ts";
import { makeDatabase } from "../support/data-dir.ts";
import { log } from "../support/ledger.ts";
import { query } from "../support/query.ts";
import { logged, logLines } from "../support/workers.ts";

const made = await makeDatabase();
const clients = createClients();
afterAll(async () => {
  await clients.close();
  await made.remove();
});
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function start(env: NodeJS.ProcessEnv = {}) {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-ends-"));
  cleanups.push(() => rmSync(dataDir, { recursive: true, force: true }));
  made.copyTo(dataDir);
  const gateway = await startChildGateway({
    DATA_DIR: dataDir,
    SEED: "true",
    LOG_LEVEL: "info",
    ...env,
  });
  cleanups.push(() => gateway.end("SIGKILL"));
  const keys: unknown = JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
  return { dataDir, gateway, secret: String(Object(keys).v1) };
}

function killServer(dataDir: string): void {
  const pid = Number.parseInt(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8"), 10);
  process.kill(pid, "SIGKILL");
}

const codesOf = (gateway: Pick<ChildGateway, "stderr">) =>
  logLines(gateway).map(({ code }) => code);

async function chargesIn(dataDir: string) {
  const embedded = await startEmbedded(dataDir, log);
  const postgres = connectPostgres(embedded.url);
  try {
    expect(await createLedgerStore(postgres).verifyLedger()).toEqual([]);
    const text = "select request_id as id, amount as micro from charges";
    const rows = await query<{ id: string; micro: bigint }>(postgres, { name: "", text }, []);
    return new Map(rows.map(({ id, micro }) => [id, micro]));
  } finally {
    await postgres.close();
    await embedded.stop();
  }
}

test.for([
  { name: "one process", env: {} },
  { name: "the parent of workers", env: { WORKERS: "2" } },
])("$name starts a killed server again, serves, and charges exactly", async ({ env }) => {
  const { dataDir, gateway, secret } = await start(env);
  const seen: ClientView[] = [];
  const sendNext = async () => {
    const body = numbered(seen.length);
    const view = await clients.send({ address: gateway.address, secret, body });
    seen.push(view);
    return view;
  };
  await sendNext();

  for (let kill = 1; kill <= 2; kill++) {
    killServer(dataDir);
    const killedAtMs = performance.now();
    while ((await sendNext()).status === 503);
    const gapMs = Math.round(performance.now() - killedAtMs);
    console.log(`served ${gapMs} ms after the kill`);
    expect(seen.at(-1)?.complete).toBe(true);
    await logged(gateway, "accepts connections again", kill);
  }
  expect((await gateway.end("SIGTERM")).code).toBe(0);

  expect(codesOf(gateway)).toContain("embedded_database_ended");
  expect(codesOf(gateway)).not.toContain("uncaught_exception");
  const charges = await chargesIn(dataDir);
  const complete = seen.filter((one) => one.complete);
  const ids = complete.map(({ requestId }) => requestId ?? "");
  expect(ids.filter((id) => !charges.has(id))).toEqual([]);
  expect(charges.size).toBe(complete.length);
});

test.for([
  { name: "a process", env: {} },
  { name: "the parent of workers", env: { WORKERS: "2" } },
])("$name whose server does not start six times ends with 1", async ({ env }) => {
  const { dataDir, gateway } = await start(env);
  appendFileSync(join(dataDir, "postgres/postgresql.auto.conf"), "no_such_setting = 1\n");
  killServer(dataDir);
  await logged(gateway, "does not start: ending the gateway");
  const { code } = await gateway.end("SIGCONT");
  expect(code).toBe(1);
  const failed = codesOf(gateway).filter((one) => one === "embedded_database_not_started");
  expect(failed).toHaveLength(6);
  expect(codesOf(gateway)).toContain("embedded_database_lost");
});
