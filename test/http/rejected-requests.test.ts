// Requests that the listener rejects: in which order it checks, and how it responds.

import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import fc from "fast-check";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { bodyBytesMax } from "../../src/http/body.ts";
import {
  answerOf,
  chatBody,
  chatHeaders,
  goodKey,
  nativeBody,
  nativeHeaders,
  play,
  post,
  postChat,
  postNative,
  requestIdPattern,
  sendRaw,
  startHttpServer,
} from "../support/http-server.ts";

type ErrorBody = {
  type?: string;
  error: {
    type: string;
    message: string;
    code?: string | null;
    param?: string | null;
    details?: { error_code?: string };
  };
  request_id?: string;
};

async function readError(
  response: Response,
): Promise<{ status: number; code: string | undefined; body: ErrorBody }> {
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(response.headers.get("request-id")).toMatch(requestIdPattern);
  expect(response.headers.get("x-request-id")).toBe(response.headers.get("request-id"));
  const text = await response.text();
  expect(text).not.toMatch(/x-api-key/i);
  const body: ErrorBody = JSON.parse(text);
  if (body.type === "error") expect(body.request_id).toBe(response.headers.get("request-id"));
  return {
    status: response.status,
    code: body.error.details?.error_code ?? body.error.code ?? undefined,
    body,
  };
}

const version = { "anthropic-version": "2023-06-01" };
const json = { "content-type": "application/json" };

