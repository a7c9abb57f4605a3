// Answers of providers that use the chat format, decoded to events.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { createEventDecoder, decodeAnswer, encodeAnswer } from "../../../src/formats/chat/chat.ts";
import { progressOf } from "../../../src/formats/events.ts";
import { chunkOf, context, streamOf } from "../../support/samples/chat-bodies.ts";

function decode(...values: (JsonValue | "[DONE]")[]): Event[] {
  const decoder = createEventDecoder();
  return [...decoder.push(streamOf(...values)), ...decoder.end()];
}

/**
 * A short form of events: the start of each block, the values of deltas, the end. Reports ahead of
 * the end are no part of the answer, and pieces are for clients of this format.
 */
function summarise(events: readonly Event[]): unknown[] {
  const answer = events.filter(({ kind }) => kind.case !== undefined);
  return answer.map(({ kind }) => {
    switch (kind.case) {
      case "messageStart":
        return "start";
      case "blockStart": {
        const block = kind.value.block?.kind;
        if (block?.case === "toolUse")
          return { at: kind.value.index, call: block.value.id, name: block.value.name };
        if (block?.case === "text") return { at: kind.value.index, text: block.value.text };
        if (block?.case === "thinking")
          return {
            at: kind.value.index,
            thinking: block.value.thinking,
            signature: block.value.signature,
          };
        return block?.case;
      }
      case "blockDelta":
        return { [kind.value.kind.case ?? "none"]: kind.value.kind.value };
      case "blockStop":
        return `stop ${kind.value.index}`;
      case "messageDelta":
        return { end: kind.value.stopReason };
      case "messageStop":
        return "done";
      case "failure":
        return { failure: kind.value.type };
      default:
        return kind.case;
    }
  });
}

function usageOf(events: readonly Event[]): unknown {
  const delta = events.find(({ kind }) => kind.case === "messageDelta")?.kind;
  return delta?.case === "messageDelta" ? delta.value.usage : undefined;
}

const call = (index: number, id: string, name: string, given = ""): JsonObject => ({
  index,
  id,
  type: "function",
  function: { name, arguments: given },
});
const more = (index: number, given: string): JsonObject => ({
  index,
  function: { arguments: given },
});
/** A fragment of a call without a number and an id. */
const bare = (name: string, given: string): JsonObject => ({
  function: { name, arguments: given },
});
const mintedId = /^toolu_\w{24}$/;
const calls = (...fragments: JsonObject[]): JsonObject => chunkOf({ tool_calls: fragments });
const text = (content: string): JsonObject => chunkOf({ content });
const finish = (reason: string): JsonObject => chunkOf({}, reason);
const usageChunk: JsonObject = {
  choices: [],
  usage: {
    prompt_tokens: 15,
    completion_tokens: 5,
    total_tokens: 20,
    prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2 },
    completion_tokens_details: { reasoning_tokens: 4 },
  },
};
const nativeUsage = {
  inputTokens: 10,
  outputTokens: 5,
  cacheReadInputTokens: 3,
  cacheCreationInputTokens: 2,
  thinkingTokens: 4,
};

