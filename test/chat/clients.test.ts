// Widely used chat clients, each with a provider of each format.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { zodResponseFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  type GatewayWithProvider,
  openai,
  providerFormats,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";

const user = [{ role: "user" as const, content: "What is the weather in Oslo?" }];
const weather = {
  thinking: { pieces: ["I need ", "the weather."] },
  tool: { id: "call_weather_1", name: "weather", input: ['{"city":', '"Oslo"}'] },
};
const sunny = { text: ["It is ", "sunny."], usage: { input: 20, output: 6, cacheRead: 4 } };

/** A tool for the official client's tool runner. */
function weatherFunction(note: (given: unknown) => void) {
  return {
    type: "function" as const,
    function: {
      name: "weather",
      description: "Tells the weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } } },
      function: (given: string) => {
        note(JSON.parse(given));
        return "22 degrees";
      },
    },
  };
}

for (const format of providerFormats) {
  describe(`with a ${format} provider`, () => {
    let stage: GatewayWithProvider;
    beforeAll(async () => {
      stage = await startGatewayWithProvider(format);
    });
    afterAll(() => stage.stop());

    /** The provider first calls the tool, then answers. */
    const playToolLoop = () => stage.provider.play(stage.reply(weather), stage.reply(sunny));
    /** Expects the last request to the provider to have the result of the call. */
    const expectResultSent = () => {
      const sent = JSON.stringify(stage.provider.requests.at(-1)?.body);
      expect(sent).toContain("call_weather_1");
      expect(sent).toContain("22 degrees");
    };

    describe("openai with the older functions", () => {
      const { tool } = weather;
      const called = { name: tool.name, arguments: tool.input.join("") };
      const request = {
        model: "sonnet",
        messages: user,
        functions: [{ name: tool.name, parameters: { type: "object", properties: {} } }],
      };

      test("gets its call as it asked for it, whole and streamed", async () => {
        stage.provider.play(stage.reply(weather), stage.reply(weather));
        const plain = await openai(stage).chat.completions.create(request);
        const [choice] = plain.choices;
        expect(choice?.finish_reason).toBe("function_call");
        expect(choice?.message.function_call).toEqual(called);
        expect(choice?.message).not.toHaveProperty("tool_calls");

        const stream = await openai(stage).chat.completions.create({ ...request, stream: true });
        const got = { name: "", arguments: "", reason: "" };
        for await (const chunk of stream) {
          const [part] = chunk.choices;
          got.name += part?.delta.function_call?.name ?? "";
          got.arguments += part?.delta.function_call?.arguments ?? "";
          got.reason = part?.finish_reason ?? got.reason;
          expect(part?.delta ?? {}).not.toHaveProperty("tool_calls");
        }
        expect(got).toEqual({ ...called, reason: "function_call" });
      });

      test("sends its result back, and gets an answer", async () => {
        stage.provider.play(stage.reply(sunny));
        const { choices } = await openai(stage).chat.completions.create({
          ...request,
          messages: [
            ...user,
            { role: "assistant", content: null, function_call: called },
            { role: "function", name: tool.name, content: "22 degrees" },
          ],
        });
        expect(choices[0]?.message.content).toBe(sunny.text.join(""));
        expect(JSON.stringify(stage.provider.requests.at(-1)?.body)).toContain("22 degrees");
      });
    });

    describe("openai", () => {
      test("creates a plain answer", async () => {
        stage.provider.play(stage.reply(sunny));
        const answer = await openai(stage).chat.completions.create({
          model: "sonnet",
          messages: user,
        });
        expect(answer.choices[0]).toMatchObject({
          finish_reason: "stop",
          message: { role: "assistant", content: "It is sunny.", refusal: null },
        });
        expect(answer.usage).toMatchObject({
          prompt_tokens: 24,
          completion_tokens: 6,
          total_tokens: 30,
          prompt_tokens_details: { cached_tokens: 4 },
        });
      });

      test("creates a stream", async () => {
        stage.provider.play(stage.reply(sunny));
        const stream = await openai(stage).chat.completions.create({
          model: "sonnet",
          messages: user,
          stream: true,
        });
        const texts: string[] = [];
        for await (const chunk of stream) texts.push(chunk.choices[0]?.delta.content ?? "");
        expect(texts.join("|")).toBe("|It is |sunny.|");
      });

      test("joins a stream with its helper", async () => {
        stage.provider.play(stage.reply(weather));
        const stream = openai(stage).chat.completions.stream({
          model: "sonnet",
          messages: user,
          tools: [{ type: "function", function: { name: "weather", parameters: {} } }],
          stream_options: { include_usage: true },
        });
        const completion = await stream.finalChatCompletion();
        expect(completion.choices[0]).toMatchObject({
          finish_reason: "tool_calls",
          message: {
            tool_calls: [
              {
                id: "call_weather_1",
                type: "function",
                function: { name: "weather", arguments: '{"city":"Oslo"}' },
              },
            ],
          },
        });
        expect(await stream.totalUsage()).toMatchObject({
          prompt_tokens: 10,
          completion_tokens: 5,
        });
      });

      for (const stream of [false, true]) {
        test(`runs tools, ${stream ? "streamed" : "plain"}`, async () => {
          playToolLoop();
          const cities: unknown[] = [];
          const { completions } = openai(stage).chat;
          const request = {
            model: "sonnet",
            messages: user,
            tools: [weatherFunction((given) => cities.push(given))],
          };
          const runner = stream
            ? completions.runTools({ ...request, stream })
            : completions.runTools(request);
          expect(await runner.finalContent()).toBe("It is sunny.");
          expect(cities).toEqual([{ city: "Oslo" }]);
          expectResultSent();
        });
      }

      test("parses structured output", async () => {
        stage.provider.play(stage.reply({ text: ['{"sky":', '"clear"}'] }));
        const answer = await openai(stage).chat.completions.parse({
          model: "sonnet",
          messages: user,
          response_format: zodResponseFormat(z.object({ sky: z.string() }), "sky"),
        });
        expect(answer.choices[0]?.message.parsed).toEqual({ sky: "clear" });
        const sent = stage.provider.requests.at(-1)?.body;
        expect(
          JSON.stringify(
            sent?.[{ native: "output_config", chat: "response_format", responses: "text" }[format]],
          ),
        ).toContain('"sky"');
      });

      test("retrieves a model by its alias", async () => {
        expect(await openai(stage).models.retrieve("sonnet")).toMatchObject({
          object: "model",
          id: "sonnet",
        });
      });
    });

    describe("Vercel's client", () => {
      const model = () => {
        const { address, v1 } = stage.gateway;
        return createOpenAICompatible({
          name: "gateway",
          baseURL: `${address}/v1`,
          apiKey: v1,
          includeUsage: true,
        })("sonnet");
      };
      const tools = {
        weather: tool({
          inputSchema: z.object({ city: z.string() }),
          execute: async ({ city }) => `22 degrees in ${city}`,
        }),
      };

      test("generates text through a tool loop, with reasoning and usage", async () => {
        playToolLoop();
        const answer = await generateText({
          model: model(),
          prompt: "Weather?",
          tools,
          stopWhen: stepCountIs(3),
        });
        expect(answer.text).toBe("It is sunny.");
        expect(answer.steps[0]?.reasoningText).toBe("I need the weather.");
        expect(answer.steps[1]?.usage).toMatchObject({ inputTokens: 24, outputTokens: 6 });
        expectResultSent();
      });

      test("streams text through a tool loop", async () => {
        playToolLoop();
        const answer = streamText({
          model: model(),
          prompt: "Weather?",
          tools,
          stopWhen: stepCountIs(3),
        });
        const parts: string[] = [];
        for await (const part of answer.fullStream) parts.push(part.type);
        expect(parts).not.toContain("error");
        expect(await answer.text).toBe("It is sunny.");
        expect(await answer.finishReason).toBe("stop");
        expectResultSent();
      });
    });

    describe("LangChain's client", () => {
      const model = () => {
        const { address, v1 } = stage.gateway;
        return new ChatOpenAI({
          model: "sonnet",
          apiKey: v1,
          maxRetries: 0,
          configuration: { baseURL: `${address}/v1` },
        });
      };

      test("invokes a model, and reports its usage", async () => {
        stage.provider.play(stage.reply(sunny));
        const answer = await model().invoke([new HumanMessage("Weather?")]);
        expect(answer.content).toBe("It is sunny.");
        expect(answer.usage_metadata).toMatchObject({
          input_tokens: 24,
          output_tokens: 6,
          total_tokens: 30,
        });
      });

      test("streams text and the usage", async () => {
        stage.provider.play(stage.reply(sunny));
        let text = "";
        let tokens = 0;
        for await (const chunk of await model().stream("Weather?")) {
          text += chunk.text;
          tokens += Object(chunk.usage_metadata).total_tokens ?? 0;
        }
        expect([text, tokens]).toEqual(["It is sunny.", 30]);
      });

      test("calls a tool", async () => {
        playToolLoop();
        const weatherTool = langchainTool(({ city }) => `22 degrees in ${city}`, {
          name: "weather",
          schema: z.object({ city: z.string() }),
        });
        const bound = model().bindTools([weatherTool]);
        const question = new HumanMessage("Weather?");
        const first = await bound.invoke([question]);
        const [call] = first.tool_calls ?? [];
        if (!call) throw new Error("no call");
        expect(call).toMatchObject({
          id: "call_weather_1",
          name: "weather",
          args: { city: "Oslo" },
        });
        const result = await weatherTool.invoke({ ...call, type: "tool_call" });
        expect((await bound.invoke([question, first, result])).content).toBe("It is sunny.");
        expectResultSent();
      });
    });
  });
}
