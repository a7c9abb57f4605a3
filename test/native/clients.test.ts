// Clients of other vendors: their parsers are stricter, or read other members.

import { createAnthropic } from "@ai-sdk/anthropic";
import { ChatAnthropic } from "@langchain/anthropic";
import { type AIMessageChunk, HumanMessage } from "@langchain/core/messages";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { converse, weather } from "../support/conversation.ts";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import type { Respond } from "../support/provider.ts";
import { nativeAnswer, nativeEvents, nativeStream, sseEvent } from "../support/provider-answers.ts";

let native: GatewayWithProvider;
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
});
beforeEach(() => native.provider.always(converse));
afterAll(() => native.stop());

/** A stream whose provider reports its usage only at the end. */
const lateUsage = {
  ...nativeStream(),
  writes: [
    ...nativeEvents({ text: ["Hello"], noUsage: true }).slice(0, -2),
    sseEvent("message_delta", {
      delta: { stop_reason: "end_turn" },
      usage: { input_tokens: 30, output_tokens: 8 },
    }),
    sseEvent("message_stop"),
  ],
};

/** A call of a tool without arguments. */
const withoutArguments: Respond = ({ body }) =>
  (body.stream === true ? nativeStream : nativeAnswer)({ tool: { name: "now", input: [] } });

/** A stream whose connection breaks during the text. */
const broken = {
  ...nativeStream(),
  writes: nativeEvents({ text: ["a", "b"] }).slice(0, 3),
  end: "reset" as const,
};

describe("Vercel's AI SDK", () => {
  // Its base URL ends in /v1. Without it, the paths are different, and are served too.
  const modelAt = (base: string) =>
    createAnthropic({ baseURL: native.gateway.address + base, apiKey: native.gateway.v1 })("opus");

  test.each(["/v1", ""])(
    "gets plain and streamed answers from a base address that ends in %j",
    async (base) => {
      const model = modelAt(base);
      const plain = await generateText({
        model,
        prompt: "Hello",
        maxOutputTokens: 100,
        maxRetries: 0,
      });
      expect(plain).toMatchObject({ text: "Hello 😀", finishReason: "stop" });
      const streamed = streamText({ model, prompt: "Hello", maxOutputTokens: 100, maxRetries: 0 });
      expect([await streamed.text, await streamed.finishReason]).toEqual(["Hello 😀", "stop"]);
      expect(await streamed.usage).toEqual(plain.usage);
      expect(plain.usage).toMatchObject({ outputTokens: 9, inputTokens: 19 });
    },
  );

  test.each([false, true])("runs a tool to the end (stream: %s)", async (stream) => {
    const cities: string[] = [];
    const execute = async ({ city }: { city: string }) => `Sunny, ${cities.push(city)}.`;
    const inputSchema = jsonSchema<{ city: string }>(weather.input_schema);
    const options = {
      model: modelAt("/v1"),
      prompt: "Weather?",
      maxOutputTokens: 100,
      tools: { get_weather: tool({ description: weather.description, inputSchema, execute }) },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    };
    const text = stream ? await streamText(options).text : (await generateText(options)).text;
    expect([text, cities]).toEqual(["Hello 😀", ["Paris"]]);
  });

  test("gets a tool call without arguments, plain and streamed", async () => {
    native.provider.always(withoutArguments);
    const tools = {
      now: tool({
        inputSchema: jsonSchema<object>({ type: "object" }),
        outputSchema: jsonSchema<string>({}),
      }),
    };
    const options = {
      model: modelAt("/v1"),
      prompt: "Time?",
      maxOutputTokens: 100,
      tools,
      maxRetries: 0,
    };
    expect((await generateText(options)).toolCalls).toMatchObject([{ toolName: "now", input: {} }]);
    expect(await streamText(options).toolCalls).toMatchObject([{ toolName: "now", input: {} }]);
  });

  test("gets thinking", async () => {
    const providerOptions = { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } };
    const options = {
      model: modelAt("/v1"),
      prompt: "Hello",
      maxOutputTokens: 2000,
      providerOptions,
      maxRetries: 0,
    };
    expect((await generateText(options)).reasoningText).toBe("hm…");
    expect(await streamText(options).reasoningText).toBe("hm…");
  });

  test("parses structured output", async () => {
    const schema = jsonSchema<{ city: string }>(weather.input_schema);
    const { output } = await generateText({
      model: modelAt("/v1"),
      prompt: "Where?",
      maxOutputTokens: 100,
      output: Output.object({ schema }),
      maxRetries: 0,
    });
    expect(output).toEqual({ city: "Paris" });
  });

  test("throws errors with their status, and does not retry those that a retry cannot mend", async () => {
    const stranger = createAnthropic({
      baseURL: `${native.gateway.address}/v1`,
      apiKey: "sk-gw2-1nonsense",
    })("opus");
    const rejected = generateText({ model: stranger, prompt: "Hello", maxOutputTokens: 100 });
    await expect(rejected).rejects.toMatchObject({
      name: "AI_APICallError",
      statusCode: 401,
      isRetryable: false,
    });
  });

  test("reports the error of a stream that fails during the text", async () => {
    native.provider.always(broken);
    const errors: unknown[] = [];
    const onError = ({ error }: { error: unknown }) => void errors.push(error);
    const streamed = streamText({
      model: modelAt("/v1"),
      prompt: "Hello",
      maxOutputTokens: 100,
      maxRetries: 0,
      onError,
    });
    await streamed.consumeStream();
    expect(errors.length).toBe(1);
  });

  test("gets the whole answer of a provider that reports its usage at the end", async () => {
    native.provider.always(lateUsage);
    const streamed = streamText({
      model: modelAt("/v1"),
      prompt: "Hello",
      maxOutputTokens: 100,
      maxRetries: 0,
    });
    expect([await streamed.text, (await streamed.usage).outputTokens]).toEqual(["Hello", 8]);
  });
});