const streams: { name: string; stream: (JsonValue | "[DONE]")[]; events: unknown[] }[] = [
  {
    name: "text becomes one block",
    stream: [
      chunkOf({ role: "assistant", content: "" }),
      text("Hel"),
      text("lo"),
      finish("stop"),
      usageChunk,
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, text: "" },
      { text: "Hel" },
      { text: "lo" },
      "stop 0",
      { end: "end_turn" },
      "done",
    ],
  },
  {
    name: "reasoning_content becomes a thinking block before the text",
    stream: [
      chunkOf({ reasoning_content: "h" }),
      chunkOf({ reasoning_content: "m", content: null }),
      text("a"),
      finish("stop"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, thinking: "", signature: "" },
      { thinking: "h" },
      { thinking: "m" },
      "stop 0",
      { at: 1, text: "" },
      { text: "a" },
      "stop 1",
      { end: "end_turn" },
      "done",
    ],
  },
  {
    name: "reasoning becomes thinking too, and of its details only the signature counts",
    stream: [
      chunkOf({ reasoning: "hm", reasoning_details: [{ type: "reasoning.text", text: "hm" }] }),
      chunkOf({
        reasoning: null,
        reasoning_details: [{ type: "reasoning.text", signature: "c2ln" }],
      }),
      text("a"),
      finish("stop"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, thinking: "", signature: "" },
      { thinking: "hm" },
      { signature: "c2ln" },
      "stop 0",
      { at: 1, text: "" },
      { text: "a" },
      "stop 1",
      { end: "end_turn" },
      "done",
    ],
  },
  {
    name: "parallel calls become consecutive blocks",
    stream: [
      calls(call(0, "a", "f")),
      calls(more(0, '{"x"')),
      calls(more(0, ":1}")),
      calls(call(1, "b", "g")),
      calls(more(1, "{}")),
      finish("tool_calls"),
      usageChunk,
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x"' },
      { inputJson: ":1}" },
      "stop 0",
      { at: 1, call: "b", name: "g" },
      { inputJson: "{}" },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "interleaved fragments of calls lose nothing",
    stream: [
      calls(call(0, "a", "f"), call(1, "b", "g")),
      calls(more(1, '{"y"'), more(0, '{"x"')),
      calls(more(0, ":1}")),
      calls(more(1, ":2}")),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x"' },
      { inputJson: ":1}" },
      "stop 0",
      { at: 1, call: "b", name: "g" },
      { inputJson: '{"y":2}' },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "whole calls that all have the number 0 are distinguished by their ids",
    stream: [
      calls(call(0, "a", "f", "{}")),
      calls(call(0, "b", "f", '{"x":1}')),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: "{}" },
      "stop 0",
      { at: 1, call: "b", name: "f" },
      { inputJson: '{"x":1}' },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "whole calls without numbers and ids are distinguished by their names",
    stream: [calls(bare("f", '{"x":1}'), bare("g", '{"y":2}')), finish("tool_calls"), "[DONE]"],
    events: [
      "start",
      { at: 0, call: expect.stringMatching(mintedId), name: "f" },
      { inputJson: '{"x":1}' },
      "stop 0",
      { at: 1, call: expect.stringMatching(mintedId), name: "g" },
      { inputJson: '{"y":2}' },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "whole calls that all have the number 0 and no id are distinguished, even those of one tool",
    stream: [
      calls({ index: 0, ...bare("f", '{"x":1}') }),
      calls({ index: 0, ...bare("f", '{"x":2}') }),
      calls({ index: 0, ...bare("g", "{}") }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: expect.stringMatching(mintedId), name: "f" },
      { inputJson: '{"x":1}' },
      "stop 0",
      { at: 1, call: expect.stringMatching(mintedId), name: "f" },
      { inputJson: '{"x":2}' },
      "stop 1",
      { at: 2, call: expect.stringMatching(mintedId), name: "g" },
      { inputJson: "{}" },
      "stop 2",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "calls with the same id are distinguished, and the later ones get new ids",
    stream: [
      calls(call(0, "a", "f", '{"x":1}')),
      calls(call(0, "a", "f", '{"x":2}')),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":1}' },
      "stop 0",
      { at: 1, call: expect.stringMatching(mintedId), name: "f" },
      { inputJson: '{"x":2}' },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a fragment without a number goes to the latest call of its id",
    stream: [
      calls({ id: "a", ...bare("f", '{"x":1}') }),
      calls({ id: "a", ...bare("g", '{"y":') }),
      calls({ id: "a", function: { arguments: "2}" } }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":1}' },
      "stop 0",
      { at: 1, call: expect.stringMatching(mintedId), name: "g" },
      { inputJson: '{"y":' },
      { inputJson: "2}" },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a repeated whole call, and blank text after it, add no call",
    stream: [
      calls(call(0, "a", "f", "")),
      calls({ index: 0, function: { arguments: '{"x":1}' } }),
      calls(call(0, "a", "f", '{"x":1}')),
      calls({ index: 0, ...bare("f", "\n") }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":1}' },
      { inputJson: "\n" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a fragment that equals the one before it belongs to the arguments",
    stream: [
      calls(call(0, "a", "f", '{"x":')),
      calls(call(0, "a", "f", '{"x":')),
      calls(call(0, "a", "f", "1}}")),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":' },
      { inputJson: '{"x":' },
      { inputJson: "1}}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a name that is repeated in every fragment continues its call",
    stream: [
      calls({ index: 0, ...bare("f", "") }),
      calls({ index: 0, ...bare("f", '{"x"') }),
      calls({ index: 0, ...bare("f", ":1}") }),
      calls({ index: 0, ...bare("f", "") }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: expect.stringMatching(mintedId), name: "f" },
      { inputJson: '{"x"' },
      { inputJson: ":1}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "null in place of arguments is none, and a piece of them among others",
    stream: [
      calls({ index: 0, id: "a", ...bare("f", "null") }),
      calls({ index: 0, function: { arguments: '{"x":' } }),
      calls({ index: 0, function: { arguments: "null" } }),
      calls({ index: 0, function: { arguments: "}" } }),
      calls({ index: 0, function: { arguments: "null" } }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":' },
      { inputJson: "null" },
      { inputJson: "}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "arguments may arrive before the name",
    stream: [
      calls({ index: 0, id: "a", function: { arguments: '{"x"' } }),
      calls({ index: 0, function: { name: "f", arguments: ":1}" } }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x":1}' },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "ids stay as they came",
    stream: [calls(call(0, "functions.f:0", "f", "{}")), finish("tool_calls"), "[DONE]"],
    events: [
      "start",
      { at: 0, call: "functions.f:0", name: "f" },
      { inputJson: "{}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a call without an id gets a new one",
    stream: [calls({ function: { name: "f", arguments: "{}" } }), finish("stop"), "[DONE]"],
    events: [
      "start",
      { at: 0, call: expect.stringMatching(/^toolu_\w{24}$/), name: "f" },
      { inputJson: "{}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a legacy function call becomes a call",
    stream: [
      chunkOf({ function_call: { name: "f", arguments: "" } }),
      chunkOf({ function_call: { arguments: "{}" } }),
      finish("function_call"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: expect.any(String), name: "f" },
      { inputJson: "{}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "text after a call becomes a block of its own",
    stream: [text("a"), calls(call(0, "c", "f", "{}")), text("b"), finish("stop"), "[DONE]"],
    events: [
      "start",
      { at: 0, text: "" },
      { text: "a" },
      "stop 0",
      { at: 1, call: "c", name: "f" },
      { inputJson: "{}" },
      "stop 1",
      { at: 2, text: "" },
      { text: "b" },
      "stop 2",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a refusal becomes text, and the stop reason is a refusal",
    stream: [chunkOf({ refusal: "I won't." }), finish("stop"), "[DONE]"],
    events: [
      "start",
      { at: 0, text: "" },
      { text: "I won't." },
      "stop 0",
      { end: "refusal" },
      "done",
    ],
  },
  {
    name: "choices after the first are ignored",
    stream: [
      { choices: [{ index: 1, delta: { content: "other" } }] },
      text("a"),
      finish("length"),
      "[DONE]",
    ],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "max_tokens" }, "done"],
  },
  {
    name: "the number of a choice may be null",
    stream: [
      { choices: [{ index: null, delta: { content: "a" }, finish_reason: "stop" }] },
      "[DONE]",
    ],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "an empty reasoning_content does not replace reasoning beside it",
    stream: [chunkOf({ reasoning_content: "", reasoning: "hm" }), finish("stop"), "[DONE]"],
    events: [
      "start",
      { at: 0, thinking: "", signature: "" },
      { thinking: "hm" },
      "stop 0",
      { end: "end_turn" },
      "done",
    ],
  },
  {
    name: "blank text between the arguments of a call does not end them",
    stream: [
      calls(call(0, "a", "f", '{"x"')),
      chunkOf({ content: "\n", tool_calls: [more(0, ":1}")] }),
      text("b"),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x"' },
      { inputJson: ":1}" },
      "stop 0",
      { at: 1, text: "" },
      { text: "b" },
      "stop 1",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "an empty answer is valid",
    stream: [chunkOf({ role: "assistant" }), finish("content_filter"), "[DONE]"],
    events: ["start", { end: "refusal" }, "done"],
  },
  {
    name: "a terminator without a finish reason ends the answer",
    stream: [text("a"), "[DONE]"],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "a finish reason without a terminator ends the answer",
    stream: [text("a"), finish("stop")],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "a stream that breaks off becomes a failure",
    stream: [text("a")],
    events: ["start", { at: 0, text: "" }, { text: "a" }, { failure: "api_error" }],
  },
  { name: "an empty stream becomes a failure", stream: [], events: [{ failure: "api_error" }] },
  {
    name: "a terminator alone becomes a failure",
    stream: ["[DONE]"],
    events: [{ failure: "api_error" }],
  },
  {
    name: "an error object ends the answer",
    stream: [
      text("a"),
      { error: { message: "m", type: "server_error" } },
      text("b"),
      finish("stop"),
      "[DONE]",
    ],
    events: ["start", { at: 0, text: "" }, { text: "a" }, { failure: "api_error" }],
  },
  {
    name: "an error beside a choice ends the answer",
    stream: [
      {
        error: { code: 429, message: "m" },
        choices: [{ delta: { content: "" }, finish_reason: "error" }],
      },
    ],
    events: [{ failure: "overloaded_error" }],
  },
  {
    name: "an error may be a string",
    stream: [{ error: "m" }],
    events: [{ failure: "api_error" }],
  },
  {
    name: "an error may have the older form",
    stream: [{ object: "error", message: "timed out", type: "Timeout", code: 504 }],
    events: [{ failure: "timeout_error" }],
  },
  {
    name: "the finish reason error becomes a failure",
    stream: [text("a"), finish("error"), "[DONE]"],
    events: ["start", { at: 0, text: "" }, { text: "a" }, { failure: "api_error" }],
  },
  {
    name: "a call without a name becomes a failure",
    stream: [
      calls({ index: 0, id: "a", function: { arguments: "{}" } }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: ["start", { failure: "unreadable_answer" }],
  },
  {
    name: "an error about the request has the type of such errors",
    stream: [
      {
        error: {
          message: "maximum context length is 8 tokens",
          type: "BadRequestError",
          code: 400,
        },
      },
    ],
    events: [{ failure: "invalid_request_error" }],
  },
  {
    name: "an error about our account has the type of such errors",
    stream: [{ error: { message: "m", code: "insufficient_quota" } }],
    events: [{ failure: "authentication_error" }],
  },
  {
    name: "an empty finish reason is ignored",
    stream: [
      { ...chunkOf({ content: "a" }, ""), usage: { prompt_tokens: 1 } },
      { ...chunkOf({ content: "b" }, ""), usage: { prompt_tokens: 1 } },
      finish("stop"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, text: "" },
      { text: "a" },
      { text: "b" },
      "stop 0",
      { end: "end_turn" },
      "done",
    ],
  },
  {
    name: "a call that continues after other content becomes a failure, because its block has ended",
    stream: [
      calls(call(0, "a", "f", '{"x"')),
      text("by the way"),
      calls(more(0, ":1}")),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: [
      "start",
      { at: 0, call: "a", name: "f" },
      { inputJson: '{"x"' },
      "stop 0",
      { at: 1, text: "" },
      { text: "by the way" },
      { failure: "unreadable_answer" },
    ],
  },
  {
    name: "an event that is not an object becomes a failure",
    stream: [[1]],
    events: [{ failure: "unreadable_answer" }],
  },
];
for (const { name, stream, events } of streams) {
  test(name, () => {
    expect(summarise(decode(...stream))).toEqual(events);
  });
}

test("an event that is not JSON becomes a failure that does not repeat it", () => {
  const events = createEventDecoder().push(Buffer.from("data: <html>secret</html>\n\n"));
  expect(summarise(events)).toEqual([{ failure: "unreadable_answer" }]);
  expect(JSON.stringify(events)).not.toContain("secret");
});

test("an event with the name error is an error, with data of any type", () => {
  const events = createEventDecoder().push(
    Buffer.from('event: error\ndata: {"message":"m","status":504}\n\n'),
  );
  expect(summarise(events)).toEqual([{ failure: "timeout_error" }]);
});

test("usage with every chunk, and a stop reason before its usage, are reported at once", () => {
  const decoder = createEventDecoder();
  const usage = (completion: number) => ({
    usage: { prompt_tokens: 5, completion_tokens: completion },
  });
  const reportsOf = (...chunks: JsonObject[]) =>
    decoder.push(streamOf(...chunks)).flatMap((event) => progressOf(event) ?? []);
  expect(reportsOf({ ...text("a"), ...usage(1) })).toMatchObject([{ usage: { outputTokens: 1 } }]);
  expect(reportsOf({ ...text("b"), ...usage(2) })).toMatchObject([{ usage: { outputTokens: 2 } }]);
  expect(reportsOf(finish("length"))).toMatchObject([{ stopReason: "max_tokens" }]);
  expect(reportsOf(usageChunk)).toEqual([]);
});

test("the end waits for the usage, and follows it at once", () => {
  const decoder = createEventDecoder();
  expect(summarise(decoder.push(streamOf(text("a"), finish("stop"))))).toEqual([
    "start",
    { at: 0, text: "" },
    { text: "a" },
  ]);
  expect(summarise(decoder.push(streamOf(usageChunk)))).toEqual([
    "stop 0",
    { end: "end_turn" },
    "done",
  ]);
  expect([...decoder.push(streamOf(text("late"), "[DONE]")), ...decoder.end()]).toEqual([]);
});

test("cached input is counted apart from the input", () => {
  expect(usageOf(decode(text("a"), finish("stop"), usageChunk, "[DONE]"))).toMatchObject(
    nativeUsage,
  );
});

test("of the usages in every chunk, only the last one counts", () => {
  const usage = (completion: number) => ({ prompt_tokens: 4, completion_tokens: completion });
  const events = decode(
    { ...text("a"), usage: usage(1) },
    { ...finish("stop"), usage: usage(2) },
    { choices: [], usage: usage(2) },
    "[DONE]",
  );
  expect(usageOf(events)).toMatchObject({ inputTokens: 4, outputTokens: 2 });
  expect(
    usageOf(decode(text("a"), { ...finish("stop"), usage: usage(3) }, "[DONE]")),
  ).toMatchObject({ outputTokens: 3 });
});

test("reasoning is at most the output", () => {
  const usage = {
    prompt_tokens: 2,
    completion_tokens: 4,
    completion_tokens_details: { reasoning_tokens: 9 },
  };
  const reported = usageOf(decode(text("a"), finish("stop"), { choices: [], usage }, "[DONE]"));
  expect(reported).toMatchObject({ outputTokens: 4, thinkingTokens: 4 });
});

const apart: { name: string; usage: JsonObject; reported: object }[] = [
  {
    name: "reasoning that only the total includes is added to the output",
    usage: {
      completion_tokens: 9,
      total_tokens: 135,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 103, thinkingTokens: 94 },
  },
  {
    name: "reasoning that the completion includes is not counted twice",
    usage: {
      completion_tokens: 100,
      total_tokens: 132,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 100, thinkingTokens: 94 },
  },
  {
    name: "a large total adds no more than the reasoning",
    usage: {
      completion_tokens: 9,
      total_tokens: 999,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 103, thinkingTokens: 94 },
  },
  {
    name: "a small total adds no more than the total",
    usage: {
      completion_tokens: 9,
      total_tokens: 51,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 19, thinkingTokens: 19 },
  },
  {
    name: "a total without reasoning adds nothing",
    usage: { completion_tokens: 9, total_tokens: 135 },
    reported: { outputTokens: 9 },
  },
];
for (const { name, usage, reported } of apart) {
  test(name, () => {
    const events = decode(
      text("a"),
      finish("stop"),
      { choices: [], usage: { prompt_tokens: 32, ...usage } },
      "[DONE]",
    );
    expect(usageOf(events)).toMatchObject(reported);
  });
}

test("usage that makes no sense is no report, and no cache read exceeds the input", () => {
  const usage = {
    prompt_tokens: 2,
    completion_tokens: -4,
    prompt_tokens_details: { cached_tokens: 9 },
  };
  const reported = usageOf(decode(text("a"), finish("stop"), { choices: [], usage }, "[DONE]"));
  expect(reported).toMatchObject({ inputTokens: 0, cacheReadInputTokens: 2 });
  expect(reported).not.toHaveProperty("outputTokens");
});

test("an absent usage stays absent", () => {
  expect(
    usageOf(decode(text("a"), finish("stop"), { choices: [], usage: null }, "[DONE]")),
  ).toBeUndefined();
});

const answerOf = (message: JsonObject, finishReason = "stop"): JsonObject => ({
  id: "chatcmpl-1",
  model: "m",
  choices: [{ index: 0, message, finish_reason: finishReason }],
  usage: usageChunk.usage ?? null,
});

test("a plain answer becomes blocks, with the text of the arguments unchanged", () => {
  const message = {
    role: "assistant",
    content: "a",
    reasoning_content: "hm",
    tool_calls: [
      call(0, "c.1", "f", '{ "x": 1.0 }'),
      { id: "d", type: "function", function: { name: "g", arguments: "" } },
    ],
  };
  const events = decodeAnswer(answerOf(message, "tool_calls"));
  expect(summarise(events)).toEqual([
    "start",
    { at: 0, thinking: "", signature: "" },
    { thinking: "hm" },
    "stop 0",
    { at: 1, text: "" },
    { text: "a" },
    "stop 1",
    { at: 2, call: "c.1", name: "f" },
    { inputJson: '{ "x": 1.0 }' },
    "stop 2",
    { at: 3, call: "d", name: "g" },
    "stop 3",
    { end: "tool_use" },
    "done",
  ]);
  expect(usageOf(events)).toMatchObject(nativeUsage);
});

test("in a plain answer, arguments may be an object and the id may be absent", () => {
  const events = decodeAnswer(
    answerOf({ content: null, tool_calls: [{ function: { name: "f", arguments: { x: 1 } } }] }),
  );
  expect(summarise(events)).toEqual([
    "start",
    { at: 0, call: expect.stringMatching(/^toolu_/), name: "f" },
    { inputJson: '{"x":1}' },
    "stop 0",
    { end: "tool_use" },
    "done",
  ]);
});

test("calls of a plain answer with the same id are distinguished", () => {
  const events = decodeAnswer(
    answerOf({ content: null, tool_calls: [call(0, "a", "f", "{}"), call(1, "a", "g", "{}")] }),
  );
  expect(summarise(events)).toMatchObject([
    "start",
    { call: "a" },
    {},
    "stop 0",
    { call: expect.stringMatching(mintedId) },
    {},
    "stop 1",
    { end: "tool_use" },
    "done",
  ]);
});

test("a body that is not an answer becomes a failure", () => {
  expect(summarise(decodeAnswer({ error: { message: "m", code: 503 } }))).toEqual([
    { failure: "overloaded_error" },
  ]);
  expect(summarise(decodeAnswer({ choices: [] }))).toEqual([{ failure: "unreadable_answer" }]);
  expect(summarise(decodeAnswer({ hello: 1 }))).toEqual([{ failure: "unreadable_answer" }]);
  expect(summarise(decodeAnswer(answerOf({ tool_calls: [{ id: "a", function: {} }] })))).toEqual([
    { failure: "unreadable_answer" },
  ]);
});

test("a provider's stop beside calls stays one for clients of this format", () => {
  const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } };
  const usage = { prompt_tokens: 1, completion_tokens: 1 };
  const message = { role: "assistant", content: null, tool_calls: [call] };
  const plain = decodeAnswer({ choices: [{ index: 0, message, finish_reason: "stop" }], usage });
  expect(encodeAnswer(plain, context).choices).toMatchObject([
    { finish_reason: "stop", message: { tool_calls: [call] } },
  ]);
  // Native clients run tools after this reason alone.
  const reasons = plain.map(({ kind }) =>
    kind.case === "messageDelta" ? kind.value.stopReason : undefined,
  );
  expect(reasons).toContain("tool_use");
});
