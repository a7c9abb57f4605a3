// The services over Connect on the HTTP listener, as `curl` and browsers use them.

import fastify from "fastify";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { localCore } from "../../src/contract/contract.ts";
import type { FailedCredentials } from "../../src/http/authenticate.ts";
import { createIdentifyCaller } from "../../src/http/authenticate.ts";
import { type ConnectParts, registerConnect } from "../../src/http/connect.ts";
import {
  adminToken,
  emptyAnswers,
  key,
  type Script,
  scriptedServices,
} from "../support/scripted-services.ts";

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
    adminMethods: true,
    isDraining: () => false,
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
const listAccounts = "gateway.billing.v1.BillingService/ListAccounts";
const authenticate = "gateway.keys.v1.KeysService/Authenticate";
const countTokens = "gateway.inference.v1.InferenceService/CountTokens";
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
    ["for an unknown method", "gateway.billing.v1.BillingService/Steal", {}, 404],
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

function deepMessages(levels: number): string {
  const before = '{"toolResult":{"content":['.repeat(levels);
  return `{"request":{"model":"m","messages":[{"content":[${before}${"]}}".repeat(levels)}]}]}}`;
}

describe("the public listener", () => {
  test("has the operator's methods unless they are switched off", async () => {
    expect((await post(await open(), listAccounts, { credential: adminToken })).status).toBe(200);
    const closed = await open(emptyAnswers(), { adminMethods: false });
    expect((await post(closed, listAccounts, { credential: adminToken })).status).toBe(404);
    expect((await post(closed, getPools)).status).toBe(200);
  });

  test("rejects new calls while it drains", async () => {
    const response = await post(await open(emptyAnswers(), { isDraining: () => true }), getPools);
    expect([response.status, await response.json()]).toMatchObject([503, { code: "unavailable" }]);
  });

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
