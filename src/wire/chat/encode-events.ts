// Events become chunks of a chat completion stream. Per delta: one string is escaped and put between two that never change.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { BlockDelta, Event, MessageDelta, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { randomId } from "../../ids.ts";
import type { AnswerContext, EventEncoder } from "../codec.ts";
import { escapeLineSeparators, stringifyJson } from "../json.ts";
import { reasoningDetail } from "./reasoning-details.ts";
import { toFinishReason } from "./stop-reasons.ts";
import { encodeUsage, laterUsage } from "./usage.ts";

/** What an answer of this format shows beside its events. */
export type CompletionContext = AnswerContext & {
  /** `stream_options.include_usage` of the request; plain answers tell their usage always. */
  readonly includeUsage: boolean;
  readonly createdAtMs: number;
};

/** The id of a new answer. */
export function newCompletionId(): string {
  return randomId("chatcmpl-");
}

/** Encoder of one stream: role chunk, content, reasoning and tool call chunks, final chunk, usage chunk if asked, `[DONE]`. */
export function createEventEncoder(context: CompletionContext): EventEncoder {
  const identity = stringifyJson({
    id: newCompletionId(),
    object: "chat.completion.chunk",
    created: Math.floor(context.createdAtMs / 1000),
    model: context.model,
  });
  const head = `data: ${identity.slice(0, -1)},"choices":[`;
  const tail = context.includeUsage ? `],"usage":null}\n\n` : "]}\n\n";
  const deltaHead = `${head}{"index":0,"delta":`;
  const deltaTail = `,"finish_reason":null}${tail}`;
  const textHead = `${deltaHead}{"content":`;
  const textTail = `}${deltaTail}`;
  const reasoningHead = `${deltaHead}{"reasoning_content":`;

  let hasRole = false;
  let isClosed = false;
  let toolCalls = 0;
  let usage: ReportedUsage | undefined;
  let stopReason: string | undefined;
  const details: JsonObject[] = [];
  // Blocks come one after the other, so one is open at a time.
  let open: Block["kind"] = { case: undefined };
  let thinking = "";
  let signature = "";
  let hasArguments = false;

  const chunk = (delta: JsonValue): string => deltaHead + stringifyJson(delta) + deltaTail;
  const textChunk = (text: string): string => (text === "" ? "" : textHead + quote(text) + textTail);
  const reasoningChunk = (text: string): string => {
    thinking += text;
    return text === "" ? "" : reasoningHead + quote(text) + textTail;
  };
  // Tool calls are numbered among themselves; blocks of other kinds do not count.
  const argumentsChunk = (text: string): string => {
    if (text === "") return "";
    hasArguments = true;
    return `${deltaHead}{"tool_calls":[{"index":${toolCalls - 1},"function":{"arguments":${quote(text)}}}]}${deltaTail}`;
  };
  const role = (): string => {
    if (hasRole) return "";
    hasRole = true;
    return chunk({ role: "assistant" });
  };

  const startBlock = (block: Block | undefined): string => {
    open = block?.kind ?? { case: undefined };
    switch (open.case) {
      case "text":
        return textChunk(open.value.text);
      case "thinking":
        thinking = "";
        signature = open.value.signature;
        return reasoningChunk(open.value.thinking);
      case "toolUse": {
        const { id, name } = open.value;
        const index = toolCalls++;
        hasArguments = false;
        return chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] });
      }
      default:
        return "";
    }
  };

  const continueBlock = ({ kind }: BlockDelta): string => {
    // The kind of the block decides, not that of the delta: what a block without a counterpart says is left out as well.
    switch (open.case) {
      case "text":
        return kind.case === "text" ? textChunk(kind.value) : "";
      case "thinking":
        if (kind.case === "signature") signature += kind.value;
        return kind.case === "thinking" ? reasoningChunk(kind.value) : "";
      case "toolUse":
        return kind.case === "inputJson" ? argumentsChunk(kind.value) : "";
      default:
        return "";
    }
  };

  const stopBlock = (): string => {
    const kind = open;
    open = { case: undefined };
    if (kind.case === "thinking" && signature !== "") details.push(reasoningDetail(thinking, signature));
    // A call that arrived whole, or has no arguments at all: clients parse the text, and an empty one is no JSON.
    return kind.case === "toolUse" && !hasArguments ? argumentsChunk(JSON.stringify(kind.value.input ?? {})) : "";
  };

  const noteEnd = (delta: MessageDelta): void => {
    stopReason = delta.stopReason ?? stopReason;
    usage = laterUsage(usage, delta.usage);
  };

  const close = (): string => {
    if (isClosed) return "";
    let text = role() + stopBlock();
    isClosed = true;
    if (details.length > 0) text += chunk({ reasoning_details: details });
    text += `${deltaHead}{},"finish_reason":"${toFinishReason(stopReason)}"}${tail}`;
    if (context.includeUsage)
      text += `${head}],"usage":${stringifyJson(encodeUsage(usage, context.estimatedInputTokens))}}\n\n`;
    return `${text}data: [DONE]\n\n`;
  };

  const encodeOne = ({ kind }: Event): string => {
    switch (kind.case) {
      case "blockDelta":
        return continueBlock(kind.value);
      case "blockStart":
        return role() + stopBlock() + startBlock(kind.value.block);
      case "blockStop":
        return stopBlock();
      case "messageStart":
        usage = laterUsage(usage, kind.value.usage);
        return role();
      case "messageDelta":
        noteEnd(kind.value);
        return "";
      case "messageStop":
        return close();
      case "ping":
        return keepAlive;
      default:
        return "";
    }
  };

  return {
    encode(events) {
      let text = "";
      for (const event of events) if (!isClosed) text += encodeOne(event);
      return text;
    },
    ping: () => keepAlive,
    failure(problem) {
      isClosed = true;
      return `data: ${stringifyJson(problem)}\n\n`;
    },
    end: close,
  };
}

const keepAlive = ": keep-alive\n\n";

function quote(text: string): string {
  return escapeLineSeparators(JSON.stringify(text));
}
