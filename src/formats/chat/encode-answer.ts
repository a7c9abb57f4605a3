// Events → a plain chat completion.

import type { JsonObject } from "@bufbuild/protobuf";
import { type Block, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../json.ts";
import { readStartContent } from "../native/decode-block.ts";
import { pieceOf } from "../pieces.ts";
import { withoutRuns } from "../text-run.ts";
import { customInput } from "../tool-names.ts";
import { ChoiceFold, withFunctionCall } from "./choice.ts";
import {
  type CompletionContext,
  carrierOf,
  completionHead,
  encryptedDetail,
  isRelayed,
} from "./encode-events.ts";
import { encodeUsage, mergeUsage, reasoningDetail, toFinishReason } from "./usage-and-endings.ts";

/** The answer while its events are added. */
type Answer = {
  text: string;
  refusal: string;
  reasoning: string;
  calls: JsonObject[];
  details: JsonObject[];
};

/** A block while its deltas arrive. */
type OpenBlock = { kind: Block["kind"]; text: string; signature: string };

/**
 * The plain answer with the content of `events`, which are all events of one complete answer.
 * `includeUsage` has no effect: a plain answer always has its usage.
 */
export function encodeAnswer(events: readonly Event[], context: CompletionContext): JsonObject {
  const { members, choice, usage } = isRelayed(events[0], context)
    ? asItCame(events)
    : joinBlocks(carrierOf(context).carry(withoutRuns(events)), context.customTools);
  return {
    ...completionHead("chat.completion", context),
    ...members,
    choices: [{ index: 0, ...(context.hasFunctions ? withFunctionCall(choice) : choice) }],
    usage: encodeUsage(usage, context.estimatedInputTokens),
  };
}

/** A choice, the other members of its answer, and the usage. */
type Joined = {
  readonly members: JsonObject;
  readonly choice: JsonObject;
  readonly usage: ReportedUsage | undefined;
};

/** The answer of a provider of this format. */
function asItCame(events: readonly Event[]): Joined {
  const fold = new ChoiceFold();
  let members: JsonObject = {};
  let usage: ReportedUsage | undefined;
  let stopReason: string | undefined;
  for (const event of withoutRuns(events)) {
    const { kind } = event;
    if (kind.case === "messageStart" || kind.case === "messageDelta")
      usage = mergeUsage(usage, kind.value.usage);
    if (kind.case === "messageDelta") stopReason = kind.value.stopReason ?? stopReason;
    const delta = plainDelta(event);
    if (delta) fold.add({ delta });
    if (event.wireForm?.format !== Format.CHAT) continue;
    const { choices, ...others } = pieceOf(event) ?? {};
    members = { ...members, ...others };
    if (Array.isArray(choices)) for (const choice of choices.filter(isObject)) fold.add(choice);
  }
  const { message, ...choice } = fold.whole();
  const reason = choice.finish_reason ?? toFinishReason(stopReason);
  const whole = withUsual(isObject(message) ? message : {});
  return { members, choice: { ...choice, message: whole, finish_reason: reason }, usage };
}

/** The delta of plain text, which needs no piece. */
function plainDelta({ kind, wireForm }: Event): JsonObject | undefined {
  if (wireForm?.format === Format.CHAT) return undefined;
  const delta = kind.case === "blockDelta" ? kind.value.kind : undefined;
  if (delta?.case === "text") return { content: delta.value };
  return delta?.case === "thinking" ? { reasoning_content: delta.value } : undefined;
}

/** A message with the members that every client reads, where the provider left them out. */
function withUsual(own: JsonObject): JsonObject {
  const isRefusal = typeof own.refusal === "string" && own.refusal !== "";
  const content = own.tool_calls === undefined && !isRefusal ? "" : null;
  const whole = { role: "assistant", content, ...own };
  // Streams begin with an empty content.
  if (isRefusal && whole.content === "") whole.content = null;
  return whole;
}

/** The answer of a provider of another format. */
function joinBlocks(events: readonly Event[], custom?: ReadonlySet<string>): Joined {
  const answer: Answer = { text: "", refusal: "", reasoning: "", calls: [], details: [] };
  let open: OpenBlock | undefined;
  let usage: ReportedUsage | undefined;
  let stopReason: string | undefined;
  for (const { kind } of events) {
    switch (kind.case) {
      case "messageStart": {
        usage = mergeUsage(usage, kind.value.usage);
        const start = readStartContent(kind.value);
        stopReason = start.stopReason;
        for (const block of start.blocks) add(answer, openBlock(block), custom);
        break;
      }
      case "blockStart":
        if (open) add(answer, open, custom);
        open = openBlock(kind.value.block);
        break;
      case "blockDelta":
        if (open) applyDelta(open, kind.value);
        break;
      case "blockStop":
        if (open) add(answer, open, custom);
        open = undefined;
        break;
      case "messageDelta":
        stopReason = kind.value.stopReason ?? stopReason;
        usage = mergeUsage(usage, kind.value.usage);
        break;
    }
  }
  if (open) add(answer, open, custom);

  const finishReason = toFinishReason(stopReason, answer.refusal !== "");
  return {
    members: {},
    choice: { message: messageOf(answer), logprobs: null, finish_reason: finishReason },
    usage,
  };
}

function messageOf({ text, refusal, reasoning, calls, details }: Answer): JsonObject {
  const isRefusal = refusal !== "";
  return {
    role: "assistant",
    content: text === "" && (isRefusal || calls.length > 0) ? null : text,
    refusal: isRefusal ? refusal : null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(details.length > 0 && { reasoning_details: details }),
    ...(calls.length > 0 && { tool_calls: calls }),
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

function add(
  answer: Answer,
  { kind, text, signature }: OpenBlock,
  custom?: ReadonlySet<string>,
): void {
  switch (kind.case) {
    case "text":
      if (kind.value.refusal) answer.refusal += text;
      else answer.text += text;
      return;
    case "thinking":
      answer.reasoning += text;
      if (signature !== "") answer.details.push(reasoningDetail(text, signature));
      return;
    case "redactedThinking":
      answer.details.push(encryptedDetail(kind.value.data));
      return;
    case "toolUse": {
      const { id, name, input } = kind.value;
      const callArguments = text === "" ? JSON.stringify(input ?? {}) : text;
      answer.calls.push(
        custom?.has(name)
          ? { id, type: "custom", custom: { name, input: customInput(callArguments) } }
          : { id, type: "function", function: { name, arguments: callArguments } },
      );
    }
  }
}
