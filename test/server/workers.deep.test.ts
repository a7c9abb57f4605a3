// One gateway as several processes (WORKERS): ports, limits, signals, deaths and replacement. Most
// tests have a data directory and ports of their own.

import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, Client, request } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { toApiError } from "../../src/base/errors.ts";
import { defaultCatalog } from "../../src/config/catalog.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import {
  type ChildGateway,
  expectStartToFail,
  startChildGateway,
} from "../support/child-gateway.ts";
import { makeDatabase } from "../support/data-dir.ts";
import { scrape } from "../support/metrics.ts";
import { freePort } from "../support/ports.ts";
import { isAlive, logged, logLines, workerPids } from "../support/workers.ts";

// Each test starts several processes, which take seconds on a busy machine.
const timeout = 900_000;

const made = await makeDatabase();
afterAll(() => made.remove());
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function newDataDir(): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-workers-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** As after an earlier start that was ended before it had made anything in its database. */
function dataDirWithDatabase(): string {
  const folder = newDataDir();
  made.copyTo(folder);
  return folder;
}

/** Starts a gateway and waits until its workers are ready. */
async function startReady(env: NodeJS.ProcessEnv): Promise<ChildGateway> {
  const gateway = await startChildGateway({ WORKERS: "2", ...env });
  await logged(gateway, "ready", 3);
  return gateway;
}

/** Starts a gateway for one test. */
async function start(env: NodeJS.ProcessEnv): Promise<ChildGateway> {
  const gateway = await startReady(env);
  cleanups.push(() => gateway.end("SIGTERM"));
  return gateway;
}

type Keys = { v1: string; v2: string; adminToken: string; accountId: string };

function readKeys(dataDir: string): Keys {
  return JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
}

function grpcAddressOf(gateway: ChildGateway): string {
  return String(logLines(gateway).find(({ msg }) => msg === "ready")?.grpc);
}

function isDatabaseRunning(dataDir: string): boolean {
  return (
    statSync(join(dataDir, "postgres/postmaster.pid"), { throwIfNoEntry: false }) !== undefined
  );
}

const nativeHeaders = (key: string) => ({
  "x-api-key": key,
  "anthropic-version": "2023-06-01",
  "content-type": "application/json",
});

const bodyOf = (text: string, stream = false) =>
  JSON.stringify({
    model: "haiku",
    max_tokens: 500,
    messages: [{ role: "user", content: text }],
    stream,
  });

/** Takes a fifth of a second: workers that start beside it need the processors. */
const slow = "[[simulate tokens=20 token_ms=10]]";

/** Sends one request on a connection of its own. */
async function send(
  { address }: ChildGateway,
  key: string,
  text = "Hello",
): Promise<{ status: number; body: string }> {
  const dispatcher = new Agent();
  try {
    const { statusCode, body } = await request(`${address}/v1/messages`, {
      dispatcher,
      method: "POST",
      headers: nativeHeaders(key),
      body: bodyOf(text),
    });
    return { status: statusCode, body: await body.text() };
  } finally {
    await dispatcher.close();
  }
}

/** Sends one request over gRPC, on a connection of its own. The reason of an error, or "ok". */
async function sendGrpc(address: string, key: string, text = "Hello"): Promise<string> {
  const core = grpcCore({ addresses: [address] });
  const content = [{ kind: { case: "text" as const, value: { text } } }];
  const answer = core.inference.generate(
    { model: "haiku", maxTokens: 500, messages: [{ role: Role.USER, content }] },
    { headers: { authorization: `Bearer ${key}` } },
  );
  let last: string | undefined;
  try {
    for await (const { kind } of answer) last = kind.case;
    return last === "receipt" ? "ok" : `ended with ${last}`;
  } catch (error) {
    return toApiError(error).reason;
  } finally {
    core.close();
  }
}

/** A streamed answer of two seconds, which has begun, on a connection of its own. */
async function openStream(gateway: ChildGateway, key: string, tokens = 100) {
  const dispatcher = new Agent();
  const { headers, body } = await request(`${gateway.address}/v1/messages`, {
    dispatcher,
    method: "POST",
    headers: nativeHeaders(key),
    body: bodyOf(`[[simulate tokens=${tokens} token_ms=20]]`, true),
  });
  const begun = once(body, "readable");
  await begun;
  return {
    requestId: String(headers["request-id"]),
    /** The whole text, also of a connection that broke. */
    async rest(): Promise<string> {
      let text = "";
      try {
        for await (const part of body.setEncoding("utf8")) text += part;
        await dispatcher.close();
      } catch {
        // The text up to here is the result.
      }
      return text;
    },
  };
}

