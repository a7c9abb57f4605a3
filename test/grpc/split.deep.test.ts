// Facades and cores in processes of their own: the answers and charges of clients when a core dies
// or is replaced under load.

import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Core } from "../../src/contract/contract.ts";
import { grpcCore } from "../../src/grpc/client.ts";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import { freshDatabase } from "../support/database.ts";

const adminToken = "the-admin-token-of-a-test";
const asAdmin = { headers: { authorization: `Bearer ${adminToken}` } };

let stack: AsyncDisposableStack;
let databaseUrl = "";
let dataDir = "";
beforeEach(async () => {
  stack = new AsyncDisposableStack();
  databaseUrl = stack.adopt(await freshDatabase(), (database) => database.drop()).url;
  dataDir = stack.adopt(mkdtempSync(join(tmpdir(), "gateway-split-")), (path) =>
    rmSync(path, { recursive: true }),
  );
});
afterEach(() => stack.disposeAsync());

async function start(env: NodeJS.ProcessEnv): Promise<ChildGateway> {
  const gateway = await startChildGateway({ LOG_LEVEL: "silent", DATA_DIR: dataDir, ...env });
  stack.defer(async () => {
    await gateway.end("SIGKILL");
  });
  return gateway;
}

/** A core at this port. The first one seeds the database. */
function startCore(port: number): Promise<ChildGateway> {
  return start({
    ROLE: "core",
    PUBLIC_URL: "http://localhost:8080",
    DATABASE_URL: databaseUrl,
    ADMIN_TOKEN: adminToken,
    SEED: "true",
    GRPC_PORT: String(port),
  });
}

function startFacade(...ports: number[]): Promise<ChildGateway> {
  return start({
    ROLE: "facade",
    PUBLIC_URL: "http://localhost:8080",
    CORE_ADDRESS: ports.map((port) => `127.0.0.1:${port}`).join(","),
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

function readKey(): string {
  return JSON.parse(readFileSync(join(dataDir, "first-keys.json"), "utf8")).v1;
}

function operator(port: number): Core {
  return stack.adopt(grpcCore({ addresses: [`127.0.0.1:${port}`] }), (core) => core.close());
}

type Format = "native" | "chat";

function send(
  address: string,
  key: string,
  format: Format,
  text: string,
  stream: boolean,
): Promise<Response> {
  const path = format === "native" ? "/v1/messages" : "/v1/chat/completions";
  const credential =
    format === "native"
      ? { "x-api-key": key, "anthropic-version": "2023-06-01" }
      : { authorization: `Bearer ${key}` };
  return fetch(address + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...credential },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 1000,
      stream,
      messages: [{ role: "user", content: text }],
    }),
  });
}

/** Reads a stream: `begun` resolves at its first content, `whole` with the complete text. */
function follow(response: Response): { begun: Promise<void>; whole: Promise<string> } {
  const begun = Promise.withResolvers<void>();
  const whole = (async () => {
    let text = "";
    for await (const part of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += part;
      if (/text_delta|"content":"[^"]/.test(text)) begun.resolve();
    }
    return text;
  })();
  return { begun: begun.promise, whole };
}

const slowTokens = 900;
const slow = `[[simulate tokens=${slowTokens} first_token_ms=0 token_ms=20]]`;
const quick = "[[simulate tokens=20 first_token_ms=0 token_ms=0]]";

test("a killed core ends its streams with an error, gives 503, and charges no request wrongly", async () => {
  const port = await freePort();
  const core = await startCore(port);
  const facade = await startFacade(port);
  const key = readKey();

  const complete = await send(facade.address, key, "native", quick, true);
  expect(await complete.text()).toContain("event: message_stop");
  const running = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const format: Format = index % 2 === 0 ? "native" : "chat";
      const response = await send(facade.address, key, format, slow, true);
      expect(response.status).toBe(200);
      return { format, id: response.headers.get("request-id") ?? "", ...follow(response) };
    }),
  );
  const plain = send(facade.address, key, "native", slow, false);
  await Promise.all(running.map((one) => one.begun));

  await core.end("SIGKILL");
  for (const { format, whole } of running) {
    const text = await whole;
    expect(text).not.toMatch(/message_stop|\[DONE\]/);
    expect(text).toMatch(
      format === "native" ? /event: error\ndata: .*"type":"error"/ : /data: {"error":{/,
    );
  }
  expect((await plain).status).toBe(503);
  for (const format of ["native", "chat"] as const) {
    const refused = await send(facade.address, key, format, quick, true);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(await refused.json()).toHaveProperty("error");
  }
  expect((await fetch(`${facade.address}/health`)).status).toBe(503);
  expect((await fetch(`${facade.address}/healthz`)).status).toBe(200);

  await startCore(port);
  await expect
    .poll(async () => (await send(facade.address, key, "chat", quick, false)).status)
    .toBe(200);
  const { billing } = operator(port);
  expect((await billing.verifyLedger({}, asAdmin)).violations).toEqual([]);
  const receipt = async (requestId: string) =>
    (await billing.findRequests({ requestId }, asAdmin)).receipts[0];
  expect(await receipt(complete.headers.get("request-id") ?? "")).toMatchObject({
    outcome: Outcome.COMPLETED,
  });
  // The new core knows that the one before is dead, and settles its requests at their usage.
  for (const { id } of running) {
    await expect.poll(() => receipt(id)).toMatchObject({ outcome: Outcome.REAPED });
    const { usage, chargedMicrocredits: amountMicrocredits } = (await receipt(id)) ?? {};
    expect(usage?.output).toBeLessThan(slowTokens);
    expect(amountMicrocredits === 0n).toBe(usage?.output === 0 && usage?.input === 0);
  }
  expect((await billing.verifyLedger({}, asAdmin)).violations).toEqual([]);
});

test("replacing one core after the other under load fails no request", async () => {
  const ports = [await freePort(), await freePort()];
  const cores = [await startCore(ports[0] ?? 0), await startCore(ports[1] ?? 0)];
  const facade = await startFacade(...ports);
  const key = readKey();

  let stopped = false;
  const answers: { status: number; text: string }[] = [];
  const client = async (format: Format) => {
    while (!stopped) {
      const response = await send(
        facade.address,
        key,
        format,
        "[[simulate tokens=20 first_token_ms=5 token_ms=5]]",
        true,
      );
      answers.push({ status: response.status, text: await response.text() });
    }
  };
  const clients = [client("native"), client("chat"), client("native"), client("chat")];
  const answered = async (more: number) => {
    const enough = answers.length + more;
    await expect.poll(() => answers.length).toBeGreaterThan(enough);
  };
  await answered(20);
  for (const [index, core] of cores.entries()) {
    expect((await core.end("SIGTERM")).code).toBe(0);
    await answered(20);
    await startCore(ports[index] ?? 0);
    await answered(20);
  }
  stopped = true;
  await Promise.all(clients);

  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
  expect(answers.filter(({ text }) => !/message_stop|\[DONE\]/.test(text))).toEqual([]);
  expect((await operator(ports[0] ?? 0).billing.verifyLedger({}, asAdmin)).violations).toEqual([]);
});