describe("LangChain", () => {
  const model = (streaming: boolean) =>
    new ChatAnthropic({
      model: "opus",
      maxTokens: 100,
      apiKey: native.gateway.v1,
      anthropicApiUrl: native.gateway.address,
      maxRetries: 0,
      streaming,
    });

  async function streamed(): Promise<AIMessageChunk | undefined> {
    let whole: AIMessageChunk | undefined;
    for await (const chunk of await model(true).stream([new HumanMessage("Hello")]))
      whole = whole?.concat(chunk) ?? chunk;
    return whole;
  }

  test("gets plain and streamed answers", async () => {
    const plain = await model(false).invoke([new HumanMessage("Hello")]);
    expect(plain.text).toBe("Hello 😀");
    expect(plain.usage_metadata).toMatchObject({ output_tokens: 9 });
    expect((await streamed())?.text).toBe("Hello 😀");
  });

  test("gets tool calls", async () => {
    const answer = await model(false)
      .bindTools([weather])
      .invoke([new HumanMessage("Weather?")]);
    expect(answer.tool_calls).toMatchObject([{ name: "get_weather", args: { city: "Paris" } }]);
  });

  test("parses structured output", async () => {
    const structured = model(false).withStructuredOutput<{ city: string }>(weather.input_schema);
    expect(await structured.invoke([new HumanMessage("Where?")])).toEqual({ city: "Paris" });
  });

  test("gets a tool call without arguments", async () => {
    native.provider.always(withoutArguments);
    expect((await streamed())?.tool_calls).toMatchObject([{ name: "now", args: {} }]);
  });

  test("throws from a stream that fails during the text", async () => {
    native.provider.always(broken);
    await expect(streamed()).rejects.toThrow();
  });

  test("adds the outputs of start and end up to exactly the provider's output", async () => {
    native.provider.always(lateUsage);
    expect((await streamed())?.usage_metadata).toMatchObject({ output_tokens: 8 });
  });
});