/** Numbers of the workers that logged requests. */
function workersThatServed(gateway: ChildGateway): Set<unknown> {
  const lines = logLines(gateway).filter(({ msg }) => msg === "request");
  return new Set(lines.map(({ worker }) => worker));
}

describe("one gateway of two workers", () => {
  let dataDir: string;
  let gateway: ChildGateway;
  beforeAll(async () => {
    dataDir = mkdtempSync(join(tmpdir(), "gateway-workers-"));
    gateway = await startReady({ DATA_DIR: dataDir });
  }, timeout);
  afterAll(async () => {
    await gateway.end("SIGTERM");
    rmSync(dataDir, { recursive: true, force: true });
  });

  test("two workers serve one HTTP port, and admit exactly the limit of a key together", {
    timeout,
  }, async () => {
    const { v1, adminToken, accountId } = readKeys(dataDir);
    const admin = grpcCore({ addresses: [grpcAddressOf(gateway)] });
    const { secret } = await admin.keys.createKey(
      { accountId, family: Family.V1, settings: { name: "limited", requestsPerMinute: 20 } },
      { headers: { authorization: `Bearer ${adminToken}` } },
    );
    admin.close();

    while (workersThatServed(gateway).size < 2)
      await Promise.all(Array.from({ length: 8 }, () => send(gateway, v1)));
    const statuses = await Promise.all(
      Array.from({ length: 60 }, async () => (await send(gateway, secret)).status),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(20);
    expect(statuses.filter((status) => status === 429)).toHaveLength(40);
    // Over gRPC the same window counts.
    expect(await sendGrpc(grpcAddressOf(gateway), secret)).toBe("rate_limited");
    expect(gateway.stdout().match(/The model gateway runs at/g)).toHaveLength(1);
  });

  test("both workers serve the gRPC port, and a stream of calls finds both", {
    timeout,
  }, async () => {
    const { v1, adminToken, accountId } = readKeys(dataDir);
    const address = grpcAddressOf(gateway);
    // Administrative calls are logged by the worker that served them.
    const served = () =>
      new Set(
        logLines(gateway)
          .filter(({ msg, method }) => msg === "audit" && method === "UpdateKey")
          .map(({ worker }) => worker),
      );
    const headers = { authorization: `Bearer ${adminToken}` };
    const { keys } = await connect((core) => core.keys.listKeys({ accountId }, { headers }));
    const keyId = keys[0]?.keyId ?? "";
    while (served().size < 2) {
      expect(await sendGrpc(address, v1)).toBe("ok");
      await connect((core) =>
        core.keys.updateKey(
          { keyId, settings: { name: "renamed" }, updateMask: { paths: ["name"] } },
          { headers },
        ),
      );
    }

    async function connect<T>(call: (core: ReturnType<typeof grpcCore>) => Promise<T>): Promise<T> {
      const core = grpcCore({ addresses: [address] });
      return call(core).finally(() => core.close());
    }
  });

  test("credits that one worker adds are known to the other at once, not when its last error expires", {
    timeout,
  }, async () => {
    const { v1, adminToken } = readKeys(dataDir);
    const post = async (client: Client, path: string, headers: object, body: object | string) => {
      const text = typeof body === "string" ? body : JSON.stringify(body);
      const all = { "content-type": "application/json", ...headers };
      const answer = await client.request({ path, method: "POST", headers: all, body: text });
      const requestId = String(answer.headers["request-id"]);
      const members: unknown = await answer.body.json();
      return { status: answer.statusCode, requestId, members: Object(members) };
    };
    const generate = (client: Client, key: string) =>
      post(client, "/v1/messages", nativeHeaders(key), bodyOf("Hello"));
    const administer = async (client: Client, method: string, body: object) => {
      const path = `/gateway.${method}`;
      return (await post(client, path, { authorization: `Bearer ${adminToken}` }, body)).members;
    };

    // One connection to each worker.
    const connections = new Map<unknown, Client>();
    while (connections.size < 2) {
      const client = new Client(gateway.address);
      cleanups.push(() => client.destroy());
      const { requestId } = await generate(client, v1);
      const line = () => logLines(gateway).find((one) => one.requestId === requestId);
      while (!line()) await new Promise((resolve) => setTimeout(resolve, 10));
      connections.set(line()?.worker, client);
    }
    const [one, other] = [...connections.values()];
    if (!one || !other) throw new Error("no connection");

    // An error is known for a second. A busy machine may need longer than that for an attempt.
    for (let isKnownInTime = false; !isKnownInTime; ) {
      const { account } = await administer(one, "accounts.v1.AccountsService/CreateAccount", {
        settings: { name: "poor" },
      });
      const { accountId } = account;
      const { secret } = await administer(one, "keys.v1.KeysService/CreateKey", {
        accountId,
        family: "FAMILY_V1",
        settings: { name: "poor" },
      });
      const startedMs = performance.now();
      expect((await generate(other, secret)).status).toBe(402);
      await administer(one, "billing.v1.BillingService/CreateTransfer", {
        accountId,
        family: "FAMILY_V1",
        kind: "TRANSFER_KIND_BONUS",
        amountMicrocredits: "1000000",
        idempotencyKey: "first",
        reason: "test",
      });
      while ((await generate(other, secret)).status === 402);
      isKnownInTime = performance.now() - startedMs < 1_000;
    }
  });

  // Last: it ends the gateway.
  test("SIGTERM lets the active streams of all workers finish, rejects new requests, and stops the database", {
    timeout,
  }, async () => {
    const { v1 } = readKeys(dataDir);
    // Longer than a busy machine needs until the gateway drains.
    const streams = await Promise.all(
      Array.from({ length: 6 }, () => openStream(gateway, v1, 500)),
    );
    const exit = gateway.end("SIGTERM");
    await logged(gateway, "draining: rejecting new requests", 2);
    const { status, body } = await send(gateway, v1);
    expect([status, JSON.parse(body).error.type]).toEqual([503, "api_error"]);
    for (const stream of streams) expect(await stream.rest()).toContain("event: message_stop");
    expect(await exit).toMatchObject({ code: 0 });
    expect(isDatabaseRunning(dataDir)).toBe(false);
    expect(workerPids(gateway).filter(isAlive)).toEqual([]);
  });
});

test("SIGUSR2 replaces every worker under load, and no request fails over HTTP or gRPC", {
  timeout,
}, async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  const { v1 } = readKeys(dataDir);
  const before = workerPids(gateway);
  let isRunning = true;
  const results = { http: [] as number[], grpc: [] as string[] };
  // Connections that are kept, as SDKs do, and new ones.
  const kept = new Agent({ connections: 4, pipelining: 1 });
  cleanups.push(() => kept.destroy());
  const core = grpcCore({ addresses: [grpcAddressOf(gateway)] });
  cleanups.push(() => core.close());
  const load = [
    ...Array.from({ length: 4 }, async () => {
      while (isRunning) {
        const { statusCode, body } = await request(`${gateway.address}/v1/messages`, {
          dispatcher: kept,
          method: "POST",
          headers: nativeHeaders(v1),
          body: bodyOf(slow, results.http.length % 2 === 0),
        });
        await body.text();
        results.http.push(statusCode);
      }
    }),
    ...Array.from({ length: 2 }, async () => {
      while (isRunning) results.http.push((await send(gateway, v1, slow)).status);
    }),
    ...Array.from({ length: 2 }, async () => {
      const content = [{ kind: { case: "text" as const, value: { text: slow } } }];
      const message = { model: "haiku", maxTokens: 50, messages: [{ role: Role.USER, content }] };
      while (isRunning) {
        let last: string | undefined;
        const headers = { authorization: `Bearer ${v1}` };
        for await (const { kind } of core.inference.generate(message, { headers }))
          last = kind.case;
        results.grpc.push(last ?? "");
      }
    }),
  ];
  const stream = await openStream(gateway, v1);
  gateway.process.kill("SIGUSR2");
  await logged(gateway, "replaced the workers");
  isRunning = false;
  await Promise.all(load);

  expect(new Set(results.http)).toEqual(new Set([200]));
  expect(new Set(results.grpc)).toEqual(new Set(["receipt"]));
  expect(await stream.rest()).toContain("event: message_stop");
  await kept.close();
  // Each leaves when the last client that kept a connection to it has left.
  await expect.poll(() => workerPids(gateway).filter(isAlive)).toHaveLength(2);
  expect(before.filter(isAlive)).toEqual([]);
  expect((await send(gateway, v1)).status).toBe(200);
});

