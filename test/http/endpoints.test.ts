// The endpoints for models, balance, receipts and health; draining; the access log.

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { GetPoolsResponseSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { AttemptOutcome, Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { BudgetWindow_Name } from "../../gen/gateway/common/v1/budget_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { PartState } from "../../src/http/http.ts";
import {
  admission,
  answerOf,
  chatBody,
  finish,
  goodKey,
  nativeBody,
  nativeHeaders,
  play,
  postChat,
  postNative,
  receipt,
  receiptOf,
  start,
  startHttpServer,
  textDelta,
  textStart,
} from "../support/http-server.ts";

const price = {
  priceVersion: "v_1",
  input: 420_000n,
  output: 2_100_000n,
  cacheWrite5m: 525_000n,
  cacheWrite1h: 840_000n,
  cacheRead: 5_600n,
  thinking: 2_100_000n,
};
const sonnet = {
  modelId: "model-sonnet-4.6",
  displayName: "Sonnet 4.6",
  tier: "sonnet",
  createdAt: timestampFromDate(new Date("2026-02-05T00:00:00Z")),
  contextTokens: 200_000,
  maxOutputTokens: 64_000,
  price,
  aliases: ["sonnet"],
};
const alias = {
  ...sonnet,
  modelId: "sonnet",
  aliasFor: sonnet.modelId,
  displayName: "Sonnet (alias)",
  aliases: [],
};

const bearer = { authorization: `Bearer ${goodKey}` };
const native = { "x-api-key": goodKey };

describe("the catalogue", () => {
  const entry = {
    id: "model-sonnet-4.6",
    object: "model",
    type: "model",
    display_name: "Sonnet 4.6",
    created: 1770249600,
    created_at: "2026-02-05T00:00:00Z",
    owned_by: "gateway",
    max_input_tokens: 200_000,
    max_tokens: 64_000,
    lifecycle: "active",
    line: "sonnet",
    deprecated_at: null,
    retires_at: null,
    capabilities: null,
  };

  test("is one list for the parsers of both SDKs, with either credential", async () => {
    const { url, script } = await startHttpServer();
    script.models = [sonnet, alias];
    for (const headers of [bearer, native, { ...native, ...bearer }]) {
      const response = await fetch(`${url}/v1/models?limit=1000`, { headers });
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({
        object: "list",
        data: [
          entry,
          { ...entry, id: "sonnet", alias_for: "model-sonnet-4.6", display_name: "Sonnet (alias)" },
        ],
        has_more: false,
        first_id: "model-sonnet-4.6",
        last_id: "sonnet",
      });
    }
    expect((await fetch(`${url}/v1/models`)).status).toBe(401);
  });

  test("has one entry by id or alias", async () => {
    const { url, script } = await startHttpServer();
    script.models = [sonnet, alias];
    expect(
      await (await fetch(`${url}/v1/models/model-sonnet-4.6`, { headers: bearer })).json(),
    ).toEqual(entry);
    expect(
      await (await fetch(`${url}/v1/models/sonnet`, { headers: native })).json(),
    ).toMatchObject({ alias_for: sonnet.modelId });
    const unknown = await fetch(`${url}/v1/models/gpt-4o`, { headers: bearer });
    expect(unknown.status).toBe(404);
    expect(await unknown.json()).toMatchObject({
      type: "error",
      error: { type: "not_found_error", code: "model_not_found", param: "model" },
    });
  });

  test("has exact prices of a million tokens in dollars and credits", async () => {
    const { url, script } = await startHttpServer();
    script.models = [sonnet, alias];
    expect(await (await fetch(`${url}/v1/models/info`, { headers: native })).json()).toEqual({
      object: "list",
      data: [
        {
          ...entry,
          aliases: ["sonnet"],
          context_window: 200_000,
          max_output_tokens: 64_000,
          pricing: {
            unit: "per_million_tokens",
            usd: {
              input: "2.10",
              output: "10.50",
              cache_write_5m: "2.625",
              cache_write_1h: "4.20",
              cache_read: "0.028",
              thinking: "10.50",
            },
            credits: {
              input: "420",
              output: "2100",
              cache_write_5m: "525",
              cache_write_1h: "840",
              cache_read: "5.6",
              thinking: "2100",
            },
            per_1000_web_searches: null,
            price_version: "v_1",
            note: null,
            above_prompt_tokens: null,
            above: null,
          },
          public_pricing: null,
          conditional_pricing: [],
        },
      ],
    });
  });
});

describe("money", () => {
  test("the balance is that of the key's pool, with the key's spending this month", async () => {
    const { url } = await startHttpServer();
    for (const headers of [bearer, native]) {
      const response = await fetch(`${url}/v1/credits`, { headers });
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({
        object: "credits",
        pool: { family: "v1", free_credits: "999.5" },
        key: {
          key_id: "key_1",
          month_spent_credits: "2.5",
          month_held_credits: "0.000001",
          monthly_cap_credits: "10",
          resets_at: "2026-12-01T00:00:00Z",
        },
        budgets: [],
      });
    }
  });

  test("the balance has the limits of who manages the key, and of its pool, by what they leave", async () => {
    const { url, script } = await startHttpServer();
    const pools = [{ family: Family.V1, freeMicrocredits: 999_500_000n }];
    const resetsAt = { seconds: BigInt(Date.UTC(2026, 11, 1) / 1000) };
    const day = { window: BudgetWindow_Name.DAY, freeMicrocredits: 1_500_000n, resetsAt };
    const total = { window: BudgetWindow_Name.TOTAL, freeMicrocredits: 0n };
    const all = { spentMicrocredits: 7_000_000n, limitMicrocredits: 7_000_000n };
    const budgets = [
      { windows: [day, { window: BudgetWindow_Name.WEEK }] },
      { payer: { payer: { case: "pool" as const, value: true } }, windows: [{ ...total, ...all }] },
    ];
    script.instead.set("getPools", async () => create(GetPoolsResponseSchema, { pools, budgets }));
    const response = await fetch(`${url}/v1/credits`, { headers: bearer });
    const hidden = { limit_credits: null, spent_credits: null };
    expect(Object(await response.json()).budgets).toEqual([
      {
        ...{ of: "manager", window: "day", ...hidden, free_credits: "1.5" },
        resets_at: "2026-12-01T00:00:00Z",
      },
      {
        ...{ of: "pool", window: "total", limit_credits: "7", spent_credits: "7" },
        ...{ free_credits: "0", resets_at: null },
      },
    ]);
    const subscription = await fetch(`${url}/v1/dashboard/billing/subscription`, {
      headers: bearer,
    });
    // Nothing is left of the pool: the limit is what was spent.
    expect(await subscription.json()).toMatchObject({ hard_limit_usd: 0.0125 });
  });

  test("the balance for an account reader has what was bought and what is held", async () => {
    const { url, script } = await startHttpServer();
    const pool = { postedMicrocredits: 1_000_000_000n, heldMicrocredits: 500_000n };
    const pools = [{ family: Family.V1, freeMicrocredits: 999_500_000n, ...pool }];
    script.instead.set("getPools", async () => create(GetPoolsResponseSchema, { pools }));
    const response = await fetch(`${url}/v1/credits`, { headers: bearer });
    expect(await response.json()).toMatchObject({
      pool: { family: "v1", posted_credits: "1000", held_credits: "0.5", free_credits: "999.5" },
    });
  });

  test("a receipt has the usage and the cost of a request", async () => {
    const { url, script } = await startHttpServer();
    const settled = receiptOf({
      requestId: "req_12345678",
      keyId: "key_1",
      family: Family.V2,
      model: sonnet.modelId,
      usage: { input: 10, output: 20, thinking: 5 },
      reportedUsage: { input: 10, output: 30, thinking: 5 },
      grantedOutputTokens: 25,
      price,
      holdMicrocredits: 9_000_000n,
      chargedMicrocredits: 56_700n,
      outcome: Outcome.CLIENT_LEFT,
      basis: Basis.PARTLY_COUNTED,
      attempts: [
        {
          provider: "simulated",
          outcome: AttemptOutcome.DELIVERED,
          status: 200,
          firstEventAfter: { nanos: 50_000_000 },
        },
        { provider: "away", outcome: AttemptOutcome.FAILED },
      ],
      tags: { team: "a", env: "ci" },
      settledAt: timestampFromDate(new Date("2026-11-21T00:00:01.500Z")),
    });
    script.receipts.set("req_12345678", settled);
    const response = await fetch(`${url}/v1/receipts/req_12345678`, { headers: bearer });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      object: "receipt",
      request_id: "req_12345678",
      model: "model-sonnet-4.6",
      key_id: "key_1",
      family: "v2",
      outcome: "CLIENT_LEFT",
      basis: "PARTLY_COUNTED",
      tokens: {
        input: 10,
        output: 20,
        cache_write_5m: 0,
        cache_write_1h: 0,
        cache_read: 0,
        thinking: 5,
      },
      web_searches: 0,
      reported_tokens: {
        input: 10,
        output: 30,
        cache_write_5m: 0,
        cache_write_1h: 0,
        cache_read: 0,
        thinking: 5,
      },
      granted_output: 25,
      price_version: "v_1",
      price_note: null,
      credits_per_token: {
        input: "0.00042",
        output: "0.0021",
        thinking: "0.0021",
        cache_write_5m: "0.000525",
        cache_write_1h: "0.00084",
        cache_read: "0.0000056",
      },
      credits_per_web_search: "0",
      hold_credits: "9",
      charge_credits: "0.0567",
      charge_usd: "0.0002835",
      overrun_credits: "0",
      attempts: [
        { provider: "simulated", outcome: "delivered", status: 200, first_event_ms: 50 },
        { provider: "away", outcome: "failed", status: null, first_event_ms: null },
      ],
      left_out: [],
      admitted_at: "2026-11-21T00:00:00Z",
      tags: { env: "ci", team: "a" },
      made_by: null,
      settled_at: "2026-11-21T00:00:01.500Z",
    });
  });

  test("an active request has the receipt RUNNING; an unknown request has none", async () => {
    const { url, script } = await startHttpServer();
    script.receipts.set(
      "req_running1",
      receiptOf({ requestId: "req_running1", outcome: Outcome.RUNNING }),
    );
    const running = await fetch(`${url}/v1/receipts/req_running1`, { headers: native });
    expect(await running.json()).toMatchObject({
      outcome: "RUNNING",
      basis: null,
      charge_credits: "0",
      settled_at: null,
    });
    const unknown = await fetch(`${url}/v1/receipts/req_unknown1`, { headers: native });
    expect(unknown.status).toBe(404);
    expect(await unknown.json()).toMatchObject({
      type: "error",
      error: { type: "not_found_error", param: null, code: "not_found" },
    });
  });
});

