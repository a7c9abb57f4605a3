// Reads the answers that clients receive, by the rules of the clients: independent of our decoders.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../../src/formats/json.ts";
import { readEvents } from "../../support/gateway-with-provider.ts";
import { readStream } from "../../support/samples/chat-bodies.ts";
import type { Meaning } from "./dialect.ts";

/** A meaning with every member. */
export type FullMeaning = {
  thinking: string;
  text: string;
  calls: readonly { name: string; input: JsonValue }[];
  stop: string;
  usage: { input: number; output: number; cacheRead: number; thinking: number };
};

export function complete({ thinking = "", text = "", calls = [], stop, usage }: Meaning) {
  const answer = calls.map(({ name, input }) => name + JSON.stringify(input)).join("") + text;
  const shares = { thinking: tokensOf(thinking), answer: tokensOf(answer) };
  // Where a provider does not split its output, it is billed and shown by the counted shares.
  const split = thinking === "" ? 0 : shares.thinking / (shares.thinking + shares.answer);
  const counted = Math.round(usage.output * split);
  return { thinking, text, calls, stop, usage: { cacheRead: 0, thinking: counted, ...usage } };
}

function tokensOf(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / 4);
}

const textOf = (value: JsonValue | undefined): string => (typeof value === "string" ? value : "");
const numberOf = (value: JsonValue | undefined): number => (typeof value === "number" ? value : 0);
const objectOf = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : {});
const objectsOf = (value: JsonValue | undefined): JsonObject[] =>
  Array.isArray(value) ? value.filter(isObject) : [];

/** The meaning of a plain answer in the native format. */
export function readNative(body: JsonObject): FullMeaning {
  const blocks = objectsOf(body.content);
  const joined = (type: string, name: string) =>
    blocks
      .filter((block) => block.type === type)
      .map((block) => textOf(block[name]))
      .join("");
  const usage = objectOf(body.usage);
  return {
    thinking: joined("thinking", "thinking"),
    text: joined("text", "text"),
    calls: blocks
      .filter(({ type }) => type === "tool_use")
      .map(({ name, input }) => ({ name: textOf(name), input: input ?? null })),
    stop: textOf(body.stop_reason),
    usage: {
      input: numberOf(usage.input_tokens),
      output: numberOf(usage.output_tokens),
      cacheRead: numberOf(usage.cache_read_input_tokens),
      thinking: numberOf(objectOf(usage.output_tokens_details).thinking_tokens),
    },
  };
}

/** The plain answer that a native client accumulates from a stream. */
export function joinNative(stream: string): JsonObject {
  let message: JsonObject = {};
  for (const { type, ...event } of readEvents(stream)) {
    if (type === "message_start") message = objectOf(event.message);
    const content = Array.isArray(message.content) ? message.content : [];
    if (type === "content_block_start") content.push({ ...objectOf(event.content_block) });
    const block = objectOf(content[numberOf(event.index)]);
    const delta = objectOf(event.delta);
    if (type === "content_block_delta") addDelta(block, delta);
    if (type === "content_block_stop" && typeof block.json === "string" && block.json !== "")
      block.input = JSON.parse(block.json);
    if (type === "message_delta")
      message = {
        ...message,
        ...delta,
        usage: { ...objectOf(message.usage), ...objectOf(event.usage) },
      };
  }
  return message;
}

function addDelta(block: JsonObject, delta: JsonObject): void {
  if (delta.type === "text_delta") block.text = textOf(block.text) + textOf(delta.text);
  if (delta.type === "thinking_delta")
    block.thinking = textOf(block.thinking) + textOf(delta.thinking);
  if (delta.type === "signature_delta") block.signature = textOf(delta.signature);
  if (delta.type === "input_json_delta")
    block.json = textOf(block.json) + textOf(delta.partial_json);
}