test.for([
  { kind: "short", answer: slow },
  // Longer than the second after which idle connections used to be closed.
  { kind: "long", answer: "[[simulate tokens=20 token_ms=80]]" },
])(
  "a worker that gets SIGTERM itself leaves without rejecting a request or resetting a connection, and is replaced: $kind answers",
  {
    timeout,
  },
  async ({ answer }) => {
    const dataDir = dataDirWithDatabase();
    const gateway = await start({ DATA_DIR: dataDir });
    const { v1 } = readKeys(dataDir);
    const kept = new Agent({ connections: 2, pipelining: 1 });
    cleanups.push(() => kept.destroy());
    const statuses: number[] = [];
    let isRunning = true;
    const load = [
      ...Array.from({ length: 2 }, async () => {
        while (isRunning) {
          const { statusCode, body } = await request(`${gateway.address}/v1/messages`, {
            dispatcher: kept,
            method: "POST",
            headers: nativeHeaders(v1),
            body: bodyOf(answer, true),
          });
          await body.text();
          statuses.push(statusCode);
        }
      }),
      (async () => {
        while (isRunning) statuses.push((await send(gateway, v1, answer)).status);
      })(),
    ];
    // More than end a gateway, if they were deaths.
    for (let left = 0; left < 4; left++) {
      // In the order of their starts: one that was told may still be at its last answers.
      process.kill(workerPids(gateway)[left] ?? 0, "SIGTERM");
      await logged(gateway, "worker ready", 3 + left);
    }
    isRunning = false;
    await Promise.all(load);
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect((await gateway.end("SIGTERM")).code).toBe(0);
  },
);

