import { once } from "node:events";
import { createServer } from "node:https";
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { ContentForm, MessageSchema, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { createAuthority } from "../support/certificates.ts";
import { type FakeProvider, type Script, startFakeProvider } from "../support/provider.ts";
import {
  chatAnswer,
  chatErrorAnswer,
  chatStream,
  errorAnswer,
  nativeAnswer,
  nativeEvents,
  nativeStream,
  sseEvent,
} from "../support/provider-answers.ts";
import {
  attemptsFor,
  attemptsOf,
  endOf,
  kindsOf,
  nativeOrigin,
  type Outcome,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  textOf,
} from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  await providers.close();
  await provider.stop();
});

type Kind = "anthropic" | "openai";

function open(kind: Kind, more?: string, env?: NodeJS.ProcessEnv): void {
  providers = openProviders(
    catalogFor({ real: { kind, url: provider.url, ...(more && { more }) } }),
    env && { env },
  );
}

const credential = "provider-secret-0123456789";

describe("a request to a native provider", () => {
  test("carries the configured credential, the provider's model name and the vendor's headers, and no others", async () => {
    open("anthropic", "credential_env: KEY, headers: { x-team: blue-team }", { KEY: credential });
    provider.always(nativeStream());
    await readAll(
      providers,
      requestOf("Hi", {
        origin: nativeOrigin({ vendorVersion: "2026-10-21", vendorBeta: "a-1,b-2" }),
      }),
    );
    const [request] = provider.requests;
    const { host: _host, "content-length": _length, ...headers } = request?.headers ?? {};
    expect(headers).toEqual({
      connection: "keep-alive",
      "accept-encoding": "identity",
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "user-agent": "model-gateway",
      "x-team": "blue-team",
      "x-api-key": credential,
      "anthropic-version": "2026-10-21",
      "anthropic-beta": "a-1,b-2",
    });
    expect([request?.method, request?.path]).toEqual(["POST", "/v1/messages"]);
    expect(request?.body).toEqual({
      model: "provider-model",
      max_tokens: 1000,
      stream: true,
      messages: [{ role: "user", content: [{ type: "text", text: "Hi" }] }],
    });
  });

  test("has a default version if the client sent none", async () => {
    open("anthropic");
    provider.always(nativeStream());
    await readAll(providers, "Hi");
    expect(provider.requests[0]?.headers).toMatchObject({ "anthropic-version": "2023-06-01" });
    expect(Object.keys(provider.requests[0]?.headers ?? {})).not.toContain("x-api-key");
  });

  test("a version that no header can carry is an error of the caller, not of the provider", async () => {
    open("anthropic");
    const { apiError } = await readAll(
      providers,
      requestOf("Hi", { origin: nativeOrigin({ vendorBeta: "a\r\nhost: elsewhere" }) }),
    );
    expect([apiError?.reason, provider.requests.length]).toEqual(["invalid_request", 0]);
  });

  test("system entries are sent as they are, or folded if the route is configured so", async () => {
    const entry = (role: Role, text: string) =>
      create(MessageSchema, {
        role,
        form: ContentForm.TEXT,
        content: [{ kind: { case: "text", value: { text } } }],
      });
    const messages = [
      entry(Role.USER, "Hi"),
      entry(Role.SYSTEM, "Be brief."),
      entry(Role.ASSISTANT, "Yes?"),
      entry(Role.USER, "Go"),
    ];
    const rolesSent = async (routes?: string) => {
      providers = openProviders(
        catalogFor({ real: { kind: "anthropic", url: provider.url } }, routes),
      );
      provider.always(nativeStream());
      await readAll(providers, requestOf("", { messages }));
      const sent = provider.requests.at(-1)?.body.messages;
      return Array.isArray(sent)
        ? sent.map((message) => JSON.stringify(message).match(/"role":"(\w+)"/)?.[1])
        : [];
    };
    expect(await rolesSent()).toEqual(["user", "system", "assistant", "user"]);
    await providers.close();
    expect(await rolesSent("[[{ provider: real, system_entries: fold }]]")).toEqual([
      "user",
      "assistant",
      "user",
    ]);
  });
});

