// Requests in the native format: credentials, versions, bodies and names of models, and the bodies
// that the provider receives.

import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type GatewayWithProvider,
  smallBody,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { nativeAnswer } from "../support/provider-answers.ts";

let native: GatewayWithProvider;
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
});
beforeEach(() => native.provider.always(nativeAnswer({ text: ["Hi"] })));
afterAll(() => native.stop());

const bearer = (key: string, version: string) => ({
  "x-api-key": undefined,
  authorization: `Bearer ${key}`,
  "anthropic-version": version,
});

describe("a plain request", () => {
  test("gets an answer with every member that clients read, and one request id under two names", async () => {
    const response = await native.post(smallBody);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toMatch(/^application\/json/);
    expect(response.headers.get("request-id")).toMatch(/^req_/);
    expect(response.headers.get("request-id")).toBe(response.headers.get("x-request-id"));
    expect(await response.json()).toMatchObject({
      id: expect.stringMatching(/^msg_/),
      type: "message",
      role: "assistant",
      model: "model-haiku-4.5",
      content: [{ type: "text", text: "Hi" }],
      stop_reason: "end_turn",
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 5 },
    });
  });

  test("with the newest SDK's Bearer gets the same answer", async () => {
    const older = await (await native.post(smallBody)).json();
    const newest = await native.post(smallBody, {
      headers: bearer(native.gateway.v1, "2026-10-21"),
    });
    expect([newest.status, await newest.json()]).toEqual([200, older]);
  });

  test("with a Bearer that its version does not use is rejected, and the body does not name the other header", async () => {
    const response = await native.post(smallBody, {
      headers: bearer(native.gateway.v1, "2023-06-01"),
    });
    const body = await response.text();
    expect(response.status).toBe(401);
    expect(JSON.parse(body).error.details.error_code).toBe("wrong_credential_header");
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect(body.toLowerCase()).not.toContain("x-api-key");
    expect(response.headers.get("www-authenticate")).toContain("x-api-key");
  });

  test("with a valid key ignores the Authorization header", async () => {
    expect(
      (await native.post(smallBody, { headers: { authorization: "Bearer junk" } })).status,
    ).toBe(200);
  });
});

describe("the version", () => {
  const versions: {
    name: string;
    headers: Record<string, string | undefined>;
    status: number;
    code?: string;
  }[] = [
    {
      name: "that is missing",
      headers: { "anthropic-version": undefined },
      status: 400,
      code: "version_required",
    },
    {
      name: "that is unknown",
      headers: { "anthropic-version": "2020-01-01" },
      status: 400,
      code: "version_unsupported",
    },
    { name: "in both spellings alike", headers: { "vendor-version": "2023-06-01" }, status: 200 },
    {
      name: "in the vendor's spelling alone",
      headers: { "anthropic-version": undefined, "vendor-version": "2023-06-01" },
      status: 200,
    },
    {
      name: "in two spellings that differ",
      headers: { "vendor-version": "2026-10-21" },
      status: 400,
    },
  ];
  for (const { name, headers, status, code } of versions) {
    test(`${name} is answered ${status}`, async () => {
      const response = await native.post(smallBody, { headers });
      expect(response.status).toBe(status);
      if (code !== undefined)
        expect(await response.json()).toMatchObject({ error: { details: { error_code: code } } });
    });
  }

  test("2026-10-21 rejects a temperature that 2023-06-01 accepts", async () => {
    const body = { ...smallBody, temperature: 1 };
    const rejected = await native.post(body, { headers: { "anthropic-version": "2026-10-21" } });
    expect(rejected.status).toBe(400);
    expect(await rejected.json()).toMatchObject({
      error: { message: expect.stringMatching(/^temperature: /) },
    });
    expect((await native.post(body)).status).toBe(200);
  });
});