test("a file that no new worker can read stops the replacement, and a dead worker returns with the file in effect", {
  timeout,
}, async () => {
  const dataDir = dataDirWithDatabase();
  const file = join(dataDir, "catalog.yaml");
  writeFileSync(file, defaultCatalog());
  const gateway = await start({ DATA_DIR: dataDir, CONFIG: file });
  const { v1 } = readKeys(dataDir);
  const before = workerPids(gateway);
  const hasQuick = async () => {
    const response = await fetch(`${gateway.address}/v1/models`, {
      headers: { ...nativeHeaders(v1), connection: "close" },
    });
    return (await response.text()).includes('"quick"');
  };
  writeFileSync(file, defaultCatalog().replace("  haiku: model", "  quick: model"));
  gateway.process.kill("SIGHUP");
  await logged(gateway, "configuration file reloaded", 2);
  writeFileSync(file, "models: nonsense");
  gateway.process.kill("SIGHUP");
  await logged(gateway, "new configuration file rejected", 2);
  gateway.process.kill("SIGUSR2");
  await logged(gateway, "the old workers stay");
  expect(workerPids(gateway)).toEqual(before);

  for (const pid of before) {
    const { length } = workerPids(gateway);
    process.kill(pid, "SIGKILL");
    await logged(gateway, "worker ready", length + 1);
  }
  for (let request = 0; request < 8; request++) expect(await hasQuick()).toBe(true);
});

test("after a kill of the parent its workers finish what they can and end, and the next start takes the port and the database", {
  timeout,
}, async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  const { v1 } = readKeys(dataDir);
  const port = new URL(gateway.address).port;
  const grpcPort = grpcAddressOf(gateway).split(":")[1];
  // Shorter than the five seconds that a worker has without its parent.
  const short = await openStream(gateway, v1, 30);
  const pids = workerPids(gateway);
  const died = once(gateway.process, "exit");
  gateway.process.kill("SIGKILL");
  await died;
  expect(pids.some(isAlive)).toBe(true);
  expect(await short.rest()).toContain("event: message_stop");
  const receipt = await (async () => {
    await logged(gateway, "draining: leaving new connections", 2).catch(() => undefined);
    const next = await start({ DATA_DIR: dataDir, PORT: port, GRPC_PORT: grpcPort });
    const response = await fetch(`${next.address}/v1/receipts/${short.requestId}`, {
      headers: nativeHeaders(v1),
    });
    return response.json();
  })();
  expect(receipt).toMatchObject({ outcome: expect.stringMatching(/completed/i) });
  // All outputs are closed when the last worker has exited.
  await gateway.end("SIGKILL");
  expect(pids.filter(isAlive)).toEqual([]);
});

