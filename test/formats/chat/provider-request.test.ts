// Request bodies for providers that use the chat format.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { Format, MessageSchema, Role } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { GenerateRequestSchema } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../../src/base/errors.ts";
import { dialectNames, dialectOf } from "../../../src/config/dialects.ts";
import { encodeRequest } from "../../../src/formats/chat/chat.ts";
import { fitMessages } from "../../../src/formats/chat/fit-messages.ts";
import { Fit } from "../../../src/formats/fit.ts";

type RequestInit = MessageInitShape<typeof GenerateRequestSchema>;
type Target = Parameters<typeof encodeRequest>[1];
type Turn = MessageInitShape<typeof MessageSchema>;

const target: Target = { model: "local", stream: false };
const asked = (reasoningEffort: string) => ({
  origin: { format: Format.RESPONSES, reasoningEffort },
});

function bodyOf(members: RequestInit, to: Target = target): JsonObject {
  const request = create(GenerateRequestSchema, members);
  return encodeRequest(request, to);
}

function messagesOf(
  turns: Turn[],
  members: RequestInit = {},
  to: Partial<Target> = {},
): JsonValue | undefined {
  const request = create(GenerateRequestSchema, members);
  request.messages = turns.map((turn) => create(MessageSchema, turn));
  return bodyOf(request, { ...target, ...to }).messages;
}

const text = (value: string) => ({ kind: { case: "text" as const, value: { text: value } } });
const user = (...content: NonNullable<Turn["content"]>): Turn => ({ role: Role.USER, content });
const assistant = (...content: NonNullable<Turn["content"]>): Turn => ({
  role: Role.ASSISTANT,
  content,
});
const call = (id: string) => ({
  kind: { case: "toolUse" as const, value: { id, name: "f", input: { b: 1, a: 2 } } },
});
const resultOf = (id: string, ...content: NonNullable<Turn["content"]>) => ({
  kind: { case: "toolResult" as const, value: { toolUseId: id, content } },
});
const image = (source: { mediaType: string; data: string }) => ({
  kind: {
    case: "image" as const,
    value: { source: { kind: { case: "base64" as const, value: source } } },
  },
});
const png = image({ mediaType: "image/png", data: "AAAA" });
const pngPart = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };

test("a request for a stream requests the usage, a request for a plain answer does not", () => {
  expect(bodyOf({}, { model: "m", stream: true })).toEqual({
    model: "m",
    messages: [],
    stream: true,
    stream_options: { include_usage: true },
  });
  expect(bodyOf({}, { model: "m", stream: false })).toEqual({
    model: "m",
    messages: [],
    stream: false,
  });
});

test("limits and sampling have the names of this format", () => {
  const members = { maxTokens: 9, temperature: 0.5, topP: 0.9, topK: 4, stopSequences: ["a", "b"] };
  expect(bodyOf(members)).toMatchObject({
    max_tokens: 9,
    temperature: 0.5,
    top_p: 0.9,
    top_k: 4,
    stop: ["a", "b"],
  });
  const renamed = bodyOf(members, { ...target, maxTokensName: "max_completion_tokens" });
  expect(renamed).toMatchObject({ max_completion_tokens: 9 });
  expect(renamed).not.toHaveProperty("max_tokens");
});

test("members without a counterpart in this format are omitted", () => {
  const body = bodyOf({
    extensions: { metadata: { user_id: "u" }, context_management: {} },
    origin: { format: Format.NATIVE, vendorBeta: "x" },
    messages: [user(text("a"))],
  });
  expect(Object.keys(body).sort()).toEqual(["messages", "model", "stream"]);
});

test("the instruction becomes one system message without the native client's attribution line", () => {
  const system = {
    content: [
      text("x-anthropic-billing-header: cc_version=1; cch=0;"),
      text("You help."),
      text("Briefly."),
    ],
  };
  expect(messagesOf([user(text("Hi"))], { system })).toEqual([
    { role: "system", content: "You help.\nBriefly." },
    { role: "user", content: "Hi" },
  ]);
});

test("tool results become tool messages before the user's text", () => {
  const turns = [
    user(text("Hi")),
    assistant(text("I look."), call("a"), call("b")),
    user(text("and now?"), resultOf("a", text("1"), text("2")), resultOf("b")),
  ];
  expect(messagesOf(turns)).toEqual([
    { role: "user", content: "Hi" },
    {
      role: "assistant",
      content: "I look.",
      tool_calls: [
        { id: "a", type: "function", function: { name: "f", arguments: '{"b":1,"a":2}' } },
        { id: "b", type: "function", function: { name: "f", arguments: '{"b":1,"a":2}' } },
      ],
    },
    { role: "tool", tool_call_id: "a", content: "1\n2" },
    { role: "tool", tool_call_id: "b", content: "" },
    { role: "user", content: "and now?" },
  ]);
});

test("an assistant turn with calls only has null content", () => {
  expect(messagesOf([assistant(call("a"))])).toMatchObject([{ role: "assistant", content: null }]);
});

