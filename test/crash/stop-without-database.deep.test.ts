// A gateway whose database is gone still stops, in every state, and a start waits for a database.

import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { catalogFor } from "../support/catalog.ts";
import {
  type ChildGateway,
  expectStartToFail,
  launchChildGateway,
  startChildGateway,
} from "../support/child-gateway.ts";
import { createClients, numbered } from "../support/crash-cluster.ts";
import { type MadeDatabase, makeDatabase } from "../support/data-dir.ts";
import { log } from "../support/ledger.ts";
import { freePort } from "../support/ports.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";
import { query } from "../support/query.ts";
import { startTestServer, type TestServer } from "../support/server-pair.ts";

let provider: FakeProvider;
let made: MadeDatabase;
let folder: string;
const clients = createClients();
const ADMIN_TOKEN = "the-admin-token-of-a-stop";

beforeAll(async () => {
  provider = await startFakeProvider();
  made = await makeDatabase();
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-stop-"));
  const made = folder;
  onTestFinished(() => rm(made, { recursive: true, force: true }));
  const catalog = catalogFor({ real: { kind: "anthropic", url: provider.url } });
  await writeFile(join(folder, "catalog.yaml"), catalog);
});
afterAll(async () => {
  await clients.close();
  await provider.stop();
  await made.remove();
});

const settings = () => ({
  CONFIG: join(folder, "catalog.yaml"),
  DATA_DIR: folder,
  SEED: "true",
  DRAIN_LIMIT_SECONDS: "1",
});

/** Ends what a failed test leaves. */
function watched<Child extends Omit<ChildGateway, "address">>(gateway: Child): Child {
  onTestFinished(() => void gateway.end("SIGKILL"));
  return gateway;
}

async function start(more: NodeJS.ProcessEnv = {}): Promise<ChildGateway> {
  return watched(await startChildGateway({ ...settings(), ...more }));
}

async function startServer(): Promise<TestServer> {
  const { server, stop } = await startTestServer();
  onTestFinished(stop);
  return server;
}

const secretOf = () =>
  String(Object(JSON.parse(readFileSync(join(folder, "first-keys.json"), "utf8"))).v1);

type Line = { code?: string; msg?: string; requests?: number };
const linesOf = (stderr: string): Line[] =>
  stderr
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
const codesIn = (stderr: string) => linesOf(stderr).map(({ code }) => code);

/** A running request whose answer waits for the gate in the middle. */
async function ask(gateway: ChildGateway) {
  const gate = new Gate();
  const usage = { input: 11 };
  const events = nativeEvents({ text: ["x".repeat(40), "y".repeat(40)], usage });
  const after = events.findIndex((event) => event.includes("xxxx")) + 1;
  const writes = [...events.slice(0, after), gate, ...events.slice(after)];
  provider.always({ ...nativeStream(), writes });
  const seen = clients.send({ address: gateway.address, secret: secretOf(), body: numbered(1) });
  await gate.reached;
  return { gate, seen };
}

describe.each(["1", "2"])("with WORKERS=%s", (WORKERS) => {
  test("a gateway whose embedded database was killed stops, and the next start recovers it", async () => {
    made.copyTo(folder);
    const gateway = await start({ WORKERS });
    const pids = await killEmbedded();
    // It may run again before anybody misses it.
    const missed = /embedded_database_ended|ledger_unreachable/;
    await expect.poll(() => codesIn(gateway.stderr()).join()).toMatch(missed);
    const { code, stderr } = await gateway.end("SIGTERM");
    expect(code).toBe(0);
    expect(pids.length).toBeGreaterThan(1);
    expect(codesIn(stderr).join()).toMatch(/embedded_database_(ended|gone)/);
    expect(codesIn(stderr)).not.toContain("uncaught_exception");
    const next = await start({ WORKERS });
    expect((await next.end("SIGTERM")).code).toBe(0);
  });

  test("a gateway whose database hangs stops", async () => {
    const server = await startServer();
    const gateway = await start({ WORKERS, DATABASE_URL: server.url(), ADMIN_TOKEN });
    const goOn = await server.hang();
    onTestFinished(goOn);
    await expect.poll(() => codesIn(gateway.stderr())).toContain("ledger_unreachable");
    const { code, stderr } = await gateway.end("SIGTERM");
    expect(code).toBe(0);
    expect(linesOf(stderr).at(-1)?.msg).toBe("stopped");
    goOn();
  });

  test("a charge that cannot be written fails the stop, and is made by the next process", async () => {
    const server = await startServer();
    const env = { WORKERS, DATABASE_URL: server.url(), ADMIN_TOKEN };
    const gateway = await start(env);
    const { gate, seen } = await ask(gateway);
    // Its usage so far is stored every two seconds.
    await expect.poll(() => server.query("select output from holds")).toEqual([{ output: 10 }]);
    await server.kill();
    gate.open();
    const { code, stderr } = await gateway.end("SIGTERM");
    expect(code).toBe(1);
    const left = linesOf(stderr).filter((line) => line.code === "settlements_left");
    expect(left).toMatchObject([{ requests: 1 }]);
    const { requestId } = await seen;

    await server.start();
    await start(env);
    await expect.poll(() => server.query("select request_id from holds")).toEqual([]);
    const postgres = connectPostgres(server.url());
    onTestFinished(() => postgres.close());
    const store = createLedgerStore(postgres);
    expect(await store.findCharges(requestId ?? "")).toMatchObject([{ outcome: Outcome.REAPED }]);
    expect(await store.verifyLedger()).toEqual([]);
  });

  test("a second signal ends a stop that waits for the database", async () => {
    const server = await startServer();
    const env = { WORKERS, DATABASE_URL: server.url(), ADMIN_TOKEN, DRAIN_LIMIT_SECONDS: "3600" };
    const gateway = await start(env);
    const { gate, seen } = await ask(gateway);
    onTestFinished(await server.hang());
    gate.open();
    const ended = gateway.end("SIGTERM");
    await expect.poll(() => gateway.stderr()).toContain("draining");
    // A signal within a second of the first one is npm's repetition of it.
    const again = setInterval(() => gateway.process.kill("SIGINT"), 300);
    onTestFinished(() => clearInterval(again));
    expect((await ended).code).toBe(1);
    expect((await seen).complete).toBe(false);
  });

  test("a gateway that waits for its database stops at once", async () => {
    const away = `127.0.0.1:${await freePort()}`;
    const DATABASE_URL = `postgres://gateway:hidden@${away}/gateway`;
    const env = { ...settings(), WORKERS, DATABASE_URL, ADMIN_TOKEN };
    const gateway = watched(launchChildGateway({ ...env, DATABASE_WAIT_SECONDS: "3600" }));
    await expect.poll(() => codesIn(gateway.stderr())).toContain("database_awaited");
    const { code, stderr } = await gateway.end("SIGTERM");
    expect(code).toBe(0);
    expect(stderr).toContain(`waiting for the database at ${away}`);
    expect(stderr).not.toContain("cannot start");
    expect(stderr).not.toContain("hidden");
  });

  test("a gateway whose log nobody reads any more stops", async () => {
    made.copyTo(folder);
    const gateway = await start({ WORKERS });
    gateway.process.stderr?.destroy();
    gateway.process.stdout?.destroy();
    await killEmbedded();
    expect((await gateway.end("SIGTERM")).code).toBe(0);
  });
});

