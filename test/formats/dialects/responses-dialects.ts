// Answers of providers and servers with the Responses API. Sources of the shapes: OpenAI's API
// reference and SDK types, and the servers of vLLM, Ollama, llama.cpp and OpenRouter.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Dialect, Meaning } from "./dialect.ts";

const input = { city: "Paris" };
const argumentsText = '{"city":"Paris"}';
const usage = {
  input_tokens: 20,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 8,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 28,
};
const reasoned = { ...usage, output_tokens_details: { reasoning_tokens: 3 } };

const said: Meaning = { text: "Hello you", stop: "end_turn", usage: { input: 20, output: 8 } };
const called: Meaning = {
  calls: [{ name: "get_weather", input }],
  stop: "tool_use",
  usage: { input: 20, output: 8 },
};
const thought: Meaning = {
  thinking: "Let me see.",
  text: "Hello you",
  stop: "end_turn",
  usage: { input: 20, output: 8, thinking: 3 },
};

function whole(output: JsonObject[], more: JsonObject = {}): JsonObject {
  return {
    id: "resp_1",
    object: "response",
    created_at: 1_764_000_000,
    status: "completed",
    model: "provider-model",
    error: null,
    incomplete_details: null,
    output,
    usage,
    ...more,
  };
}

const event = (type: string, members: JsonObject): JsonObject => ({ type, ...members });
const begun = event("response.created", {
  response: whole([], { status: "in_progress", usage: null }),
});
const done = (output: JsonObject[], more: JsonObject = {}) =>
  event("response.completed", { response: whole(output, more) });

const part = { type: "output_text", text: "Hello you", annotations: [] };
const message = { id: "msg_1", type: "message", role: "assistant", content: [part] };
const messageStart = event("response.output_item.added", {
  output_index: 0,
  item: { ...message, content: [] },
});
const hello = ["Hello ", "you"].map((delta) =>
  event("response.output_text.delta", { output_index: 0, content_index: 0, delta }),
);
const call = (id: string, text = argumentsText): JsonObject => ({
  id: `fc_${id}`,
  type: "function_call",
  call_id: `call_${id}`,
  name: "get_weather",
  arguments: text,
});
const reasoning = (members: JsonObject): JsonObject => ({
  id: "rs_1",
  type: "reasoning",
  summary: [],
  ...members,
});
const second = { output_index: 1, content_index: 0 };

