// Scripts of the fake provider: plain and streamed answers, in all three formats.

import type { JsonObject } from "@bufbuild/protobuf";
import { parseObject, type Script } from "./provider.ts";

/** The content of an answer, the same for all formats. */
export type AnswerContent = {
  readonly id?: string;
  readonly model?: string;
  /** Pieces of the text, one delta each. */
  readonly text?: readonly string[];
  readonly thinking?: { readonly pieces: readonly string[]; readonly signature?: string };
  /** Pieces of the arguments' JSON text, one delta each. */
  readonly tool?: {
    readonly id?: string;
    readonly name: string;
    readonly input: readonly string[];
    /** In the Responses format: true for a call whose input is plain text. */
    readonly isCustom?: boolean;
  };
  readonly stopReason?: string;
  /** As the native format counts; the usage of the chat format is computed from it. */
  readonly usage?: {
    readonly input?: number;
    readonly output?: number;
    readonly cacheRead?: number;
    readonly cacheWrite?: number;
    readonly thinking?: number;
  };
  /** The conditions of a price that the provider says it applied: a tier alone outside native. */
  readonly applied?: { readonly speed?: string; readonly geo?: string; readonly tier?: string };
  /** Leaves the usage out. */
  readonly noUsage?: boolean;
};

const sse = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" };
const json = { "content-type": "application/json" };

/** A streamed answer in the native format: one write per event. */
export function nativeStream(content: AnswerContent = {}, more: Script = {}): Script {
  return { headers: sse, writes: nativeEvents(content), ...more };
}

/** A plain answer in the native format. */
export function nativeAnswer(content: AnswerContent = {}, more: Script = {}): Script {
  const message = {
    ...nativeHead(content),
    content: nativeBlocks(content).map(({ whole }) => whole),
    stop_reason: stopReasonOf(content),
    ...(content.noUsage !== true && { usage: nativeUsage(content) }),
  };
  return { headers: json, writes: [JSON.stringify(message)], ...more };
}

/** A streamed answer of a chat provider: one write per chunk. */
export function chatStream(content: AnswerContent = {}, more: Script = {}): Script {
  return { headers: sse, writes: chatChunks(content), ...more };
}

/** A plain answer of a chat provider. */
export function chatAnswer(content: AnswerContent = {}, more: Script = {}): Script {
  const { text, thinking, tool } = content;
  const call = tool && {
    id: tool.id ?? "call_1",
    type: "function",
    function: { name: tool.name, arguments: tool.input.join("") },
  };
  const completion = {
    ...chatHead(content, "chat.completion"),
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: text?.join("") ?? null,
          refusal: null,
          ...(thinking && { reasoning_content: thinking.pieces.join("") }),
          ...(call && { tool_calls: [call] }),
        },
        finish_reason: finishReasonOf(content),
      },
    ],
    ...(content.noUsage !== true && { usage: chatUsage(content) }),
  };
  return { headers: json, writes: [JSON.stringify(completion)], ...more };
}

/** A streamed answer of a provider of the Responses format: one write per event. */
export function responsesStream(content: AnswerContent = {}, more: Script = {}): Script {
  return { headers: sse, writes: responsesEvents(content), ...more };
}

/** A plain answer of a provider of the Responses format. */
export function responsesAnswer(content: AnswerContent = {}, more: Script = {}): Script {
  const output = responsesItems(content).map(({ whole }) => whole);
  const response = responsesBody(content, output);
  return { headers: json, writes: [JSON.stringify(response)], ...more };
}

/** An answer with an error status, in the native envelope. */
export function errorAnswer(
  status: number,
  type: string,
  message: string,
  more: Script = {},
): Script {
  return {
    status,
    headers: { ...json, ...more.headers },
    writes: [JSON.stringify({ type: "error", error: { type, message } })],
  };
}

/** An answer with an error status, as chat providers write it. */
export function chatErrorAnswer(
  status: number,
  code: string | null,
  message: string,
  more: Script = {},
): Script {
  const error = { message, type: "invalid_request_error", param: null, code };
  return { status, headers: { ...json, ...more.headers }, writes: [JSON.stringify({ error })] };
}

