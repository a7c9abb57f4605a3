import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ApiError } from "../../../src/base/errors.ts";
import { parseJson } from "../../../src/formats/json.ts";
import { jsonDepthMax } from "../../../src/formats/json-fault.ts";
import {
  decodeCountRequest,
  decodeRequest,
  encodeCountRequest,
} from "../../../src/formats/native/native.ts";
import { shareOf } from "../../support/arbitraries.ts";
import { anyBody, anyValue } from "../../support/samples/native-bodies.ts";

const headers = { version: "2023-06-01", beta: "" };
const newest = { version: "2026-10-21", beta: "" };
const least = { model: "m", max_tokens: 1, messages: [{ role: "user", content: "x" }] };
const entry = (message: JsonValue): JsonObject => ({
  messages: [{ role: "user", content: "x" }, message],
});

function errorOf(work: () => unknown): ApiError {
  try {
    work();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

const many = Object.fromEntries(Array.from({ length: 101 }, (_, index) => [`k${index}`, index]));

const refused: { name: string; body: JsonObject; message: string; field: string }[] = [
  {
    name: "no model",
    body: { model: null },
    message: "model: Input should be a valid string",
    field: "model",
  },
  {
    name: "an empty model",
    body: { model: "" },
    message: "model: String should have",
    field: "model",
  },
  {
    name: "messages that are not a list",
    body: { messages: {} },
    message: "messages: Input should be a valid list",
    field: "messages",
  },
  {
    name: "no messages",
    body: { messages: [] },
    message: "messages: at least one",
    field: "messages",
  },
  { name: "a body of many members", body: many, message: "body: at most 100", field: "body" },
  {
    name: "a message of many members",
    body: entry({ role: "user", content: "x", ...many }),
    message: "messages.1: at most 100",
    field: "messages[1]",
  },
  {
    name: "a block of many members",
    body: entry({ role: "user", content: [{ type: "text", text: "x", ...many }] }),
    message: "messages.1.content.0: at most 100",
    field: "messages[1].content[0]",
  },
  {
    name: "a block of many members in a tool result",
    body: entry({
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "t", content: [{ type: "text", text: "x", ...many }] },
      ],
    }),
    message: "messages.1.content.0.content.0: at most 100",
    field: "messages[1].content[0].content[0]",
  },
  {
    name: "a tool of many members",
    body: { tools: [{ name: "t", ...many }] },
    message: "tools.0: at most 100",
    field: "tools[0]",
  },
  {
    name: "a message that is not an object",
    body: entry("x"),
    message: "messages.1: Input",
    field: "messages[1]",
  },
  {
    name: "a message without role",
    body: entry({ content: "x" }),
    message: "messages.1.role: Field",
    field: "messages[1].role",
  },
  {
    name: "an unknown role",
    body: entry({ role: "tool", content: "x" }),
    message: "messages.1.role: Input",
    field: "messages[1].role",
  },
  {
    name: "a message without content",
    body: entry({ role: "user" }),
    message: "messages.1.content: Field",
    field: "messages[1].content",
  },
  {
    name: "an empty system message",
    body: entry({ role: "system" }),
    message: "messages.1.content: Field",
    field: "messages[1].content",
  },
  {
    name: "content that is null",
    body: entry({ role: "user", content: null }),
    message: "messages.1.content: Input",
    field: "messages[1].content",
  },
  {
    name: "content that is an object",
    body: entry({ role: "user", content: {} }),
    message: "messages.1.content: Input",
    field: "messages[1].content",
  },
  {
    name: "a block that is not an object",
    body: entry({ role: "user", content: ["x"] }),
    message: "messages.1.content.0: Input",
    field: "messages[1].content[0]",
  },
  {
    name: "a block without type",
    body: entry({ role: "user", content: [{ text: "x" }] }),
    message: "messages.1.content.0.type: Field",
    field: "messages[1].content[0].type",
  },
  {
    name: "a block whose type is a number",
    body: entry({ role: "user", content: [{ type: 1 }] }),
    message: "messages.1.content.0.type: Input",
    field: "messages[1].content[0].type",
  },
  {
    name: "max_tokens that is a string",
    body: { max_tokens: "1" },
    message: "max_tokens: Input should be a valid integer",
    field: "max_tokens",
  },
  {
    name: "max_tokens with a fraction",
    body: { max_tokens: 1.5 },
    message: "max_tokens: Input should be a valid integer",
    field: "max_tokens",
  },
  {
    name: "a negative max_tokens",
    body: { max_tokens: -1 },
    message: "max_tokens: Input should be greater",
    field: "max_tokens",
  },
  {
    name: "max_tokens 0 with nothing to cache",
    body: { max_tokens: 0 },
    message: "max_tokens: Input should be greater",
    field: "max_tokens",
  },
  {
    name: "stream that is a string",
    body: { stream: "true" },
    message: "stream: Input",
    field: "stream",
  },
  {
    name: "stream that is null",
    body: { stream: null },
    message: "stream: Input",
    field: "stream",
  },
  {
    name: "system that is a number",
    body: { system: 1 },
    message: "system: Input",
    field: "system",
  },
  {
    name: "system that is null",
    body: { system: null },
    message: "system: Input",
    field: "system",
  },
  {
    name: "a system block that is a string",
    body: { system: ["x"] },
    message: "system.0: Input",
    field: "system[0]",
  },
  {
    name: "a temperature above 1",
    body: { temperature: 1.01 },
    message: "temperature: Input",
    field: "temperature",
  },
  {
    name: "a temperature below 0",
    body: { temperature: -0.1 },
    message: "temperature: Input",
    field: "temperature",
  },
  {
    name: "a temperature that is a string",
    body: { temperature: "1" },
    message: "temperature: Input",
    field: "temperature",
  },
  { name: "top_p above 1", body: { top_p: 2 }, message: "top_p: Input", field: "top_p" },
  { name: "a negative top_k", body: { top_k: -1 }, message: "top_k: Input", field: "top_k" },
  { name: "top_k with a fraction", body: { top_k: 0.5 }, message: "top_k: Input", field: "top_k" },
  {
    name: "one stop sequence outside a list",
    body: { stop_sequences: "x" },
    message: "stop_sequences: Input",
    field: "stop_sequences",
  },
  {
    name: "a stop sequence that is not a string",
    body: { stop_sequences: ["x", 1] },
    message: "stop_sequences: Input",
    field: "stop_sequences",
  },
  {
    name: "tools that are not a list",
    body: { tools: {} },
    message: "tools: Input",
    field: "tools",
  },
  {
    name: "a tool that is not an object",
    body: { tools: [null] },
    message: "tools.0: Input",
    field: "tools[0]",
  },
  {
    name: "a tool with neither name nor type",
    body: { tools: [{ name: 1 }] },
    message: "tools.0.name: Field",
    field: "tools[0].name",
  },
  {
    name: "tool_choice that is a string",
    body: { tool_choice: "auto" },
    message: "tool_choice: Input",
    field: "tool_choice",
  },
  {
    name: "thinking that is a boolean",
    body: { thinking: true },
    message: "thinking: Input",
    field: "thinking",
  },
  {
    name: "metadata that is a list",
    body: { metadata: [] },
    message: "metadata: Input",
    field: "metadata",
  },
];
for (const { name, body, message, field } of refused) {
  test(`${name} is rejected with its path`, () => {
    const refusal = errorOf(() => decodeRequest({ ...least, ...body }, headers));
    expect(refusal).toMatchObject({ reason: "invalid_request", facts: { field } });
    expect(refusal.message.startsWith(message), refusal.message).toBe(true);
  });
}