test("a response that lacks a required message is a logged 500, not a 404", async () => {
  const lines: string[] = [];
  const log = pino(
    { level: "error", base: null },
    { write: (line: string) => void lines.push(line) },
  );
  const { url, script } = await startHttpServer({ log });
  for (const method of ["getReceipt", "getModel"]) script.instead.set(method, async () => ({}));
  script.instead.set("getPools", async () => ({ pools: [] }));
  for (const path of ["/v1/receipts/req_12345678", "/v1/models/sonnet", "/v1/credits"]) {
    const response = await fetch(url + path, { headers: native });
    expect(response.status).toBe(500);
    expect(await response.json()).toMatchObject({ error: { message: "Internal error." } });
  }
  expect(lines.map((line) => JSON.parse(line).msg)).toEqual(Array(3).fill("request failed"));
});

describe("health probes", () => {
  test("need no key and carry the request id", async () => {
    const { url } = await startHttpServer();
    const liveness = await fetch(`${url}/healthz`);
    expect(liveness.status).toBe(200);
    expect(liveness.headers.get("request-id")).toMatch(/^req_/);
    expect(await liveness.json()).toMatchObject({ status: "ok", service: "model-gateway" });
    for (const [method, path] of [
      ["HEAD", "/"],
      ["HEAD", "/api/hello"],
      ["GET", "/api/hello"],
    ] as const) {
      const response = await fetch(url + path, { method });
      expect([response.status, await response.text()]).toEqual([200, ""]);
    }
  });

  test("of readiness name each part, and fail only for a part that is down", async () => {
    const states: Record<string, PartState> = { database: { state: "ok" } };
    const { url } = await startHttpServer({ readiness: async () => states });
    const probe = async () => {
      const response = await fetch(`${url}/health`);
      return {
        status: response.status,
        retryAfter: response.headers.get("retry-after"),
        body: await response.json(),
      };
    };
    expect(await probe()).toMatchObject({
      status: 200,
      body: { status: "ok", parts: { database: { state: "ok" } } },
    });
    states.limits = { state: "degraded", message: "Redis does not answer" };
    expect(await probe()).toMatchObject({
      status: 200,
      body: { status: "degraded", parts: { limits: { state: "degraded" } } },
    });
    states.database = { state: "down" };
    expect(await probe()).toMatchObject({
      status: 503,
      retryAfter: expect.stringMatching(/^\d+$/),
      body: {
        status: "unavailable",
        parts: { database: { state: "down" } },
        type: "error",
        error: { code: "gateway_unavailable" },
      },
    });
  });
});