test("an image in a tool result follows in the user message", () => {
  expect(messagesOf([user(resultOf("a", text("see"), png))])).toEqual([
    { role: "tool", tool_call_id: "a", content: "see" },
    { role: "user", content: [pngPart] },
  ]);
});

test("images, PDFs and text documents become parts", () => {
  const content = [
    text("a"),
    png,
    {
      kind: {
        case: "image" as const,
        value: { source: { kind: { case: "url" as const, value: "https://x/y" } } },
      },
    },
    {
      kind: {
        case: "document" as const,
        value: {
          title: "r.pdf",
          source: {
            kind: {
              case: "base64" as const,
              value: { mediaType: "application/pdf", data: "JVBE" },
            },
          },
        },
      },
    },
    {
      kind: {
        case: "document" as const,
        value: {
          title: "Notes",
          source: {
            kind: { case: "text" as const, value: { mediaType: "text/plain", data: "n" } },
          },
        },
      },
    },
    {
      kind: {
        case: "other" as const,
        value: {
          type: "search_result",
          title: "T",
          source: "https://s",
          content: [{ type: "text", text: "r" }],
        },
      },
    },
    { kind: { case: "other" as const, value: { type: "container_upload", file_id: "f" } } },
  ];
  expect(messagesOf([user(...content)])).toEqual([
    {
      role: "user",
      content: [
        { type: "text", text: "a" },
        pngPart,
        { type: "image_url", image_url: { url: "https://x/y" } },
        {
          type: "file",
          file: { filename: "r.pdf", file_data: "data:application/pdf;base64,JVBE" },
        },
        { type: "text", text: "Notes\nn" },
        { type: "text", text: "T\nhttps://s\nr" },
      ],
    },
  ]);
});

test("an instruction inside the conversation becomes a marked text of the user turn before it", () => {
  const entry: Turn = { role: Role.SYSTEM, content: [text("Be brief."), text("Now.")] };
  const silent: Turn = { role: Role.SYSTEM, extensions: { output_config: { effort: "low" } } };
  expect(
    messagesOf([user(text("Hi")), entry, assistant(text("Hello")), silent, user(text("Go"))]),
  ).toEqual([
    {
      role: "user",
      content: [
        { type: "text", text: "Hi" },
        { type: "text", text: "<system-reminder>\nBe brief.\nNow.\n</system-reminder>" },
      ],
    },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "Go" },
  ]);
  expect(messagesOf([assistant(text("Hello")), entry])).toMatchObject([
    { role: "assistant" },
    { role: "user" },
  ]);
});

test("thinking is returned to a provider in requests of this format, and to a gateway to native models", () => {
  const turns = [
    assistant(
      { kind: { case: "thinking", value: { thinking: "hm", signature: "c2ln" } } },
      { kind: { case: "thinking", value: { thinking: "unsigned", signature: "" } } },
      { kind: { case: "redactedThinking", value: { data: "x" } } },
      { kind: { case: "other", value: { type: "server_tool_use", id: "s" } } },
      text("a"),
    ),
  ];
  expect(messagesOf(turns)).toEqual([{ role: "assistant", content: "a" }]);
  const returned = {
    role: "assistant",
    content: "a",
    reasoning_details: [{ type: "reasoning.text", text: "hm", signature: "c2ln" }],
  };
  expect(messagesOf(turns, { origin: { format: Format.CHAT } })).toEqual([returned]);
  expect(messagesOf(turns, {}, { cacheMarks: true })).toEqual([returned]);
  expect(
    messagesOf([
      assistant({ kind: { case: "thinking", value: { thinking: "hm", signature: "c2ln" } } }),
    ]),
  ).toEqual([]);
});

test.for(dialectNames)("what %s gets of a turn has a text, parts, or calls", (name) => {
  const thought = { type: "thinking", thinking: [{ type: "text", text: "hm" }] };
  const part = { type: "text", text: "a" };
  const call = { id: "abcdefghi", type: "function", function: { name: "f", arguments: "{}" } };
  const turns = [
    { content: [thought] },
    { content: [thought, part] },
    { content: [thought], tool_calls: [call] },
    { content: [thought, part], tool_calls: [call] },
  ].map((turn): JsonObject => ({ role: "assistant", ...turn }));
  const dialect = dialectOf(name);
  const writesThoughts = dialect.reasoning?.includes("content") ?? true;
  const fitted = fitMessages(turns, dialect, new Fit());
  expect(fitted.map(({ content }) => content)).toEqual(
    writesThoughts ? turns.map(({ content }) => content) : ["", [part], null, [part]],
  );
});

test("cache marks are sent only for a provider that knows them", () => {
  const marked = { ...text("a"), cacheControl: { ttl: "1h" } };
  const members: RequestInit = {
    system: { content: [marked] },
    tools: [{ name: "f", cacheControl: {} }],
    messages: [user(marked)],
  };
  expect(JSON.stringify(bodyOf(members))).not.toContain("cache_control");
  expect(bodyOf(members, { ...target, cacheMarks: true })).toMatchObject({
    messages: [
      {
        role: "system",
        content: [{ type: "text", text: "a", cache_control: { type: "ephemeral", ttl: "1h" } }],
      },
      {
        role: "user",
        content: [{ type: "text", text: "a", cache_control: { type: "ephemeral", ttl: "1h" } }],
      },
    ],
    tools: [{ cache_control: { type: "ephemeral" } }],
  });
});