test("a stop ends a start whose database accepts a connection and says nothing", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  onTestFinished(() => void silent.close());
  const connected = new Promise((resolve) => silent.once("connection", resolve));
  await new Promise((resolve) => silent.once("listening", resolve));
  const address = silent.address();
  const port = typeof address === "object" ? address?.port : undefined;
  const DATABASE_URL = `postgres://gateway@127.0.0.1:${port}/gateway`;
  const gateway = watched(launchChildGateway({ ...settings(), DATABASE_URL, ADMIN_TOKEN }));
  await connected;
  const { stderr } = await gateway.end("SIGTERM");
  expect(stderr).not.toContain("cannot start");
});

test("a start waits for a database that comes later", async () => {
  const server = await startServer();
  await server.stop();
  const env = { ...settings(), DATABASE_URL: server.url(), ADMIN_TOKEN };
  const gateway = watched(launchChildGateway({ ...env, DATABASE_WAIT_SECONDS: "3600" }));
  await expect.poll(() => codesIn(gateway.stderr())).toContain("database_awaited");
  await server.start();
  await expect.poll(() => gateway.stdout()).toContain("The model gateway runs at");
  expect((await gateway.end("SIGTERM")).code).toBe(0);
});

test("a start names the database that it waited for, and not its password", async () => {
  const away = `127.0.0.1:${await freePort()}`;
  const DATABASE_URL = `postgres://gateway:hidden@${away}/gateway`;
  const env = { ...settings(), DATABASE_URL, ADMIN_TOKEN, DATABASE_WAIT_SECONDS: "1" };
  const { code, stderr } = await expectStartToFail(env);
  expect(code).toBe(1);
  expect(stderr).toContain(
    `cannot start: the database at ${away} is not reachable after 1 s (ECONNREFUSED); check DATABASE_URL\n`,
  );
  expect(stderr).not.toContain("hidden");
});

test("a start names the database of the owner, where that is away", async () => {
  const server = await startServer();
  const away = `127.0.0.1:${await freePort()}`;
  const { stderr } = await expectStartToFail({
    ...settings(),
    ADMIN_TOKEN,
    DATABASE_URL: server.url(),
    DATABASE_WAIT_SECONDS: "0",
    MIGRATION_DATABASE_URL: `postgres://owner@${away}/gateway`,
  });
  expect(stderr).toBe(
    `cannot start: the database at ${away} is not reachable (ECONNREFUSED); check MIGRATION_DATABASE_URL\n`,
  );
});

/** Kills all processes of the embedded server, as a crash does, and removes nothing. */
async function killEmbedded(): Promise<number[]> {
  const { url } = await startEmbedded(folder, log);
  const postgres = connectPostgres(url);
  const backends = await query<{ pid: number }>(
    postgres,
    { name: "", text: "select pid from pg_stat_activity" },
    [],
  );
  const file = await readFile(join(folder, "postgres/postmaster.pid"), "utf8");
  const pids = [Number(file.split("\n")[0]), ...backends.map(({ pid }) => pid)];
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has exited.
    }
  }
  await postgres.close();
  return pids;
}
