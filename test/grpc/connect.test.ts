// The services over Connect on the HTTP listener, as `curl` and browsers use them.

import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { create } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import fastify from "fastify";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { AccountsService } from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  AdmissionSchema,
  EventsSchema,
  type GenerateResponse,
  GenerateResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { AuthenticateResponseSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { UsageService, WatchChargesResponseSchema } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { ApiError, shuttingDown } from "../../src/base/errors.ts";
import { localCore } from "../../src/contract/contract.ts";
import { fieldsMax } from "../../src/contract/decode-request.ts";
import { createIdentifyCaller, type FailedCredentials } from "../../src/http/authenticate.ts";
import { paceMs } from "../../src/http/body.ts";
import { type ConnectParts, registerConnect } from "../../src/http/connect.ts";
import { ManualClock } from "../support/clock.ts";
import { defaultLimits, loadWithin } from "../support/limits.ts";
import {
  adminToken,
  emptyAnswers,
  key,
  type Script,
  scriptedServices,
} from "../support/scripted-services.ts";
import { settled } from "../support/settled.ts";

type Changes = Partial<ConnectParts & { failedCredentials: FailedCredentials }>;

async function open(script: Script = emptyAnswers(), changes: Changes = {}): Promise<string> {
  // Smaller than the limits of the services, to show that this limit does not apply to them.
  const app = fastify({ bodyLimit: 1000 });
  const { failedCredentials = { check() {}, record() {} }, ...rest } = changes;
  const core = localCore(scriptedServices(script));
  const identifyCaller = createIdentifyCaller(core, failedCredentials);
  registerConnect(app, {
    core,
    identifyCaller,
    ...defaultLimits(),
    adminMethods: true,
    isDraining: () => false,
    endsConnections: () => false,
    stopping: new AbortController().signal,
    ...rest,
  });
  onTestFinished(async () => {
    app.server.closeAllConnections();
    await app.close();
  });
  return app.listen({ host: "127.0.0.1", port: 0 });
}

type Sent = {
  body?: string | Uint8Array<ArrayBuffer>;
  type?: string;
  credential?: string | undefined;
  headers?: HeadersInit;
};

function post(
  url: string,
  path: string,
  { body = "{}", type = "application/json", credential = key, headers }: Sent = {},
) {
  return fetch(`${url}/${path}`, {
    method: "POST",
    headers: {
      "content-type": type,
      ...(credential !== "" && { authorization: `Bearer ${credential}` }),
      ...headers,
    },
    body,
  });
}

const getPools = "gateway.billing.v1.BillingService/GetPools";
const listAccounts = "gateway.accounts.v1.AccountsService/ListAccounts";
const authenticate = "gateway.keys.v1.KeysService/Authenticate";
const countTokens = "gateway.inference.v1.InferenceService/CountTokens";
const watchCharges = "gateway.usage.v1.UsageService/WatchCharges";
const generate = "gateway.inference.v1.InferenceService/Generate";

describe("curl with JSON", () => {
  test("is answered with JSON", async () => {
    const response = await post(await open(), getPools);
    expect([response.status, response.headers.get("content-type")]).toEqual([
      200,
      "application/json",
    ]);
    expect(await response.json()).toEqual({});
  });

  test("receives the reason of an error", async () => {
    const script: Script = {
      ...emptyAnswers(),
      unary: async (desc) => {
        if (desc.name === "Authenticate") throw new ApiError("revoked_key");
        return expect.unreachable("the credential is checked first");
      },
    };
    const response = await post(await open(script), getPools);
    expect(response.status).toBe(401);
    expect(await response.json()).toMatchObject({
      code: "unauthenticated",
      message: "This API key was revoked.",
      details: [
        {
          type: "google.rpc.ErrorInfo",
          debug: { reason: "REVOKED_KEY", domain: "model-gateway" },
        },
      ],
    });
  });

  test.for<[string, string, Sent, number]>([
    ["without a credential", getPools, { credential: "" }, 401],
    ["with JSON that is none", getPools, { body: "{" }, 400],
    ["with a member of another type", getPools, { body: '{"accountId": 5}' }, 400],
    ["with a list for a body", getPools, { body: "[]" }, 400],
    ["with another content type", getPools, { type: "text/plain" }, 415],
    ["with gRPC itself", getPools, { type: "application/grpc", body: new Uint8Array(5) }, 415],
    ["with a compressed body", getPools, { headers: { "content-encoding": "gzip" } }, 501],
    ["for an unknown method", "gateway.billing.v1.BillingService/Steal", {}, 501],
    ["with a megabyte", getPools, { body: `{"accountId": "${"x".repeat(1024 * 1024)}"}` }, 429],
    [
      "with JSON 5,000 levels deep",
      countTokens,
      { body: `{"request":{"extensions":${"[".repeat(5_000)}${"]".repeat(5_000)}}}` },
      400,
    ],
    ["with messages 5,000 levels deep", countTokens, { body: deepMessages(5_000) }, 400],
  ])("%s is refused", async ([, path, sent, status]) => {
    const url = await open();
    const response = await post(url, path, sent);
    expect(response.status).toBe(status);
    expect(await response.text()).not.toMatch(/<html|at .*\.ts/);
    expect((await post(url, getPools)).status).toBe(200);
  });

  test("counts the tokens of a request far above the limit of other methods", async () => {
    const text = "x".repeat(20 * 1024 * 1024);
    const body = JSON.stringify({
      request: {
        model: "sonnet",
        messages: [{ role: "ROLE_USER", content: [{ text: { text } }] }],
      },
    });
    expect((await post(await open(), countTokens, { body })).status).toBe(200);
  });

  test("JSON as deep as the public formats allow is accepted", async () => {
    const levels = 199;
    const extensions = `${'{"a":'.repeat(levels - 1)}{}${"}".repeat(levels - 1)}`;
    const body = `{"request": {"model": "sonnet", "messages": [{}], "extensions": ${extensions}}}`;
    expect((await post(await open(), countTokens, { body })).status).toBe(200);
  });

  test("receives the path of an unlisted enum name at any depth", async () => {
    const body = JSON.stringify({
      model: "sonnet",
      messages: [{ role: "ROLE_USER" }, { role: "ROLE_TOOL" }],
    });
    const enveloped = Buffer.concat([Buffer.from([0, 0, 0, 0, body.length]), Buffer.from(body)]);
    const url = await open();
    const streamed = await post(url, generate, {
      type: "application/connect+json",
      body: new Uint8Array(enveloped),
    });
    expect(await streamed.text()).toContain('"fieldViolations":[{"field":"messages[1].role"');
    const counted = await post(url, countTokens, { body: `{"request": ${body}}` });
    expect(await counted.json()).toMatchObject({
      details: [
        { type: "google.rpc.ErrorInfo" },
        { debug: { fieldViolations: [{ field: "request.messages[1].role" }] } },
        { debug: { allowed: expect.arrayContaining(["ROLE_USER"]) } },
      ],
    });
  });
});

/** A message with the flag and length that the streaming protocols put before it. */
function envelope(message: Uint8Array): Uint8Array<ArrayBuffer> {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.byteLength, 1);
  return new Uint8Array(Buffer.concat([prefix, message]));
}