test("a draining listener rejects new requests and waits for the active ones", async () => {
  const { url, server, script } = await startHttpServer();
  const gate = Promise.withResolvers<void>();
  script.generate = async function* () {
    yield* [admission(), start, textStart];
    await gate.promise;
    yield* [textDelta("Hi"), finish, receipt()];
  };
  const running = await postNative(url, { ...nativeBody, stream: true });
  let isDone = false;
  const drained = server.drain().then(() => {
    isDone = true;
  });
  const rejected = await postNative(url);
  expect(rejected.status).toBe(503);
  expect(rejected.headers.get("retry-after")).toBe("1");
  expect(rejected.headers.get("connection")).toBe("close");
  expect(await rejected.json()).toMatchObject({
    error: { type: "api_error", details: { error_code: "gateway_unavailable" } },
  });
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(await (await fetch(`${url}/health`)).json()).toMatchObject({
    parts: { gateway: { state: "down", message: "draining" } },
  });
  expect(isDone).toBe(false);
  gate.resolve();
  expect(await running.text()).toContain("message_stop");
  await drained;
});

test("requests that come at once on one connection are each answered, also one without a body", async () => {
  const { port } = await startHttpServer();
  const head = `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${goodKey}\r\nanthropic-version: 2023-06-01\r\n`;
  const messages = [{ role: "user", content: "Hello" }];
  const good = JSON.stringify({ model: "haiku", max_tokens: 10, messages });
  const post = (body: string, more = "") =>
    `${head}${more}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const socket = connect({ port, host: "127.0.0.1" });
  socket.write(post(good) + post("") + post(good, "connection: close\r\n"));
  const statuses = (await text(socket)).match(/HTTP\/1\.1 \d+/g);
  expect(statuses).toEqual(["HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 200"]);
});

test("a draining listener closes a connection only after the rejected request's body", async () => {
  const { url, port, server } = await startHttpServer();
  await server.drain();
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${goodKey}\r\ncontent-length: 2\r\n\r\n`,
  );
  let answer = "";
  let isClosed = false;
  socket.on("data", (bytes) => {
    answer += bytes;
  });
  const ended = once(socket, "end").then(() => {
    isClosed = true;
  });
  while (!answer.includes("gateway_unavailable")) await fetch(`${url}/healthz`);
  expect(answer).toMatch(/^HTTP\/1\.1 503 /);
  await fetch(`${url}/healthz`);
  expect(isClosed).toBe(false);
  socket.end("{}");
  await ended;
});

