// Answers of providers and servers with the native messages API. Sources of the shapes: the
// vendor's API reference, and public clients and servers that speak the format on other platforms
// (Bedrock, Vertex, DeepSeek, Moonshot, Z.ai, LiteLLM, vLLM, llama.cpp, Ollama).

import type { JsonObject } from "@bufbuild/protobuf";
import type { Dialect, Meaning } from "./dialect.ts";

const input = { city: "Paris" };
const usage = { input_tokens: 20, output_tokens: 8 };
const cached = {
  input_tokens: 8,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 12,
  output_tokens: 8,
};
const said: Meaning = { text: "Hello you", stop: "end_turn", usage: { input: 20, output: 8 } };
const called: Meaning = {
  calls: [{ name: "get_weather", input }],
  stop: "tool_use",
  usage: { input: 20, output: 8 },
};

function whole(content: JsonObject[], more: JsonObject = {}): JsonObject {
  return {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "provider-model",
    content,
    stop_reason: "end_turn",
    stop_sequence: null,
    usage,
    ...more,
  };
}

const start = (more: JsonObject = {}): JsonObject => ({
  type: "message_start",
  message: whole([], { stop_reason: null, usage: { input_tokens: 20, output_tokens: 1 }, ...more }),
});
const open = (index: number, content_block: JsonObject): JsonObject => ({
  type: "content_block_start",
  index,
  content_block,
});
const add = (index: number, delta: JsonObject): JsonObject => ({
  type: "content_block_delta",
  index,
  delta,
});
const close = (index: number): JsonObject => ({ type: "content_block_stop", index });
const textBlock = (index: number): JsonObject[] => [
  open(index, { type: "text", text: "" }),
  add(index, { type: "text_delta", text: "Hello " }),
  add(index, { type: "text_delta", text: "you" }),
  close(index),
];
const end = (reason: string, total: JsonObject = { output_tokens: 8 }): JsonObject => ({
  type: "message_delta",
  delta: { stop_reason: reason, stop_sequence: null },
  usage: total,
});
const stop: JsonObject = { type: "message_stop" };
const text = { type: "text", text: "Hello you" };
const tool = { type: "tool_use", id: "toolu_1", name: "get_weather", input };
const programmatic = {
  ...tool,
  caller: { type: "code_execution_20250825", tool_id: "srvtoolu_1" },
};

/** The whole stream of a programmatic tool call: its start has all, and no delta follows. */
export const programmaticStart: JsonObject = {
  type: "message_start",
  message: whole([programmatic], {
    stop_reason: "tool_use",
    container: { id: "container_1", expires_at: "2026-11-22T00:00:00Z" },
    usage: { ...usage, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
  }),
};

export const nativeDialects: readonly Dialect[] = [
  {
    name: "the vendor",
    whole: whole([{ type: "thinking", thinking: "Let me see.", signature: "c2ln" }, text], {
      usage: { ...cached, output_tokens_details: { thinking_tokens: 3 } },
    }),
    stream: [
      start({ usage: { ...cached, output_tokens: 1 } }),
      open(0, { type: "thinking", thinking: "", signature: "" }),
      { type: "ping" },
      add(0, { type: "thinking_delta", thinking: "Let me see." }),
      add(0, { type: "signature_delta", signature: "c2ln" }),
      close(0),
      ...textBlock(1),
      end("end_turn", { ...cached, output_tokens_details: { thinking_tokens: 3 } }),
      stop,
    ],
    meaning: {
      thinking: "Let me see.",
      text: "Hello you",
      stop: "end_turn",
      usage: { input: 8, output: 8, cacheRead: 12, thinking: 3 },
    },
  },
  {
    name: "the vendor, a programmatic tool call",
    whole: whole([programmatic], { stop_reason: "tool_use" }),
    stream: [programmaticStart, stop],
    meaning: called,
  },
  {
    name: "the vendor, at the limit of the context window",
    whole: whole([text], { stop_reason: "model_context_window_exceeded" }),
    stream: [start(), ...textBlock(0), end("model_context_window_exceeded"), stop],
    meaning: { ...said, stop: "model_context_window_exceeded" },
  },
  {
    name: "Bedrock's native shape",
    whole: whole([tool], { id: "msg_bdrk_1", stop_reason: "tool_use" }),
    stream: [
      start({ id: "msg_bdrk_1" }),
      open(0, { type: "tool_use", id: "toolu_bdrk_1", name: "get_weather", input: {} }),
      add(0, { type: "input_json_delta", partial_json: "" }),
      add(0, { type: "input_json_delta", partial_json: '{"city": "Paris"}' }),
      close(0),
      end("tool_use"),
      {
        ...stop,
        "amazon-bedrock-invocationMetrics": { inputTokenCount: 20, outputTokenCount: 8 },
      },
    ],
    meaning: called,
  },
  {
    name: "Vertex's native shape",
    whole: whole([text], { id: "msg_vrtx_1", usage: cached }),
    stream: [
      'event: vertex_event\ndata: {"type": "ping"}',
      start({ id: "msg_vrtx_1", usage: { ...cached, output_tokens: 1 } }),
      ...textBlock(0),
      end("end_turn"),
      stop,
    ],
    meaning: { ...said, usage: { input: 8, output: 8, cacheRead: 12 } },
  },
  {
    name: "DeepSeek's native endpoint",
    whole: whole([{ type: "thinking", thinking: "Let me see.", signature: "msg_1" }, text]),
    stream: [
      start({ usage: { input_tokens: 20, output_tokens: 0 } }),
      open(0, { type: "thinking", thinking: "", signature: "" }),
      add(0, { type: "thinking_delta", thinking: "Let me see." }),
      add(0, { type: "signature_delta", signature: "msg_1" }),
      close(0),
      ...textBlock(1),
      end("end_turn", usage),
      stop,
    ],
    meaning: { ...said, thinking: "Let me see." },
  },
  {
    name: "Moonshot's native endpoint, usage at the end only",
    whole: whole([text]),
    stream: [
      start({ usage: { input_tokens: 0, output_tokens: 0 } }),
      ...textBlock(0),
      end("end_turn", { ...usage, cache_read_input_tokens: 0 }),
      stop,
    ],
    meaning: said,
  },
  {
    name: "Z.ai's native endpoint, the input whole in the start of its block",
    whole: whole([tool], { stop_reason: "tool_use" }),
    stream: [start(), open(0, tool), close(0), end("tool_use", usage), stop],
    meaning: called,
  },
  {
    name: "LiteLLM's native endpoint, two starts of the message",
    whole: whole([text]),
    stream: [start(), start(), ...textBlock(0), end("end_turn", usage), stop],
    meaning: said,
  },
  {
    name: "vLLM's native endpoint, ended like chat",
    whole: whole([text]),
    stream: [start(), ...textBlock(0), end("end_turn", usage), stop, "data: [DONE]"],
    meaning: said,
  },
  {
    name: "llama.cpp's native endpoint, thinking without a signature",
    whole: whole([{ type: "thinking", thinking: "Let me see." }, text]),
    stream: [
      start(),
      open(0, { type: "thinking", thinking: "" }),
      add(0, { type: "thinking_delta", thinking: "Let me see." }),
      close(0),
      ...textBlock(1),
      end("end_turn"),
      stop,
    ],
    meaning: { ...said, thinking: "Let me see." },
  },
  {
    name: "Ollama's native endpoint, no stop of the last block",
    whole: whole([text], { stop_reason: "max_tokens" }),
    stream: [start(), ...textBlock(0).slice(0, -1), end("max_tokens", usage), stop],
    meaning: { ...said, stop: "max_tokens" },
  },
];
