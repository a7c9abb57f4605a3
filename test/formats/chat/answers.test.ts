// Answers in the chat format, plain and streamed.

import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { createEventEncoder, encodeAnswer } from "../../../src/formats/chat/chat.ts";
import { context, eventsOf, readStream } from "../../support/samples/chat-bodies.ts";

type Kind = Parameters<typeof eventsOf>[number];
type Block = NonNullable<NonNullable<Extract<Kind, { case: "blockStart" }>["value"]>["block"]>;

const start = (usage?: object): Kind => ({
  case: "messageStart",
  value: { id: "msg_1", ...(usage && { usage }) },
});
const block = (index: number, kind: Block["kind"]): Kind => ({
  case: "blockStart",
  value: { index, block: { ...(kind && { kind }) } },
});
const textDelta = (index: number, value: string): Kind => ({
  case: "blockDelta",
  value: { index, kind: { case: "text", value } },
});
const thinkingDelta = (index: number, value: string): Kind => ({
  case: "blockDelta",
  value: { index, kind: { case: "thinking", value } },
});
const signatureDelta = (index: number, value: string): Kind => ({
  case: "blockDelta",
  value: { index, kind: { case: "signature", value } },
});
const inputDelta = (index: number, value: string): Kind => ({
  case: "blockDelta",
  value: { index, kind: { case: "inputJson", value } },
});
const stop = (index: number): Kind => ({ case: "blockStop", value: { index } });
const end = (stopReason: string, usage?: object): Kind[] => [
  { case: "messageDelta", value: { stopReason, ...(usage && { usage }) } },
  { case: "messageStop", value: {} },
];
const text = (value: string): Block["kind"] => ({ case: "text", value: { text: value } });
const thinking = (value: string, signature = ""): Block["kind"] => ({
  case: "thinking",
  value: { thinking: value, signature },
});
const call = (id: string, input: JsonObject = {}): Block["kind"] => ({
  case: "toolUse",
  value: { id, name: "f", input },
});

/** An answer with every kind of block, in pieces. */
const rich = eventsOf(
  start({ inputTokens: 10, cacheReadInputTokens: 3, cacheCreationInputTokens: 2, outputTokens: 1 }),
  block(0, thinking("")),
  thinkingDelta(0, "Let me "),
  thinkingDelta(0, "see."),
  signatureDelta(0, "c2ln"),
  stop(0),
  block(1, { case: "redactedThinking", value: { data: "hidden" } }),
  stop(1),
  block(2, text("")),
  textDelta(2, "I "),
  { case: "ping", value: {} },
  textDelta(2, "look."),
  {
    case: "blockDelta",
    value: { index: 2, kind: { case: "other", value: { type: "citations_delta", citation: {} } } },
  },
  stop(2),
  block(3, {
    case: "other",
    value: { type: "server_tool_use", id: "s", name: "web_search", input: {} },
  }),
  inputDelta(3, '{"query":"hidden"}'),
  stop(3),
  block(4, call("toolu_a")),
  inputDelta(4, ""),
  inputDelta(4, '{"b":1,'),
  inputDelta(4, '"a":2}'),
  stop(4),
  { case: "other", value: { type: "novel_event" } },
  block(5, call("toolu_b")),
  stop(5),
  ...end("tool_use", { outputTokens: 9, thinkingTokens: 4 }),
);

const usage = {
  prompt_tokens: 15,
  completion_tokens: 9,
  total_tokens: 24,
  prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2, audio_tokens: 0 },
  completion_tokens_details: {
    reasoning_tokens: 4,
    audio_tokens: 0,
    accepted_prediction_tokens: 0,
    rejected_prediction_tokens: 0,
  },
};

function stream(events: readonly Event[], includeUsage = true) {
  const encoder = createEventEncoder({ ...context, includeUsage });
  return readStream(encoder.encode(events) + encoder.end());
}

