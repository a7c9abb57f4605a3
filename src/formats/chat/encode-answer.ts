// Events → a plain chat completion.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { readStartContent } from "../start-content.ts";
import { type CompletionContext, completionHead } from "./encode-events.ts";
import { encodeUsage, mergeUsage, reasoningDetail, toFinishReason } from "./usage-and-endings.ts";

/** The answer while its events are added. */
type Answer = { text: string; reasoning: string; calls: JsonObject[]; details: JsonObject[] };

/** A block while its deltas arrive. */
type OpenBlock = { kind: Block["kind"]; text: string; signature: string };

/**
 * The plain answer with the content of `events`, which are all events of one complete answer.
 * `includeUsage` has no effect: a plain answer always has its usage.
 */
export function encodeAnswer(events: readonly Event[], context: CompletionContext): JsonObject {
  const answer: Answer = { text: "", reasoning: "", calls: [], details: [] };
  let open: OpenBlock | undefined;
  let usage: ReportedUsage | undefined;
  let stopReason: string | undefined;
  let annotations: JsonValue | undefined;
  for (const { kind } of events) {
    switch (kind.case) {
      case "messageStart": {
        usage = mergeUsage(usage, kind.value.usage);
        const start = readStartContent(kind.value);
        stopReason = start.stopReason;
        for (const block of start.blocks) add(answer, openBlock(block));
        break;
      }
      case "blockStart":
        if (open) add(answer, open);
        open = openBlock(kind.value.block);
        break;
      case "blockDelta":
        if (open) applyDelta(open, kind.value);
        break;
      case "blockStop":
        if (open) add(answer, open);
        open = undefined;
        break;
      case "messageDelta":
        stopReason = kind.value.stopReason ?? stopReason;
        annotations = kind.value.extensions?.annotations ?? annotations;
        usage = mergeUsage(usage, kind.value.usage);
        break;
    }
  }
  if (open) add(answer, open);

  const message: JsonObject = {
    role: "assistant",
    content: answer.text === "" && answer.calls.length > 0 ? null : answer.text,
    refusal: null,
  };
  if (answer.reasoning !== "") message.reasoning_content = answer.reasoning;
  if (answer.details.length > 0) message.reasoning_details = answer.details;
  if (annotations !== undefined) message.annotations = annotations;
  if (answer.calls.length > 0) message.tool_calls = answer.calls;
  return {
    ...completionHead("chat.completion", context),
    choices: [{ index: 0, message, logprobs: null, finish_reason: toFinishReason(stopReason) }],
    usage: encodeUsage(usage, context.estimatedInputTokens),
  };
}

function openBlock(block: Block | undefined): OpenBlock {
  const kind = block?.kind ?? { case: undefined };
  if (kind.case === "text") return { kind, text: kind.value.text, signature: "" };
  if (kind.case === "thinking")
    return { kind, text: kind.value.thinking, signature: kind.value.signature };
  return { kind, text: "", signature: "" };
}

function applyDelta(open: OpenBlock, { kind }: BlockDelta): void {
  if (kind.case === "signature") open.signature += kind.value;
  else if (kind.case === "text" || kind.case === "thinking" || kind.case === "inputJson") {
    if (kind.case === deltaOf(open.kind)) open.text += kind.value;
  }
}

function deltaOf(kind: Block["kind"]): string | undefined {
  return kind.case === "toolUse" ? "inputJson" : kind.case;
}

function add(answer: Answer, { kind, text, signature }: OpenBlock): void {
  switch (kind.case) {
    case "text":
      answer.text += text;
      return;
    case "thinking":
      answer.reasoning += text;
      if (signature !== "") answer.details.push(reasoningDetail(text, signature));
      return;
    case "toolUse": {
      const { id, name, input } = kind.value;
      const callArguments = text === "" ? JSON.stringify(input ?? {}) : text;
      answer.calls.push({ id, type: "function", function: { name, arguments: callArguments } });
    }
  }
}