const schema = { type: "object", properties: { b: {}, a: {} } };
const tools = [
  { name: "f", description: "d", inputSchema: schema },
  { name: "g", type: "custom" },
];

test("tools become functions", () => {
  expect(bodyOf({ tools })).toMatchObject({
    tools: [
      { type: "function", function: { name: "f", description: "d", parameters: schema } },
      { type: "function", function: { name: "g", parameters: { type: "object", properties: {} } } },
    ],
  });
  expect(
    bodyOf({ tools: [{ name: "s", type: "tool_search_tool_regex_20251119" }] }),
  ).not.toHaveProperty("tools");
});

test("a tool that only native providers have is rejected", () => {
  const encode = () => bodyOf({ tools: [...tools, { name: "bash", type: "bash_20250124" }] });
  expect(encode).toThrow(ApiError);
  expect(encode).toThrow(/bash_20250124/);
});

const choices: { choice: RequestInit["toolChoice"]; becomes: JsonObject }[] = [
  { choice: { type: "auto" }, becomes: { tool_choice: "auto" } },
  { choice: { type: "any" }, becomes: { tool_choice: "required" } },
  { choice: { type: "none" }, becomes: { tool_choice: "none" } },
  {
    choice: { type: "tool", name: "f" },
    becomes: { tool_choice: { type: "function", function: { name: "f" } } },
  },
  {
    choice: { type: "auto", disableParallelToolUse: true },
    becomes: { tool_choice: "auto", parallel_tool_calls: false },
  },
];
for (const { choice, becomes } of choices) {
  test(`the choice ${JSON.stringify(choice)} becomes ${JSON.stringify(becomes)}`, () => {
    expect(bodyOf({ tools, ...(choice && { toolChoice: choice }) })).toMatchObject(becomes);
    expect(bodyOf({ ...(choice && { toolChoice: choice }) })).not.toHaveProperty("tool_choice");
  });
}

const efforts: { name: string; members: RequestInit; effort: string | undefined }[] = [
  {
    name: "a chat effort is passed on",
    members: asked("medium"),
    effort: "medium",
  },
  {
    name: "the chat effort none is passed on",
    members: asked("none"),
    effort: "none",
  },
  { name: "minimal becomes low", members: asked("minimal"), effort: "low" },
  { name: "xhigh becomes high", members: asked("xhigh"), effort: "high" },
  {
    name: "adaptive thinking sends its effort",
    members: { thinking: { type: "adaptive" }, outputConfig: { effort: "max" } },
    effort: "high",
  },
  {
    name: "a budget of 1024 becomes low",
    members: { thinking: { type: "enabled", budgetTokens: 1_024 } },
    effort: "low",
  },
  ...[
    { budgetTokens: 4_095, effort: "low" },
    { budgetTokens: 4_096, effort: "medium" },
    { budgetTokens: 16_383, effort: "medium" },
    { budgetTokens: 16_384, effort: "high" },
    { budgetTokens: 32_768, effort: "high" },
  ].map(({ budgetTokens, effort }) => ({
    name: `a budget of ${budgetTokens} becomes ${effort}`,
    members: { thinking: { type: "enabled", budgetTokens } },
    effort,
  })),
  {
    name: "disabled thinking sends no effort",
    members: { thinking: { type: "disabled" } },
    effort: undefined,
  },
  {
    name: "an effort without thinking is not sent",
    members: { outputConfig: { effort: "high" } },
    effort: undefined,
  },
  {
    name: "an unknown effort is not sent",
    members: { thinking: { type: "adaptive" }, outputConfig: { effort: "constructor" } },
    effort: undefined,
  },
];
for (const { name, members, effort } of efforts) {
  test(name, () => {
    expect(bodyOf(members).reasoning_effort).toBe(effort);
  });
}

test("structured output becomes a response format, the schema's members in order", () => {
  const body = bodyOf({ outputConfig: { format: { type: "json_schema", schema } } });
  expect(body.response_format).toEqual({
    type: "json_schema",
    json_schema: { name: "answer", schema },
  });
  expect(JSON.stringify(body.response_format)).toContain(JSON.stringify(schema));
});

test("the tools that a search found are named in words", () => {
  const found = { type: "tool_reference", tool_name: "weather" };
  const result = {
    kind: {
      case: "toolResult" as const,
      value: { toolUseId: "t", content: [{ kind: { case: "other" as const, value: found } }] },
    },
  };
  expect(messagesOf([assistant(call("t")), user(result)])).toContainEqual(
    expect.objectContaining({ role: "tool", content: "Found the tool weather." }),
  );
});

test("a document by its URL is refused: nobody fetches it", () => {
  const source = { kind: { case: "url" as const, value: "https://example.test/a.pdf" } };
  const document = { kind: { case: "document" as const, value: { source } } };
  expect(() => messagesOf([user(text("Read."), document)])).toThrow(
    expect.objectContaining({ reason: "feature_not_offered" }),
  );
});
