// The gateway as a process: its output, signals, crashes and failed starts. Each test has a data
// directory and ports of its own.

import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, afterEach, expect, test } from "vitest";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { defaultCatalog } from "../../src/config/catalog.ts";
import {
  type ChildGateway,
  expectStartToFail,
  startChildGateway,
} from "../support/child-gateway.ts";
import { makeDatabase } from "../support/data-dir.ts";
import { emptyDatabase, freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";

const run = promisify(execFile);
const made = await makeDatabase();
afterAll(() => made.remove());
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function newDataDir(): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-process-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** As after an earlier start that was ended before it had made anything in its database. */
function dataDirWithDatabase(): string {
  const folder = newDataDir();
  made.copyTo(folder);
  return folder;
}

/** An answer that lasts for longer than a busy machine needs to begin a drain and reject others. */
const outlivingDrain = "[[simulate tokens=400 token_ms=20]]";

async function start(env: NodeJS.ProcessEnv): Promise<ChildGateway> {
  const gateway = await startChildGateway(env);
  cleanups.push(() => gateway.end("SIGTERM"));
  return gateway;
}

function readKeys(dataDir: string): {
  v1: string;
  v2: string;
  adminToken: string;
  accountId: string;
} {
  return JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
}

function send(address: string, key: string, text: string, more: object = {}): Promise<Response> {
  return fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": key,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 500,
      messages: [{ role: "user", content: text }],
      ...more,
    }),
  });
}

async function freeCredits(address: string, key: string): Promise<string> {
  const response = await fetch(`${address}/v1/credits`, { headers: { "x-api-key": key } });
  const body: unknown = await response.json();
  return Object(body).pool.free_credits;
}

test("a first start without a terminal prints where its keys are, and they pay", async () => {
  const dataDir = newDataDir();
  // An empty CONFIG names no file.
  const first = await start({ DATA_DIR: dataDir, CONFIG: "" });
  const { v1, v2, adminToken } = readKeys(dataDir);
  for (const secret of [v1, v2, adminToken]) {
    expect(first.stdout()).not.toContain(secret);
    expect(first.stderr()).not.toContain(secret);
  }
  expect(first.stdout()).toContain(join(dataDir, "first-keys.json"));
  expect(statSync(join(dataDir, "first-keys.json")).mode & 0o777).toBe(0o600);
  expect(await freeCredits(first.address, v1)).toBe("1000");

  const answer = await send(first.address, v1, "Hello");
  expect(answer.status).toBe(200);
  expect(Number(await freeCredits(first.address, v1))).toBeLessThan(1000);
  expect(await freeCredits(first.address, v2)).toBe("1000");

  expect((await first.end("SIGTERM")).code).toBe(0);
  const second = await start({ DATA_DIR: dataDir });
  expect(second.stdout()).toBe(`The model gateway runs at ${second.address}\n`);
  expect((await send(second.address, v1, "Hello again")).status).toBe(200);
});

test("a start without first-keys.json makes a new admin token, and logs its file", async () => {
  const dataDir = dataDirWithDatabase();
  const first = await start({ DATA_DIR: dataDir });
  const lost = readKeys(dataDir);
  expect((await first.end("SIGTERM")).code).toBe(0);
  rmSync(join(dataDir, "first-keys.json"));

  const second = await start({ DATA_DIR: dataDir });
  const { adminToken } = readKeys(dataDir);
  const list = (token: string) =>
    fetch(`${second.address}/gateway.accounts.v1.AccountsService/ListAccounts`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: "{}",
    });
  expect((await list(adminToken)).status).toBe(200);
  expect((await list(lost.adminToken)).status).toBe(401);
  expect((await send(second.address, lost.v1, "Hello")).status).toBe(200);
  const { stderr } = await second.end("SIGTERM");
  expect(stderr).toContain("no admin token was found: a new one is in this file");
  expect(stderr).toContain(join(dataDir, "first-keys.json"));
});

