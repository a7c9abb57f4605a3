// What a provider of the Responses format gets for requests of the other formats, and how its
// failures are understood.

import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import * as chat from "../../../src/formats/chat/chat.ts";
import { progressOf } from "../../../src/formats/events.ts";
import * as native from "../../../src/formats/native/native.ts";
import {
  createEventDecoder,
  decodeAnswer,
  encodeRequest,
} from "../../../src/formats/responses/responses.ts";
import { sseEvent } from "../../support/provider-answers.ts";

const target = { model: "provider-name", stream: false };
const hello = [{ role: "user", content: "Hello" }];
const schema = { type: "object", properties: { city: { type: "string" } } };

function ofNative(members: JsonObject): JsonObject {
  const body = { model: "m", max_tokens: 100, messages: hello, ...members };
  return encodeRequest(native.decodeRequest(body, { version: "2023-06-01", beta: "" }), target);
}

function ofChat(members: JsonObject): JsonObject {
  return encodeRequest(chat.decodeRequest({ model: "m", messages: hello, ...members }), target);
}

describe("a native request", () => {
  test("becomes items, in their order", () => {
    const image = {
      type: "image",
      source: { type: "base64", media_type: "image/png", data: "iVBORw0=" },
    };
    const body = ofNative({
      system: [
        { type: "text", text: "x-anthropic-billing-header: cch=1;" },
        { type: "text", text: "Be brief." },
        { type: "text", text: "Be kind." },
      ],
      messages: [
        ...hello,
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm", signature: "native" },
            { type: "text", text: "I look." },
            { type: "tool_use", id: "toolu_1", name: "look", input: { at: 1 } },
            { type: "tool_use", id: "toolu_2", name: "look", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "toolu_1", content: "a wall" },
            { type: "tool_result", tool_use_id: "toolu_2", content: [image] },
            { type: "text", text: "And now?" },
          ],
        },
        { role: "system", content: "Today is Monday." },
        { role: "assistant", content: "It" },
        { role: "user", content: "Go on." },
      ],
      tools: [{ name: "look", description: "Looks.", input_schema: schema }],
      tool_choice: { type: "tool", name: "look", disable_parallel_tool_use: true },
    });
    const input_image = { type: "input_image", image_url: "data:image/png;base64,iVBORw0=" };
    const textOf = (role: string, text: string) => ({
      type: "message",
      role,
      content: [{ type: role === "assistant" ? "output_text" : "input_text", text }],
    });
    expect(body).toEqual({
      model: "provider-name",
      instructions: "Be brief.\nBe kind.",
      input: [
        textOf("user", "Hello"),
        textOf("assistant", "I look."),
        { type: "function_call", call_id: "toolu_1", name: "look", arguments: '{"at":1}' },
        { type: "function_call", call_id: "toolu_2", name: "look", arguments: "{}" },
        { type: "function_call_output", call_id: "toolu_1", output: "a wall" },
        { type: "function_call_output", call_id: "toolu_2", output: [input_image] },
        textOf("user", "And now?"),
        textOf("developer", "Today is Monday."),
        textOf("assistant", "It"),
        textOf("user", "Go on."),
      ],
      max_output_tokens: 100,
      tools: [
        {
          type: "function",
          name: "look",
          description: "Looks.",
          parameters: schema,
          // Absent means true in this format.
          strict: false,
        },
      ],
      tool_choice: { type: "function", name: "look" },
      parallel_tool_calls: false,
      store: false,
      stream: false,
    });
  });

  test("with thinking asks for effort, a summary and the encrypted reasoning", () => {
    const asked = { summary: "auto" };
    const include = ["reasoning.encrypted_content"];
    const thinking = { type: "enabled", budget_tokens: 4_096 };
    expect(ofNative({ max_tokens: 9_000, thinking })).toMatchObject({
      reasoning: { effort: "medium", ...asked },
      include,
    });
    const adaptive = { thinking: { type: "adaptive" }, output_config: { effort: "max" } };
    expect(ofNative(adaptive)).toMatchObject({ reasoning: { effort: "high", ...asked }, include });
    const without = ofNative({ thinking: { type: "disabled" } });
    expect([without.reasoning, without.include]).toEqual([undefined, undefined]);
  });

  test("gets a structured answer", () => {
    const format = { type: "json_schema", schema };
    expect(ofNative({ output_config: { format } }).text).toEqual({
      format: { type: "json_schema", name: "answer", schema },
    });
    const strict = { ...schema, additionalProperties: false, required: ["city"] };
    const asked = { type: "json_schema", schema: strict };
    expect(ofNative({ output_config: { format: asked } }).text).toEqual({
      format: { type: "json_schema", name: "answer", strict: true, schema: strict },
    });
  });

  test("with stop sequences is refused, and top_k is left out", () => {
    expect(() => ofNative({ stop_sequences: ["END"] })).toThrow("stop_sequences");
    expect(ofNative({ top_k: 5 })).not.toHaveProperty("top_k");
  });
});