test("a provider with an untrusted certificate receives nothing", async () => {
  const { certificate, privateKey } = createAuthority("nobody").issue("localhost");
  let requests = 0;
  const impostor = createServer({ cert: certificate, key: privateKey }, () => requests++).listen(
    0,
    "127.0.0.1",
  );
  await once(impostor, "listening");
  onTestFinished(() => void impostor.close());
  const { port } = Object(impostor.address());
  const url = `https://127.0.0.1:${port}`;
  providers = openProviders(
    catalogFor({ real: { kind: "anthropic", url, more: "credential_env: KEY" } }),
    {
      env: { KEY: credential },
    },
  );
  expect((await readAll(providers, "Hi")).apiError?.reason).toBe("upstream_error");
  expect(requests).toBe(0);
});

describe("a request to a chat provider", () => {
  test("carries the credential as Bearer, and requests the usage", async () => {
    open("openai", "credential_env: KEY", { KEY: credential });
    provider.always(chatStream());
    await readAll(
      providers,
      requestOf("Hi", { origin: nativeOrigin({ vendorVersion: "2023-06-01", vendorBeta: "a-1" }) }),
    );
    const [request] = provider.requests;
    expect(request?.path).toBe("/v1/chat/completions");
    expect(request?.headers).toMatchObject({ authorization: `Bearer ${credential}` });
    expect(
      Object.keys(request?.headers ?? {}).filter((name) => name.startsWith("anthropic")),
    ).toEqual([]);
    expect(request?.body).toMatchObject({
      model: "provider-model",
      stream: true,
      stream_options: { include_usage: true },
    });
  });

  test("has the configured name of the output limit", async () => {
    open("openai", "max_tokens_name: max_completion_tokens");
    provider.always(chatStream());
    await readAll(providers, "Hi");
    expect(provider.requests[0]?.body).toMatchObject({ max_completion_tokens: 1000 });
    expect(provider.requests[0]?.body.max_tokens).toBeUndefined();
  });

  test("that its format cannot express fails before anything is sent", async () => {
    open("openai");
    const { apiError, ask } = await readAll(
      providers,
      requestOf("Hi", { tools: [{ type: "computer_20250124", name: "computer" }] }),
    );
    expect([apiError?.reason, provider.requests.length, ask.accepted]).toEqual([
      "feature_not_offered",
      0,
      0,
    ]);
  });
});

describe("a request for a stream", () => {
  const cases = [
    { stream: true, maxTokens: 10, streams: true },
    { stream: false, maxTokens: 4096, streams: false },
    { stream: false, maxTokens: 4097, streams: true },
    { stream: undefined, maxTokens: 4096, streams: true },
  ];
  for (const { stream, maxTokens, streams } of cases) {
    test(`is ${streams ? "" : "not "}sent for ${stream === undefined ? "a request without an origin" : `stream ${stream}`} and ${maxTokens} tokens`, async () => {
      open("anthropic");
      provider.always(({ body }) =>
        (body.stream ? nativeStream : nativeAnswer)({ text: ["Hello"] }),
      );
      const { events, apiError } = await readAll(
        providers,
        requestOf("Hi", {
          maxTokens,
          ...(stream !== undefined && { origin: nativeOrigin({ streamed: stream }) }),
        }),
      );
      expect([apiError, provider.requests[0]?.body.stream, textOf(events)]).toEqual([
        undefined,
        streams,
        "Hello",
      ]);
    });
  }
});