for (const field of ["model", "messages", "max_tokens"] as const) {
  test(`a body without ${field} is rejected`, () => {
    const { [field]: _, ...body } = least;
    expect(errorOf(() => decodeRequest(body, headers))).toMatchObject({
      message: `${field}: Field required`,
      facts: { field },
    });
  });
}

const accepted: { name: string; body: JsonObject }[] = [
  { name: "an empty list of tools", body: { tools: [] } },
  { name: "an empty system text", body: { system: "" } },
  { name: "a tool with a type and no name", body: { tools: [{ type: "web_search_20250305" }] } },
  {
    name: "a system message with settings only",
    body: entry({ role: "system", output_config: { effort: "high" } }),
  },
  { name: "the same role twice in a row", body: entry({ role: "user", content: [] }) },
  { name: "an assistant message at the end", body: entry({ role: "assistant", content: "{" }) },
  {
    name: "max_tokens 0 with a mark in the system text",
    body: {
      max_tokens: 0,
      system: [{ type: "text", text: "x", cache_control: { type: "ephemeral" } }],
    },
  },
  { name: "20,000 messages", body: { messages: Array(20_000).fill(least.messages[0]) } },
  { name: "the ends of the ranges", body: { temperature: 0, top_p: 1, top_k: 0 } },
];
for (const { name, body } of accepted) {
  test(`${name} is accepted`, () => {
    expect(decodeRequest({ ...least, ...body }, headers).model).toBe("m");
  });
}