test("after a kill of the gateway, the next start finds the database and every charge", async () => {
  const dataDir = dataDirWithDatabase();
  const first = await start({ DATA_DIR: dataDir });
  const { v1 } = readKeys(dataDir);
  const answer = await send(first.address, v1, "Hello");
  const requestId = answer.headers.get("request-id");
  await answer.text();
  const free = await freeCredits(first.address, v1);
  const postgres = readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0];
  expect((await first.end("SIGKILL")).signal).toBe("SIGKILL");

  const second = await start({ DATA_DIR: dataDir });
  expect(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0]).toBe(
    postgres,
  );
  expect(await freeCredits(second.address, v1)).toBe(free);
  const receipt = await fetch(`${second.address}/v1/receipts/${requestId}`, {
    headers: { "x-api-key": v1 },
  });
  expect(receipt.status).toBe(200);
});

test("after a kill of gateway and database, the next start recovers both", async () => {
  const dataDir = dataDirWithDatabase();
  const first = await start({ DATA_DIR: dataDir });
  const { v1 } = readKeys(dataDir);
  await (await send(first.address, v1, "Hello")).text();
  const free = await freeCredits(first.address, v1);
  const postgres = Number.parseInt(
    readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8"),
    10,
  );
  await first.end("SIGKILL");
  process.kill(postgres, "SIGKILL");

  const second = await start({ DATA_DIR: dataDir });
  expect(await freeCredits(second.address, v1)).toBe(free);
  expect((await send(second.address, v1, "Hello")).status).toBe(200);
});

test("SIGTERM lets an active stream finish, rejects new requests, stops the database and exits with 0", async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  const { v1 } = readKeys(dataDir);
  const stream = await send(gateway.address, v1, outlivingDrain, {
    stream: true,
  });
  const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = (await reader?.read())?.value ?? "";

  const exit = gateway.end("SIGTERM");
  while (!gateway.stderr().includes("draining"))
    await new Promise((resolve) => setTimeout(resolve, 5));
  const rejected = await send(gateway.address, v1, "Hello");
  expect(rejected.status).toBe(503);
  expect(rejected.headers.get("retry-after")).toMatch(/^[1-9]/);
  expect((await fetch(`${gateway.address}/health`)).status).toBe(503);
  expect((await fetch(`${gateway.address}/healthz`)).status).toBe(200);

  for (let next = await reader?.read(); next && !next.done; next = await reader?.read())
    text += next.value;
  expect(text).toContain("event: message_stop");
  expect(await exit).toMatchObject({ code: 0 });
  expect(() => statSync(join(dataDir, "postgres/postmaster.pid"))).toThrow("ENOENT");
});

test("a signal that comes twice at once, as Ctrl-C does under npm, also lets an active stream finish", async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  const stream = await send(
    gateway.address,
    readKeys(dataDir).v1,
    "[[simulate tokens=40 token_ms=20]]",
    { stream: true },
  );
  // Two of one kind might arrive as one, and later than a second they are two.
  gateway.process.kill("SIGTERM");
  const exit = gateway.end("SIGINT");
  expect(await stream.text()).toContain("event: message_stop");
  expect(await exit).toMatchObject({ code: 0 });
  expect(() => statSync(join(dataDir, "postgres/postmaster.pid"))).toThrow("ENOENT");
});

test("SIGTERM rejects new Connect calls, and lets active ones finish", async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  const headers = { authorization: `Bearer ${readKeys(dataDir).v1}` };
  const { generate } = createClient(
    InferenceService,
    createConnectTransport({ baseUrl: gateway.address, httpVersion: "1.1" }),
  );
  const content = [{ kind: { case: "text" as const, value: { text: outlivingDrain } } }];
  const request = { model: "haiku", maxTokens: 500, messages: [{ role: Role.USER, content }] };
  const running = generate(request, { headers })[Symbol.asyncIterator]();
  expect((await running.next()).value?.kind.case).toBe("admission");

  const exit = gateway.end("SIGTERM");
  while (!gateway.stderr().includes("draining"))
    await new Promise((resolve) => setTimeout(resolve, 5));
  const rejected = await fetch(`${gateway.address}/gateway.billing.v1.BillingService/GetPools`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: "{}",
  });
  expect(rejected.status).toBe(503);
  expect(await rejected.json()).toMatchObject({
    code: "unavailable",
    details: [{ debug: { reason: "GATEWAY_UNAVAILABLE" } }, { debug: { retryDelay: "1s" } }],
  });
  const rejectedStream = generate(request, { headers })[Symbol.asyncIterator]().next();
  await expect(rejectedStream).rejects.toMatchObject({ code: Code.Unavailable });

  let last: string | undefined;
  for (let next = await running.next(); !next.done; next = await running.next())
    last = next.value.kind.case;
  expect(last).toBe("receipt");
  expect(await exit).toMatchObject({ code: 0 });
});

