// The vendor's SDK, newest and older, unmodified, with a scripted provider.

import Newest from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import Older from "anthropic-sdk-0-137";
import { betaTool as olderBetaTool } from "anthropic-sdk-0-137/helpers/beta/json-schema";
import { jsonSchemaOutputFormat as olderOutputFormat } from "anthropic-sdk-0-137/helpers/json-schema";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { converse, weather } from "../support/conversation.ts";
import {
  type GatewayWithProvider,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import {
  chatStream,
  errorAnswer,
  nativeAnswer,
  nativeEvents,
  nativeStream,
} from "../support/provider-answers.ts";

let native: GatewayWithProvider;
beforeAll(async () => {
  native = await startGatewayWithProvider("native");
});
beforeEach(() => native.provider.always(converse));
afterAll(() => native.stop());

type Options = { apiKey?: string; maxRetries?: number };
type RequestMembers = {
  max_tokens?: number;
  tools?: (typeof weather)[];
  thinking?: { type: "enabled"; budget_tokens: number };
};

/**
 * One interface for both generations of the SDK, because their types are not compatible.
 */
type Sdk = {
  create(members?: RequestMembers, options?: Options): Promise<unknown>;
  /** The final message, and the joined text of the `text` events. */
  stream(members?: RequestMembers, options?: Options): Promise<{ message: unknown; text: string }>;
  /** The last message of a tool runner, and the arguments of its tool calls. */
  runTools(stream: boolean): Promise<{ message: unknown; cities: string[] }>;
  parse(): Promise<unknown>;
  count(): Promise<unknown>;
  models(): Promise<string[]>;
};

const basicRequest = {
  model: "opus",
  max_tokens: 4000,
  messages: [{ role: "user" as const, content: "Hello" }],
};
const optionsOf = ({ apiKey = native.gateway.v1, maxRetries = 0 }: Options = {}) => ({
  baseURL: native.gateway.address,
  apiKey,
  authToken: null,
  maxRetries,
});

const newest: Sdk = {
  create: (more, options) =>
    new Newest(optionsOf(options)).messages.create({ ...basicRequest, ...more }),
  async stream(more, options) {
    let text = "";
    const stream = new Newest(optionsOf(options)).messages
      .stream({ ...basicRequest, ...more })
      .on("text", (delta) => {
        text += delta;
      });
    return { message: await stream.finalMessage(), text };
  },
  async runTools(stream) {
    const cities: string[] = [];
    const run = ({ city }: { city: string }) => `Sunny, ${cities.push(city)}.`;
    const tool = betaTool({
      name: weather.name,
      description: weather.description,
      inputSchema: weather.input_schema,
      run,
    });
    const runner = new Newest(optionsOf()).beta.messages.toolRunner({
      ...basicRequest,
      tools: [tool],
      stream,
    });
    return { message: await runner.runUntilDone(), cities };
  },
  async parse() {
    const output_config = { format: jsonSchemaOutputFormat(weather.input_schema) };
    return (await new Newest(optionsOf()).messages.parse({ ...basicRequest, output_config }))
      .parsed_output;
  },
  count: () =>
    new Newest(optionsOf()).messages.countTokens({
      model: basicRequest.model,
      messages: basicRequest.messages,
    }),
  async models() {
    const ids: string[] = [];
    for await (const { id } of new Newest(optionsOf()).models.list()) ids.push(id);
    return ids;
  },
};

const older: Sdk = {
  create: (more, options) =>
    new Older(optionsOf(options)).messages.create({ ...basicRequest, ...more }),
  async stream(more, options) {
    let text = "";
    const stream = new Older(optionsOf(options)).messages
      .stream({ ...basicRequest, ...more })
      .on("text", (delta) => {
        text += delta;
      });
    return { message: await stream.finalMessage(), text };
  },
  async runTools(stream) {
    const cities: string[] = [];
    const run = ({ city }: { city: string }) => `Sunny, ${cities.push(city)}.`;
    const tool = olderBetaTool({
      name: weather.name,
      description: weather.description,
      inputSchema: weather.input_schema,
      run,
    });
    const runner = new Older(optionsOf()).beta.messages.toolRunner({
      ...basicRequest,
      tools: [tool],
      stream,
    });
    return { message: await runner.runUntilDone(), cities };
  },
  async parse() {
    const output_config = { format: olderOutputFormat(weather.input_schema) };
    return (await new Older(optionsOf()).messages.parse({ ...basicRequest, output_config }))
      .parsed_output;
  },
  count: () =>
    new Older(optionsOf()).messages.countTokens({
      model: basicRequest.model,
      messages: basicRequest.messages,
    }),
  async models() {
    const ids: string[] = [];
    for await (const { id } of new Older(optionsOf()).models.list()) ids.push(id);
    return ids;
  },
};

const hello = {
  type: "message",
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
const call = { type: "tool_use", name: "get_weather", input: { city: "Paris" } };

for (const [name, sdk] of [
  ["1.11", newest],
  ["0.137", older],
] as const) {
  describe(`SDK ${name}`, () => {
    test("gets a plain answer", async () => {
      expect(await sdk.create()).toMatchObject(hello);
    });

    test("streams the same answer, with the provider's numbers", async () => {
      const { message, text } = await sdk.stream();
      expect(message).toMatchObject(hello);
      expect(text).toBe("Hello 😀");
    });

    test("gets a tool call with its arguments, plain and streamed", async () => {
      const content = [{ type: "text", text: "Let me see." }, call];
      expect(await sdk.create({ tools: [weather] })).toMatchObject({
        content,
        stop_reason: "tool_use",
      });
      expect((await sdk.stream({ tools: [weather] })).message).toMatchObject({
        content,
        stop_reason: "tool_use",
      });
    });

    test("gets a tool call without arguments as an empty object", async () => {
      const content = [{ type: "tool_use", name: "now", input: {} }];
      native.provider.always(({ body }) =>
        (body.stream ? nativeStream : nativeAnswer)({ tool: { name: "now", input: [] } }),
      );
      expect(await sdk.create()).toMatchObject({ content });
      expect((await sdk.stream()).message).toMatchObject({ content });
    });

    test("gets thinking with its signature", async () => {
      const thinking = { type: "enabled" as const, budget_tokens: 2000 };
      const content = [
        { type: "thinking", thinking: "hm…", signature: "c2lnbmF0dXJl" },
        hello.content[0],
      ];
      expect(await sdk.create({ thinking })).toMatchObject({ content });
      expect((await sdk.stream({ thinking })).message).toMatchObject({ content });
    });

    test.each([false, true])(
      "runs a tool to the end with the whole conversation each time (stream: %s)",
      async (stream) => {
        const before = native.provider.requests.length;
        const { message, cities } = await sdk.runTools(stream);
        expect(cities).toEqual(["Paris"]);
        expect(message).toMatchObject({ content: hello.content, stop_reason: "end_turn" });
        const [first, second] = native.provider.requests
          .slice(before)
          .map(({ body }) => body.messages);
        expect(native.provider.requests.length).toBe(before + 2);
        expect(first).toEqual(basicRequest.messages);
        expect(second).toMatchObject([
          ...basicRequest.messages,
          { role: "assistant", content: [{ type: "text" }, call] },
          { role: "user", content: [{ type: "tool_result" }] },
        ]);
      },
    );

    test("parses structured output", async () => {
      expect(await sdk.parse()).toEqual({ city: "Paris" });
    });

    test("counts tokens and lists the models to their end", async () => {
      expect(await sdk.count()).toEqual({ input_tokens: 42 });
      const ids = await sdk.models();
      expect(ids).toEqual([
        "model-opus-4.6",
        "model-sonnet-4.6",
        "model-haiku-4.5",
        "opus",
        "sonnet",
        "haiku",
      ]);
    });

    test("throws an error without a status from a stream that fails during the text", async () => {
      native.provider.always({
        ...nativeStream(),
        writes: nativeEvents({ text: ["a", "b"] }).slice(0, 3),
        end: "reset",
      });
      await expect(sdk.stream()).rejects.toMatchObject({ type: "api_error", status: undefined });
    });

    test("throws if the provider answers in another format, instead of returning an empty answer", async () => {
      native.provider.always(chatStream({ text: ["a"] }));
      await expect(sdk.stream()).rejects.toMatchObject({ status: 502 });
    });

    const failures: {
      status: number;
      type: string;
      message: RegExp;
      script: ReturnType<typeof errorAnswer>;
    }[] = [
      {
        status: 400,
        type: "invalid_request_error",
        message: /max_tokens/,
        script: errorAnswer(400, "invalid_request_error", "max_tokens: too large"),
      },
      {
        // The operator's name of the model is wrong, not the client's.
        status: 502,
        type: "api_error",
        message: /provider/,
        script: errorAnswer(404, "not_found_error", "gone"),
      },
      {
        status: 413,
        type: "request_too_large",
        message: /big/,
        script: errorAnswer(413, "request_too_large", "big"),
      },
      {
        status: 502,
        type: "api_error",
        message: /provider/,
        script: errorAnswer(401, "authentication_error", "bad provider key"),
      },
      {
        status: 529,
        type: "overloaded_error",
        message: /overloaded/i,
        script: errorAnswer(529, "overloaded_error", "Overloaded"),
      },
    ];
    for (const { status, type, message, script } of failures) {
      test(`throws ${status} for a provider that answers ${script.status}`, async () => {
        native.provider.always(script);
        await expect(sdk.create()).rejects.toMatchObject({
          status,
          type,
          message: expect.stringMatching(message),
          requestID: expect.stringMatching(/^req_/),
        });
      });
    }

    test("throws the right class for each error of the gateway", async () => {
      const { secret } = await native.keyWith({ requestsPerMinute: 0, allowedModels: ["haiku"] });
      const classes = name === "1.11" ? Newest : Older;
      await expect(sdk.create({}, { apiKey: "sk-gw2-1nonsense" })).rejects.toBeInstanceOf(
        classes.AuthenticationError,
      );
      await expect(sdk.create({}, { apiKey: secret })).rejects.toBeInstanceOf(
        classes.PermissionDeniedError,
      );
      await expect(sdk.stream({ max_tokens: -1 })).rejects.toBeInstanceOf(classes.BadRequestError);
      await expect(sdk.create({ max_tokens: 0 })).rejects.toMatchObject({
        message: expect.stringContaining("max_tokens: "),
      });
    });
  });
}