test("a chat request becomes items, too, and its members reach no provider of this format", () => {
  const body = ofChat({
    messages: [{ role: "developer", content: "Be brief." }, ...hello],
    reasoning_effort: "high",
    metadata: { a: "b" },
    response_format: { type: "json_schema", json_schema: { name: "x", schema } },
    tools: [{ type: "function", function: { name: "f", parameters: schema, strict: true } }],
    tool_choice: "required",
  });
  expect(body).toMatchObject({
    instructions: "Be brief.",
    reasoning: { effort: "high", summary: "auto" },
    text: { format: { type: "json_schema", name: "x", schema } },
    // The schema is not of the form in which a tool can be strict.
    tools: [{ type: "function", name: "f", strict: false }],
    tool_choice: "required",
  });
  expect(body).not.toHaveProperty("metadata");
});

const begun = sseEvent("response.created", { response: { model: "p", status: "in_progress" } });
const failed = (error: JsonObject, usage: JsonObject | null = null) =>
  sseEvent("response.failed", { response: { status: "failed", error, usage } });

const failures: readonly [name: string, stream: string, type: string, message: string][] = [
  [
    "an error event",
    begun + sseEvent("error", { code: "rate_limit_exceeded", message: "Slow down.", param: null }),
    "overloaded_error",
    "Slow down.",
  ],
  [
    "an error event in an older form",
    sseEvent("error", { error: { type: "server_error", message: "Oh." } }),
    "api_error",
    "Oh.",
  ],
  [
    "a failed response",
    begun + failed({ code: "server_error", message: "Oh." }),
    "api_error",
    "Oh.",
  ],
  [
    "a prompt that it refuses",
    begun + failed({ code: "invalid_prompt", message: "No." }),
    "invalid_request_error",
    "No.",
  ],
  [
    "an image that it cannot read",
    begun + failed({ code: "image_too_large", message: "No." }),
    "invalid_request_error",
    "No.",
  ],
  [
    "a prompt that is too long",
    begun + failed({ code: "context_length_exceeded", message: "Too long." }),
    "invalid_request_error",
    "Too long.",
  ],
  ["a stream without its end", begun, "api_error", "ended before it was complete"],
  ["a stream of nothing", "", "api_error", "ended before it was complete"],
  ["an event that is no JSON", `${begun}data: {\n\n`, "unreadable_answer", "not a JSON object"],
  [
    "a call without a name",
    begun +
      sseEvent("response.output_item.added", {
        output_index: 0,
        item: { type: "function_call", call_id: "call_1" },
      }) +
      sseEvent("response.completed", { response: { output: [] } }),
    "unreadable_answer",
    "without a name",
  ],
];

test.each(failures)("%s is a failure", (_, stream, type, message) => {
  const decoder = createEventDecoder();
  const events = [...decoder.push(Buffer.from(stream)), ...decoder.end()];
  const last = events.at(-1)?.kind;
  expect(last).toMatchObject({ case: "failure", value: { type } });
  expect(last?.case === "failure" && last.value.message).toContain(message);
  expect(decoder.push(Buffer.from(begun))).toEqual([]);
});

test("the usage of a failed response is reported, once the answer has begun", () => {
  const usage = { input_tokens: 7, output_tokens: 3 };
  const end = failed({ message: "Oh." }, usage);
  const item = sseEvent("response.output_item.added", { item: { type: "message" } });
  const events = createEventDecoder().push(Buffer.from(begun + item + end));
  // Of the pieces only a client of this format sees anything.
  const answer = events.filter((event) => event.kind.case !== undefined || progressOf(event));
  expect(answer.map(({ kind }) => kind.case)).toEqual(["messageStart", undefined, "failure"]);
  expect(answer.flatMap((event) => progressOf(event) ?? [])).toMatchObject([
    { usage: { inputTokens: 7, outputTokens: 3 } },
  ]);
  // Before its first item it can go to another provider, and costs nothing.
  const early = createEventDecoder().push(Buffer.from(begun + end));
  expect(early.map(({ kind }) => kind.case)).toEqual(["failure"]);
});

test.each([
  ["an error body", { error: { type: "server_error", message: "Oh." } }, "api_error"],
  ["a failed response", { status: "failed", error: null, output: [] }, "api_error"],
  ["a body of another kind", { object: "list", data: [] }, "unreadable_answer"],
])("of plain answers, %s is a failure", (_, body, type) => {
  expect(decodeAnswer(body)).toMatchObject([{ kind: { case: "failure", value: { type } } }]);
});