/** The texts in a content, which is a text or a list of parts. */
function textsOf(content: JsonValue | undefined): string {
  if (typeof content === "string") return content;
  return objectsOf(content)
    .map(({ text }) => textOf(text))
    .join("");
}

/** The thinking of a message, under any of the names that providers give it. */
function thinkingOf(message: JsonObject): string {
  const plain = message.reasoning_content || message.reasoning || message.reasoning_text;
  if (typeof plain === "string" && plain !== "") return plain;
  const parts = objectsOf(message.content).map(({ type, thinking, summary }) =>
    type === "thinking" || type === "reasoning" ? textsOf(thinking) + textsOf(summary) : "",
  );
  const details = objectsOf(message.reasoning_details ?? message.thinking_blocks).map(
    ({ text, thinking }) => textOf(text) + textOf(thinking),
  );
  return parts.join("") || details.join("");
}

/** A finish reason as OpenAI writes it: providers have words of their own. */
function finishOf(reason: string, hasCalls: boolean): string {
  const word = reason.toLowerCase();
  if (/^(length|max_tokens|model_length)$/.test(word)) return "length";
  if (/^(content_filter|safety|sensitive|refusal)/.test(word)) return "content_filter";
  return hasCalls ? "tool_calls" : "stop";
}

/** The meaning of a plain chat completion. */
export function readChat(body: JsonObject): FullMeaning {
  const choice = objectOf(objectsOf(body.choices)[0]);
  const message = objectOf(choice.message);
  const calls = objectsOf(message.tool_calls);
  const usage = objectOf(body.usage);
  const prompt = objectOf(usage.prompt_tokens_details);
  const cacheRead = numberOf(prompt.cached_tokens);
  return {
    thinking: thinkingOf(message),
    text: textsOf(message.content) + textOf(message.refusal),
    calls: calls.map((call) => {
      const called = objectOf(call.function);
      return { name: textOf(called.name), input: JSON.parse(textOf(called.arguments)) };
    }),
    // A refusal in its own member means the same as the reason of a filter.
    stop: textOf(message.refusal)
      ? "content_filter"
      : finishOf(textOf(choice.finish_reason), calls.length > 0),
    usage: {
      input: numberOf(usage.prompt_tokens) - cacheRead - numberOf(prompt.cache_write_tokens),
      output: numberOf(usage.completion_tokens),
      cacheRead,
      thinking: numberOf(objectOf(usage.completion_tokens_details).reasoning_tokens),
    },
  };
}

/** The plain completion that a chat client accumulates from a stream. */
export function joinChat(stream: string): JsonObject {
  const message: JsonObject = {};
  const parts: JsonValue[] = [];
  const calls: JsonObject[] = [];
  const details: JsonValue[] = [];
  const annotations: JsonValue[] = [];
  let finishReason: JsonValue = null;
  let usage: JsonValue = null;
  for (const chunk of readStream(stream)) {
    if (chunk === "[DONE]") continue;
    if (chunk.error !== undefined) throw new Error(JSON.stringify(chunk.error));
    usage = chunk.usage ?? usage;
    const choice = objectOf(objectsOf(chunk.choices)[0]);
    const delta = objectOf(choice.delta);
    finishReason = choice.finish_reason ?? finishReason;
    for (const name of ["content", "refusal", "reasoning_content", "reasoning", "reasoning_text"])
      if (typeof delta[name] === "string") message[name] = textOf(message[name]) + delta[name];
    parts.push(...objectsOf(delta.content));
    details.push(...objectsOf(delta.reasoning_details ?? delta.thinking_blocks));
    annotations.push(...objectsOf(delta.annotations));
    for (const { index, ...call } of objectsOf(delta.tool_calls)) {
      const known = calls[numberOf(index)];
      const { arguments: more } = objectOf(call.function);
      if (!known) calls.push({ ...call });
      else {
        const called = objectOf(known.function);
        known.function = { ...called, arguments: textOf(called.arguments) + textOf(more) };
      }
    }
  }
  if (parts.length > 0)
    message.content = [...parts, { type: "text", text: textOf(message.content) }];
  const choice = {
    message: { ...message, tool_calls: calls, reasoning_details: details, annotations },
    finish_reason: finishReason,
  };
  return { choices: [choice], usage };
}