/** The error of a response, in whichever of the protocols it came. */
async function readFailure(response: Response): Promise<{ code: unknown; message: string }> {
  const type = response.headers.get("content-type") ?? "";
  const bytes = Buffer.from(await response.arrayBuffer());
  if (type === "application/json") return JSON.parse(bytes.toString());
  if (type.startsWith("application/connect+")) {
    expect([response.status, bytes[0], bytes.readUInt32BE(1)]).toEqual([200, 2, bytes.length - 5]);
    return JSON.parse(bytes.subarray(5).toString()).error;
  }
  // gRPC-web sends its status in the headers, or in a last message of its own.
  expect(response.status).toBe(200);
  const trailer = new Headers(response.headers);
  for (const line of bytes.subarray(5).toString("latin1").split("\r\n")) {
    const [name = "", value = ""] = line.split(/:\s*(.*)/s);
    if (/^grpc-[a-z-]+$/.test(name)) trailer.set(name, value);
  }
  const code = Code[Number(trailer.get("grpc-status"))];
  return { code, message: decodeURIComponent(trailer.get("grpc-message") ?? "") };
}

/** Every way to call a method over this listener, with a body that is no message. */
const malformed: Record<string, [path: string, sent: Sent]> = {
  "Connect with protobuf": [getPools, { type: "application/proto", body: bytesOf("ff ff ff") }],
  "Connect with a wrong length": [getPools, { type: "application/proto", body: bytesOf("0a 7f") }],
  "a Connect stream with protobuf": [
    generate,
    { type: "application/connect+proto", body: envelope(bytesOf("0a 7f")) },
  ],
  "a Connect stream with JSON": [
    generate,
    { type: "application/connect+json", body: envelope(Buffer.from("{")) },
  ],
  "a torn Connect stream": [
    generate,
    { type: "application/connect+proto", body: bytesOf("00 00 00 00 09 0a") },
  ],
  "gRPC-web": [getPools, { type: "application/grpc-web", body: envelope(bytesOf("ff ff ff")) }],
  "gRPC-web with protobuf": [
    getPools,
    { type: "application/grpc-web+proto", body: envelope(bytesOf("0a 7f")) },
  ],
  "gRPC-web with JSON": [
    getPools,
    { type: "application/grpc-web+json", body: envelope(Buffer.from("[")) },
  ],
  "a stream over gRPC-web": [
    generate,
    { type: "application/grpc-web+proto", body: envelope(bytesOf("0a 7f")) },
  ],
};