test("three deaths within a minute end the gateway with status 1, and stop the database", {
  timeout,
}, async () => {
  const dataDir = dataDirWithDatabase();
  const gateway = await start({ DATA_DIR: dataDir });
  for (const pid of workerPids(gateway)) process.kill(pid, "SIGKILL");
  await logged(gateway, "a worker died", 2);
  await logged(gateway, "worker ready", 3);
  process.kill(workerPids(gateway)[2] ?? 0, "SIGKILL");
  const { code, stderr } = await gateway.end("SIGCONT");
  expect(code).toBe(1);
  expect(stderr).toContain("3 workers died within a minute: ending the gateway");
  expect(isDatabaseRunning(dataDir)).toBe(false);
});

test.for(["PORT", "GRPC_PORT", "METRICS_PORT"])(
  "%s in use is one clear line, and nothing keeps running",
  {
    timeout,
  },
  async (name) => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    cleanups.push(() => {
      taken.close();
    });
    const address = taken.address();
    const port = typeof address === "object" ? String(address?.port) : "";
    const dataDir = dataDirWithDatabase();
    const { code, stdout, stderr } = await expectStartToFail({
      WORKERS: "2",
      DATA_DIR: dataDir,
      [name]: port,
    });
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{"))).toEqual([
      `cannot start: port ${port} is in use; stop the process that uses it, or set ${name}`,
    ]);
    expect(isDatabaseRunning(dataDir)).toBe(false);
  },
);

test("a facade runs as workers too, and both roles stop cleanly", { timeout }, async () => {
  const dataDir = dataDirWithDatabase();
  const core = await start({
    DATA_DIR: dataDir,
    ROLE: "core",
    PUBLIC_URL: "http://localhost:8080",
  });
  const { v1 } = readKeys(dataDir);
  const facade = await start({
    DATA_DIR: newDataDir(),
    ROLE: "facade",
    CORE_ADDRESS: grpcAddressOf(core),
    PUBLIC_URL: "http://localhost:8080",
  });
  expect((await send(facade, v1)).status).toBe(200);
  expect((await facade.end("SIGTERM")).code).toBe(0);
  expect((await core.end("SIGINT")).code).toBe(0);
});

test("one scrape has the figures of all workers, and keeps the counts of those that left", {
  timeout,
}, async () => {
  const dataDir = dataDirWithDatabase();
  const port = await freePort();
  const gateway = await start({ DATA_DIR: dataDir, METRICS_PORT: String(port) });
  const { v1 } = readKeys(dataDir);
  const address = `http://127.0.0.1:${port}`;
  const pay = async (count: number) => {
    for (let sent = 0; sent < count; sent++) expect((await send(gateway, v1)).status).toBe(200);
  };
  await pay(20);
  // Two at once, as of a pair of Prometheus servers.
  const [before, beside] = await Promise.all([scrape(address), scrape(address)]);
  for (const one of [before, beside]) expect(one.sum("gateway_charges_total")).toBe(20);
  expect(before.sum("gateway_requests_total", { route: "/v1/messages" })).toBe(20);
  expect(before.sum("gateway_ledger_up")).toBe(1);
  expect(before.valuesOf("process_resident_memory_bytes", "worker")).toEqual(["1", "2", "parent"]);

  // One leaves, and sends its last counts. One is killed, and is counted as it was last seen.
  const [first = 0, second = 0] = workerPids(gateway);
  process.kill(first, "SIGTERM");
  await logged(gateway, "worker ready", 3);
  while (isAlive(first)) await delay(20);
  await pay(20);
  expect((await scrape(address)).sum("gateway_charges_total")).toBe(40);
  process.kill(second, "SIGKILL");
  await logged(gateway, "worker ready", 4);
  await pay(20);
  const after = await scrape(address);
  expect(after.sum("gateway_charges_total")).toBe(60);
  expect(after.valuesOf("process_resident_memory_bytes", "worker")).toEqual(["3", "4", "parent"]);
});