test("a drain ends although a client opens one unfinished request after another", async () => {
  const { url, port, server, script } = await startHttpServer();
  const gate = Promise.withResolvers<void>();
  script.generate = async function* () {
    yield* [admission(), start, textStart];
    await gate.promise;
    yield* [textDelta("Hi"), finish, receipt()];
  };
  const running = await postNative(url, { ...nativeBody, stream: true });
  let isDone = false;
  const drained = server.drain().then(() => {
    isDone = true;
  });
  const sockets: Socket[] = [];
  while (!isDone) {
    const socket = connect({ port, host: "127.0.0.1" });
    sockets.push(socket);
    socket.write("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n");
    expect(String(await once(socket, "data"))).toContain("503 Service Unavailable");
    gate.resolve();
    // Each is open for two seconds: the next one comes before that.
    await Promise.race([drained, delay(500)]);
  }
  for (const socket of sockets) socket.destroy();
  expect(await running.text()).toContain("message_stop");
});

test("routes added from outside keep their own parsers, and a drain waits for them", async () => {
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const { url, server } = await startHttpServer({}, {}, (app) => {
    app.post("/other.v1.Service/Echo", async (request) => {
      begun.resolve();
      await gate.promise;
      return request.body;
    });
  });
  const answer = fetch(`${url}/other.v1.Service/Echo`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"a":[1]}',
  });
  await begun.promise;
  let isDone = false;
  const drained = server.drain().then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(isDone).toBe(false);
  gate.resolve();
  expect(await (await answer).json()).toEqual({ a: [1] });
  await drained;
});