describe("the provider receives", () => {
  const received = () => native.provider.requests.at(-1);

  test("unknown members at every level, lists in order, and the beta header byte for byte", async () => {
    const odd = { z: [3, 1, 2, null, {}], a: { "": "", deep: [[[]]] } };
    const body = {
      ...smallBody,
      newest: odd,
      safeguards: [],
      messages: [
        {
          role: "user",
          content: [{ type: "text", text: "é\u2028\u0000", newest: odd, citations: null }],
          newest: odd,
        },
        { role: "assistant", content: [{ type: "newest_block", newest: odd }] },
        {
          role: "user",
          content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [], newest: odd }],
        },
      ],
      tools: [
        { name: "f", input_schema: { type: "object", newest: odd }, newest: odd, strict: false },
      ],
      thinking: { type: "adaptive", display: "updates", newest: odd },
      context_management: { edits: [{ type: "clear_tool_uses_20250919", newest: odd }] },
    };
    const beta = "b-2025-01-01,  a-2024-12-31,b-2025-01-01";
    expect((await native.post(body, { headers: { "anthropic-beta": beta } })).status).toBe(200);
    expect(received()?.body).toEqual({ ...body, model: "provider-model", stream: false });
    expect(received()?.bodyText).toContain(JSON.stringify(odd));
    expect(received()?.headers["anthropic-beta"]).toBe(beta);
    expect(received()?.headers["anthropic-version"]).toBe("2023-06-01");
  });

  test("system messages inside the conversation, with settings and without content", async () => {
    const messages = [
      { role: "user", content: "Hello" },
      { role: "system", output_config: { effort: "high" }, cache_control: { type: "ephemeral" } },
    ];
    expect((await native.post({ ...smallBody, messages })).status).toBe(200);
    expect(received()?.body.messages).toEqual(messages);
  });

  test("the system blocks unchanged", async () => {
    const system = [
      { type: "text", text: "x-anthropic-billing-header: a=b;" },
      { type: "text", text: "one", cache_control: { type: "ephemeral" } },
      { type: "text", text: "two", cache_control: { type: "ephemeral", ttl: "1h" } },
    ];
    expect((await native.post({ ...smallBody, system })).status).toBe(200);
    expect(received()?.body.system).toEqual(system);
  });

  test("the thinking and calls of earlier turns byte for byte, empty ones too", async () => {
    const content = [
      { type: "thinking", thinking: "", signature: "ZW1wdHk=" },
      { type: "thinking", thinking: "é 😀", signature: "c2ln+/==" },
      { type: "redacted_thinking", data: "b3BhcXVl" },
      { type: "tool_use", id: "toolu_1", name: "f", input: { z: 1, a: [] } },
    ];
    const result = { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1" }] };
    const messages = [...smallBody.messages, { role: "assistant", content }, result];
    expect((await native.post({ ...smallBody, messages })).status).toBe(200);
    for (const block of content) expect(received()?.bodyText).toContain(JSON.stringify(block));
    expect(received()?.body.messages).toEqual(messages);
  });
});

describe("a body", () => {
  const image = {
    type: "image",
    source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=".repeat(87_000) },
  };

  test("of 20 MB of images is accepted", async () => {
    const content = [...Array(20).fill(image), { type: "text", text: "What is this?" }];
    const response = await native.post({ ...smallBody, messages: [{ role: "user", content }] });
    expect(response.status).toBe(200);
    expect(native.provider.requests.at(-1)?.bodyText.length).toBeGreaterThan(20_000_000);
  });

  test("of 33 MiB is too large", async () => {
    const response = await native.post(new Uint8Array(33 * 1024 * 1024).fill(0x20));
    expect([response.status, Object(await response.json()).error.type]).toEqual([
      413,
      "request_too_large",
    ]);
  });

  test("that unpacks to 200 MiB is rejected with the name of the limit", async () => {
    const bomb = gzipSync(Buffer.alloc(200 * 1024 * 1024));
    const response = await native.post(bomb, { headers: { "content-encoding": "gzip" } });
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({
      error: { details: { error_code: "request_body_too_large_after_decoding" } },
    });
  });
});

describe("the name of a model", () => {
  test.each([
    ["claude-haiku-4-5-20251001", "model-haiku-4.5"],
    ["opus[1m]", "model-opus-4.6"],
    ["claude-opus-9-9", "model-opus-4.6"],
  ])("%s means %s", async (model, resolved) => {
    const response = await native.post({ ...smallBody, model });
    expect([response.status, Object(await response.json()).model]).toEqual([200, resolved]);
  });

  test("that is unknown is answered 404, with the names that exist", async () => {
    const response = await native.post({ ...smallBody, model: "gpt-4o" });
    const { error } = Object(await response.json());
    expect([response.status, error.type]).toEqual([404, "not_found_error"]);
    expect(error.message).toMatch(/^model: gpt-4o.*model-opus-4\.6/s);
  });

  test("is checked against the key's models after the alias is resolved", async () => {
    const { secret } = await native.keyWith({ allowedModels: ["sonnet"] });
    const headers = { "x-api-key": secret };
    const allowed = await native.post({ ...smallBody, model: "sonnet" }, { headers });
    expect([allowed.status, Object(await allowed.json()).model]).toEqual([200, "model-sonnet-4.6"]);
    const rejected = await native.post({ ...smallBody, model: "opus" }, { headers });
    expect(rejected.status).toBe(403);
    expect(await rejected.json()).toMatchObject({
      error: { details: { error_code: "model_not_allowed" } },
    });
  });
});

describe("without the tier fallback", () => {
  let strict: GatewayWithProvider;
  beforeAll(async () => {
    strict = await startGatewayWithProvider("native", "tier_fallback: false");
    strict.provider.always(nativeAnswer({ text: ["Hi"] }));
  });
  afterAll(() => strict.stop());

  test("only ids, aliases and their spellings are valid", async () => {
    expect((await strict.post({ ...smallBody, model: "claude-opus-9-9" })).status).toBe(404);
    expect((await strict.post({ ...smallBody, model: "claude-opus-4-6" })).status).toBe(200);
  });
});