test.each(["temperature", "top_p", "top_k"])(
  "version 2026-10-21 refuses the presence of %s, the first version does not",
  (name) => {
    const body = { ...least, [name]: 1 };
    expect(errorOf(() => decodeRequest(body, newest)).facts.field).toBe(name);
    expect(errorOf(() => decodeRequest({ ...least, [name]: null }, newest)).facts.field).toBe(name);
    expect(errorOf(() => decodeCountRequest(body, newest)).facts.field).toBe(name);
    expect(decodeRequest(body, headers).model).toBe("m");
  },
);

test("a request to count needs no max_tokens, and the provider receives no member that only answers have", () => {
  const { max_tokens, ...body } = least;
  const asked = decodeCountRequest(
    { ...body, tools: [], metadata: {}, stream: true, temperature: 1, x: 1 },
    headers,
  );
  expect(asked.request && encodeCountRequest(asked.request, { model: "p" })).toEqual({
    ...body,
    model: "p",
    tools: [],
    x: 1,
  });
  expect(
    decodeCountRequest({ ...body, max_tokens: "any" }, headers).request?.maxTokens,
  ).toBeUndefined();
});

test("malformed bodies are rejected with an ApiError", () => {
  const names = [
    "model",
    "messages",
    "max_tokens",
    "stream",
    "system",
    "temperature",
    "top_k",
    "stop_sequences",
    "tools",
    "thinking",
    "cache_control",
  ];
  const broken = fc.oneof(
    anyValue,
    fc
      .tuple(anyBody, fc.constantFrom(...names), anyValue)
      .map(([body, name, value]) => ({ ...body, [name]: value })),
    fc.tuple(anyBody, fc.constantFrom(...names)).map(([{ ...body }, name]) => {
      delete body[name];
      return body;
    }),
    fc.tuple(anyBody, anyValue).map(([body, value]) => ({ ...body, messages: [value] })),
    fc
      .tuple(anyBody, anyValue)
      .map(([body, value]) => ({ ...body, messages: [{ role: "user", content: value }] })),
    fc.tuple(anyBody, anyValue).map(([body, value]) => ({ ...body, tools: [value] })),
  );
  const isRefused = (body: JsonValue) => {
    try {
      decodeRequest(body, headers);
      return false;
    } catch (error) {
      expect(error).toMatchObject({ name: "ApiError", reason: "invalid_request" });
      return true;
    }
  };
  fc.assert(
    fc.property(broken, (body) => void isRefused(body)),
    { numRuns: 10_000 },
  );
  expect(shareOf(broken, isRefused)).toBeGreaterThan(0.5);
});

test("extreme bodies are passed on or rejected", () => {
  const deep = (levels: number) =>
    parseJson(Buffer.from(`${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`));
  const wide = Object.fromEntries(
    Array.from({ length: 100_000 }, (_, index) => [`k${index}`, index]),
  );
  expect(
    decodeRequest({ ...least, deep: deep(jsonDepthMax), wide, "\u0000": "\u0000" }, headers)
      .extensions,
  ).toMatchObject({
    wide,
  });
  expect(errorOf(() => deep(10_000)).reason).toBe("invalid_request");
});

test("a limit beyond 32 bits is the largest that can be said", () => {
  for (const max_tokens of [2 ** 32, 10 ** 12, Number.MAX_VALUE])
    expect(decodeRequest({ ...least, max_tokens }, headers).maxTokens).toBe(2 ** 32 - 1);
});
