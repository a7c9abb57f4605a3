// Every member of a chat request: used, mapped, ignored or rejected.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { decodeRequest, wantsUsage } from "../../../src/formats/chat/chat.ts";
import { bodyWith, errorOf } from "../../support/samples/chat-bodies.ts";

const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } };
const schema = { type: "object", properties: { b: { type: "string" }, a: { type: "string" } } };

/** The values in a request without the member. */
const absent = {
  maxTokens: undefined,
  topP: undefined,
  toolChoice: undefined,
  thinking: undefined,
  outputConfig: undefined,
};

/** A request whose client asked for this effort. */
const asked = (reasoningEffort: string | undefined) => ({ origin: { reasoningEffort } });

const used: { name: string; members: JsonObject; becomes: object }[] = [
  {
    name: "model is passed on as written",
    members: { model: "vendor/claude-x[1m]" },
    becomes: { model: "vendor/claude-x[1m]" },
  },
  {
    name: "max_tokens is the output limit",
    members: { max_tokens: 12 },
    becomes: { maxTokens: 12 },
  },
  {
    name: "max_completion_tokens is the output limit too",
    members: { max_completion_tokens: 13 },
    becomes: { maxTokens: 13 },
  },
  {
    name: "max_completion_tokens overrides max_tokens",
    members: { max_tokens: 12, max_completion_tokens: 13 },
    becomes: { maxTokens: 13 },
  },
  { name: "an absent limit stays absent", members: {}, becomes: { maxTokens: undefined } },
  {
    name: "a null limit is absent",
    members: { max_tokens: null },
    becomes: { maxTokens: undefined },
  },
  {
    name: "stream true requests a stream",
    members: { stream: true },
    becomes: { origin: { streamed: true } },
  },
  {
    name: "stream false requests a plain answer",
    members: { stream: false },
    becomes: { origin: { streamed: false } },
  },
  {
    name: "stream null is absent",
    members: { stream: null },
    becomes: { origin: { streamed: false } },
  },
  {
    name: "temperature up to 1 is passed on",
    members: { temperature: 0.3 },
    becomes: { temperature: 0.3 },
  },
  {
    name: "temperature may be up to 2",
    members: { temperature: 1.7 },
    becomes: { temperature: 1.7 },
  },
  { name: "top_p is passed on", members: { top_p: 0.5 }, becomes: { topP: 0.5 } },
  {
    name: "temperature and top_p are both passed on",
    members: { temperature: 0, top_p: 0.5 },
    becomes: { temperature: 0, topP: 0.5 },
  },
  { name: "top_k is passed on", members: { top_k: 40 }, becomes: { topK: 40 } },
  { name: "n of 1 is accepted", members: { n: 1 }, becomes: { model: "sonnet" } },
  { name: "n of null is accepted", members: { n: null }, becomes: { model: "sonnet" } },
  {
    name: "stop as a string becomes one sequence",
    members: { stop: "END" },
    becomes: { stopSequences: ["END"] },
  },
  {
    name: "stop as a list may have more than four sequences and loses blank ones",
    members: { stop: ["a", " ", "b", "\n", "c", "d", "e"] },
    becomes: { stopSequences: ["a", "b", "c", "d", "e"] },
  },
  {
    name: "parallel_tool_calls false allows one call at a time",
    members: { tools: [tool], parallel_tool_calls: false },
    becomes: { toolChoice: { type: "auto", disableParallelToolUse: true } },
  },
  {
    name: "parallel_tool_calls false is ignored without tools",
    members: { parallel_tool_calls: false },
    becomes: { toolChoice: undefined },
  },
  {
    name: "parallel_tool_calls false does not change the choice none",
    members: { tools: [tool], tool_choice: "none", parallel_tool_calls: false },
    becomes: { toolChoice: { type: "none" } },
  },
  {
    name: "parallel_tool_calls true is the default",
    members: { tools: [tool], parallel_tool_calls: true },
    becomes: { toolChoice: undefined },
  },
  {
    name: "functions become tools",
    members: { functions: [{ name: "old", description: "d", parameters: schema }] },
    becomes: { tools: [{ name: "old", description: "d", inputSchema: schema }] },
  },
  {
    name: "function_call names the function to call",
    members: { functions: [{ name: "old" }], function_call: { name: "old" } },
    becomes: { toolChoice: { type: "tool", name: "old" } },
  },
  {
    name: "function_call may be a string",
    members: { functions: [{ name: "old" }], function_call: "none" },
    becomes: { toolChoice: { type: "none" } },
  },
  {
    name: "response_format json_schema becomes structured output, members in order",
    members: {
      response_format: { type: "json_schema", json_schema: { name: "n", strict: true, schema } },
    },
    becomes: { outputConfig: { format: { type: "json_schema", schema } } },
  },
  {
    name: "response_format json_object is ignored",
    members: { response_format: { type: "json_object" } },
    becomes: { outputConfig: undefined },
  },
  {
    name: "response_format text is ignored",
    members: { response_format: { type: "text" } },
    becomes: { outputConfig: undefined },
  },
  {
    name: "response_format without a schema is ignored",
    members: { response_format: { type: "json_schema", json_schema: { name: "n" } } },
    becomes: { outputConfig: undefined },
  },
  {
    name: "reasoning_effort is recorded for the model's own mapping",
    members: { reasoning_effort: "high" },
    becomes: { ...asked("high"), thinking: undefined },
  },
  {
    name: "reasoning_effort null is absent",
    members: { reasoning_effort: null },
    becomes: asked(undefined),
  },
  {
    name: "thinking is passed on and overrides reasoning_effort",
    members: {
      thinking: { type: "enabled", budget_tokens: 2048, display: "omitted" },
      reasoning_effort: "high",
    },
    becomes: {
      thinking: { type: "enabled", budgetTokens: 2048, extensions: { display: "omitted" } },
      ...asked(undefined),
    },
  },
  ...["heroic", 3, { effort: "high" }].map((effort) => ({
    name: `the reasoning_effort ${JSON.stringify(effort)}, which is unknown, is ignored`,
    members: { reasoning_effort: effort },
    becomes: asked(undefined),
  })),
  ...[
    true,
    "on",
    {},
    { type: "auto" },
    { enabled: true },
    { type: "enabled", budget_tokens: "9" },
  ].map((thinking) => ({
    name: `the thinking ${JSON.stringify(thinking)}, which is unknown, is ignored beside an effort`,
    members: { thinking, reasoning_effort: "low" },
    becomes: { thinking: undefined, ...asked("low") },
  })),
  {
    name: "cache_control on a tool is passed on",
    members: { tools: [{ ...tool, cache_control: { type: "ephemeral", ttl: "1h" } }] },
    becomes: { tools: [{ name: "f", cacheControl: { ttl: "1h" } }] },
  },
  {
    name: "cache_control on a part is passed on",
    members: {
      messages: [
        {
          role: "user",
          content: [{ type: "text", text: "a", cache_control: { type: "ephemeral" } }],
        },
      ],
    },
    becomes: { messages: [{ content: [{ cacheControl: {} }] }] },
  },
  {
    name: "cache_control on a message marks its last part",
    members: { messages: [{ role: "user", content: "a", cache_control: { type: "ephemeral" } }] },
    becomes: { messages: [{ content: [{ kind: { value: { text: "a" } }, cacheControl: {} }] }] },
  },
  {
    name: "modalities without audio is accepted",
    members: { modalities: ["text", "image"] },
    becomes: { model: "sonnet" },
  },
];
for (const { name, members, becomes } of used) {
  test(name, () => {
    const request = decodeRequest(bodyWith(members));
    expect(request.origin?.format).toBe(Format.CHAT);
    expect({ ...absent, ...request }).toMatchObject(becomes);
  });
}