test("the access log has one line per request, with ids and usage, without prompts or secrets", async () => {
  const lines: string[] = [];
  const log = pino(
    { level: "info", base: null },
    { write: (line: string) => void lines.push(line) },
  );
  const { url, server, script } = await startHttpServer({ log });
  const charge = {
    outcome: Outcome.COMPLETED,
    chargedMicrocredits: 8_400n,
    usage: { input: 5, output: 2, cacheRead: 70 },
  };
  script.generate = () => play([...answerOf("the answer").slice(0, -1), receipt(charge)]);
  const body = { ...nativeBody, messages: [{ role: "user", content: "the question" }] };
  await (await postNative(url, body)).text();
  await (
    await postNative(
      url,
      { ...body, stream: true },
      { ...nativeHeaders, "x-request-id": "req_follow-me" },
    )
  ).text();
  await (await postChat(url, { ...chatBody, stream: true })).text();
  await (
    await fetch(`${url}/v1/models/${goodKey}?key=${goodKey}`, {
      headers: { "x-api-key": `${goodKey}x` },
    })
  ).text();
  await (await fetch(`${url}/${goodKey}`)).text();
  await (await fetch(`${url}/healthz`)).text();
  await server.drain();
  const paid = {
    accountId: "acc_1",
    keyId: "key_1",
    outcome: "COMPLETED",
    amountMicrocredits: "8400",
  };
  const entries = lines.map((line) => JSON.parse(line));
  expect(entries).toMatchObject([
    {
      route: "/v1/messages",
      method: "POST",
      status: 200,
      model: "model-sonnet-4.6",
      stream: false,
      ...paid,
    },
    {
      route: "/v1/messages",
      status: 200,
      stream: true,
      requestId: "req_follow-me",
      firstByteMs: expect.any(Number),
      ...paid,
    },
    { route: "/v1/chat/completions", status: 200, stream: true, ...paid },
    { route: "/v1/models/:id", status: 401, error: "invalid_key" },
    { route: "none", status: 404, error: "not_found" },
  ]);
  expect(entries.map(({ tokens }) => tokens).slice(0, 3)).toEqual(
    Array(3).fill({ input: 5, output: 2, cacheRead: 70 }),
  );
  expect(lines.join("")).not.toMatch(/sk-gw2-|the answer|the question/);
});