function bytesOf(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex"));
}

describe("a malformed message is an invalid argument", () => {
  test.for(Object.entries(malformed))("over %s", async ([, [path, sent]]) => {
    const unary = vi.fn(emptyAnswers().unary);
    const url = await open({ ...emptyAnswers(), unary });
    const { code } = await readFailure(await post(url, path, sent));
    expect(["invalid_argument", "InvalidArgument"]).toContain(code);
    expect(unary.mock.calls.map(([desc]) => desc.name)).not.toContain("GetPools");
  });

  test("and an empty one is an empty message", async () => {
    const url = await open();
    for (const type of ["application/proto", "application/grpc-web+proto"]) {
      const body = type === "application/proto" ? new Uint8Array() : envelope(new Uint8Array());
      expect((await post(url, getPools, { type, body })).status).toBe(200);
    }
  });

  test("and one with too many fields is refused before it takes memory", async () => {
    const message = Buffer.alloc(2 * (fieldsMax + 1));
    // Field 2, `messages`, again and again, each of no length.
    for (let at = 0; at < message.length; at += 2) message[at] = 0x12;
    const url = await open();
    const sent = { type: "application/connect+proto", body: envelope(message) };
    expect(await readFailure(await post(url, generate, sent))).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("fields"),
    });
  });
});

describe("an unknown method", () => {
  const steal = "gateway.billing.v1.BillingService/Steal";
  test.for<[string, unknown]>([
    ["application/json", "unimplemented"],
    ["application/proto", "unimplemented"],
    ["text/plain", "unimplemented"],
    ["application/connect+json", "unimplemented"],
    ["application/connect+proto", "unimplemented"],
    ["application/grpc-web+proto", "Unimplemented"],
  ])("called with %s is unimplemented", async ([type, code]) => {
    const response = await post(await open(), steal, { type, credential: "" });
    expect(await readFailure(response)).toMatchObject({
      code,
      message: "gateway.billing.v1.BillingService has no such method here.",
    });
  });

  test("is unimplemented to Connect's own clients", async () => {
    const baseUrl = await open(emptyAnswers(), { adminMethods: false });
    const options = { baseUrl, httpVersion: "1.1" } as const;
    for (const transport of [createConnectTransport(options), createGrpcWebTransport(options)]) {
      const { listAccounts } = createClient(AccountsService, transport);
      await expect(listAccounts({})).rejects.toMatchObject({ code: Code.Unimplemented });
    }
  });
});

describe("an unknown media type", () => {
  test.for([
    [getPools, "text/plain"],
    [getPools, "application/xml"],
    [getPools, "application/connect+json"],
    [generate, "application/json"],
    [generate, "application/connect+xml"],
  ])("of %s, %s, gets the list of those that are read", async ([path = "", type = ""]) => {
    const response = await post(await open(), path, { type });
    expect(response.status).toBe(415);
    const accepted = response.headers.get("accept-post");
    expect(accepted).toContain(path === generate ? "application/connect+json" : "application/json");
    expect(await readFailure(response)).toMatchObject({
      code: "invalid_argument",
      message: `content-type: must be one of ${accepted}`,
    });
  });

  test("and another HTTP method are errors of Connect's form", async () => {
    const response = await fetch(`${await open()}/${listAccounts}`, { method: "PUT" });
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
    expect(await readFailure(response)).toMatchObject({ code: "unimplemented" });
  });

  test("and a GET, also of a method that changes nothing, is one", async () => {
    const query = new URLSearchParams({ connect: "v1", encoding: "json", message: "{}" });
    const response = await fetch(`${await open()}/${listAccounts}?${query}`);
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
    expect(await readFailure(response)).toMatchObject({ code: "unimplemented" });
  });
});