/** The deltas of a stream, with the finish reason where there is one. */
function deltasOf(chunks: ReturnType<typeof stream>): unknown[] {
  return chunks.map((chunk) => {
    if (chunk === "[DONE]") return chunk;
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
    if (choice === undefined) return { usage: chunk.usage };
    const { delta, finish_reason: finishReason } = choice as {
      delta: unknown;
      finish_reason: unknown;
    };
    return finishReason === null ? delta : { ...(delta as object), finishReason };
  });
}

test("a plain answer has text, reasoning, calls and usage in the form of chat", () => {
  const answer = encodeAnswer(rich, context);
  expect(answer).toEqual({
    id: expect.stringMatching(/^chatcmpl-[0-9A-Za-z]{24}$/),
    object: "chat.completion",
    created: 1_764_000_000,
    model: "model-sonnet-4.6",
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: "I look.",
          refusal: null,
          reasoning_content: "Let me see.",
          reasoning_details: [{ type: "reasoning.text", text: "Let me see.", signature: "c2ln" }],
          tool_calls: [
            {
              id: "toolu_a",
              type: "function",
              function: { name: "f", arguments: '{"b":1,"a":2}' },
            },
            { id: "toolu_b", type: "function", function: { name: "f", arguments: "{}" } },
          ],
        },
        logprobs: null,
        finish_reason: "tool_calls",
      },
    ],
    usage,
  });
  expect(JSON.stringify(answer)).not.toContain("hidden");
});

test("a stream has role, reasoning, its signature, text, numbered calls, the finish reason, the usage and the terminator", () => {
  expect(deltasOf(stream(rich))).toEqual([
    { role: "assistant" },
    { reasoning_content: "Let me " },
    { reasoning_content: "see." },
    { reasoning_details: [{ type: "reasoning.text", text: "Let me see.", signature: "c2ln" }] },
    { content: "I " },
    { content: "look." },
    {
      tool_calls: [
        { index: 0, id: "toolu_a", type: "function", function: { name: "f", arguments: "" } },
      ],
    },
    { tool_calls: [{ index: 0, function: { arguments: '{"b":1,' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '"a":2}' } }] },
    {
      tool_calls: [
        { index: 1, id: "toolu_b", type: "function", function: { name: "f", arguments: "" } },
      ],
    },
    { tool_calls: [{ index: 1, function: { arguments: "{}" } }] },
    { finishReason: "tool_calls" },
    { usage },
    "[DONE]",
  ]);
});

test("every chunk has the id, time and model of the answer, and a list of choices", () => {
  const chunks = stream(rich).filter((chunk) => chunk !== "[DONE]");
  const [first] = chunks;
  for (const chunk of chunks) {
    expect(chunk).toMatchObject({
      id: first?.id,
      object: "chat.completion.chunk",
      created: 1_764_000_000,
      model: "model-sonnet-4.6",
      choices: expect.any(Array),
    });
  }
});

test("with include_usage, earlier chunks have a null usage; without it, no chunk has one", () => {
  const asked = stream(rich).filter((chunk) => chunk !== "[DONE]");
  expect(asked.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
  const notAsked = stream(rich, false).filter((chunk) => chunk !== "[DONE]");
  expect(notAsked).toHaveLength(asked.length - 1);
  expect(notAsked.some((chunk) => "usage" in chunk)).toBe(false);
});

test("blocks that arrive whole become chunks too", () => {
  const whole = eventsOf(
    start(),
    block(0, thinking("hm", "c2ln")),
    stop(0),
    block(1, text("a\u2028b")),
    stop(1),
    block(2, call("toolu_a", { b: 1, a: [2] })),
    stop(2),
    ...end("tool_use"),
  );
  expect(deltasOf(stream(whole)).slice(0, -3)).toEqual([
    { role: "assistant" },
    { reasoning_content: "hm" },
    { reasoning_details: [{ type: "reasoning.text", text: "hm", signature: "c2ln" }] },
    { content: "a\u2028b" },
    {
      tool_calls: [
        { index: 0, id: "toolu_a", type: "function", function: { name: "f", arguments: "" } },
      ],
    },
    { tool_calls: [{ index: 0, function: { arguments: '{"b":1,"a":[2]}' } }] },
  ]);
  const encoder = createEventEncoder(context);
  expect(encoder.encode(whole)).toContain("a\\u2028b");
});

test("the input of a tool block counts only if no fragments follow", () => {
  const both = eventsOf(
    start(),
    block(0, call("toolu_a", { a: 1 })),
    inputDelta(0, '{"a":1}'),
    stop(0),
    ...end("tool_use"),
  );
  const pieces = JSON.stringify(stream(both)).match(/"arguments":"[^"]/g);
  expect(pieces).toHaveLength(1);
  expect(encodeAnswer(both, context)).toMatchObject({
    choices: [{ message: { tool_calls: [{ function: { arguments: '{"a":1}' } }] } }],
  });
});