test("the drain limit ends a stream with an error event, and charges its usage", async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir, DRAIN_LIMIT_SECONDS: "0" });
  const { v1 } = readKeys(dataDir);
  const stream = await send(gateway.address, v1, "[[simulate tokens=400 token_ms=1000]]", {
    stream: true,
  });
  const requestId = stream.headers.get("request-id");
  const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = (await reader?.read())?.value ?? "";
  const exit = gateway.end("SIGTERM");
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read())
    text += next.value;
  expect(text).toContain("event: error");
  expect(text).not.toContain("event: message_stop");
  expect(await exit).toMatchObject({ code: 0 });

  const next = await start({ DATA_DIR: dataDir });
  const receipt = await fetch(`${next.address}/v1/receipts/${requestId}`, {
    headers: { "x-api-key": v1 },
  });
  expect(await receipt.json()).toMatchObject({ outcome: expect.stringMatching(/time_limit/i) });
});

test("a port in use is one clear line, and the gateway that uses it keeps its database", async () => {
  const dataDir = dataDirWithDatabase();
  const running = await start({ DATA_DIR: dataDir });
  const port = new URL(running.address).port;
  const { code, stdout, stderr } = await expectStartToFail({ DATA_DIR: dataDir, PORT: port });
  expect([code, stdout]).toEqual([1, ""]);
  // A busy machine may add a warning to the log.
  expect(stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{"))).toEqual([
    `cannot start: port ${port} is in use; stop the process that uses it, or set PORT`,
  ]);
  expect((await send(running.address, readKeys(dataDir).v1, "Hello")).status).toBe(200);
});

test.each(["GRPC_PORT", "METRICS_PORT"])(
  "%s in use is named as such, and the database does not keep running",
  async (name) => {
    const taken = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => taken.once("listening", resolve));
    cleanups.push(() => {
      taken.close();
    });
    const address = taken.address();
    const port = typeof address === "object" ? String(address?.port) : "";
    const dataDir = dataDirWithDatabase();
    const { code, stderr } = await expectStartToFail({ DATA_DIR: dataDir, [name]: port });
    expect(code).toBe(1);
    expect(stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{"))).toEqual([
      `cannot start: port ${port} is in use; stop the process that uses it, or set ${name}`,
    ]);
    expect(() => statSync(join(dataDir, "postgres/postmaster.pid"))).toThrow("ENOENT");
  },
);

test("a data directory that cannot be written is one clear line", async () => {
  const file = join(newDataDir(), "file");
  writeFileSync(file, "");
  const { code, stderr } = await expectStartToFail({ DATA_DIR: join(file, "data") });
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /^cannot start: the data directory .* is not writable \(ENOTDIR.*\); set DATA_DIR\n$/,
  );
});

test("a database that does not answer is one clear line without its password", async () => {
  const env = {
    DATABASE_URL: "postgres://user:hidden@127.0.0.1:1/ledger",
    ADMIN_TOKEN: "a-token-of-some-length",
    DATABASE_WAIT_SECONDS: "0",
  };
  const { code, stderr } = await expectStartToFail(env);
  expect(code).toBe(1);
  expect(stderr).toBe(
    "cannot start: the database at 127.0.0.1:1 is not reachable (ECONNREFUSED); check DATABASE_URL\n",
  );
});

