// A started gateway in want of what it needs, and among clients that break off: it stands, says
// why it serves less, and serves all again when the want is over.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { Pool } from "undici";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import {
  type ChildGateway,
  launchChildGateway,
  startChildGateway,
} from "../support/child-gateway.ts";
import {
  answerOf,
  type CrashCluster,
  numbered,
  startCrashCluster,
} from "../support/crash-cluster.ts";
import { type LogLine, logged, logLines } from "../support/workers.ts";

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
  stage.provider.always((request) => answerOf(request));
});
afterAll(() => stage.stop());
const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

const times = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

const codesOf = (gateway: ChildGateway) => logLines(gateway).map(({ code }) => code);

function limitDescriptors(pid: number | undefined, max: number): void {
  execFileSync("prlimit", [`--pid=${pid}`, `--nofile=${max}:${max}`]);
}

const openDescriptors = (pid: number | undefined) => readdirSync(`/proc/${pid}/fd`).length;

/** Resolves when the connection is open. It may be closed at any time. */
function open(address: string): Promise<Socket> {
  const { hostname, port } = new URL(address);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => resolve(socket));
    socket.on("error", () => resolve(socket));
    sockets.push(socket);
  });
}

test("four processes that start at once on an empty database have one set of keys", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-four-"));
  const env = { DATA_DIR: dataDir, SEED: "true", LOG_LEVEL: "warn" };
  const four = await Promise.all(times(4, () => startChildGateway(env)));
  try {
    const keys: unknown = JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
    const { v1, v2, adminToken, accountId } = Object(keys);
    expect(readdirSync(dataDir).filter((name) => name.startsWith("first"))).toEqual([
      "first-keys.json",
    ]);
    for (const { address, stdout, stderr } of four) {
      for (const key of [v1, v2]) {
        const answer = await fetch(`${address}/v1/credits`, { headers: { "x-api-key": key } });
        expect(await answer.json()).toMatchObject({ pool: { free_credits: "1000" } });
      }
      const list = await fetch(`${address}/gateway.keys.v1.KeysService/ListKeys`, {
        method: "POST",
        headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
        body: JSON.stringify({ accountId }),
      });
      const listed: unknown = await list.json();
      expect(Object(listed).keys).toHaveLength(2);
      for (const secret of [v1, v2, adminToken]) expect(stdout() + stderr()).not.toContain(secret);
    }
  } finally {
    await Promise.all(four.map((one) => one.end("SIGTERM")));
    rmSync(dataDir, { recursive: true });
  }
});

test.for([
  { name: "gateways", env: {} },
  { name: "parents of two workers", env: { WORKERS: "2" } },
])("two $name without Redis admit a limit together, and say that they do", async ({ env }) => {
  const { payer, secret } = await stage.key(1_000_000_000n);
  await stage.ledger.run("update keys set requests_per_minute = 10 where key_id = $1", [
    payer.keyId,
  ]);
  const two = [
    await stage.start({ LOG_LEVEL: "info", ...env }),
    await stage.start({ LOG_LEVEL: "info", ...env }),
  ] as const;
  await Promise.all(two.map((one) => logged(one, "admits its share of every rate limit")));
  const statuses = await Promise.all(
    two.map(async (one) => {
      const sent = times(10, () => stage.send(one, secret, numbered(1)));
      return (await Promise.all(sent)).map(({ status }) => status);
    }),
  );
  for (const some of statuses) expect(new Set(some)).toEqual(new Set([200, 429]));
  const admitted = statuses.flat().filter((status) => status === 200);
  // Nodes that ran within the last minute have shares, too.
  expect(admitted.length).toBeLessThanOrEqual(10);
  for (const one of two) {
    const health = await fetch(`${one.address}/health`);
    expect(health.status).toBe(200);
    expect(await health.json()).toMatchObject({
      status: "degraded",
      parts: { limits: { state: "degraded" } },
    });
    expect(codesOf(one)).toContain("limits_divided");
  }
  await Promise.all(two.map((one) => one.end("SIGTERM")));
});

test("workers that are starting when their parent dies end quietly", async () => {
  const env = { ...stage.env, WORKERS: "2", LOG_LEVEL: "debug" };
  const isFirstStarting = ({ worker, msg }: LogLine) => worker === 1 && msg === "starting";
  // The second is forked when the first is ready.
  const isFirstReady = ({ worker, msg }: LogLine) => worker === 1 && msg === "worker ready";
  const moments = [
    ...[0, 100, 250, 500, 800, 1_200].map((afterMs) => ({ line: isFirstStarting, afterMs })),
    ...[0, 2, 5, 10, 15, 20, 30, 40].map((afterMs) => ({ line: isFirstReady, afterMs })),
  ];
  for (const { line, afterMs } of moments) {
    const parent = launchChildGateway(env);
    while (!logLines(parent).some(line)) await delay(1);
    await delay(afterMs);
    // Its output ends when the last worker has ended.
    const { stderr } = await parent.end("SIGKILL");
    const lines = logLines({ stderr: () => stderr });
    expect(lines.filter(({ level }) => Number(level) >= 50)).toEqual([]);
  }
});