test("thinking without text keeps its signature", () => {
  const omitted = eventsOf(
    start(),
    block(0, thinking("")),
    signatureDelta(0, "c2ln"),
    stop(0),
    block(1, text("a")),
    stop(1),
    ...end("end_turn"),
  );
  expect(deltasOf(stream(omitted))).toContainEqual({
    reasoning_details: [{ type: "reasoning.text", text: "", signature: "c2ln" }],
  });
  const answer = encodeAnswer(omitted, context);
  expect(JSON.stringify(answer)).not.toContain("reasoning_content");
});

test("without text, content is null beside calls and empty otherwise", () => {
  expect(
    encodeAnswer(eventsOf(start(), block(0, call("a")), stop(0), ...end("tool_use")), context),
  ).toMatchObject({
    choices: [{ message: { content: null } }],
  });
  const nothing = encodeAnswer(eventsOf(start(), ...end("end_turn")), context);
  expect(nothing).toMatchObject({ choices: [{ message: { content: "" } }] });
  expect(JSON.stringify(nothing)).not.toContain("tool_calls");
});

const finishes = [
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["pause_turn", "stop"],
  ["compaction", "stop"],
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
  ["constructor", "stop"],
] as const;
for (const [stopReason, finishReason] of finishes) {
  test(`the stop reason ${stopReason} becomes ${finishReason}`, () => {
    const events = eventsOf(start(), ...end(stopReason));
    expect(encodeAnswer(events, context)).toMatchObject({
      choices: [{ finish_reason: finishReason }],
    });
    expect(deltasOf(stream(events))).toContainEqual({ finishReason });
  });
}

test("later usage replaces earlier usage member by member", () => {
  const events = eventsOf(
    start({ inputTokens: 10, outputTokens: 1 }),
    { case: "messageDelta", value: { usage: { outputTokens: 3 } } },
    ...end("end_turn", { inputTokens: 12, outputTokens: 5 }),
  );
  expect(encodeAnswer(events, context).usage).toMatchObject({
    prompt_tokens: 12,
    completion_tokens: 5,
    total_tokens: 17,
  });
});

test("the estimate replaces an input that the provider did not report", () => {
  expect(encodeAnswer(eventsOf(start(), ...end("end_turn")), context).usage).toMatchObject({
    prompt_tokens: 7,
    completion_tokens: 0,
  });
});

test("a ping is a comment", () => {
  const encoder = createEventEncoder(context);
  expect(encoder.ping()).toBe(": keep-alive\n\n");
  expect(encoder.encode(eventsOf({ case: "ping", value: {} }))).toBe(": keep-alive\n\n");
});

test("nothing follows a failure in a stream", () => {
  const encoder = createEventEncoder(context);
  encoder.encode(eventsOf(start(), block(0, text("")), textDelta(0, "a")));
  const problem = {
    error: { message: "m", type: "server_error", param: null, code: "overloaded" },
  };
  expect(encoder.failure(problem)).toBe(`data: ${JSON.stringify(problem)}\n\n`);
  expect(encoder.encode(eventsOf(textDelta(0, "b"), ...end("end_turn"))) + encoder.end()).toBe("");
});

test("events without message and block starts are encoded as far as possible", () => {
  expect(deltasOf(stream(eventsOf(block(0, text("a")))))).toEqual([
    { role: "assistant" },
    { content: "a" },
    { finishReason: "stop" },
    expect.anything(),
    "[DONE]",
  ]);
  expect(stream([])).toHaveLength(4);
});
