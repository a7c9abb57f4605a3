// Answers of providers that speak this format, as events.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { createEventDecoder, decodeAnswer } from "../../../src/formats/chat/chat.ts";
import { chunkOf, streamOf } from "../../support/samples/chat-bodies.ts";

function decode(...values: (JsonValue | "[DONE]")[]): Event[] {
  const decoder = createEventDecoder();
  return [...decoder.push(streamOf(...values)), ...decoder.end()];
}

/** Events in short: what a block starts with, what its deltas say, how the answer ends. */
function told(events: readonly Event[]): unknown[] {
  return events.map(({ kind }) => {
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
/** A fragment without a number and an id. */
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
    name: "text is one block",
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
    name: "reasoning_content is a thinking block before the text",
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
    name: "reasoning is thinking as well, and its details bring the signature without repeating the text",
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
    name: "parallel calls are blocks one after the other",
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
    name: "calls whose fragments come mixed lose nothing",
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
    name: "whole calls that all have number 0 are told apart by their ids",
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
    name: "whole calls without numbers and ids are told apart by their names",
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
    name: "whole calls that all have number 0 and no id are told apart, those of one tool as well",
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
    name: "calls that share one id are told apart, and the later ones get ids of their own",
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
    name: "a call that is said once more as a whole, and blanks after it, are no further calls",
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
    name: "a fragment that is like the one before it belongs to the arguments",
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
    name: "a name that is repeated with every fragment goes on with its call",
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
    name: "arguments may come before the name",
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
    name: "ids that native clients could not use are made fit",
    stream: [calls(call(0, "functions.f:0", "f", "{}")), finish("tool_calls"), "[DONE]"],
    events: [
      "start",
      { at: 0, call: "functions_f_0", name: "f" },
      { inputJson: "{}" },
      "stop 0",
      { end: "tool_use" },
      "done",
    ],
  },
  {
    name: "a call without an id gets one",
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
    name: "a legacy function call is a call",
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
    name: "text after a call is a block of its own",
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
    name: "a refusal is text that ended in a refusal",
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
    name: "other choices are not ours",
    stream: [
      { choices: [{ index: 1, delta: { content: "other" } }] },
      text("a"),
      finish("length"),
      "[DONE]",
    ],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "max_tokens" }, "done"],
  },
  {
    name: "a choice without a number may say so with null",
    stream: [
      { choices: [{ index: null, delta: { content: "a" }, finish_reason: "stop" }] },
      "[DONE]",
    ],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "an empty reasoning_content does not hide the reasoning beside it",
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
    name: "a blank amid the arguments of a call does not end them",
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
    name: "an answer of nothing is an answer",
    stream: [chunkOf({ role: "assistant" }), finish("content_filter"), "[DONE]"],
    events: ["start", { end: "refusal" }, "done"],
  },
  {
    name: "a terminator without a finish reason is an end",
    stream: [text("a"), "[DONE]"],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "a finish reason without a terminator is an end",
    stream: [text("a"), finish("stop")],
    events: ["start", { at: 0, text: "" }, { text: "a" }, "stop 0", { end: "end_turn" }, "done"],
  },
  {
    name: "a stream that breaks off has failed",
    stream: [text("a")],
    events: ["start", { at: 0, text: "" }, { text: "a" }, { failure: "api_error" }],
  },
  { name: "a stream of nothing has failed", stream: [], events: [{ failure: "api_error" }] },
  { name: "a terminator alone has failed", stream: ["[DONE]"], events: [{ failure: "api_error" }] },
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
    name: "an error beside a choice is one",
    stream: [
      {
        error: { code: 429, message: "m" },
        choices: [{ delta: { content: "" }, finish_reason: "error" }],
      },
    ],
    events: [{ failure: "overloaded_error" }],
  },
  { name: "an error as text is one", stream: [{ error: "m" }], events: [{ failure: "api_error" }] },
  {
    name: "the older form of an error is one",
    stream: [{ object: "error", message: "timed out", type: "Timeout", code: 504 }],
    events: [{ failure: "timeout_error" }],
  },
  {
    name: "a finish reason of error is a failure",
    stream: [text("a"), finish("error"), "[DONE]"],
    events: ["start", { at: 0, text: "" }, { text: "a" }, { failure: "api_error" }],
  },
  {
    name: "a call without a name is a failure",
    stream: [
      calls({ index: 0, id: "a", function: { arguments: "{}" } }),
      finish("tool_calls"),
      "[DONE]",
    ],
    events: ["start", { failure: "api_error" }],
  },
  {
    name: "an error that says the request is at fault is told as that",
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
    name: "an error about our account is told as that",
    stream: [{ error: { message: "m", code: "insufficient_quota" } }],
    events: [{ failure: "authentication_error" }],
  },
  {
    name: "an empty finish reason is none",
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
    name: "a call that goes on after other content is a failure, since its block has ended",
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
      { failure: "api_error" },
    ],
  },
  {
    name: "an event that is no object is a failure",
    stream: [[1]],
    events: [{ failure: "api_error" }],
  },
];
for (const { name, stream, events } of streams) {
  test(name, () => {
    expect(told(decode(...stream))).toEqual(events);
  });
}

