// The official SDKs of both formats, unmodified, against a started gateway in both topologies.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const weather = {
  name: "get_weather",
  description: "Weather of a city.",
  schema: { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] },
};

for (const split of [false, true]) {
  describe(
    split ? "with the services in another process" : "with everything in one process",
    () => {
      let gateway: TestGateway;
      let native: Anthropic;
      let chat: OpenAI;
      beforeAll(async () => {
        gateway = await startTestGateway({ split });
        native = new Anthropic({ baseURL: gateway.address, apiKey: gateway.v1, maxRetries: 0 });
        chat = new OpenAI({ baseURL: `${gateway.address}/v1`, apiKey: gateway.v2, maxRetries: 0 });
      });
      afterAll(() => gateway.stop());

      /** A key with limits of its own. */
      async function keyWith(controls: {
        requestsPerMinute?: number;
        monthlyCapMicrocredits?: bigint;
        allowedModels?: string[];
      }) {
        const { core, call } = gateway.admin;
        const { secret } = await core.keys.createKey(
          { accountId: gateway.accountId, family: Family.V1, settings: { name: "k", ...controls } },
          call,
        );
        return {
          native: new Anthropic({ baseURL: gateway.address, apiKey: secret, maxRetries: 0 }),
          chat: new OpenAI({ baseURL: `${gateway.address}/v1`, apiKey: secret, maxRetries: 0 }),
        };
      }

      describe("native messages", () => {
        const request = {
          model: "haiku",
          max_tokens: 200,
          messages: [{ role: "user" as const, content: "Hello, who are you?" }],
        };

        test("a plain answer has text, usage and the model of the alias", async () => {
          const message = await native.messages.create(request);
          expect(message).toMatchObject({
            type: "message",
            role: "assistant",
            model: "model-haiku-4.5",
            stop_reason: "end_turn",
          });
          expect(textOf(message)).not.toBe("");
          expect(message.usage.input_tokens).toBeGreaterThan(0);
          expect(message.usage.output_tokens).toBeGreaterThan(0);
        });

        test("a streamed answer has the same text and cost as a plain one", async () => {
          const plain = await native.messages.create(request);
          const stream = native.messages.stream(request);
          const streamed = await stream.finalMessage();
          expect(textOf(streamed)).toBe(textOf(plain));
          expect(streamed.usage).toMatchObject({
            input_tokens: plain.usage.input_tokens,
            output_tokens: plain.usage.output_tokens,
          });
        });

        test("the receipt charges the usage that the answer reports", async () => {
          const { data, response } = await native.messages.create(request).withResponse();
          const requestId = response.headers.get("request-id") ?? "";
          const { receipt } = await gateway.admin.core.billing.getReceipt(
            { requestId, accountId: gateway.accountId },
            gateway.admin.call,
          );
          const { input_tokens, output_tokens } = data.usage;
          expect(receipt?.usage).toMatchObject({ input: input_tokens, output: output_tokens });
          expect(receipt?.chargedMicrocredits).toBe(
            BigInt(input_tokens) * 140n + BigInt(output_tokens) * 700n,
          );
        });

        test("a tool that the user names is called, and its result is answered", async () => {
          const tools = [
            { name: weather.name, description: weather.description, input_schema: weather.schema },
          ];
          const question = { role: "user" as const, content: "Call get_weather for Oslo." };
          const first = await native.messages.create({ ...request, tools, messages: [question] });
          expect(first.stop_reason).toBe("tool_use");
          const call = first.content.find((block) => block.type === "tool_use");
          expect(call).toMatchObject({ name: "get_weather", input: { city: expect.any(String) } });
          const result = {
            type: "tool_result" as const,
            tool_use_id: call?.id ?? "",
            content: "4 degrees",
          };
          const second = await native.messages.create({
            ...request,
            tools,
            messages: [
              question,
              { role: "assistant", content: first.content },
              { role: "user", content: [result] },
            ],
          });
          expect(second.stop_reason).toBe("end_turn");
        });

        test("a streamed tool call has the same arguments as a plain one", async () => {
          const tools = [
            { name: weather.name, description: weather.description, input_schema: weather.schema },
          ];
          const toolRequest = {
            ...request,
            tools,
            messages: [{ role: "user" as const, content: "Call get_weather for Oslo." }],
          };
          const [plain, streamed] = [
            await native.messages.create(toolRequest),
            await native.messages.stream(toolRequest).finalMessage(),
          ];
          const inputOf = (message: Anthropic.Message) =>
            message.content.flatMap((block) => (block.type === "tool_use" ? [block.input] : []));
          expect(inputOf(streamed)).toEqual(inputOf(plain));
        });

        test("system prompts, sampling and stop sequences are accepted", async () => {
          // The newest API version, which this SDK speaks, has no sampling fields.
          const message = await native.post<Anthropic.Message>("/v1/messages", {
            headers: { "anthropic-version": "2023-06-01", "x-api-key": gateway.v1 },
            body: {
              ...request,
              system: "Be brief.",
              temperature: 0.5,
              top_k: 5,
              stop_sequences: ["never said"],
            },
          });
          expect(message.stop_reason).toBe("end_turn");
        });

        test("the output limit ends an answer with its own reason", async () => {
          const message = await native.messages.create({ ...request, max_tokens: 1 });
          expect(message.stop_reason).toBe("max_tokens");
          expect(message.usage.output_tokens).toBe(1);
        });

        test("models can be listed and retrieved", async () => {
          const models = await collect(native.models.list());
          expect(models.map(({ id }) => id)).toEqual(
            expect.arrayContaining(["model-opus-4.6", "opus"]),
          );
          expect((await native.models.retrieve("model-haiku-4.5")).id).toBe("model-haiku-4.5");
        });

        test("a wrong key, an unknown model and a missing field fail as the SDK expects", async () => {
          const stranger = new Anthropic({
            baseURL: gateway.address,
            apiKey: "sk-gw2-wrong",
            maxRetries: 0,
          });
          await expect(stranger.messages.create(request)).rejects.toThrow(
            Anthropic.AuthenticationError,
          );
          await expect(
            native.messages.create({ ...request, model: "no-such-model" }),
          ).rejects.toThrow(Anthropic.NotFoundError);
          await expect(native.messages.create({ ...request, messages: [] })).rejects.toThrow(
            Anthropic.BadRequestError,
          );
        });

        test("each limit of the key has its status: rate 429, cap 402, model 403", async () => {
          const slow = await keyWith({ requestsPerMinute: 1 });
          await slow.native.messages.create(request);
          await expect(slow.native.messages.create(request)).rejects.toThrow(
            Anthropic.RateLimitError,
          );
          const poor = await keyWith({ monthlyCapMicrocredits: 1n });
          await expect(poor.native.messages.create(request)).rejects.toMatchObject({ status: 402 });
          const picky = await keyWith({ allowedModels: ["sonnet"] });
          await expect(picky.native.messages.create(request)).rejects.toThrow(
            Anthropic.PermissionDeniedError,
          );
        });
      });

      describe("chat completions", () => {
        const request = {
          model: "haiku",
          messages: [{ role: "user" as const, content: "Hello, who are you?" }],
        };

        test("a plain answer has text, usage and the model of the alias", async () => {
          const completion = await chat.chat.completions.create(request);
          expect(completion).toMatchObject({ object: "chat.completion", model: "model-haiku-4.5" });
          expect(completion.choices[0]).toMatchObject({
            finish_reason: "stop",
            message: { role: "assistant" },
          });
          expect(completion.choices[0]?.message.content).not.toBe("");
          expect(completion.usage?.total_tokens).toBeGreaterThan(0);
        });

        test("a streamed answer has the same text and cost as a plain one", async () => {
          const plain = await chat.chat.completions.create(request);
          const chunks = await collect(
            await chat.chat.completions.create({
              ...request,
              stream: true,
              stream_options: { include_usage: true },
            }),
          );
          const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
          expect(text).toBe(plain.choices[0]?.message.content);
          expect(chunks.at(-1)?.usage?.total_tokens).toBe(plain.usage?.total_tokens);
        });

        test("a tool that the user names is called, and its result is answered", async () => {
          const { name, description, schema } = weather;
          const tools = [
            { type: "function" as const, function: { name, description, parameters: schema } },
          ];
          const question = { role: "user" as const, content: "Call get_weather for Oslo." };
          const first = await chat.chat.completions.create({
            ...request,
            tools,
            messages: [question],
          });
          expect(first.choices[0]?.finish_reason).toBe("tool_calls");
          const message = first.choices[0]?.message;
          const call = message?.tool_calls?.[0];
          if (!message || call?.type !== "function") throw new Error("no function was called");
          expect(JSON.parse(call.function.arguments)).toEqual({ city: expect.any(String) });
          const result = { role: "tool" as const, tool_call_id: call.id, content: "4 degrees" };
          const second = await chat.chat.completions.create({
            ...request,
            tools,
            messages: [question, message, result],
          });
          expect(second.choices[0]?.finish_reason).toBe("stop");
        });

        test("a streamed tool call has the same arguments as a plain one", async () => {
          const { name, description, schema } = weather;
          const tools = [
            { type: "function" as const, function: { name, description, parameters: schema } },
          ];
          const toolRequest = {
            ...request,
            tools,
            messages: [{ role: "user" as const, content: "Call get_weather for Oslo." }],
          };
          const plain = (await chat.chat.completions.create(toolRequest)).choices[0]?.message
            .tool_calls?.[0];
          const streamed = (await chat.chat.completions.stream(toolRequest).finalChatCompletion())
            .choices[0]?.message.tool_calls?.[0];
          if (plain?.type !== "function" || streamed?.type !== "function")
            throw new Error("no function was called");
          expect(JSON.parse(streamed.function.arguments)).toEqual(
            JSON.parse(plain.function.arguments),
          );
        });

        test("a system prompt is accepted, and the output limit ends an answer with its own reason", async () => {
          const messages = [{ role: "system" as const, content: "Be brief." }, ...request.messages];
          const completion = await chat.chat.completions.create({
            ...request,
            messages,
            max_completion_tokens: 1,
            temperature: 1.2,
          });
          expect(completion.choices[0]?.finish_reason).toBe("length");
        });

        test("models can be listed and retrieved", async () => {
          const models = await collect(chat.models.list());
          expect(models.map(({ id }) => id)).toEqual(
            expect.arrayContaining(["model-opus-4.6", "opus"]),
          );
          expect((await chat.models.retrieve("model-haiku-4.5")).id).toBe("model-haiku-4.5");
        });

        test("a wrong key, an unknown model and a missing field fail as the SDK expects", async () => {
          const stranger = new OpenAI({
            baseURL: `${gateway.address}/v1`,
            apiKey: "sk-gw2-wrong",
            maxRetries: 0,
          });
          await expect(stranger.chat.completions.create(request)).rejects.toThrow(
            OpenAI.AuthenticationError,
          );
          await expect(
            chat.chat.completions.create({ ...request, model: "no-such-model" }),
          ).rejects.toThrow(OpenAI.NotFoundError);
          await expect(chat.chat.completions.create({ ...request, messages: [] })).rejects.toThrow(
            OpenAI.BadRequestError,
          );
        });

        test("each limit of the key has its status: rate 429, cap 402, model 403", async () => {
          const slow = await keyWith({ requestsPerMinute: 1 });
          await slow.chat.chat.completions.create(request);
          await expect(slow.chat.chat.completions.create(request)).rejects.toThrow(
            OpenAI.RateLimitError,
          );
          const poor = await keyWith({ monthlyCapMicrocredits: 1n });
          await expect(poor.chat.chat.completions.create(request)).rejects.toMatchObject({
            status: 402,
          });
          const picky = await keyWith({ allowedModels: ["sonnet"] });
          await expect(picky.chat.chat.completions.create(request)).rejects.toThrow(
            OpenAI.PermissionDeniedError,
          );
        });
      });

      test("a failed request costs nothing, and each family pays from its own pool", async () => {
        const { pools } = await gateway.admin.core.billing.getPools(
          { accountId: gateway.accountId },
          gateway.admin.call,
        );
        for (const pool of pools) expect(pool.heldMicrocredits).toBe(0n);
        const failed = native.messages.create({
          model: "no-such-model",
          max_tokens: 5,
          messages: [{ role: "user", content: "x" }],
        });
        await expect(failed).rejects.toThrow();
        await native.messages.create({
          model: "haiku",
          max_tokens: 50,
          messages: [{ role: "user", content: "x" }],
        });
        const after = await gateway.admin.core.billing.getPools(
          { accountId: gateway.accountId },
          gateway.admin.call,
        );
        const postedOf = (all: typeof pools, family: Family) =>
          all.find((pool) => pool.family === family)?.postedMicrocredits;
        expect(postedOf(after.pools, Family.V1)).toBeLessThan(postedOf(pools, Family.V1) ?? 0n);
        expect(postedOf(after.pools, Family.V2)).toBe(postedOf(pools, Family.V2));
      });
    },
  );
}

function textOf(message: Anthropic.Message): string {
  return message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
}

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of source) all.push(one);
  return all;
}