describe("an answer", () => {
  const content = {
    thinking: { pieces: ["Hm", "m"] },
    text: ["Hel", "lo"],
    tool: { name: "get_weather", input: ['{"city":', '"Oslo"}'] },
    usage: { input: 20, output: 9, cacheRead: 5, cacheWrite: 3, thinking: 4 },
  };
  const usage = {
    inputTokens: 20,
    outputTokens: 9,
    cacheReadInputTokens: 5,
    cacheCreationInputTokens: 3,
    thinkingTokens: 4,
  };
  const forms: { name: string; kind: Kind; script: Script; stream: boolean }[] = [
    { name: "a native stream", kind: "anthropic", script: nativeStream(content), stream: true },
    { name: "a native answer", kind: "anthropic", script: nativeAnswer(content), stream: false },
    { name: "a chat stream", kind: "openai", script: chatStream(content), stream: true },
    { name: "a chat answer", kind: "openai", script: chatAnswer(content), stream: false },
  ];
  for (const { name, kind, script, stream } of forms) {
    test(`of ${name} is read with text, thinking, tool call and usage`, async () => {
      open(kind);
      provider.always(script);
      const outcome = await readAll(
        providers,
        requestOf("Hi", {
          origin: nativeOrigin({ streamed: stream }),
          tools: [{ name: "get_weather" }],
        }),
      );
      expect(outcome.apiError).toBeUndefined();
      expect(textOf(outcome.events)).toBe("Hello");
      const kinds = kindsOf(outcome.events).filter((one) => one !== "blockDelta");
      expect(kinds).toEqual([
        "messageStart",
        ...Array(3).fill(["blockStart", "blockStop"]).flat(),
        "messageDelta",
        "messageStop",
      ]);
      expect(endOf(outcome.events)?.stopReason).toBe("tool_use");
      expect(lastUsageOf(outcome)).toMatchObject(
        stream && kind === "anthropic" ? { outputTokens: 9, thinkingTokens: 4 } : usage,
      );
      expect([attemptsOf(outcome), outcome.ask.accepted]).toEqual([["real delivered 200"], 1]);
      expect(attemptsFor(outcome.ask)[0]?.firstEventAfter).toBeDefined();
    });
  }

  const lastUsageOf = ({ events }: Outcome) => endOf(events)?.usage;

  test("is read as a stream or whole, as the provider sends it", async () => {
    open("anthropic");
    provider.play(nativeAnswer({ text: ["whole"] }), nativeStream({ text: ["streamed"] }));
    expect(
      textOf(
        (await readAll(providers, requestOf("Hi", { origin: nativeOrigin({ streamed: true }) })))
          .events,
      ),
    ).toBe("whole");
    expect(
      textOf(
        (await readAll(providers, requestOf("Hi", { origin: nativeOrigin({ streamed: false }) })))
          .events,
      ),
    ).toBe("streamed");
  });

  const packings = {
    gzip: gzipSync,
    "x-gzip": gzipSync,
    deflate: deflateSync,
    br: brotliCompressSync,
    zstd: zstdCompressSync,
  };
  for (const [encoding, pack] of Object.entries(packings)) {
    test(`that a proxy packed as ${encoding} is unpacked`, async () => {
      open("anthropic");
      const stream = nativeStream({ text: ["streamed"] });
      const refused = errorAnswer(400, "invalid_request_error", "messages.0: wrong");
      for (const script of [stream, nativeAnswer({ text: ["whole"] }), refused])
        provider.play({
          ...script,
          headers: { ...script.headers, "content-encoding": encoding },
          writes: [pack((script.writes ?? []).join(""))],
          splitBytes: 7,
        });
      expect(textOf((await readAll(providers, "Hi")).events)).toBe("streamed");
      expect(textOf((await readAll(providers, "Hi")).events)).toBe("whole");
      const { apiError } = await readAll(providers, "Hi");
      expect(JSON.stringify(apiError?.facts.providerAnswer)).toContain("messages.0: wrong");
    });
  }

  test("that is packed and broken, or in no known way, is a failure", async () => {
    open("anthropic");
    const [body] = nativeAnswer().writes ?? [];
    const packed = gzipSync(String(body));
    const json = { "content-type": "application/json" };
    for (const [encoding, bytes] of [
      ["gzip", packed.subarray(0, -12)],
      ["gzip", Buffer.from(String(body))],
      ["snappy", packed],
    ] as const) {
      provider.always({ headers: { ...json, "content-encoding": encoding }, writes: [bytes] });
      const { apiError, events } = await readAll(providers, "Hi");
      expect([apiError?.reason, events]).toEqual(["upstream_error", []]);
    }
  });

  test("that unpacks to more than any answer has is a failure, not a full memory", async () => {
    open("anthropic");
    const bomb = gzipSync(Buffer.concat([Buffer.from("{"), Buffer.alloc(80_000_000, " ")]));
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    for (const status of [200, 400]) {
      provider.always({ status, headers, writes: [bomb] });
      const { apiError, events } = await readAll(providers, "Hi");
      const reason = status === 200 ? "upstream_error" : "upstream_refused";
      expect([apiError?.reason, events]).toEqual([reason, []]);
    }
  });

  const labels = [undefined, "text/plain", "text/html", "application/json", "text/event-stream"];
  for (const label of labels) {
    test(`is read by its first bytes under the media type ${label}`, async () => {
      open("openai");
      const headers: Record<string, string> = label === undefined ? {} : { "content-type": label };
      for (const before of ["", "\n\n", "\ufeff", " \r\n"]) {
        const stream = chatStream({ text: ["streamed"] });
        const answer = chatAnswer({ text: ["whole"] });
        const writes = [before, ...(stream.writes ?? []).map(String)].filter((one) => one !== "");
        provider.play({ ...stream, headers, writes });
        provider.play({ ...answer, headers, writes: [before + String(answer.writes)] });
        expect(textOf((await readAll(providers, "Hi")).events)).toBe("streamed");
        expect(textOf((await readAll(providers, "Hi")).events)).toBe("whole");
      }
      provider.always({ headers, writes: ["<!doctype html>", "<p>Log in</p>"] });
      expect((await readAll(providers, "Hi")).apiError?.reason).toBe("upstream_error");
    });
  }

  test("with half an emoji has U+FFFD in its place, whole and streamed", async () => {
    const half = (script: Script): Script => ({
      ...script,
      writes: (script.writes ?? []).map((one) => String(one).replaceAll("HALF", "\\ud83d")),
    });
    const text = { text: ["a HALF", " b", "\\HALF 🙂"] };
    for (const [kind, scripts] of [
      ["anthropic", [nativeAnswer(text), nativeStream(text)]],
      ["openai", [chatAnswer(text), chatStream(text)]],
    ] as const) {
      open(kind);
      provider.play(...scripts.map(half));
      for (const _ of scripts) {
        const { apiError, events } = await readAll(providers, "Hi");
        expect([apiError, textOf(events)]).toEqual([undefined, "a \ufffd b\\\ufffd 🙂"]);
      }
      await providers.close();
    }
  });

  test("of many events in one read is one array", async () => {
    open("anthropic");
    const script = nativeStream({ text: Array(50).fill("x") });
    provider.always({ ...script, writes: [(script.writes ?? []).join("")] });
    const { reads, events } = await readAll(providers, "Hi");
    expect([reads.length, events.length]).toEqual([1, 55]);
  });

  test("leaves its connection to the next call", async () => {
    open("anthropic");
    provider.always(nativeStream({ text: ["Hi"] }));
    for (let call = 0; call < 5; call++) await readAll(providers, "Hi");
    // At most two: the reader sees the end just before the connection is free.
    expect(await provider.connections()).toBeLessThanOrEqual(2);
  });
});

