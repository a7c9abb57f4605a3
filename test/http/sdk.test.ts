// The official SDKs of both formats as the judges of what leaves the door.

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

const sonnet = { id: "model-sonnet-4.6", displayName: "Sonnet 4.6", tier: "sonnet" };
const alias = { ...sonnet, id: "sonnet", aliasFor: sonnet.id };

const anthropic = ({ url }: ScriptedHttpServer, apiKey = goodKey) =>
  new Anthropic({ apiKey, baseURL: url });
const openai = ({ url }: ScriptedHttpServer, apiKey = goodKey) =>
  new OpenAI({ apiKey, baseURL: `${url}/v1` });

const ask = {
  model: "sonnet",
  max_tokens: 100,
  messages: [{ role: "user" as const, content: "Hi" }],
};
const askChat = { model: "sonnet", messages: [{ role: "user" as const, content: "Hi" }] };

/** Makes every generation fail, and counts how often it was tried. */
function failWith(
  standIn: ScriptedHttpServer,
  reason: ErrorReason,
  facts: ErrorFacts = {},
): { tries: number } {
  const counted = { tries: 0 };
  standIn.script.generate = () => {
    counted.tries++;
    throw new ApiError(reason, { retryAfterMs: 1, ...facts });
  };
  return counted;
}

type ErrorClass = abstract new (...args: never[]) => Error;

async function failureOf(work: PromiseLike<unknown>): Promise<unknown> {
  try {
    await work;
  } catch (error) {
    return error;
  }
  throw new Error("this should have failed");
}

// What may pass by waiting is tried again, twice; what only an operator can mend is not.
const tried: [reason: ErrorReason, tries: number, facts?: ErrorFacts][] = [
  ["rate_limited", 3],
  ["credits_held", 3],
  ["overloaded", 3],
  ["upstream_error", 3],
  ["timeout", 3],
  ["billing_unavailable", 3],
  ["internal", 3],
  ["upstream_error", 1, { providerAnswer: { status: 401 } }],
];

/** How often each of those was tried. */
async function triesOf(
  ask: (standIn: ScriptedHttpServer) => PromiseLike<unknown>,
): Promise<typeof tried> {
  const counts = tried.map(async ([apiError, , facts]): Promise<(typeof tried)[number]> => {
    const standIn = await startHttpServer();
    const counted = failWith(standIn, apiError, facts);
    await failureOf(ask(standIn));
    return facts === undefined ? [apiError, counted.tries] : [apiError, counted.tries, facts];
  });
  return Promise.all(counts);
}

describe("the native SDK", () => {
  test("tries again what may pass, and only that", async () => {
    expect(await triesOf((standIn) => anthropic(standIn).messages.create(ask))).toEqual(tried);
  });

  test("gets whole and streamed answers, counts, and walks the catalogue in one request", async () => {
    const standIn = await startHttpServer();
    standIn.script.models = [sonnet, alias];
    const client = anthropic(standIn);
    const message = await client.messages.create(ask);
    expect(message.content).toMatchObject([{ type: "text", text: "Hello" }]);
    expect(message._request_id).toMatch(/^req_/);
    const streamed = await client.messages.stream(ask).finalMessage();
    expect(streamed).toMatchObject({
      content: message.content,
      stop_reason: "end_turn",
      usage: message.usage,
    });
    expect(await client.messages.countTokens({ model: ask.model, messages: ask.messages })).toEqual(
      { input_tokens: 17 },
    );
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toEqual(["model-sonnet-4.6", "sonnet"]);
    expect((await client.models.retrieve("sonnet")).id).toBe("sonnet");
    expect(standIn.script.calls.filter((call) => call === "listModels").length).toBe(1);
  });

  const cases: [reason: ErrorReason, kind: ErrorClass, status: number, tries: number][] = [
    ["revoked_key", Anthropic.AuthenticationError, 401, 1],
    ["credits_exhausted", Anthropic.APIError, 402, 1],
    ["monthly_cap_reached", Anthropic.APIError, 402, 1],
    ["model_not_allowed", Anthropic.PermissionDeniedError, 403, 1],
    ["model_not_found", Anthropic.NotFoundError, 404, 1],
    ["invalid_request", Anthropic.BadRequestError, 400, 1],
    ["request_id_used", Anthropic.ConflictError, 409, 1],
  ];
  test.each(cases)(
    "throws its own class for %s and tries it once",
    async (apiError, kind, status, tries) => {
      const standIn = await startHttpServer();
      const counted = failWith(standIn, apiError);
      const error = await failureOf(anthropic(standIn).messages.create(ask));
      expect(error).toBeInstanceOf(kind);
      expect(error).toMatchObject({ status, requestID: expect.stringMatching(/^req_/) });
      expect(counted.tries).toBe(tries);
    },
  );

  test("throws from a stream that fails in the middle", async () => {
    const standIn = await startHttpServer();
    standIn.script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("Hel")];
      throw new ApiError("overloaded");
    };
    const error = await failureOf(anthropic(standIn).messages.stream(ask).finalMessage());
    expect(error).toBeInstanceOf(Anthropic.APIError);
    expect(error).toMatchObject({ error: { error: { type: "overloaded_error" } } });
  });
});

describe("the chat SDK", () => {
  test("tries again what may pass, and only that", async () => {
    expect(await triesOf((standIn) => openai(standIn).chat.completions.create(askChat))).toEqual(
      tried,
    );
  });

  test("gets whole and streamed answers, and walks the catalogue in one request", async () => {
    const standIn = await startHttpServer();
    standIn.script.models = [sonnet, alias];
    const client = openai(standIn);
    const completion = await client.chat.completions.create(askChat);
    expect(completion.choices[0]?.message.content).toBe("Hello");
    expect(completion._request_id).toMatch(/^req_/);
    const stream = client.chat.completions.stream({
      ...askChat,
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
    tries: number,
  ][] = [
    ["revoked_key", OpenAI.AuthenticationError, 401, "revoked_api_key", 1],
    ["credits_exhausted", OpenAI.APIError, 402, "insufficient_quota", 1],
    ["monthly_cap_reached", OpenAI.APIError, 402, "monthly_cap_reached", 1],
    ["model_not_allowed", OpenAI.PermissionDeniedError, 403, "model_not_allowed", 1],
    ["model_not_found", OpenAI.NotFoundError, 404, "model_not_found", 1],
    ["invalid_request", OpenAI.BadRequestError, 400, null, 1],
  ];
  test.each(cases)(
    "throws its own class for %s and tries it once",
    async (apiError, kind, status, code, tries) => {
      const standIn = await startHttpServer();
      const counted = failWith(standIn, apiError);
      const error = await failureOf(openai(standIn).chat.completions.create(askChat));
      expect(error).toBeInstanceOf(kind);
      expect(error).toMatchObject({ status, code });
      expect(counted.tries).toBe(tries);
    },
  );

  test("throws, with the code, from a stream that fails in the middle", async () => {
    const standIn = await startHttpServer();
    standIn.script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("Hel")];
      throw new ApiError("upstream_error");
    };
    const error = await failureOf(
      openai(standIn).chat.completions.stream(askChat).finalChatCompletion(),
    );
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error).toMatchObject({ code: "upstream_error" });
  });
});
