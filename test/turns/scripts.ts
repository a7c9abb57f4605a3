// A turn as a provider of each format sends it, plain and streamed in pieces.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../src/formats/json.ts";
import type { Script } from "../support/provider.ts";
import { sseEvent } from "../support/provider-answers.ts";
import { objectsOf, textOf } from "./json.ts";

const json = { "content-type": "application/json" };
const sse = { "content-type": "text/event-stream" };

function halves(text: string): [string, string] {
  const middle = Math.floor(text.length / 2);
  return [text.slice(0, middle), text.slice(middle)];
}

/** A message of the chat format. */
export function chatScript(message: JsonObject, isStream: boolean): Script {
  const reason = message.tool_calls === undefined ? "stop" : "tool_calls";
  const head = { id: "chatcmpl-1", created: 1, model: "the-model" };
  const usage = { prompt_tokens: 20, completion_tokens: 10, total_tokens: 30 };
  if (!isStream) {
    const choice = { index: 0, message, finish_reason: reason, logprobs: null };
    const body = { ...head, object: "chat.completion", choices: [choice], usage };
    return { headers: json, writes: [JSON.stringify(body)] };
  }
  const chunk = (choices: JsonObject[], more: JsonObject = {}) =>
    `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices, ...more })}\n\n`;
  const writes = [
    ...chatDeltas(message).map((delta) => chunk([{ index: 0, delta, finish_reason: null }])),
    chunk([{ index: 0, delta: {}, finish_reason: reason }]),
    chunk([], { usage }),
    "data: [DONE]\n\n",
  ];
  return { headers: sse, writes };
}

/** The message in fragments: first its thinking, then its text, its calls, and what is left. */
function chatDeltas(message: JsonObject): JsonObject[] {
  const { role = "assistant", content, tool_calls, reasoning_details, ...others } = message;
  const texts = Object.entries(others).filter(
    ([name, value]) => name.startsWith("reasoning") && typeof value === "string",
  );
  const rest = Object.entries(others).filter(([name]) => !name.startsWith("reasoning"));
  const thoughts = [0, 1].map((at) =>
    Object.fromEntries(texts.map(([name, value]) => [name, halves(textOf(value))[at] ?? ""])),
  );
  const deltas: JsonObject[] = [{ role, content: content === null ? null : "" }];
  if (texts.length > 0) deltas.push(...thoughts);
  for (const entry of objectsOf(reasoning_details)) {
    const { text, signature, ...place } = entry;
    if (typeof text !== "string") deltas.push({ reasoning_details: [entry] });
    else
      deltas.push(
        ...halves(text).map((half) => ({ reasoning_details: [{ ...place, text: half }] })),
        { reasoning_details: [{ ...place, ...(signature !== undefined && { signature }) }] },
      );
  }
  deltas.push(...contentDeltas(content));
  for (const [index, call] of objectsOf(tool_calls).entries()) {
    const called = isObject(call.function) ? call.function : {};
    const text = textOf(called.arguments);
    const start = { index, ...call, function: { ...called, arguments: "" } };
    deltas.push({ tool_calls: [start] });
    for (const half of halves(text))
      deltas.push({ tool_calls: [{ index, function: { arguments: half } }] });
  }
  if (rest.length > 0) deltas.push(Object.fromEntries(rest));
  return deltas;
}

function contentDeltas(content: JsonValue | undefined): JsonObject[] {
  if (typeof content === "string") return halves(content).map((half) => ({ content: half }));
  return objectsOf(content).flatMap((part): JsonObject[] => {
    if (part.type === "text") return halves(textOf(part.text)).map((half) => ({ content: half }));
    const [inner] = objectsOf(part.thinking);
    return halves(textOf(inner?.text)).map((half) => ({
      content: [{ ...part, thinking: [{ type: "text", text: half }] }],
    }));
  });
}