const untypedNames = [
  "user",
  "safety_identifier",
  "metadata",
  "prompt_cache_key",
  "prompt_cache_options",
  "prompt_cache_retention",
  "seed",
  "logprobs",
  "top_logprobs",
  "logit_bias",
  "presence_penalty",
  "frequency_penalty",
  "store",
  "service_tier",
  "prediction",
  "verbosity",
  "moderation",
  "web_search_options",
  "audio",
  "a_member_of_tomorrow",
];
const anyValues: JsonValue[] = [null, true, -3, "text", ["x"], { a: 1 }];
for (const name of untypedNames) {
  test(`${name} has no typed field, and is kept whatever its value`, () => {
    const plain = decodeRequest(bodyWith({}));
    for (const value of anyValues) {
      const { extensions, ...typed } = decodeRequest(bodyWith({ [name]: value }));
      expect({ ...typed, extensions: undefined }).toEqual(plain);
      expect(extensions).toEqual({ [name]: value });
    }
  });
}

test("options of streams and cache breakpoints of parts are kept", () => {
  const options = { include_obfuscation: true };
  const { extensions } = decodeRequest(bodyWith({ stream_options: options }));
  expect(extensions).toEqual({ stream_options: options });
  const part = { type: "text", text: "a", prompt_cache_breakpoint: { ttl: "30m" } };
  const [message] = decodeRequest(
    bodyWith({ messages: [{ role: "user", content: [part] }] }),
  ).messages;
  expect(message?.content[0]?.extensions).toEqual({ prompt_cache_breakpoint: { ttl: "30m" } });
});