const finishReasons = new Map([
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
]);

/** The meaning as a chat client reads it: with chat's own stop reason. */
export function inChat(meaning: FullMeaning): FullMeaning {
  return { ...meaning, stop: finishReasons.get(meaning.stop) ?? "stop" };
}

/** The meaning of a plain response. Its stop is the reason of an incomplete one, or "completed". */
export function readResponse(body: JsonObject): FullMeaning {
  const items = objectsOf(body.output);
  const partsOf = (type: string, member: string) =>
    items
      .filter((item) => item.type === type)
      .flatMap((item) => objectsOf(item[member]))
      .map(({ text, refusal }) => textOf(text) + textOf(refusal));
  const usage = objectOf(body.usage);
  const details = objectOf(usage.input_tokens_details);
  const cacheRead = numberOf(details.cached_tokens);
  return {
    thinking:
      partsOf("reasoning", "summary").join("\n\n") || partsOf("reasoning", "content").join(""),
    text: partsOf("message", "content").join(""),
    calls: items
      .filter(({ type }) => type === "function_call")
      .map((call) => ({ name: textOf(call.name), input: JSON.parse(textOf(call.arguments)) })),
    stop: items.some((item) => objectsOf(item.content).some(({ type }) => type === "refusal"))
      ? "content_filter"
      : textOf(objectOf(body.incomplete_details).reason) || textOf(body.status),
    usage: {
      input: numberOf(usage.input_tokens) - cacheRead - numberOf(details.cache_write_tokens),
      output: numberOf(usage.output_tokens),
      cacheRead,
      thinking: numberOf(objectOf(usage.output_tokens_details).reasoning_tokens),
    },
  };
}

/** The response at the end of a stream, with the texts and arguments that its events gave. */
export function joinResponse(stream: string): JsonObject {
  const items: JsonObject[] = [];
  let last: JsonObject = {};
  for (const { type, ...event } of readEvents(stream)) {
    const number = numberOf(event.output_index);
    const item = items[number] ?? {};
    const addPart = (list: string, at: JsonValue | undefined) => {
      const parts = objectsOf(item[list]);
      const part = parts[numberOf(at)] ?? { text: "" };
      const kind = type === "response.refusal.delta" && { type: "refusal" };
      parts[numberOf(at)] = { ...part, ...kind, text: textOf(part.text) + textOf(event.delta) };
      item[list] = parts;
    };
    if (type === "response.output_item.added") items.push({ ...objectOf(event.item) });
    if (type === "response.output_text.delta") addPart("content", event.content_index);
    if (type === "response.refusal.delta") addPart("content", event.content_index);
    if (type === "response.reasoning_text.delta") addPart("content", event.content_index);
    if (type === "response.reasoning_summary_text.delta") addPart("summary", event.summary_index);
    if (type === "response.function_call_arguments.delta")
      item.arguments = textOf(item.arguments) + textOf(event.delta);
    // The end of a call has all of it, also what no delta gave.
    if (type === "response.output_item.done" && item.type === "function_call")
      item.arguments = objectOf(event.item).arguments ?? "";
    last = objectOf(event.response ?? last);
  }
  return { ...last, output: items };
}

const incompleteReasons = new Map([
  ["max_tokens", "max_output_tokens"],
  ["model_context_window_exceeded", "max_output_tokens"],
  ["refusal", "content_filter"],
]);

/** The meaning as a client of the Responses format reads it. */
export function inResponse(meaning: FullMeaning): FullMeaning {
  return { ...meaning, stop: incompleteReasons.get(meaning.stop) ?? "completed" };
}