test("an event that is no JSON is a failure that does not repeat it", () => {
  const events = createEventDecoder().push(Buffer.from("data: <html>secret</html>\n\n"));
  expect(told(events)).toEqual([{ failure: "api_error" }]);
  expect(JSON.stringify(events)).not.toContain("secret");
});

test("an event named error is an error, whatever its data calls itself", () => {
  const events = createEventDecoder().push(
    Buffer.from('event: error\ndata: {"message":"m","status":504}\n\n'),
  );
  expect(told(events)).toEqual([{ failure: "timeout_error" }]);
});

test("the end is held until the usage is known, and told at once then", () => {
  const decoder = createEventDecoder();
  expect(told(decoder.push(streamOf(text("a"), finish("stop"))))).toEqual([
    "start",
    { at: 0, text: "" },
    { text: "a" },
  ]);
  expect(told(decoder.push(streamOf(usageChunk)))).toEqual(["stop 0", { end: "end_turn" }, "done"]);
  expect([...decoder.push(streamOf(text("late"), "[DONE]")), ...decoder.end()]).toEqual([]);
});

test("usage is turned around: cached input is counted apart", () => {
  expect(usageOf(decode(text("a"), finish("stop"), usageChunk, "[DONE]"))).toMatchObject(
    nativeUsage,
  );
});

test("usage in every chunk counts once, the last one", () => {
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

test("more reasoning than output is all of the output", () => {
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
    name: "reasoning that the total counts beside the completion is output as well",
    usage: {
      completion_tokens: 9,
      total_tokens: 135,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 103, thinkingTokens: 94 },
  },
  {
    name: "reasoning that the total counts within the completion is not counted twice",
    usage: {
      completion_tokens: 100,
      total_tokens: 132,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 100, thinkingTokens: 94 },
  },
  {
    name: "a total beyond the reasoning adds no more than the reasoning",
    usage: {
      completion_tokens: 9,
      total_tokens: 999,
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    reported: { outputTokens: 103, thinkingTokens: 94 },
  },
  {
    name: "a total short of the reasoning adds no more than the total",
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

test("usage that makes no sense is not negative", () => {
  const usage = {
    prompt_tokens: 2,
    completion_tokens: -4,
    prompt_tokens_details: { cached_tokens: 9 },
  };
  expect(
    usageOf(decode(text("a"), finish("stop"), { choices: [], usage }, "[DONE]")),
  ).toMatchObject({
    inputTokens: 0,
    outputTokens: 0,
    cacheReadInputTokens: 9,
  });
});

test("without usage there is none", () => {
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

test("a plain answer gives whole blocks, and arguments as the provider wrote them", () => {
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
  expect(told(events)).toEqual([
    "start",
    { at: 0, thinking: "hm", signature: "" },
    "stop 0",
    { at: 1, text: "a" },
    "stop 1",
    { at: 2, call: "c_1", name: "f" },
    { inputJson: '{ "x": 1.0 }' },
    "stop 2",
    { at: 3, call: "d", name: "g" },
    "stop 3",
    { end: "tool_use" },
    "done",
  ]);
  expect(usageOf(events)).toMatchObject(nativeUsage);
});

test("arguments may be an object, and a plain answer's call may lack its id", () => {
  const events = decodeAnswer(
    answerOf({ content: null, tool_calls: [{ function: { name: "f", arguments: { x: 1 } } }] }),
  );
  expect(told(events)).toEqual([
    "start",
    { at: 0, call: expect.stringMatching(/^toolu_/), name: "f" },
    { inputJson: '{"x":1}' },
    "stop 0",
    { end: "tool_use" },
    "done",
  ]);
});

test("calls of a plain answer that share one id are told apart", () => {
  const events = decodeAnswer(
    answerOf({ content: null, tool_calls: [call(0, "a", "f", "{}"), call(1, "a", "g", "{}")] }),
  );
  expect(told(events)).toMatchObject([
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

test("a body that is no answer is a failure", () => {
  expect(told(decodeAnswer({ error: { message: "m", code: 503 } }))).toEqual([
    { failure: "overloaded_error" },
  ]);
  expect(told(decodeAnswer({ choices: [] }))).toEqual([{ failure: "api_error" }]);
  expect(told(decodeAnswer({ hello: 1 }))).toEqual([{ failure: "api_error" }]);
  expect(told(decodeAnswer(answerOf({ tool_calls: [{ id: "a", function: {} }] })))).toEqual([
    { failure: "api_error" },
  ]);
});