test("only stream_options.include_usage of true requests the usage of a stream", () => {
  expect(wantsUsage(bodyWith({ stream: true, stream_options: { include_usage: true } }))).toBe(
    true,
  );
  expect(wantsUsage(bodyWith({ stream: true, stream_options: { include_usage: false } }))).toBe(
    false,
  );
  expect(wantsUsage(bodyWith({ stream: true, stream_options: null }))).toBe(false);
  expect(wantsUsage(bodyWith({ stream: true }))).toBe(false);
});

const refused: { name: string; body: JsonValue; field: string | undefined }[] = [
  { name: "a body that is not an object", body: [1], field: undefined },
  { name: "no model", body: { messages: [{ role: "user", content: "a" }] }, field: "model" },
  { name: "an empty model", body: bodyWith({ model: "" }), field: "model" },
  { name: "a model that is not a string", body: bodyWith({ model: 4 }), field: "model" },
  { name: "no messages", body: { model: "m" }, field: "messages" },
  { name: "empty messages", body: bodyWith({ messages: [] }), field: "messages" },
  { name: "messages that are not a list", body: bodyWith({ messages: "hi" }), field: "messages" },
  {
    name: "a message that is not an object",
    body: bodyWith({ messages: ["hi"] }),
    field: "messages[0]",
  },
  { name: "n of 2", body: bodyWith({ n: 2 }), field: "n" },
  { name: "max_tokens of 0", body: bodyWith({ max_tokens: 0 }), field: "max_tokens" },
  { name: "max_tokens of 1.5", body: bodyWith({ max_tokens: 1.5 }), field: "max_tokens" },
  { name: "max_tokens as text", body: bodyWith({ max_tokens: "100" }), field: "max_tokens" },
  {
    name: "max_completion_tokens of -1",
    body: bodyWith({ max_completion_tokens: -1 }),
    field: "max_completion_tokens",
  },
  {
    name: "a wrong max_tokens beside a right max_completion_tokens",
    body: bodyWith({ max_tokens: -1, max_completion_tokens: 1 }),
    field: "max_tokens",
  },
  { name: "stream as text", body: bodyWith({ stream: "true" }), field: "stream" },
  {
    name: "stream_options as text",
    body: bodyWith({ stream_options: "usage" }),
    field: "stream_options",
  },
  {
    name: "include_usage as a number",
    body: bodyWith({ stream_options: { include_usage: 1 } }),
    field: "stream_options.include_usage",
  },
  { name: "temperature below 0", body: bodyWith({ temperature: -0.1 }), field: "temperature" },
  { name: "temperature above 2", body: bodyWith({ temperature: 2.1 }), field: "temperature" },
  { name: "temperature as text", body: bodyWith({ temperature: "1" }), field: "temperature" },
  { name: "top_p above 1", body: bodyWith({ top_p: 1.1 }), field: "top_p" },
  { name: "top_k of -1", body: bodyWith({ top_k: -1 }), field: "top_k" },
  { name: "a stop that is a number", body: bodyWith({ stop: 4 }), field: "stop" },
  { name: "a stop list with a number", body: bodyWith({ stop: ["a", 4] }), field: "stop[1]" },
  { name: "tools that are not a list", body: bodyWith({ tools: {} }), field: "tools" },
  {
    name: "parallel_tool_calls as text",
    body: bodyWith({ parallel_tool_calls: "no" }),
    field: "parallel_tool_calls",
  },
  { name: "functions that are not a list", body: bodyWith({ functions: {} }), field: "functions" },
  {
    name: "response_format as text",
    body: bodyWith({ response_format: "json" }),
    field: "response_format",
  },
  {
    name: "json_schema missing",
    body: bodyWith({ response_format: { type: "json_schema" } }),
    field: "response_format.json_schema",
  },
  {
    name: "a schema that is not an object",
    body: bodyWith({ response_format: { type: "json_schema", json_schema: { schema: [] } } }),
    field: "response_format.json_schema.schema",
  },
  {
    name: "modalities with audio",
    body: bodyWith({ modalities: ["text", "audio"] }),
    field: "modalities",
  },
  {
    name: "cache_control that is not an object",
    body: bodyWith({ messages: [{ role: "user", content: "a", cache_control: "yes" }] }),
    field: "messages[0].cache_control",
  },
];
for (const { name, body, field } of refused) {
  test(`${name} is rejected with its path`, () => {
    const refusal = errorOf(body);
    expect(refusal.reason).toBe("invalid_request");
    expect(refusal.facts.field).toBe(field);
    if (field !== undefined) expect(refusal.message.startsWith(`${field}: `)).toBe(true);
  });
}

test("an input beside messages says nothing, and alone it is no conversation", () => {
  expect(decodeRequest(bodyWith({ input: "ignored" })).messages).toHaveLength(1);
  expect(errorOf({ model: "m", input: "Hello" }).facts.field).toBe("messages");
});
