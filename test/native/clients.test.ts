// Clients that are not the vendor's: their parsers are stricter, or read other members.

import { createAnthropic } from "@ai-sdk/anthropic";
import { ChatAnthropic } from "@langchain/anthropic";
import { type AIMessageChunk, HumanMessage } from "@langchain/core/messages";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { nativeEvents, nativeStream, sseEvent } from "../support/provider.ts";
import { converse, weather } from "./conversation.ts";
import { type NativeFixture, startNative } from "./fixture.ts";

let native: NativeFixture;
beforeAll(async () => {
  native = await startNative();
});
beforeEach(() => native.provider.always(converse));
afterAll(() => native.stop());

/** A stream whose provider reports its usage only at the end. */
const lateUsage = {
  ...nativeStream(),
  writes: [
    ...nativeEvents({ text: ["Hello"], noUsage: true }).slice(0, -2),
    sseEvent("message_delta", { delta: { stop_reason: "end_turn" }, usage: { input_tokens: 30, output_tokens: 8 } }),
    sseEvent("message_stop"),
  ],
};

describe("Vercel's AI SDK", () => {
  // Its base address ends in /v1; without it, the paths are joined differently and served all the same.
  const modelAt = (base: string) =>
    createAnthropic({ baseURL: native.gateway.address + base, apiKey: native.gateway.v1 })("opus");

  test.each(["/v1", ""])("gets plain and streamed answers from a base address that ends in %j", async (base) => {
    const model = modelAt(base);
    const plain = await generateText({ model, prompt: "Hello", maxOutputTokens: 100, maxRetries: 0 });
    expect(plain).toMatchObject({ text: "Hello 😀", finishReason: "stop" });
    const streamed = streamText({ model, prompt: "Hello", maxOutputTokens: 100, maxRetries: 0 });
    expect([await streamed.text, await streamed.finishReason]).toEqual(["Hello 😀", "stop"]);
    expect(await streamed.usage).toEqual(plain.usage);
    expect(plain.usage).toMatchObject({ outputTokens: 9, inputTokens: 19 });
  });

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

  test("reads the whole answer of a provider that reports its usage at the end", async () => {
    native.provider.always(lateUsage);
    const streamed = streamText({ model: modelAt("/v1"), prompt: "Hello", maxOutputTokens: 100, maxRetries: 0 });
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
    for await (const chunk of await model(true).stream([new HumanMessage("Hello")])) whole = whole?.concat(chunk) ?? chunk;
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

  test("adds the outputs of start and end to exactly the provider's output", async () => {
    native.provider.always(lateUsage);
    expect((await streamed())?.usage_metadata).toMatchObject({ output_tokens: 8 });
  });
});