describe("an error answer", () => {
  const html: Script = {
    status: 502,
    headers: { "content-type": "text/html" },
    writes: ["<html>Bad gateway</html>"],
  };
  const cases: {
    name: string;
    kind?: Kind;
    script: Script;
    reason: string;
    facts?: object;
    attempt: string;
  }[] = [
    {
      name: "401",
      script: errorAnswer(401, "authentication_error", "invalid x-api-key"),
      reason: "upstream_error",
      attempt: "failed 401",
    },
    {
      name: "402",
      script: errorAnswer(402, "billing_error", "pay"),
      reason: "upstream_error",
      attempt: "failed 402",
    },
    {
      name: "403",
      script: errorAnswer(403, "permission_error", "no"),
      reason: "upstream_error",
      attempt: "failed 403",
    },
    {
      name: "429 with a retry time",
      script: errorAnswer(429, "rate_limit_error", "slow down", {
        headers: { "retry-after": "7" },
      }),
      reason: "overloaded",
      facts: { retryAfterMs: 7000 },
      attempt: "failed 429",
    },
    {
      name: "429 of an unpaid account",
      kind: "openai",
      script: chatErrorAnswer(429, "insufficient_quota", "pay"),
      reason: "upstream_error",
      attempt: "failed 429",
    },
    ...[
      "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade.",
      "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
      "This organization has been disabled.",
    ].map((message) => ({
      name: `400 with "${message}"`,
      script: errorAnswer(400, "invalid_request_error", message),
      reason: "upstream_error",
      facts: { providerAnswer: { status: 400 } },
      attempt: "failed 400",
    })),
    ...[
      "Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai.",
      "API key not valid. Please pass a valid API key.",
      "Access denied, please make sure your account is in good standing.",
      "Insufficient balance. Please recharge.",
      "Invalid model name passed in model=gpt-9. Call `/v1/models` to view available models.",
      "Model Not Exist",
      "the-model is not a valid model ID",
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      "Unrecognized request argument supplied: stream_options",
      "store: Extra inputs are not permitted",
    ].map((message) => ({
      name: `400 of a chat provider with "${message}"`,
      kind: "openai" as const,
      script: chatErrorAnswer(400, null, message),
      reason: "upstream_error",
      facts: { providerAnswer: { status: 400 } },
      attempt: "failed 400",
    })),
    ...[
      "Invalid value: 'Incorrect API key provided'. Supported values are: 'low' and 'high'.",
      "Invalid value: 'the model does not exist'. Supported values are: 'low' and 'high'.",
      `Invalid value: '{"error":{"message":"x","code":"insufficient_quota"}}'. Send another one.`,
      "Unknown parameter: 'stream_options.of_tomorrow'.",
      "Unknown parameter: 'of_tomorrow'.",
      "max_tokens: must be greater than 0",
    ].map((message) => ({
      name: `400 of a chat provider with "${message}"`,
      kind: "openai" as const,
      script: chatErrorAnswer(400, null, message),
      reason: "upstream_refused",
      attempt: "refused 400",
    })),
    {
      name: "404 without the name of the model",
      script: errorAnswer(404, "not_found_error", "Not found"),
      reason: "upstream_error",
      facts: { providerAnswer: { status: 404 } },
      attempt: "failed 404",
    },
    {
      name: "404 of a file",
      script: errorAnswer(404, "not_found_error", "File not found: file_1"),
      reason: "upstream_refused",
      attempt: "refused 404",
    },
    {
      name: "529",
      script: errorAnswer(529, "overloaded_error", "Overloaded"),
      reason: "overloaded",
      facts: {},
      attempt: "failed 529",
    },
    {
      name: "500 twice",
      script: errorAnswer(500, "api_error", "oops"),
      reason: "upstream_error",
      attempt: "failed 500",
    },
    { name: "an HTML page", script: html, reason: "upstream_error", attempt: "failed 502" },
    {
      name: "an HTML page with status 404",
      script: { ...html, status: 404 },
      reason: "upstream_error",
      attempt: "failed 404",
    },
    {
      name: "an HTML page with status 400",
      script: { ...html, status: 400 },
      reason: "upstream_refused",
      attempt: "refused 400",
    },
    {
      name: "a list of faults",
      kind: "openai",
      script: {
        status: 422,
        headers: { "content-type": "application/json" },
        writes: [
          '{"detail":[{"loc":["body","tools",0,"name"],"msg":"field required"},{"loc":["query"],"msg":"bad"}]}',
        ],
      },
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          status: 400,
          body: { error: { message: "tools.0.name: field required; query: bad" } },
        },
      },
      attempt: "refused 422",
    },
    {
      name: "an error inside the message of another",
      kind: "openai",
      script: chatErrorAnswer(
        400,
        null,
        'Provider said: {"error":{"message":"no such tool","code":"bad_tool","param":"tools"}}',
      ),
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          body: { error: { message: "no such tool", code: "bad_tool", param: "tools" } },
        },
      },
      attempt: "refused 400",
    },
    {
      name: "an unpaid account behind another gateway",
      kind: "openai",
      script: chatErrorAnswer(400, null, '{"error":{"message":"pay","code":"insufficient_quota"}}'),
      reason: "upstream_error",
      attempt: "failed 400",
    },
    {
      name: "a redirect",
      script: { status: 307, headers: { location: "http://127.0.0.1:1/" } },
      reason: "upstream_error",
      attempt: "failed 307",
    },
    {
      name: "an unknown model",
      script: errorAnswer(404, "not_found_error", "model: provider-model"),
      reason: "upstream_error",
      attempt: "failed 404",
    },
    {
      name: "an unknown model at a chat provider",
      kind: "openai",
      script: chatErrorAnswer(404, "model_not_found", "unknown"),
      reason: "upstream_error",
      attempt: "failed 404",
    },
    {
      name: "400",
      script: errorAnswer(400, "invalid_request_error", "messages.0: wrong"),
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          status: 400,
          body: {
            type: "error",
            error: { type: "invalid_request_error", message: "messages.0: wrong" },
          },
        },
      },
      attempt: "refused 400",
    },
    {
      name: "413",
      script: errorAnswer(413, "request_too_large", "too large"),
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          status: 413,
          body: { type: "error", error: { type: "request_too_large", message: "too large" } },
        },
      },
      attempt: "refused 413",
    },
    {
      name: "400 of a chat provider",
      kind: "openai",
      script: chatErrorAnswer(400, null, "messages: wrong"),
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          status: 400,
          body: {
            type: "error",
            error: { type: "invalid_request_error", message: "messages: wrong" },
          },
        },
      },
      attempt: "refused 400",
    },
    {
      name: "a prompt that is too long",
      script: errorAnswer(
        400,
        "invalid_request_error",
        "prompt is too long: 300 tokens > 200 maximum",
      ),
      reason: "context_length_exceeded",
      facts: { message: "prompt is too long: 300 tokens > 200 maximum" },
      attempt: "refused 400",
    },
    {
      name: "a prompt that is too long for a chat provider",
      kind: "openai",
      script: chatErrorAnswer(
        400,
        "context_length_exceeded",
        "This model's maximum context length is 200 tokens. However, your messages resulted in 300 tokens.",
      ),
      reason: "context_length_exceeded",
      facts: { message: "prompt is too long: 300 tokens > 200 maximum" },
      attempt: "refused 400",
    },
    {
      name: "a prompt that is too long for llama.cpp",
      kind: "openai",
      script: {
        status: 400,
        headers: { "content-type": "application/json" },
        writes: [
          '{"error":{"code":400,"message":"too long","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}',
        ],
      },
      reason: "context_length_exceeded",
      facts: { message: "prompt is too long: 1407 tokens > 256 maximum" },
      attempt: "refused 400",
    },
    {
      name: "too much output for the context of a chat provider",
      kind: "openai",
      script: chatErrorAnswer(
        400,
        "context_length_exceeded",
        "This model's maximum context length is 4096 tokens. However, you requested 8292 tokens (100 in the messages, 8192 in the completion).",
      ),
      reason: "upstream_refused",
      facts: {
        providerAnswer: {
          status: 400,
          body: {
            type: "error",
            error: {
              type: "invalid_request_error",
              message:
                "input length and `max_tokens` exceed context limit: 100 + 8192 > 4096, decrease input length or `max_tokens` and try again",
            },
          },
        },
      },
      attempt: "refused 400",
    },
  ];
  for (const { name, kind = "anthropic", script, reason, facts = {}, attempt } of cases) {
    test(`${name}: ${reason}`, async () => {
      open(kind);
      provider.always(script);
      const outcome = await readAll(providers, "Hi");
      expect([outcome.apiError?.reason, outcome.events]).toEqual([reason, []]);
      expect(outcome.apiError?.facts).toMatchObject(facts);
      expect(attemptsOf(outcome)).toContain(`real ${attempt}`);
    });
  }

  test("never repeats the credential, or anything that looks like one", async () => {
    open("anthropic", "credential_env: KEY, headers: { x-team: blue-team }", { KEY: credential });
    const told = `key ${credential} of blue-team, sk-ant-REDACTED, Bearer abcdefghijkl`;
    const error = { type: "invalid_request_error", message: told };
    const answers = [
      errorAnswer(400, error.type, told),
      errorAnswer(200, error.type, told),
      { ...nativeStream(), writes: [sseEvent("error", { error })] },
      {
        ...nativeStream(),
        writes: [...nativeEvents({ text: ["a"] }).slice(0, 3), sseEvent("error", { error })],
      },
    ];
    for (const answer of answers) {
      provider.play(answer);
      const { apiError } = await readAll(providers, "Hi");
      const shown = JSON.stringify(apiError?.facts.providerAnswer);
      expect(shown).toContain("key [redacted] of [redacted], [redacted], [redacted]");
    }
  });

  test("is read from the status alone when its body breaks off or does not end", async () => {
    open("anthropic");
    provider.play({ ...errorAnswer(400, "x", "y"), writes: ['{"type":"err'], end: "reset" });
    expect((await readAll(providers, "Hi")).apiError?.reason).toBe("upstream_refused");
    provider.play({
      status: 529,
      // More than a repeat waits for.
      headers: { "content-type": "application/json", "retry-after": "9" },
      writes: Array(40).fill(" ".repeat(10_000)),
      end: "hang",
    });
    expect((await readAll(providers, "Hi")).apiError?.reason).toBe("overloaded");
  });
});