/** The content of a message of the native format. */
export function nativeScript({ content }: JsonObject, isStream: boolean): Script {
  const blocks = objectsOf(content);
  const stop_reason = blocks.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  const usage = { input_tokens: 20, output_tokens: 10 };
  const head = { id: "msg_1", type: "message", role: "assistant", model: "the-model" };
  if (!isStream) {
    const body = { ...head, content: blocks, stop_reason, stop_sequence: null, usage };
    return { headers: json, writes: [JSON.stringify(body)] };
  }
  const message = { ...head, content: [], stop_reason: null, stop_sequence: null, usage };
  const delta = { stop_reason, stop_sequence: null };
  const writes = [
    sseEvent("message_start", { message }),
    ...blocks.flatMap(nativeEvents),
    sseEvent("message_delta", { delta, usage }),
    sseEvent("message_stop"),
  ];
  return { headers: sse, writes };
}

function nativeEvents(block: JsonObject, index: number): string[] {
  const { text, thinking, signature, input } = block;
  const start = {
    ...block,
    ...(text !== undefined && { text: "" }),
    ...(thinking !== undefined && { thinking: "", signature: "" }),
    ...(input !== undefined && { input: {} }),
  };
  const deltas: JsonObject[] = [
    ...(text === undefined ? [] : halves(textOf(text))).map((half) => ({
      type: "text_delta",
      text: half,
    })),
    ...(thinking === undefined ? [] : halves(textOf(thinking))).map((half) => ({
      type: "thinking_delta",
      thinking: half,
    })),
    ...(textOf(signature) === ""
      ? []
      : [{ type: "signature_delta", signature: textOf(signature) }]),
    ...(input === undefined ? [] : halves(JSON.stringify(input))).map((half) => ({
      type: "input_json_delta",
      partial_json: half,
    })),
  ];
  return [
    sseEvent("content_block_start", { index, content_block: start }),
    ...deltas.map((delta) => sseEvent("content_block_delta", { index, delta })),
    sseEvent("content_block_stop", { index }),
  ];
}

/** The output of a response. */
export function responsesScript({ output }: JsonObject, isStream: boolean): Script {
  const items = objectsOf(output);
  const head = { id: "resp_1", object: "response", created_at: 1, model: "the-model" };
  const usage = {
    input_tokens: 20,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 10,
    output_tokens_details: { reasoning_tokens: 4 },
    total_tokens: 30,
  };
  const whole = { ...head, status: "completed", output: items, usage };
  if (!isStream) return { headers: json, writes: [JSON.stringify(whole)] };
  const begun = { ...head, status: "in_progress", output: [], usage: null };
  let number = 0;
  const event = (type: string, members: JsonObject) =>
    sseEvent(type, { sequence_number: number++, ...members });
  const writes = [
    event("response.created", { response: begun }),
    ...items.flatMap((item, output_index) =>
      itemEvents(item).map(([type, members]) => event(type, { output_index, ...members })),
    ),
    event("response.completed", { response: whole }),
  ];
  return { headers: sse, writes };
}

function itemEvents(item: JsonObject): [type: string, members: JsonObject][] {
  const { content, summary, encrypted_content, arguments: text, ...others } = item;
  const item_id = item.id ?? "";
  const start = {
    ...others,
    ...(content !== undefined && { content: [] }),
    ...(summary !== undefined && { summary: [] }),
    ...(text !== undefined && { arguments: "" }),
  };
  return [
    ["response.output_item.added", { item: start }],
    ...objectsOf(summary).flatMap((part, summary_index): [string, JsonObject][] => [
      [
        "response.reasoning_summary_part.added",
        { item_id, summary_index, part: { ...part, text: "" } },
      ],
      ...halves(textOf(part.text)).map((delta): [string, JsonObject] => [
        "response.reasoning_summary_text.delta",
        { item_id, summary_index, delta },
      ]),
      ["response.reasoning_summary_part.done", { item_id, summary_index, part }],
    ]),
    ...objectsOf(content).flatMap((part, content_index): [string, JsonObject][] => [
      ["response.content_part.added", { item_id, content_index, part: { ...part, text: "" } }],
      ...halves(textOf(part.text)).map((delta): [string, JsonObject] => [
        "response.output_text.delta",
        { item_id, content_index, delta, logprobs: [] },
      ]),
      ["response.content_part.done", { item_id, content_index, part }],
    ]),
    ...(text === undefined ? [] : halves(textOf(text))).map((delta): [string, JsonObject] => [
      "response.function_call_arguments.delta",
      { item_id, delta },
    ]),
    ["response.output_item.done", { item }],
  ];
}