/** The text of one server-sent event. */
export function sseEvent(type: string, data: JsonObject = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

/** The events of a native stream. */
export function nativeEvents(content: AnswerContent = {}): string[] {
  const usage = content.noUsage ? {} : { usage: { ...nativeUsage(content), output_tokens: 1 } };
  const message = { ...nativeHead(content), content: [], stop_reason: null, ...usage };
  const blocks = nativeBlocks(content).flatMap(({ start, deltas }, index) => [
    sseEvent("content_block_start", { index, content_block: start }),
    ...deltas.map((delta) => sseEvent("content_block_delta", { index, delta })),
    sseEvent("content_block_stop", { index }),
  ]);
  return [
    sseEvent("message_start", { message }),
    ...blocks,
    sseEvent("message_delta", {
      delta: { stop_reason: stopReasonOf(content), stop_sequence: null },
      ...(!content.noUsage && { usage: outputUsage(content) }),
    }),
    sseEvent("message_stop"),
  ];
}

/** The chunks of a chat stream, `[DONE]` included. */
export function chatChunks(content: AnswerContent = {}): string[] {
  const { text = [], thinking, tool } = content;
  const head = chatHead(content, "chat.completion.chunk");
  const chunk = (delta: JsonObject, finish_reason: string | null = null) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  const call = (members: JsonObject) => chunk({ tool_calls: [{ index: 0, ...members }] });
  return [
    chunk({ role: "assistant", refusal: null }),
    ...(thinking?.pieces ?? []).map((piece) => chunk({ reasoning_content: piece })),
    ...text.map((piece) => chunk({ content: piece })),
    ...(tool
      ? [
          call({
            id: tool.id ?? "call_1",
            type: "function",
            function: { name: tool.name, arguments: "" },
          }),
        ]
      : []),
    ...(tool?.input ?? []).map((piece) => call({ function: { arguments: piece } })),
    chunk({}, finishReasonOf(content)),
    ...(content.noUsage
      ? []
      : [`data: ${JSON.stringify({ ...head, choices: [], usage: chatUsage(content) })}\n\n`]),
    "data: [DONE]\n\n",
  ];
}

/** The events of a Responses stream. */
export function responsesEvents(content: AnswerContent = {}): string[] {
  let number = 0;
  const event = (type: string, members: JsonObject) =>
    sseEvent(type, { sequence_number: number++, ...members });
  const begun = { ...responsesBody(content, []), status: "in_progress", usage: null };
  const items = responsesItems(content);
  const response = responsesBody(
    content,
    items.map(({ whole }) => whole),
  );
  return [
    event("response.created", { response: begun }),
    event("response.in_progress", { response: begun }),
    ...items.flatMap(({ start, whole, deltas }, output_index) => [
      event("response.output_item.added", { output_index, item: start }),
      ...deltas.map(([type, members]) => event(type, { output_index, ...members })),
      event("response.output_item.done", { output_index, item: whole }),
    ]),
    event(`response.${String(response.status)}`, { response }),
  ];
}

type ResponsesItem = {
  start: JsonObject;
  whole: JsonObject;
  deltas: [type: string, members: JsonObject][];
};

function responsesItems({ text, thinking, tool, stopReason }: AnswerContent): ResponsesItem[] {
  const items: ResponsesItem[] = [];
  if (thinking !== undefined) {
    const place = { item_id: "rs_1", summary_index: 0 };
    const start = { id: "rs_1", type: "reasoning", summary: [] };
    const part = { type: "summary_text", text: thinking.pieces.join("") };
    items.push({
      start,
      whole: {
        ...start,
        summary: [part],
        ...(thinking.signature !== undefined && { encrypted_content: thinking.signature }),
      },
      deltas: [
        ["response.reasoning_summary_part.added", { ...place, part: { ...part, text: "" } }],
        ...thinking.pieces.map((delta): [string, JsonObject] => [
          "response.reasoning_summary_text.delta",
          { ...place, delta },
        ]),
        ["response.reasoning_summary_text.done", { ...place, text: part.text }],
        ["response.reasoning_summary_part.done", { ...place, part }],
      ],
    });
  }
  if (text !== undefined) {
    const place = { item_id: "msg_1", content_index: 0 };
    const head = { id: "msg_1", type: "message", role: "assistant" };
    const part = { type: "output_text", text: text.join(""), annotations: [], logprobs: [] };
    items.push({
      start: { ...head, status: "in_progress", content: [] },
      whole: {
        ...head,
        status: stopReason === "max_tokens" ? "incomplete" : "completed",
        content: [part],
      },
      deltas: [
        ["response.content_part.added", { ...place, part: { ...part, text: "" } }],
        ...text.map((delta): [string, JsonObject] => [
          "response.output_text.delta",
          { ...place, delta, logprobs: [] },
        ]),
        ["response.output_text.done", { ...place, text: part.text, logprobs: [] }],
        ["response.content_part.done", { ...place, part }],
      ],
    });
  }
  if (tool?.isCustom) {
    const place = { item_id: "ctc_1" };
    const head = { id: "ctc_1", type: "custom_tool_call", call_id: tool.id ?? "call_1" };
    const given = tool.input.join("");
    const name = tool.name;
    items.push({
      start: { ...head, status: "in_progress", name, input: "" },
      whole: { ...head, status: "completed", name, input: given },
      deltas: [
        ...tool.input.map((delta): [string, JsonObject] => [
          "response.custom_tool_call_input.delta",
          { ...place, delta },
        ]),
        ["response.custom_tool_call_input.done", { ...place, input: given }],
      ],
    });
  } else if (tool !== undefined) {
    const place = { item_id: "fc_1" };
    const head = { id: "fc_1", type: "function_call", call_id: tool.id ?? "call_1" };
    const given = tool.input.join("");
    items.push({
      start: { ...head, status: "in_progress", name: tool.name, arguments: "" },
      whole: { ...head, status: "completed", name: tool.name, arguments: given },
      deltas: [
        ...tool.input.map((delta): [string, JsonObject] => [
          "response.function_call_arguments.delta",
          { ...place, delta },
        ]),
        ["response.function_call_arguments.done", { ...place, arguments: given }],
      ],
    });
  }
  return items;
}

function responsesBody(content: AnswerContent, output: JsonObject[]): JsonObject {
  const isCut = content.stopReason === "max_tokens";
  return {
    id: content.id ?? "resp_scripted",
    object: "response",
    created_at: 1_764_000_000,
    model: content.model ?? "scripted-1",
    status: isCut ? "incomplete" : "completed",
    error: null,
    incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
    output,
    ...(content.noUsage !== true && { usage: responsesUsage(content) }),
    ...tierOf(content),
  };
}

function tierOf({ applied: { tier } = {} }: AnswerContent): JsonObject {
  return tier === undefined ? {} : { service_tier: tier };
}

function responsesUsage({ usage = {} }: AnswerContent): JsonObject {
  const { input = 10, output = 5, cacheRead = 0, cacheWrite = 0, thinking = 0 } = usage;
  const total = input + cacheRead + cacheWrite;
  return {
    input_tokens: total,
    input_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: thinking },
    total_tokens: total + output,
  };
}