describe("credentials", () => {
  test("a valid key in the wrong header of a native endpoint gets an error that names the right setting", async () => {
    const { url, script } = await startHttpServer();
    const response = await postNative(url, nativeBody, {
      ...version,
      ...json,
      authorization: `Bearer ${goodKey}`,
    });
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect(response.headers.get("www-authenticate")).toContain("x-api-key");
    const { status, code, body } = await readError(response);
    expect([status, code]).toEqual([401, "wrong_credential_header"]);
    expect(body.error.message).toContain("ANTHROPIC_AUTH_TOKEN");
    expect(script.calls).toEqual([]);
  });

  test("a native endpoint accepts the Bearer key of the newest SDK version", async () => {
    const { url } = await startHttpServer();
    const headers = {
      ...json,
      "anthropic-version": "2026-10-21",
      authorization: `Bearer ${goodKey}`,
    };
    expect((await postNative(url, nativeBody, headers)).status).toBe(200);
  });

  test("unknown, malformed and repeated keys get the same error", async () => {
    const { url } = await startHttpServer();
    const keys = [
      "sk-gw2-1unknown",
      "junk",
      `${goodKey},${goodKey}`,
      "sk-gw2-1g\u00f6od",
      goodKey.toUpperCase(),
    ];
    const bodies = await Promise.all(
      keys.map(async (key) => {
        const { status, body } = await readError(
          await postNative(url, nativeBody, { ...nativeHeaders, "x-api-key": key }),
        );
        expect(status).toBe(401);
        return body.error;
      }),
    );
    for (const body of bodies) expect(body).toEqual(bodies[0]);
  });

  test("revoked and missing keys have their own errors, and a key in the query string is not read", async () => {
    const { url } = await startHttpServer();
    const revoked = await postNative(url, nativeBody, {
      ...nativeHeaders,
      "x-api-key": "sk-gw2-1revoked",
    });
    expect((await readError(revoked)).code).toBe("revoked_key");
    const missing = await post(
      url,
      `/v1/messages?x-api-key=${goodKey}`,
      { ...version, ...json },
      nativeBody,
    );
    expect((await readError(missing)).code).toBe("missing_key");
  });

  test("a client that sends the native header to the chat endpoint learns which one it reads", async () => {
    const { url } = await startHttpServer();
    const response = await postChat(url, chatBody, { ...json, "x-api-key": goodKey });
    expect(response.headers.get("www-authenticate")).toBe('Bearer realm="gateway"');
    const { status, body } = await readError(response);
    expect(status).toBe(401);
    expect(body).toEqual({
      error: {
        message: expect.any(String),
        type: "invalid_request_error",
        param: null,
        code: "wrong_credential_header",
      },
    });
  });

  test("two Authorization headers are rejected, though Node exposes only the first", async () => {
    const { port } = await startHttpServer();
    const answer = await sendRaw(
      port,
      `GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${goodKey}\r\nauthorization: Bearer other\r\nconnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 401 /);
  });

  test("an address with too many failures is blocked, except with a key that was good before", async () => {
    const failures: string[] = [];
    const failedCredentials = {
      check: (address: string) => {
        if (failures.length >= 2)
          throw new ApiError("auth_rate_limited", { retryAfterMs: 7_000, cause: address });
      },
      record: (address: string) => void failures.push(address),
    };
    const { url, script } = await startHttpServer({ failedCredentials });
    script.keys.add("sk-gw2-1late");
    const get = (key: string) => fetch(`${url}/v1/models`, { headers: { "x-api-key": key } });
    expect((await get(goodKey)).status).toBe(200);
    for (const key of ["sk-gw2-1a", "sk-gw2-1b"]) expect((await get(key)).status).toBe(401);
    expect(failures).toEqual(["127.0.0.1", "127.0.0.1"]);
    const callsBefore = script.calls.length;
    const late = await get("sk-gw2-1late");
    expect(late.status).toBe(429);
    expect(late.headers.get("retry-after")).toBe("7");
    expect(script.calls.length).toBe(callsBefore);
    expect((await get(goodKey)).status).toBe(200);
  });

  test("the client's address is read from X-Forwarded-For only behind a trusted proxy", async () => {
    const seen: string[] = [];
    const failedCredentials = {
      check: () => {},
      record: (address: string) => void seen.push(address),
    };
    const headers = { "x-api-key": "sk-gw2-1bad", "x-forwarded-for": "203.0.113.9, 198.51.100.7" };
    const untrusting = await startHttpServer({ failedCredentials });
    await fetch(`${untrusting.url}/v1/models`, { headers });
    const trusting = await startHttpServer(
      { failedCredentials },
      { trustedProxies: ["127.0.0.0/8", "198.51.100.0/24"] },
    );
    await fetch(`${trusting.url}/v1/models`, { headers });
    expect(seen).toEqual(["127.0.0.1", "203.0.113.9"]);
  });
});

describe("the version header", () => {
  const cases = [
    { name: "missing", headers: {}, expected: "version_required" },
    {
      name: "unknown",
      headers: { "anthropic-version": "2020-01-01" },
      expected: "version_unsupported",
    },
    {
      name: "in both spellings, equal",
      headers: { ...version, "vendor-version": "2023-06-01" },
      expected: undefined,
    },
    {
      name: "in both spellings, different",
      headers: { ...version, "vendor-version": "2026-10-21" },
      expected: "version_unsupported",
    },
    {
      name: "in the other spelling",
      headers: { "vendor-version": "2023-06-01" },
      expected: undefined,
    },
  ];
  test("a wrong key of a chat client has the vendor's words", async () => {
    const { url } = await startHttpServer();
    const headers = { ...json, authorization: "Bearer sk-gw2-1wrong" };
    const { body } = await readError(await post(url, "/v1/chat/completions", headers, chatBody));
    expect(body.error).toMatchObject({
      message: "Incorrect API key provided.",
      code: "invalid_api_key",
    });
  });

  test("a hint names the header as the client spelled it", async () => {
    const { url } = await startHttpServer();
    const messageFor = async (headers: Record<string, string>) => {
      const sent = { ...json, "x-api-key": goodKey, ...headers };
      const { body } = await readError(await post(url, "/v1/messages", sent, nativeBody));
      return body.error.message;
    };
    const old = "2020-01-01";
    expect(await messageFor({ "vendor-version": old })).toMatch(/^vendor-version: /);
    expect(await messageFor({ "anthropic-version": old })).toMatch(/^anthropic-version: /);
    expect(await messageFor({})).toMatch(/^anthropic-version \(or vendor-version\): /);
  });

  test.each(cases)("$name", async ({ headers, expected }) => {
    const { url } = await startHttpServer();
    for (const path of ["/v1/messages", "/v1/messages/count_tokens"]) {
      const response = await post(
        url,
        path,
        { ...json, "x-api-key": goodKey, ...headers },
        nativeBody,
      );
      if (expected === undefined) expect(response.status).toBe(200);
      else expect(await readError(response)).toMatchObject({ status: 400, code: expected });
    }
  });

  test("is not required on the chat endpoint", async () => {
    const { url } = await startHttpServer();
    expect((await postChat(url)).status).toBe(200);
  });
});

describe("the order of checks", () => {
  const bad = '{"model":';
  test("is route, method, key, version, content headers, body", async () => {
    const { url } = await startHttpServer();
    const attempts: [path: string, headers: Record<string, string>, expected: unknown[]][] = [
      ["/v1/nowhere", { "content-type": "nonsense" }, [404, "not_found"]],
      ["/healthz", { "content-type": "nonsense" }, [405, "method_not_allowed"]],
      ["/v1/messages", { "content-type": "text/plain" }, [401, "missing_key"]],
      [
        "/v1/messages",
        { "content-type": "nonsense", "x-api-key": goodKey },
        [400, "version_required"],
      ],
      [
        "/v1/messages",
        {
          ...version,
          "content-type": "text/plain",
          "content-encoding": "zstd",
          "x-api-key": goodKey,
        },
        [400, undefined],
      ],
      [
        "/v1/messages",
        { ...nativeHeaders, "content-encoding": "zstd" },
        [400, "request_body_encoding_unsupported"],
      ],
      ["/v1/messages", nativeHeaders, [400, undefined]],
    ];
    for (const [path, headers, expected] of attempts) {
      const { status, code } = await readError(await post(url, path, headers, bad));
      expect([status, code]).toEqual(expected);
    }
  });

  test("puts the key before the first byte of the body", async () => {
    const { port } = await startHttpServer();
    const request = httpRequest({
      port,
      host: "127.0.0.1",
      path: "/v1/messages",
      method: "POST",
      headers: { ...json, ...version, "content-length": String(bodyBytesMax) },
    });
    request.on("error", () => {});
    request.flushHeaders();
    const [response]: IncomingMessage[] = await once(request, "response");
    expect(response?.statusCode).toBe(401);
    request.destroy();
  });
});

describe("the content type", () => {
  const cases: [type: string | undefined, status: number][] = [
    ["application/json", 200],
    ["Application/JSON ; charset=UTF-8", 200],
    ['application/json; charset="utf-8"; x=y', 200],
    ["application/json;charset=latin1", 400],
    ["text/plain", 400],
    ["application/jsonp", 400],
    [";;;", 400],
    [undefined, 400],
  ];
  test.each(cases)("%s is answered %i", async (type, status) => {
    const { url } = await startHttpServer();
    const headers = {
      "x-api-key": goodKey,
      ...version,
      ...(type !== undefined && { "content-type": type }),
    };
    const body = Buffer.from(JSON.stringify(nativeBody));
    const response = await fetch(`${url}/v1/messages`, { method: "POST", headers, body });
    if (status === 200) expect(response.status).toBe(200);
    else
      expect((await readError(response)).body.error).toMatchObject({
        type: "invalid_request_error",
      });
    expect(response.status).toBe(status);
  });
});

describe("bodies", () => {
  const malformed = [
    "",
    "{",
    "[]",
    "null",
    "42",
    '"x"',
    '{"model":"a"}x',
    "{'a':1}",
    '{"model":"\\ud800"}',
  ];
  test("that are no valid request get 400 in the endpoint's format and reach no model", async () => {
    const { url, script } = await startHttpServer();
    for (const body of malformed) {
      const native = await readError(await postNative(url, body));
      expect(native).toMatchObject({
        status: 400,
        body: { type: "error", error: { type: "invalid_request_error" } },
      });
      const chat = await readError(await postChat(url, body));
      expect(chat.status).toBe(400);
      expect(Object.keys(chat.body.error).sort()).toEqual(["code", "message", "param", "type"]);
    }
    expect(script.calls).not.toContain("generate");
  });

  test("with a random fault get 200 or 400, never 500", async () => {
    const { url } = await startHttpServer();
    const whole = JSON.stringify({
      ...nativeBody,
      system: [{ type: "text", text: "s" }],
      tools: [{ name: "t", input_schema: { type: "object" } }],
      stop_sequences: ["x"],
      stream: false,
    });
    const breaks = fc.tuple(
      fc.nat(whole.length - 1),
      fc.nat(12),
      fc.constantFrom("", "null", "[]", "{}", '"', "0", "-1e999", "\u0000", ",", "🙂"),
    );
    await fc.assert(
      fc.asyncProperty(breaks, async ([at, length, filling]) => {
        const body = whole.slice(0, at) + filling + whole.slice(at + length);
        for (const response of [await postNative(url, body), await postChat(url, body)]) {
          expect([200, 400]).toContain(response.status);
          await response.arrayBuffer();
        }
      }),
      { numRuns: 500 },
    );
  });

  test("may begin with a byte order mark", async () => {
    const { url } = await startHttpServer();
    expect((await postNative(url, `\ufeff${JSON.stringify(nativeBody)}`)).status).toBe(200);
  });

  test("of a megabyte are accepted", async () => {
    const { url } = await startHttpServer();
    const body = { ...nativeBody, messages: [{ role: "user", content: "x".repeat(1 << 20) }] };
    expect((await postNative(url, body)).status).toBe(200);
  });

  const compressors: [encoding: string, compress: (text: string) => Buffer][] = [
    ["gzip", gzipSync],
    ["x-gzip", gzipSync],
    ["deflate", deflateSync],
    ["deflate", deflateRawSync],
    ["br", brotliCompressSync],
    ["identity", (text) => Buffer.from(text)],
  ];
  test("may be compressed", async () => {
    const { url } = await startHttpServer();
    for (const [encoding, compress] of compressors) {
      const headers = { ...nativeHeaders, "content-encoding": encoding };
      const body = new Uint8Array(compress(JSON.stringify(nativeBody)));
      expect((await fetch(`${url}/v1/messages`, { method: "POST", headers, body })).status).toBe(
        200,
      );
    }
  });

  test("that do not decompress, or decompress beyond the limit, have their own errors", async () => {
    const { url } = await startHttpServer();
    const send = (encoding: string, body: Uint8Array<ArrayBuffer>) =>
      fetch(`${url}/v1/messages`, {
        method: "POST",
        headers: { ...nativeHeaders, "content-encoding": encoding },
        body,
      });
    const compressed = new Uint8Array(gzipSync(JSON.stringify(nativeBody)));
    for (const [encoding, body] of [
      ["gzip", new Uint8Array(Buffer.from("{}"))],
      ["gzip", compressed.slice(0, -9)],
      ["br", compressed],
      ["deflate", compressed],
    ] as const) {
      expect(await readError(await send(encoding, body))).toMatchObject({
        status: 400,
        code: "request_body_encoding_invalid",
      });
    }
    for (const encoding of ["zstd", "gzip, br", "constructor"]) {
      expect(await readError(await send(encoding, compressed))).toMatchObject({
        status: 400,
        code: "request_body_encoding_unsupported",
      });
    }
    const bomb = new Uint8Array(gzipSync(Buffer.alloc(200 << 20)));
    const before = process.memoryUsage.rss();
    expect(await readError(await send("gzip", bomb))).toMatchObject({
      status: 413,
      code: "request_body_too_large_after_decoding",
    });
    expect(process.memoryUsage.rss() - before).toBeLessThan(150 << 20);
  });

  test("of 33 MiB are rejected by Content-Length, and the client can read the error after its upload", async () => {
    const { url, script } = await startHttpServer();
    const response = await fetch(`${url}/v1/messages`, {
      method: "POST",
      headers: nativeHeaders,
      body: Buffer.alloc(33 << 20, 32),
    });
    expect(response.headers.get("connection")).toBe("close");
    expect(await readError(response)).toMatchObject({
      status: 413,
      body: { error: { type: "request_too_large" } },
    });
    expect(script.calls).toEqual(["authenticate"]);
  });

  test("are rejected before they are sent if Content-Length is too large", async () => {
    const { port } = await startHttpServer();
    const headers = Object.entries(nativeHeaders).map(([name, value]) => `${name}: ${value}\r\n`);
    const socket = connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.write(
      `POST /v1/messages HTTP/1.1\r\nhost: x\r\n${headers.join("")}content-length: ${33 << 20}\r\n\r\n`,
    );
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 413 /);
  });

  test("without Content-Length are rejected once they exceed the limit", async () => {
    const { port } = await startHttpServer();
    const request = httpRequest({
      port,
      host: "127.0.0.1",
      path: "/v1/chat/completions",
      method: "POST",
      headers: chatHeaders,
    });
    request.on("error", () => {});
    const chunk = Buffer.alloc(1 << 20, 32);
    const answered = once(request, "response");
    for (let sent = 0; sent < 33; sent++)
      if (!request.write(chunk)) await Promise.race([once(request, "drain"), answered]);
    const [response]: IncomingMessage[] = await answered;
    expect(response?.statusCode).toBe(413);
    const text = (await response?.toArray())?.join("") ?? "";
    expect(JSON.parse(text)).toMatchObject({ error: { code: "request_too_large" } });
    request.destroy();
  });
});

describe("paths and methods", () => {
  test("that no route serves get a JSON error that both SDKs parse, never HTML", async () => {
    const { url } = await startHttpServer();
    for (const path of [
      "/",
      "/nope",
      "/v1",
      "/v1/nope",
      "/v1/messages/",
      "/%zz",
      `/v1/models/${"x".repeat(600)}`,
    ]) {
      const { status, body } = await readError(
        await fetch(url + path, { method: path === "/" ? "DELETE" : "GET" }),
      );
      expect([400, 404, 405]).toContain(status);
      expect(body).toMatchObject({ type: "error", error: { param: null } });
    }
  });

  test("that clients use by mistake get an error that names the endpoint to use", async () => {
    const { url } = await startHttpServer();
    const wrong = ["/v1/completions", "/completions", "/v1/v1/completions"];
    for (const path of wrong) {
      const { status, body } = await readError(await post(url, path, chatHeaders, chatBody));
      expect(status).toBe(404);
      expect(body.error.message).toContain("not supported");
      expect(body.error.message).toContain("/v1/chat/completions");
    }
    for (const path of [
      "/v1/complete",
      "/v1/messages/batches",
      "/v1/messages/batches/b_1/results",
      "/v1/files",
    ]) {
      const { status, body } = await readError(await fetch(url + path));
      expect(status).toBe(404);
      expect(body.error.message).toContain("/v1/messages");
    }
  });

  test.each([
    ["/v1/embeddings", /^No model of this gateway makes embeddings/],
    ["/v1/responses/compact", /^Only OpenAI opens what this method makes/],
    ["/v1/responses/input_tokens/", /^Tokens of this format are not counted in advance/],
    ["/v1/responses/resp_1", /^Responses are not stored here/],
  ])("of a vendor that have no counterpart get the reason: %s", async (path, reason) => {
    const { url } = await startHttpServer();
    const { status, body } = await readError(await post(url, path, chatHeaders, chatBody));
    expect(status).toBe(404);
    expect(body.error.message).toMatch(reason);
  });

  test("are served with a slash behind them as well", async () => {
    const { url } = await startHttpServer();
    for (const path of ["/v1/models", "/v1/credits", "/healthz", "/openapi.json", "/docs"]) {
      const [plain, slashed] = await Promise.all(
        [path, `${path}/`].map((one) => fetch(url + one, { headers: chatHeaders })),
      );
      expect([slashed?.status, slashed?.headers.get("content-type")]).toEqual([
        plain?.status,
        plain?.headers.get("content-type"),
      ]);
    }
    for (const path of ["/v1/chat/completions/", "/chat/completions/", "/v1/v1/responses/"])
      expect((await post(url, path, chatHeaders, chatBody)).status).not.toBe(404);
    expect((await fetch(`${url}/v1/messages/`)).headers.get("allow")).toBe("POST");
  });

  test("with another method of a known path get 405 and the methods that it has", async () => {
    const { url } = await startHttpServer();
    const cases: [method: string, path: string, allow: string][] = [
      ["GET", "/v1/messages", "POST"],
      ["OPTIONS", "/v1/chat/completions", "POST"],
      ["POST", "/v1/models", "GET, HEAD"],
      ["DELETE", "/v1/models/opus", "GET, HEAD"],
      ["PUT", "/v1/receipts/req_12345678", "GET, HEAD"],
      ["POST", "/", "GET, HEAD"],
    ];
    for (const [method, path, allow] of cases) {
      const response = await fetch(url + path, { method });
      expect(response.headers.get("allow")).toBe(allow);
      expect(response.headers.get("x-should-retry")).toBe("false");
      expect(await readError(response)).toMatchObject({ status: 405, code: "method_not_allowed" });
    }
  });

  test("that are not HTTP get a JSON error as well", async () => {
    const { port } = await startHttpServer();
    const requests = [
      "rubbish\r\n\r\n",
      `GET / HTTP/1.1\r\nhost: x\r\nbig: ${"x".repeat(70_000)}\r\n\r\n`,
    ];
    for (const [index, text] of requests.entries()) {
      const answer = await sendRaw(port, text);
      expect(answer).toMatch(index === 0 ? /^HTTP\/1\.1 400 / : /^HTTP\/1\.1 431 /);
      const [head = "", body = ""] = answer.split("\r\n\r\n");
      expect(head).toMatch(/^request-id: req_/m);
      expect(JSON.parse(body)).toMatchObject({
        type: "error",
        error: { type: "invalid_request_error" },
      });
    }
  });

  const chunked = `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${goodKey}\r\nanthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
  test.for([
    ["a length that is no number", "zz\r\n{}\r\n0\r\n\r\n"],
    ["a length that is too small", '2\r\n{"a":1}\r\n0\r\n\r\n'],
    ["a length that is too large a number", "fffffffffffffffffffff\r\n{}\r\n"],
    ["no line break after a chunk", "2\r\n{}0\r\n\r\n"],
  ])("whose chunked body has %s get 400", async ([, body]) => {
    const { port, script } = await startHttpServer();
    const answer = await sendRaw(port, chunked + body);
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).toMatch(/^request-id: req_/m);
    expect(answer).toMatch(/^connection: close/m);
    expect(JSON.parse(answer.split("\r\n\r\n")[1] ?? "")).toMatchObject({
      error: { type: "invalid_request_error", message: "This is not a valid HTTP request body." },
    });
    expect(script.calls).not.toContain("generate");
  });

  test("whose chunked body breaks after the key was checked get 400", async () => {
    const lines: string[] = [];
    const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
    const { port, script } = await startHttpServer({ log });
    const socket = connect(port, "127.0.0.1");
    let answer = "";
    socket.on("data", (bytes) => {
      answer += bytes;
    });
    socket.write(`${chunked}2\r\n{}\r\n`);
    await expect.poll(() => script.calls).toContain("authenticate");
    socket.write("junk\r\n");
    await once(socket, "close");
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    await expect
      .poll(() => lines.map((line) => JSON.parse(line)))
      .toMatchObject([{ msg: "request", route: "/v1/messages", status: 400 }]);
  });

  test("whose client hangs up while it sends its body are logged with status 499", async () => {
    const lines: string[] = [];
    const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
    const { port, script } = await startHttpServer({ log });
    const socket = connect(port, "127.0.0.1");
    socket.write(`${chunked}2\r\n{}\r\n`);
    await expect.poll(() => script.calls).toContain("authenticate");
    socket.resetAndDestroy();
    await expect
      .poll(() => lines.map((line) => JSON.parse(line)))
      .toMatchObject([{ msg: "request", status: 499, error: "cancelled", hungUp: true }]);
  });

  test("whose content-length is too small are answered, and the connection is closed", async () => {
    const { port } = await startHttpServer();
    const body = JSON.stringify(nativeBody);
    const head = chunked.replace("transfer-encoding: chunked", `content-length: ${body.length}`);
    expect(await sendRaw(port, `${head}${body} and more`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(await sendRaw(port, `${head.replace(/length: \d+/, "length: 9")}${body}`)).toMatch(
      /^HTTP\/1\.1 400 /,
    );
  });

  describe("whose client closes its side of the connection", () => {
    /** Sends `text`, closes this side, and returns every byte until the server closes the other. */
    async function sendAndClose(port: number, text: string): Promise<string> {
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      let answer = "";
      socket.on("data", (bytes) => {
        answer += bytes;
      });
      socket.end(text);
      await once(socket, "end");
      return answer;
    }
    const withLength = (body: string, length = body.length) =>
      chunked.replace("transfer-encoding: chunked", `content-length: ${length}`) + body;
    const final = (answer: string) => answer.replace(/^(?:HTTP\/1\.1 102 Processing\r\n\r\n)+/, "");

    test.for([
      ["GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", 200],
      [`GET /v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: ${goodKey}\r\n\r\n`, 200],
      ["GET /nowhere HTTP/1.0\r\n\r\n", 404],
      [withLength(JSON.stringify(nativeBody)), 200],
      [withLength(JSON.stringify({ ...nativeBody, stream: true })), 200],
      [withLength(JSON.stringify(nativeBody), 5_000), 400],
      [`${chunked}2\r\n{}`, 400],
      ["GET /heal", 400],
    ] as const)("get an answer: %j", async ([text, status]) => {
      const { port } = await startHttpServer();
      const answer = final(await sendAndClose(port, text));
      expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
      expect(answer).toMatch(/^request-id: req_/m);
    });

    test("get an answer that takes long, after interim responses", async () => {
      const { port, script } = await startHttpServer();
      const gate = Promise.withResolvers<void>();
      script.generate = async function* () {
        await gate.promise;
        yield* answerOf("Late");
      };
      const answer = sendAndClose(port, withLength(JSON.stringify(nativeBody)));
      await expect.poll(() => script.calls).toContain("generate");
      gate.resolve();
      expect(await answer).toMatch(/^HTTP\/1\.1 102 Processing\r\n\r\n/);
      expect(final(await answer)).toContain("Late");
    });

    test("are cancelled if the client has hung up", async () => {
      const { port, script } = await startHttpServer();
      const cancelled = Promise.withResolvers<void>();
      script.generate = async function* (_request, { signal }) {
        yield* [];
        signal.addEventListener("abort", () => cancelled.resolve());
        await cancelled.promise;
      };
      const socket = connect(port, "127.0.0.1");
      socket.write(withLength(JSON.stringify(nativeBody)));
      await expect.poll(() => script.calls).toContain("generate");
      socket.destroy();
      await cancelled.promise;
    });
  });

  test("that Node would reject by itself get a response with a request id", async () => {
    const { port } = await startHttpServer();
    for (const header of ["a: b", "host: x\r\nexpect: the-unexpected"]) {
      const answer = await sendRaw(
        port,
        `GET /healthz HTTP/1.1\r\n${header}\r\nconnection: close\r\n\r\n`,
      );
      expect(answer).toMatch(/^HTTP\/1\.1 200 /);
      expect(answer).toMatch(/^request-id: req_/m);
    }
  });
});

describe("errors of services", () => {
  test("that are unexpected get 500 without details", async () => {
    const { url, script } = await startHttpServer();
    script.generate = () => {
      throw new Error("password=hunter2 at /srv/app.ts:12");
    };
    for (const response of [await postNative(url), await postChat(url)]) {
      const { status, body } = await readError(response);
      expect(status).toBe(500);
      expect(JSON.stringify(body)).not.toMatch(/hunter2|app\.ts/);
    }
  });

  test("do not repeat a key that was sent as a model name", async () => {
    const { url, script } = await startHttpServer();
    script.generate = ({ model }) => {
      throw new ApiError("model_not_found", {
        message: `model: ${model}`,
        allowed: ["model-opus-4.6"],
        field: "model",
      });
    };
    const { status, body } = await readError(
      await postNative(url, { ...nativeBody, model: `X-API-Key sk-gw2-1${"a".repeat(49)}` }),
    );
    expect(status).toBe(404);
    expect(body.error.message).toContain("model-opus-4.6");
    expect(body.error.message).not.toContain("sk-gw2-1aaa");
    const chat = await readError(await postChat(url, { ...chatBody, model: "gpt-4o" }));
    expect(chat.body.error).toMatchObject({ param: "model", code: "model_not_found" });
  });

  test("do not affect the next request on the connection", async () => {
    const { url, script } = await startHttpServer();
    script.generate = () => play([]);
    expect((await postNative(url)).status).toBe(500);
    script.generate = () => play(answerOf("again"));
    expect((await postNative(url)).status).toBe(200);
  });
});