test("all problems of the environment and the configuration file are reported together, with status 78", async () => {
  const file = join(newDataDir(), "catalog.yaml");
  writeFileSync(file, `${defaultCatalog()}\nproviderz: 1\n`);
  const { code, stderr } = await expectStartToFail({
    PORT: "http",
    ROLE: "both",
    TRUSTED_PROXIES: "nginx",
    CONFIG: file,
  });
  expect(code).toBe(78);
  for (const part of ["PORT", "ROLE", "TRUSTED_PROXIES", "providerz"])
    expect(stderr).toContain(part);
});

test("with an external database nothing is seeded, and the configured admin token works", async () => {
  const database = await emptyDatabase();
  cleanups.push(() => database.drop());
  const dataDir = newDataDir();
  const adminToken = "a-token-of-some-length";
  const gateway = await start({
    DATABASE_URL: database.url,
    ADMIN_TOKEN: adminToken,
    DATA_DIR: dataDir,
  });
  expect(gateway.stdout()).toBe(`The model gateway runs at ${gateway.address}\n`);
  expect(() => statSync(join(dataDir, "first-keys.json"))).toThrow("ENOENT");
  const accounts = await fetch(
    `${gateway.address}/gateway.accounts.v1.AccountsService/ListAccounts`,
    {
      method: "POST",
      headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
      body: "{}",
    },
  );
  expect(await accounts.json()).toEqual({});
  await gateway.end("SIGTERM");
});

test("`npm run verify-ledger` reports a consistent ledger, and names each violation", async () => {
  const database = await freshDatabase();
  cleanups.push(() => database.drop());
  const env = { ...process.env, DATABASE_URL: database.url, LOG_LEVEL: "silent" };
  const verify = () =>
    run(process.execPath, [join(import.meta.dirname, "../../src/cli/verify-ledger.ts")], { env });
  expect((await verify()).stdout).toBe("the ledger is consistent\n");
  await query(
    database.postgres,
    { name: "test/account", text: "insert into accounts values ('acc_1', 'x')" },
    [],
  );
  await query(
    database.postgres,
    { name: "test/pool", text: "insert into pools values ('acc_1', 'v1', 5)" },
    [],
  );
  await expect(verify()).rejects.toMatchObject({
    code: 1,
    stdout: expect.stringContaining("acc_1"),
  });
});

test("SIGHUP loads a new configuration file, and keeps the current one if the new one is invalid", async () => {
  const dataDir = dataDirWithDatabase();
  const file = join(dataDir, "catalog.yaml");
  writeFileSync(file, defaultCatalog());
  const gateway = await start({ DATA_DIR: dataDir, CONFIG: file });
  const { v1 } = readKeys(dataDir);
  const names = async () => {
    const response = await fetch(`${gateway.address}/v1/models`, { headers: { "x-api-key": v1 } });
    const body: unknown = await response.json();
    return Object(body).data.map((model: { id: string }) => model.id);
  };
  const reload = async (text: string, message: string) => {
    const { length } = gateway.stderr();
    writeFileSync(file, text);
    gateway.process.kill("SIGHUP");
    while (!gateway.stderr().slice(length).includes(message))
      await new Promise((resolve) => setTimeout(resolve, 5));
  };
  await reload(defaultCatalog().replace("  haiku: model", "  quick: model"), "file reloaded");
  expect(await names()).toContain("quick");
  await reload("models: nonsense", "file rejected");
  expect(await names()).toContain("quick");

  const countWithBearer = async () => {
    const headers = {
      authorization: `Bearer ${v1}`,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    };
    const body = JSON.stringify({
      model: "sonnet",
      messages: [{ role: "user", content: "Hello" }],
    });
    return (
      await fetch(`${gateway.address}/v1/messages/count_tokens`, { method: "POST", headers, body })
    ).status;
  };
  expect(await countWithBearer()).toBe(401);
  await reload(
    defaultCatalog().replace("native_bearer: auto", "native_bearer: always"),
    "file reloaded",
  );
  expect(await countWithBearer()).toBe(200);
});
