// A started gateway in want of what it needs, and among clients that break off: it stands, says
// why it serves less, and serves all again when the want is over.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Pool } from "undici";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import {
  answerOf,
  type CrashCluster,
  numbered,
  startCrashCluster,
} from "../support/crash-cluster.ts";
import { logged, logLines } from "../support/workers.ts";

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
