// The official SDKs of both formats against the listener: answers, error classes and retries.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { ApiError, type ErrorFacts, type ErrorReason } from "../../src/base/errors.ts";
import {
  admission,
  goodKey,
  type ScriptedHttpServer,
  start,
  startHttpServer,
  textDelta,
  textStart,
} from "../support/http-server.ts";

const sonnet = { modelId: "model-sonnet-4.6", displayName: "Sonnet 4.6", tier: "sonnet" };
const alias = { ...sonnet, modelId: "sonnet", aliasFor: sonnet.modelId };

type ClientOptions = { fetch?: typeof fetch };
const anthropic = ({ url }: ScriptedHttpServer, options: ClientOptions = {}) =>
  new Anthropic({ apiKey: goodKey, baseURL: url, ...options });
const openai = ({ url }: ScriptedHttpServer, options: ClientOptions = {}) =>
  new OpenAI({ apiKey: goodKey, baseURL: `${url}/v1`, ...options });

/** Makes a moment of the seconds that a client waits before it tries again. */
const hasty: typeof fetch = async (...request) => {
  const answer = await fetch(...request);
  const { status, headers } = answer;
  expect(headers.get("retry-after") ?? "1").toBe("1");
  return new Response(answer.body, {
    status,
    headers: { ...Object.fromEntries(headers), "retry-after-ms": "1" },
  });
};

const nativeRequest = {
  model: "sonnet",
  max_tokens: 100,
  messages: [{ role: "user" as const, content: "Hi" }],
};
const chatRequest = { model: "sonnet", messages: [{ role: "user" as const, content: "Hi" }] };

/** Makes every generation fail, and counts the attempts. */
function failWith(
  server: ScriptedHttpServer,
  reason: ErrorReason,
  facts: ErrorFacts = {},
): { attempts: number } {
  const counted = { attempts: 0 };
  server.script.generate = () => {
    counted.attempts++;
    throw new ApiError(reason, { retryAfterMs: 1, ...facts });
  };
  return counted;
}

type ErrorClass = abstract new (...args: never[]) => Error;

async function errorOf(work: PromiseLike<unknown>): Promise<unknown> {
  try {
    await work;
  } catch (error) {
    return error;
  }
  throw new Error("this should have failed");
}

// Errors that may pass are retried twice; an error that only an operator can mend is not.
const retried: [reason: ErrorReason, attempts: number, facts?: ErrorFacts][] = [
  ["rate_limited", 3],
  ["credits_held", 3],
  ["overloaded", 3],
  ["upstream_error", 3],
  ["timeout", 3],
  ["billing_unavailable", 3],
  ["internal", 3],
  ["upstream_error", 1, { providerAnswer: { status: 401 } }],
];

/** Counts the attempts for each of these errors. */
async function countAttempts(
  send: (server: ScriptedHttpServer) => PromiseLike<unknown>,
): Promise<typeof retried> {
  const counts = retried.map(async ([reason, , facts]): Promise<(typeof retried)[number]> => {
    const server = await startHttpServer();
    const counted = failWith(server, reason, facts);
    await errorOf(send(server));
    return facts === undefined ? [reason, counted.attempts] : [reason, counted.attempts, facts];
  });
  return Promise.all(counts);
}