export const responsesDialects: readonly Dialect[] = [
  {
    name: "OpenAI, Responses",
    whole: whole([message], { usage: { ...usage, input_tokens_details: { cached_tokens: 12 } } }),
    stream: [
      begun,
      messageStart,
      event("response.content_part.added", { ...second, output_index: 0, part }),
      ...hello.map((delta) => ({ ...delta, logprobs: [], obfuscation: "x1" })),
      event("response.output_text.done", { output_index: 0, content_index: 0, text: "Hello you" }),
      event("response.output_item.done", { output_index: 0, item: message }),
      done([message], { usage: { ...usage, input_tokens_details: { cached_tokens: 12 } } }),
    ],
    meaning: { ...said, usage: { input: 8, output: 8, cacheRead: 12 } },
  },
  {
    name: "OpenAI, summary in two parts",
    whole: whole(
      [
        reasoning({
          summary: [
            { type: "summary_text", text: "Let me" },
            { type: "summary_text", text: "see." },
          ],
          encrypted_content: "gAAAAA",
        }),
        message,
      ],
      { usage: reasoned },
    ),
    stream: [
      begun,
      event("response.output_item.added", { output_index: 0, item: reasoning({}) }),
      ...["Let me", "see."].flatMap((delta, summary_index) => [
        event("response.reasoning_summary_part.added", { output_index: 0, summary_index }),
        event("response.reasoning_summary_text.delta", { output_index: 0, summary_index, delta }),
      ]),
      event("response.output_item.done", {
        output_index: 0,
        item: reasoning({ encrypted_content: "gAAAAA" }),
      }),
      event("response.output_item.added", { output_index: 1, item: { ...message, content: [] } }),
      event("response.output_text.delta", { ...second, delta: "Hello you" }),
      event("response.output_item.done", { output_index: 1, item: message }),
      done([], { usage: reasoned }),
    ],
    meaning: { ...thought, thinking: "Let me\n\nsee." },
  },
  {
    name: "OpenAI, two calls at once",
    whole: whole([call("1"), call("2")]),
    stream: [
      begun,
      event("response.output_item.added", { output_index: 0, item: call("1", "") }),
      event("response.output_item.added", { output_index: 1, item: call("2", "") }),
      event("response.function_call_arguments.delta", { output_index: 0, delta: '{"city":' }),
      event("response.function_call_arguments.delta", { output_index: 1, delta: '{"city":' }),
      event("response.function_call_arguments.delta", { output_index: 0, delta: '"Paris"}' }),
      event("response.function_call_arguments.delta", { output_index: 1, delta: '"Paris"}' }),
      event("response.output_item.done", { output_index: 0, item: call("1") }),
      event("response.output_item.done", { output_index: 1, item: call("2") }),
      done([call("1"), call("2")]),
    ],
    meaning: { ...called, calls: [...(called.calls ?? []), ...(called.calls ?? [])] },
  },
  {
    name: "OpenAI, refusal, Responses",
    whole: whole([{ ...message, content: [{ type: "refusal", refusal: "I cannot." }] }]),
    stream: [
      begun,
      messageStart,
      event("response.refusal.delta", { output_index: 0, content_index: 0, delta: "I cannot." }),
      event("response.refusal.done", { output_index: 0, content_index: 0, refusal: "I cannot." }),
      done([]),
    ],
    meaning: { ...said, text: "I cannot.", stop: "refusal" },
  },
  {
    name: "OpenAI, cut off",
    whole: whole([message], {
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
    }),
    stream: [
      begun,
      messageStart,
      ...hello,
      event("response.incomplete", {
        response: whole([message], {
          status: "incomplete",
          incomplete_details: { reason: "max_output_tokens" },
        }),
      }),
    ],
    meaning: { ...said, stop: "max_tokens" },
  },
  {
    name: "vLLM, reasoning text",
    whole: whole(
      [reasoning({ content: [{ type: "reasoning_text", text: "Let me see." }] }), message],
      { usage: reasoned },
    ),
    stream: [
      begun,
      event("response.output_item.added", { output_index: 0, item: reasoning({}) }),
      event("response.reasoning_text.delta", { output_index: 0, delta: "Let me " }),
      event("response.reasoning_text.delta", { output_index: 0, delta: "see." }),
      event("response.output_item.done", {
        output_index: 0,
        item: reasoning({ content: [{ type: "reasoning_text", text: "Let me see." }] }),
      }),
      event("response.output_item.added", { output_index: 1, item: { ...message, content: [] } }),
      event("response.output_text.delta", { ...second, delta: "Hello you" }),
      done([], { usage: reasoned }),
      "data: [DONE]",
    ],
    meaning: thought,
  },
  {
    name: "a server without deltas of arguments",
    whole: whole([call("1")]),
    stream: [
      ": OPENROUTER PROCESSING",
      begun,
      event("response.output_item.added", { output_index: 0, item: call("1", "") }),
      event("response.function_call_arguments.done", {
        output_index: 0,
        arguments: argumentsText,
      }),
      event("response.output_item.done", { output_index: 0, item: call("1") }),
      done([call("1")]),
    ],
    meaning: called,
  },
  {
    name: "a server that announces no items",
    whole: whole([call("1")]),
    stream: [
      begun,
      event("response.function_call_arguments.delta", { output_index: 0, delta: '{"city":' }),
      event("response.output_item.done", { output_index: 0, item: call("1") }),
      done([call("1")]),
    ],
    meaning: called,
  },
  {
    name: "a server that sends nothing but the end",
    whole: whole([message, call("1")]),
    stream: [done([message, call("1")])],
    meaning: { ...called, text: "Hello you" },
  },
];
