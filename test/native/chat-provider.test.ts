// Clients of the native format, unmodified, with a provider of chat completions.

import { createAnthropic } from "@ai-sdk/anthropic";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { ChatAnthropic } from "@langchain/anthropic";
import { type AIMessageChunk, HumanMessage } from "@langchain/core/messages";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { weather } from "../support/conversation.ts";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import type { Respond } from "../support/provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatChunks,
  chatErrorAnswer,
  chatStream,
} from "../support/provider-answers.ts";

let stage: GatewayWithProvider;
beforeAll(async () => {
  stage = await startGatewayWithProvider("chat");
});
beforeEach(() => stage.provider.always(converse));
afterAll(() => stage.stop());

const usage = { input: 12, output: 9, cacheRead: 3, cacheWrite: 4 };

/** Calls the tool until it has a result, reasons if the request has an effort, or says hello. */
const converse: Respond = ({ body }) => {
  const hasResult = JSON.stringify(body.messages).includes('"role":"tool"');
  const call = {
    text: ["Let me see."],
    tool: { name: weather.name, input: ['{"ci', 'ty":"Par', 'is"}'] },
  };
  const thinking = body.reasoning_effort === undefined ? {} : { thinking: { pieces: ["hm", "…"] } };
  const hello: AnswerContent = body.response_format
    ? { text: ['{"city":', '"Paris"}'] }
    : { ...thinking, text: ["Hel", "lo ", "😀"] };
  const content = { ...(Array.isArray(body.tools) && !hasResult ? call : hello), usage };
  return body.stream === true ? chatStream(content) : chatAnswer(content);
};

const basicRequest = {
  model: "opus",
  max_tokens: 4000,
  messages: [{ role: "user" as const, content: "Hello" }],
};
const hello = {
  role: "assistant",
  model: "model-opus-4.6",
  content: [{ type: "text", text: "Hello 😀" }],
  stop_reason: "end_turn",
  usage: {
    input_tokens: 12,
    output_tokens: 9,
    cache_read_input_tokens: 3,
    cache_creation_input_tokens: 4,
  },
};
const connection = () => ({
  baseURL: stage.gateway.address,
  apiKey: stage.gateway.v1,
  maxRetries: 0,
});

describe("the vendor's SDK", () => {
  const messages = () => new Anthropic({ ...connection(), authToken: null }).messages;

  test("gets a plain answer, and the same as a stream", async () => {
    expect(await messages().create(basicRequest)).toMatchObject(hello);
    expect(await messages().stream(basicRequest).finalMessage()).toMatchObject(hello);
  });

  test("gets thinking", async () => {
    const thinking = { type: "enabled" as const, budget_tokens: 2000 };
    const content = [{ type: "thinking", thinking: "hm…" }, hello.content[0]];
    expect(await messages().create({ ...basicRequest, thinking })).toMatchObject({ content });
    expect(
      await messages()
        .stream({ ...basicRequest, thinking })
        .finalMessage(),
    ).toMatchObject({ content });
  });

  test.each([false, true])("runs a tool to the end (stream: %s)", async (stream) => {
    const cities: string[] = [];
    const run = ({ city }: { city: string }) => `Sunny, ${cities.push(city)}.`;
    const tools = [
      betaTool({
        name: weather.name,
        description: "Weather.",
        inputSchema: weather.input_schema,
        run,
      }),
    ];
    const client = new Anthropic({ ...connection(), authToken: null });
    const message = await client.beta.messages
      .toolRunner({ ...basicRequest, tools, stream })
      .runUntilDone();
    expect([message.content, cities]).toMatchObject([hello.content, ["Paris"]]);
    expect(stage.provider.requests.at(-1)?.body.messages).toMatchObject([
      { role: "user", content: "Hello" },
      {
        role: "assistant",
        content: "Let me see.",
        tool_calls: [{ function: { arguments: '{"city":"Paris"}' } }],
      },
      { role: "tool", content: "Sunny, 1." },
    ]);
  });

  test("parses structured output, and counts", async () => {
    const output_config = { format: jsonSchemaOutputFormat(weather.input_schema) };
    expect((await messages().parse({ ...basicRequest, output_config })).parsed_output).toEqual({
      city: "Paris",
    });
    const { model, messages: conversation } = basicRequest;
    expect(
      (await messages().countTokens({ model, messages: conversation })).input_tokens,
    ).toBeGreaterThan(0);
  });

  test("throws the provider's error, and an error from a stream that breaks", async () => {
    stage.provider.always(chatErrorAnswer(400, null, "messages: too odd"));
    const expected = {
      status: 400,
      type: "invalid_request_error",
      message: expect.stringContaining("too odd"),
    };
    await expect(messages().create(basicRequest)).rejects.toMatchObject(expected);
    stage.provider.always(
      chatStream({}, { writes: chatChunks({ text: ["a", "b"] }).slice(0, 2), end: "reset" }),
    );
    await expect(messages().stream(basicRequest).finalMessage()).rejects.toMatchObject({
      type: "api_error",
      status: undefined,
    });
  });
});

describe("Vercel's AI SDK", () => {
  test.each([false, true])("runs a tool to the end (stream: %s)", async (stream) => {
    const cities: string[] = [];
    const execute = async ({ city }: { city: string }) => `Sunny, ${cities.push(city)}.`;
    const inputSchema = jsonSchema<{ city: string }>(weather.input_schema);
    const options = {
      model: createAnthropic({ ...connection(), baseURL: `${stage.gateway.address}/v1` })("opus"),
      prompt: "Weather?",
      maxOutputTokens: 100,
      tools: { get_weather: tool({ description: weather.description, inputSchema, execute }) },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    };
    const text = stream ? await streamText(options).text : (await generateText(options)).text;
    expect([text, cities]).toEqual(["Hello 😀", ["Paris"]]);
  });
});

describe("LangChain", () => {
  const model = () =>
    new ChatAnthropic({
      model: "opus",
      maxTokens: 100,
      apiKey: stage.gateway.v1,
      anthropicApiUrl: stage.gateway.address,
      maxRetries: 0,
    });

  test("gets a tool call, and a stream whose outputs add up to the provider's output", async () => {
    const question = [new HumanMessage("Weather?")];
    expect((await model().bindTools([weather]).invoke(question)).tool_calls).toMatchObject([
      { args: { city: "Paris" } },
    ]);
    let whole: AIMessageChunk | undefined;
    for await (const chunk of await model().stream(question)) whole = whole?.concat(chunk) ?? chunk;
    expect(whole).toMatchObject({ text: "Hello 😀", usage_metadata: { output_tokens: 9 } });
  });
});