test("a report that gets no connection of the database is 503 with retry-after", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-full-"));
  const gateway = await startChildGateway({ DATA_DIR: dataDir, SEED: "true", LOG_LEVEL: "info" });
  const others: Client[] = [];
  try {
    const keys: unknown = JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8"));
    const report = () =>
      fetch(`${gateway.address}/v1/usage`, { headers: { "x-api-key": String(Object(keys).v1) } });
    const embedded = await startEmbedded(dataDir, createLog("silent"));
    const client = () => {
      const one = new Client({ connectionString: embedded.url });
      one.on("error", () => {});
      return one;
    };
    const admin = client();
    await admin.connect();
    others.push(admin);
    let refused: Response;
    do {
      // Its open connections end, and others take their places.
      await admin.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'model-gateway'`,
      );
      for (let isFull = false; !isFull; ) {
        const one = client();
        isFull = await one.connect().then(
          () => false,
          () => true,
        );
        if (!isFull) others.push(one);
      }
      refused = await report();
      expect([200, 503]).toContain(refused.status);
    } while (refused.status === 200);
    expect(refused.headers.get("retry-after")).not.toBe(null);
    await Promise.all(others.splice(0).map((client) => client.end()));
    await expect.poll(async () => (await report()).status).toBe(200);
    const levels = logLines(gateway).map(({ level }) => Number(level));
    expect(levels.filter((level) => level >= 50)).toEqual([]);
  } finally {
    await Promise.all(others.map((client) => client.end()));
    await gateway.end("SIGTERM");
    rmSync(dataDir, { recursive: true });
  }
});

test("two hundred clients that reset with a wrong key are no bug", async () => {
  const gateway = await stage.start({ LOG_LEVEL: "debug" });
  // It finds them when all of them have gone.
  gateway.process.kill("SIGSTOP");
  const request = [
    "POST /v1/messages HTTP/1.1",
    "host: gateway",
    "x-api-key: sk-gw1-wrong",
    "anthropic-version: 2023-06-01",
    "content-type: application/json",
    "content-length: 2",
    "",
    "{}",
  ].join("\r\n");
  await Promise.all(
    times(200, async () => {
      const socket = await open(gateway.address);
      await new Promise<void>((resolve) => socket.write(request, () => resolve()));
      socket.resetAndDestroy();
    }),
  );
  gateway.process.kill("SIGCONT");
  const { secret } = await stage.key(1_000_000_000n);
  expect((await stage.send(gateway, secret, numbered(1))).complete).toBe(true);
  expect((await gateway.end("SIGTERM")).code).toBe(0);
  const lines = logLines(gateway);
  expect(lines.filter(({ code }) => code === "internal_error")).toEqual([]);
  expect(lines.filter(({ msg }) => msg === "client gone")).not.toEqual([]);
});

test("without a descriptor left calls get 503, no provider is blamed, and nothing ends", async () => {
  const gateway = await stage.start({ LOG_LEVEL: "info" });
  const { secret } = await stage.key(1_000_000_000n);
  const { pid } = gateway.process;
  const send = (number: number) => stage.send(gateway, secret, numbered(number));
  expect((await send(1)).complete).toBe(true);

  // Connections that are open when there are no more.
  const pool = new Pool(gateway.address, { connections: 4 });
  const statusOf = async (method: "GET" | "POST", path: string, body?: string) => {
    const headers = {
      "x-api-key": secret,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    };
    const answer = await pool.request({ method, path, headers, ...(body && { body }) });
    await answer.body.dump();
    return { status: answer.statusCode, retryAfter: answer.headers["retry-after"] };
  };
  await Promise.all(times(4, () => statusOf("GET", "/healthz")));
  limitDescriptors(pid, openDescriptors(pid) + 20);
  for (let socket = 0; socket < 60; socket++) await open(gateway.address);
  // Each sample of the memory fails now.
  await logged(gateway, "memory of this process cannot be read");
  const body = { model: "haiku", max_tokens: 100, ...numbered(1) };
  // The provider has one open connection, and the others cannot be made.
  const answers = await Promise.all(
    times(4, () => statusOf("POST", "/v1/messages", JSON.stringify(body))),
  );
  const refused = answers.filter(({ status }) => status !== 200);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.filter((one) => one.status !== 503 || one.retryAfter === undefined)).toEqual([]);

  for (const socket of sockets.splice(0)) socket.destroy();
  await pool.destroy();
  expect((await send(2)).complete).toBe(true);
  expect((await gateway.end("SIGTERM")).code).toBe(0);
  const codes = codesOf(gateway);
  expect(codes).toContain("descriptors_short");
  for (const code of ["uncaught_exception", "provider_call_failed", "internal_error"])
    expect(codes).not.toContain(code);
});