describe("counting", () => {
  const count = (text: string) =>
    providers.countTokens(
      providerRequestFor(requestOf(text, { origin: nativeOrigin({ vendorBeta: "a-1" }) })),
    );
  const counted: Script = {
    headers: { "content-type": "application/json" },
    writes: ['{"input_tokens":42,"context_management":{"original_input_tokens":50}}'],
  };

  test("returns the count of a native provider, with its further members", async () => {
    open("anthropic");
    provider.always(counted);
    expect(await count("Hi")).toEqual({
      inputTokens: 42,
      extensions: { context_management: { original_input_tokens: 50 } },
    });
    const [request] = provider.requests;
    expect(request?.path).toBe("/v1/messages/count_tokens");
    expect(request?.headers).toMatchObject({ "anthropic-beta": "a-1" });
    expect(request?.body).toEqual({
      model: "provider-model",
      messages: [{ role: "user", content: [{ type: "text", text: "Hi" }] }],
    });
  });

  test("is not available at chat providers", async () => {
    open("openai");
    expect(await count("Hi")).toBeUndefined();
    expect(provider.requests).toHaveLength(0);
  });

  test.for([404, 405, 501])(
    "is not available at a native provider that answers %d",
    async (status) => {
      open("anthropic");
      provider.always({ status, writes: ["<html>No such page</html>"] });
      expect(await count("Hi")).toBeUndefined();
      expect(provider.requests).toHaveLength(1);
    },
  );

  test("fails as an answer does", async () => {
    open("anthropic");
    provider.play(
      errorAnswer(400, "invalid_request_error", "wrong"),
      errorAnswer(500, "api_error", "oops"),
      {
        writes: ["<html>"],
      },
    );
    provider.always(
      errorAnswer(529, "overloaded_error", "Overloaded", { headers: { "retry-after": "7" } }),
    );
    await expect(count("Hi")).rejects.toMatchObject({ reason: "upstream_refused" });
    await expect(count("Hi")).rejects.toMatchObject({ reason: "upstream_error" });
    await expect(count("Hi")).rejects.toMatchObject({ reason: "upstream_error" });
    await expect(count("Hi")).rejects.toMatchObject({
      reason: "overloaded",
      facts: { retryAfterMs: 7000 },
    });
  });
});