function nativeHead({
  id = "msg_scripted000000000000001",
  model = "scripted-1",
}: AnswerContent): JsonObject {
  return { id, type: "message", role: "assistant", model, stop_sequence: null };
}

function chatHead(content: AnswerContent, object: string): JsonObject {
  const { id = "chatcmpl-scripted", model = "scripted-1" } = content;
  return { id, object, created: 1_764_000_000, model, ...tierOf(content) };
}

type Block = { start: JsonObject; deltas: JsonObject[]; whole: JsonObject };

function nativeBlocks({ text, thinking, tool }: AnswerContent): Block[] {
  const blocks: Block[] = [];
  if (thinking !== undefined) {
    const { pieces, signature = "c2lnbmF0dXJl" } = thinking;
    blocks.push({
      start: { type: "thinking", thinking: "", signature: "" },
      deltas: [
        ...pieces.map((piece) => ({ type: "thinking_delta", thinking: piece })),
        { type: "signature_delta", signature },
      ],
      whole: { type: "thinking", thinking: pieces.join(""), signature },
    });
  }
  if (text !== undefined) {
    blocks.push({
      start: { type: "text", text: "" },
      deltas: text.map((piece) => ({ type: "text_delta", text: piece })),
      whole: { type: "text", text: text.join("") },
    });
  }
  if (tool !== undefined) {
    const head = {
      type: "tool_use",
      id: tool.id ?? "toolu_scripted00000000000001",
      name: tool.name,
    };
    blocks.push({
      start: { ...head, input: {} },
      deltas: tool.input.map((piece) => ({ type: "input_json_delta", partial_json: piece })),
      whole: { ...head, input: parseObject(tool.input.join("")) },
    });
  }
  return blocks;
}

function nativeUsage({ usage = {}, applied: { speed, geo, tier } = {} }: AnswerContent) {
  const { input = 10, output = 5, cacheRead = 0, cacheWrite = 0, thinking } = usage;
  return {
    input_tokens: input,
    cache_creation_input_tokens: cacheWrite,
    cache_read_input_tokens: cacheRead,
    output_tokens: output,
    ...(thinking !== undefined && { output_tokens_details: { thinking_tokens: thinking } }),
    ...(speed !== undefined && { speed }),
    ...(geo !== undefined && { inference_geo: geo }),
    ...(tier !== undefined && { service_tier: tier }),
  };
}

function outputUsage(content: AnswerContent): JsonObject {
  const { output_tokens, output_tokens_details } = nativeUsage(content);
  return { output_tokens, ...(output_tokens_details && { output_tokens_details }) };
}

function chatUsage({ usage = {} }: AnswerContent): JsonObject {
  const { input = 10, output = 5, cacheRead = 0, cacheWrite = 0, thinking = 0 } = usage;
  const prompt = input + cacheRead + cacheWrite;
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
    completion_tokens_details: { reasoning_tokens: thinking },
  };
}

function stopReasonOf({ stopReason, tool }: AnswerContent): string {
  return stopReason ?? (tool === undefined ? "end_turn" : "tool_use");
}

function finishReasonOf(content: AnswerContent): string {
  const reason = stopReasonOf(content);
  return reason === "tool_use" ? "tool_calls" : reason === "max_tokens" ? "length" : "stop";
}