describe("the native SDK", () => {
  test("retries errors that may pass, and only those", async () => {
    expect(
      await countAttempts((server) =>
        anthropic(server, { fetch: hasty }).messages.create(nativeRequest),
      ),
    ).toEqual(retried);
  });

  test("gets whole and streamed answers, counts tokens, and lists the models in one request", async () => {
    const server = await startHttpServer();
    server.script.models = [sonnet, alias];
    const client = anthropic(server);
    const message = await client.messages.create(nativeRequest);
    expect(message.content).toMatchObject([{ type: "text", text: "Hello" }]);
    expect(message._request_id).toMatch(/^req_/);
    const streamed = await client.messages.stream(nativeRequest).finalMessage();
    expect(streamed).toMatchObject({
      content: message.content,
      stop_reason: "end_turn",
      usage: message.usage,
    });
    expect(
      await client.messages.countTokens({
        model: nativeRequest.model,
        messages: nativeRequest.messages,
      }),
    ).toEqual({ input_tokens: 17 });
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toEqual(["model-sonnet-4.6", "sonnet"]);
    expect((await client.models.retrieve("sonnet")).id).toBe("sonnet");
    expect(server.script.calls.filter((call) => call === "listModels").length).toBe(1);
  });

  const cases: [reason: ErrorReason, kind: ErrorClass, status: number, attempts: number][] = [
    ["revoked_key", Anthropic.AuthenticationError, 401, 1],
    ["credits_exhausted", Anthropic.APIError, 402, 1],
    ["monthly_cap_reached", Anthropic.APIError, 402, 1],
    ["model_not_allowed", Anthropic.PermissionDeniedError, 403, 1],
    ["model_not_found", Anthropic.NotFoundError, 404, 1],
    ["invalid_request", Anthropic.BadRequestError, 400, 1],
    ["request_id_used", Anthropic.ConflictError, 409, 1],
  ];
  test.each(cases)(
    "throws its own class for %s and does not retry",
    async (reason, kind, status, attempts) => {
      const server = await startHttpServer();
      const counted = failWith(server, reason);
      const error = await errorOf(anthropic(server).messages.create(nativeRequest));
      expect(error).toBeInstanceOf(kind);
      expect(error).toMatchObject({ status, requestID: expect.stringMatching(/^req_/) });
      expect(counted.attempts).toBe(attempts);
    },
  );

  test("throws from a stream that fails in the middle", async () => {
    const server = await startHttpServer();
    server.script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("Hel")];
      throw new ApiError("overloaded");
    };
    const error = await errorOf(anthropic(server).messages.stream(nativeRequest).finalMessage());
    expect(error).toBeInstanceOf(Anthropic.APIError);
    expect(error).toMatchObject({ error: { error: { type: "overloaded_error" } } });
  });
});

describe("the chat SDK", () => {
  test("retries errors that may pass, and only those", async () => {
    expect(
      await countAttempts((server) =>
        openai(server, { fetch: hasty }).chat.completions.create(chatRequest),
      ),
    ).toEqual(retried);
  });

  test("gets whole and streamed answers, and lists the models in one request", async () => {
    const server = await startHttpServer();
    server.script.models = [sonnet, alias];
    const client = openai(server);
    const completion = await client.chat.completions.create(chatRequest);
    expect(completion.choices[0]?.message.content).toBe("Hello");
    expect(completion._request_id).toMatch(/^req_/);
    const stream = client.chat.completions.stream({
      ...chatRequest,
      stream_options: { include_usage: true },
    });
    const streamed = await stream.finalChatCompletion();
    expect(streamed).toMatchObject({
      choices: [{ message: { content: "Hello" }, finish_reason: "stop" }],
      usage: { total_tokens: 7 },
    });
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toEqual(["model-sonnet-4.6", "sonnet"]);
    expect((await client.models.retrieve("sonnet")).id).toBe("sonnet");
  });

  const cases: [
    reason: ErrorReason,
    kind: ErrorClass,
    status: number,
    code: string | null,
    attempts: number,
  ][] = [
    ["revoked_key", OpenAI.AuthenticationError, 401, "revoked_api_key", 1],
    ["credits_exhausted", OpenAI.APIError, 402, "insufficient_quota", 1],
    ["monthly_cap_reached", OpenAI.APIError, 402, "monthly_cap_reached", 1],
    ["model_not_allowed", OpenAI.PermissionDeniedError, 403, "model_not_allowed", 1],
    ["model_not_found", OpenAI.NotFoundError, 404, "model_not_found", 1],
    ["invalid_request", OpenAI.BadRequestError, 400, null, 1],
  ];
  test.each(cases)(
    "throws its own class for %s and does not retry",
    async (reason, kind, status, code, attempts) => {
      const server = await startHttpServer();
      const counted = failWith(server, reason);
      const error = await errorOf(openai(server).chat.completions.create(chatRequest));
      expect(error).toBeInstanceOf(kind);
      expect(error).toMatchObject({ status, code });
      expect(counted.attempts).toBe(attempts);
    },
  );

  test("throws, with the code, from a stream that fails in the middle", async () => {
    const server = await startHttpServer();
    server.script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("Hel")];
      throw new ApiError("upstream_error");
    };
    const error = await errorOf(
      openai(server).chat.completions.stream(chatRequest).finalChatCompletion(),
    );
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error).toMatchObject({ code: "upstream_error" });
  });
});