describe("the reflection service", () => {
  test.for(["v1", "v1alpha"])("%s is unimplemented here, and says where it is", async (version) => {
    const url = await open(emptyAnswers(), { grpcAddress: "127.0.0.1:50051" });
    const path = `grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    for (const type of ["application/json", "application/connect+proto", "application/grpc"]) {
      const { code, message } = await readFailure(await post(url, path, { type, credential: "" }));
      expect(String(code).toLowerCase()).toBe("unimplemented");
      expect(message).toContain("gRPC at 127.0.0.1:50051");
      expect(message).toContain("/protos/descriptor.binpb");
    }
  });
});

describe("a deadline of zero", () => {
  const ready = envelope(Buffer.from('{"model": "sonnet", "messages": [{"role": "ROLE_USER"}]}'));
  const cases: Record<string, [path: string, sent: Sent]> = {
    "a call": [getPools, { headers: { "connect-timeout-ms": "0" } }],
    "a count": [
      countTokens,
      { body: '{"request": {"model": "sonnet"}}', headers: { "connect-timeout-ms": "0" } },
    ],
    "a stream": [
      generate,
      {
        type: "application/connect+json",
        body: ready,
        headers: { "connect-timeout-ms": "0" },
      },
    ],
    "a stream over gRPC-web": [
      generate,
      { type: "application/grpc-web+json", body: ready, headers: { "grpc-timeout": "0m" } },
    ],
  };
  test.for(Object.entries(cases))(
    "ends %s before it reaches a service",
    async ([, [path, sent]]) => {
      const unary = vi.fn(emptyAnswers().unary);
      const stream = vi.fn(emptyAnswers().stream);
      const { code } = await readFailure(await post(await open({ unary, stream }), path, sent));
      expect(["deadline_exceeded", "DeadlineExceeded"]).toContain(code);
      expect([unary, stream].flatMap((one) => one.mock.calls)).toEqual([]);
    },
  );
});

function deepMessages(levels: number): string {
  const before = '{"toolResult":{"content":['.repeat(levels);
  return `{"request":{"model":"m","messages":[{"content":[${before}${"]}}".repeat(levels)}]}]}}`;
}

describe("the memory of bodies", () => {
  const kibibyte = 1024;
  const small = { totalBytes: 400 * kibibyte, perAddressBytes: 400 * kibibyte };

  /** Answers, of which `Authenticate` has a key and `Generate` checks the memory. */
  function scriptOf(stream: Script["stream"] = emptyAnswers().stream): Script {
    return {
      unary: async (desc) =>
        desc.name === "Authenticate"
          ? create(AuthenticateResponseSchema, { key: { keyId: "key_1" } })
          : create(desc.output),
      stream,
    };
  }

  test("is bounded for a key, and free after each call", async () => {
    const keyLoad = loadWithin({ ...small, perKeyBytes: 40 * kibibyte });
    const url = await open(scriptOf(), { keyLoad });
    const body = JSON.stringify({ request: { model: "x".repeat(20 * kibibyte) } });
    const response = await post(url, countTokens, { body });
    expect([response.status, await reasonOf(response)]).toEqual([429, "TOO_MANY_BODIES"]);
    for (let index = 0; index < 3; index++) expect((await post(url, getPools)).status).toBe(200);
    await expect.poll(() => keyLoad.usedBytes).toBe(0);
  });

  test("is bounded for an address", async () => {
    const keyLoad = loadWithin({ ...small, perKeyBytes: small.totalBytes });
    const url = await open(scriptOf(), { keyLoad });
    const other = keyLoad.open({ keyId: "other", address: "127.0.0.1" });
    other.grow(100 * kibibyte);
    const response = await post(url, getPools);
    expect([response.status, await reasonOf(response)]).toEqual([503, "GATEWAY_UNAVAILABLE"]);
    other.free();
    expect((await post(url, getPools)).status).toBe(200);
  });

  test("is free once the request is admitted", async () => {
    const keyLoad = loadWithin({ ...small, perKeyBytes: small.totalBytes });
    const used: number[] = [];
    const script = scriptOf(async function* () {
      const message = (kind: GenerateResponse["kind"]) => create(GenerateResponseSchema, { kind });
      used.push(keyLoad.usedBytes);
      yield message({ case: "admission", value: create(AdmissionSchema) });
      used.push(keyLoad.usedBytes);
      yield message({ case: "events", value: create(EventsSchema) });
    });
    const bytes = encodeEnvelope(
      0,
      Buffer.from('{"model":"haiku","messages":[{"role":"ROLE_USER"}]}'),
    );
    const body = new Uint8Array(bytes);
    const url = await open(script, { keyLoad });
    const response = await post(url, generate, { body, type: "application/connect+json" });
    await response.text();
    expect(used).toEqual([4 * body.length, 0]);
  });

  test("is free again when a body stops", async () => {
    const clock = new ManualClock();
    const keyLoad = loadWithin({ ...small, perKeyBytes: small.totalBytes }, { clock });
    const url = new URL(await open(scriptOf(), { keyLoad, clock }));
    const socket = connect(Number(url.port), url.hostname).on("error", () => {});
    const answer = text(socket);
    socket.write(
      `POST /${getPools} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n` +
        "content-type: application/json\r\ncontent-length: 1000\r\n\r\n{",
    );
    await expect.poll(() => keyLoad.usedBytes).toBe(4_000);
    await clock.advance(paceMs);
    expect(await answer).toMatch(/^HTTP\/1.1 504 .*BODY_TOO_SLOW/s);
    expect(keyLoad.usedBytes).toBe(0);
  });

  /** A key that owes 10 ms of work. */
  function owing() {
    const clock = new ManualClock();
    const keyLoad = loadWithin({ ...small, perKeyBytes: small.totalBytes }, { clock });
    const turn = keyLoad.open({ keyId: "key_1", address: "192.0.2.1" });
    void turn.take(undefined);
    turn.read(300 * kibibyte);
    turn.end(false);
    return { clock, keyLoad };
  }

  test("of a stream is free at its first message, and the next request of its key begins", async () => {
    const { clock, keyLoad } = owing();
    const script = scriptOf(async function* (_desc, _request, { signal }) {
      yield create(WatchChargesResponseSchema);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    const baseUrl = await open(script, { keyLoad, clock });
    const transport = createConnectTransport({ baseUrl, httpVersion: "1.1" });
    const leaving = new AbortController();
    const call = { headers: { authorization: `Bearer ${key}` }, signal: leaving.signal };
    const charges = createClient(UsageService, transport).watchCharges({}, call);
    const reader = charges[Symbol.asyncIterator]();
    expect((await reader.next()).done).toBe(false);
    expect(keyLoad.usedBytes).toBe(0);
    const next = keyLoad.open({ keyId: "key_1", address: "192.0.2.1" });
    const waiting = next.take(undefined);
    await clock.advance(10_000);
    await waiting;
    next.end(true);
    leaving.abort();
    await reader.next().catch(() => {});
  });

  test("of the 101st call that waits is refused with 429", async () => {
    const { keyLoad, clock } = owing();
    const turn = keyLoad.open({ keyId: "key_1", address: "192.0.2.1" });
    void turn.take(undefined);
    for (let count = 0; count < 100; count++)
      void keyLoad.open({ keyId: "key_1", address: "192.0.2.1" }).take(undefined);
    const url = await open(scriptOf(), { keyLoad, clock });
    const body = JSON.stringify({ accountId: "x".repeat(40 * kibibyte) });
    const response = await post(url, getPools, { body });
    expect([response.status, await reasonOf(response)]).toEqual([429, "TOO_MANY_BODIES"]);
  });

  async function reasonOf(response: Response): Promise<string | undefined> {
    return /"reason":"(\w+)"/.exec(await response.text())?.[1];
  }
});

describe("the public listener", () => {
  test("has the operator's methods unless they are switched off", async () => {
    expect((await post(await open(), listAccounts, { credential: adminToken })).status).toBe(200);
    const closed = await open(emptyAnswers(), { adminMethods: false });
    expect((await post(closed, listAccounts, { credential: adminToken })).status).toBe(501);
    expect((await post(closed, getPools)).status).toBe(200);
  });

  test("rejects new calls while it drains", async () => {
    const response = await post(await open(emptyAnswers(), { isDraining: () => true }), getPools);
    expect([response.status, await response.json()]).toMatchObject([503, { code: "unavailable" }]);
  });

  test.each([
    { what: "every call while it drains", status: 503, isDraining: true },
    { what: "a wrong credential", status: 401, credential: "wrong" },
    {
      what: "an unknown method",
      status: 501,
      path: "gateway.billing.v1.BillingService/GetNothing",
    },
    { what: "an unknown media type", status: 415, type: "text/plain" },
  ])(
    "rejects $what once its request has come, if the answer ends the connection",
    async ({
      status,
      isDraining = false,
      credential = key,
      path = getPools,
      type = "application/json",
    }) => {
      const changes = { isDraining: () => isDraining, endsConnections: () => true };
      const url = await open(emptyAnswers(), changes);
      const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1" });
      const head = `POST /${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: ${type}\r\n`;
      socket.write(`${head}authorization: Bearer ${credential}\r\ncontent-length: 2\r\n\r\n{`);
      const answer = text(socket);
      let isAnswered = false;
      socket.once("data", () => {
        isAnswered = true;
      });
      // Long enough for an answer to another call.
      await post(url, getPools);
      await post(url, getPools);
      expect(isAnswered).toBe(false);
      socket.write("}");
      expect(await answer).toMatch(`HTTP/1.1 ${status} `);
    },
  );

  test("allows no web page of another origin", async () => {
    const url = await open();
    const preflight = await fetch(`${url}/${getPools}`, {
      method: "OPTIONS",
      headers: { origin: "https://example.test", "access-control-request-method": "POST" },
    });
    const answered = await post(url, getPools, { headers: { origin: "https://example.test" } });
    for (const response of [preflight, answered]) {
      expect(
        [...response.headers.keys()].filter((name) => name.startsWith("access-control")),
      ).toEqual([]);
    }
  });

  test("authenticates before it reads the request", async () => {
    const unary = vi.fn(emptyAnswers().unary);
    const response = await post(await open({ ...emptyAnswers(), unary }), getPools, {
      credential: "wrong",
      body: "{",
    });
    expect(response.status).toBe(401);
    expect(unary).not.toHaveBeenCalled();
  });

  test("counts wrong credentials by address, and rejects unknown credentials from an address with too many", async () => {
    const failedCredentials = { check: vi.fn(), record: vi.fn() };
    const url = await open(emptyAnswers(), { failedCredentials });
    await post(url, authenticate, { credential: "wrong" });
    expect(failedCredentials.record).toHaveBeenCalledExactlyOnceWith("127.0.0.1");
    await post(url, authenticate);
    expect(failedCredentials.record).toHaveBeenCalledOnce();
    failedCredentials.check.mockImplementation(() => {
      throw new ApiError("auth_rate_limited", { retryAfterMs: 1000 });
    });
    expect((await post(url, authenticate, { credential: "wrong" })).status).toBe(429);
    expect((await post(url, authenticate, { credential: adminToken })).status).toBe(429);
    // This credential was good before, and shares its address with the wrong ones.
    expect((await post(url, authenticate)).status).toBe(200);
  });
});

describe("a stream without an end whose reader stops reading", () => {
  // The library prints what it does not take for a hang-up, between our lines of JSON.
  const printed = vi.spyOn(console, "error");
  afterEach(() => expect(printed).not.toHaveBeenCalled());

  /** Opens such a stream. Its messages are large, so that they fill every buffer on the way. */
  async function openStalled() {
    const stopping = new AbortController();
    const closed = Promise.withResolvers<void>();
    const state = { produced: 0 };
    const url = await open(
      {
        ...emptyAnswers(),
        async *stream() {
          try {
            for (;;) {
              state.produced++;
              const charges = [{ model: "x".repeat(100_000) }];
              yield create(WatchChargesResponseSchema, { charges });
            }
          } finally {
            closed.resolve();
          }
        },
      },
      { stopping: stopping.signal },
    );
    const hangUp = new AbortController();
    const response = await fetch(`${url}/${watchCharges}`, {
      method: "POST",
      headers: { "content-type": "application/connect+json", authorization: `Bearer ${key}` },
      body: encodeEnvelope(0, new TextEncoder().encode("{}")),
      signal: hangUp.signal,
    });
    expect(response.status).toBe(200);
    return { state, stopping, closed: closed.promise, hangUp, response };
  }

  test("stops its producer", async () => {
    const { state, hangUp } = await openStalled();
    const whenStopped = await settled(() => state.produced);
    // 100 MB were as good as no limit.
    expect(whenStopped).toBeLessThan(1_000);
    hangUp.abort();
  });

  test("ends when the reader hangs up", async () => {
    const { state, hangUp, closed } = await openStalled();
    await settled(() => state.produced);
    hangUp.abort();
    await closed;
  });

  test("is cut when the listener stops, so that a drain need not wait for it", async () => {
    const { state, stopping, closed, response } = await openStalled();
    await settled(() => state.produced);
    stopping.abort(shuttingDown());
    await closed;
    await expect(response.text()).rejects.toThrow();
  });
});
