// The hub's conversation as chat messages. One turn of the user may become several messages: its tool results first, as `tool`
// messages right after the calls, then all else.

import type { JsonObject } from "@bufbuild/protobuf";
import {
  type Block,
  Format,
  type Message,
  Role,
  type System,
  type ToolResultBlock,
  type ToolUseBlock,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { foldSystemEntries } from "../fold-system.ts";
import { encodeCacheMark } from "./cache-marks.ts";
import { encodePart, textOfBlocks } from "./encode-parts.ts";
import { signedThinking } from "./reasoning-details.ts";

/** Messages for a provider. `cacheMarks`: write `cache_control` members. Throws `feature_not_offered`. */
export function encodeMessages(request: GenerateRequest, cacheMarks: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  const system = request.system && encodeSystem(request.system, cacheMarks);
  if (system) messages.push(system);
  for (const turn of foldSystemEntries(request.messages)) {
    const isAssistant = turn.role === Role.ASSISTANT;
    const encoded = isAssistant ? encodeAssistant(turn, request.sourceFormat === Format.CHAT) : encodeUser(turn, cacheMarks);
    // Not spread: a turn may have more results than a call has room for arguments.
    for (const message of encoded) messages.push(message);
  }
  return messages;
}

/** The first line of the native command line client's instructions: it says who pays the vendor and changes from call to call. */
const attribution = "x-anthropic-billing-header:";

function encodeSystem(system: System, cacheMarks: boolean): JsonObject | undefined {
  // The vendor takes the attribution away as well; here it would spoil the provider's prefix cache.
  const blocks = system.content.filter((block) => !textOf(block).startsWith(attribution) && textOf(block) !== "");
  if (blocks.length === 0) return undefined;
  if (cacheMarks && blocks.some((block) => block.cacheControl)) {
    return { role: "system", content: blocks.flatMap((block) => encodePart(block, cacheMarks)) };
  }
  // A string, since many servers take nothing else for this role.
  return { role: "system", content: blocks.map(textOf).join("\n") };
}

function textOf(block: Block): string {
  return block.kind.case === "text" ? block.kind.value.text : "";
}

function encodeAssistant(turn: Message, echoReasoning: boolean): JsonObject[] {
  const calls = turn.content.flatMap((block) => (block.kind.case === "toolUse" ? [encodeCall(block.kind.value)] : []));
  const text = turn.content.map(textOf).join("");
  if (text === "" && calls.length === 0) return [];
  const message: JsonObject = { role: "assistant", content: text === "" ? null : text };
  // Thinking goes back only to where it can have come from: a signature of another provider is worth nothing.
  const details = echoReasoning ? signedThinking(turn.content) : [];
  if (details.length > 0) message.reasoning_details = details;
  if (calls.length > 0) message.tool_calls = calls;
  return [message];
}

function encodeCall(call: ToolUseBlock): JsonObject {
  return { id: call.id, type: "function", function: { name: call.name, arguments: JSON.stringify(call.input ?? {}) } };
}

function encodeUser(turn: Message, cacheMarks: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  const parts: JsonObject[] = [];
  for (const block of turn.content) {
    if (block.kind.case === "toolResult") {
      const { message, rest } = encodeResult(block, block.kind.value, cacheMarks);
      messages.push(message);
      // A `tool` message holds text only; what else the tool gave follows as from the user.
      for (const one of rest) parts.push(...encodePart(one, cacheMarks));
    }
  }
  for (const block of turn.content) if (block.kind.case !== "toolResult") parts.push(...encodePart(block, cacheMarks));
  if (parts.length > 0) messages.push({ role: "user", content: plainIfPossible(parts) });
  return messages;
}

function encodeResult(block: Block, result: ToolResultBlock, cacheMarks: boolean): { message: JsonObject; rest: Block[] } {
  const isAttachment = ({ kind }: Block) => kind.case === "image" || kind.case === "document";
  const rest = result.content.filter(isAttachment);
  const content = textOfBlocks(result.content.filter((one) => !isAttachment(one)));
  const mark = cacheMarks ? encodeCacheMark(block.cacheControl) : {};
  return { message: { role: "tool", tool_call_id: result.toolUseId, content, ...mark }, rest };
}

// The string form is the one that every server and chat template takes.
function plainIfPossible(parts: JsonObject[]): JsonObject[] | string {
  const [only] = parts;
  const isPlain = parts.length === 1 && only?.type === "text" && only.cache_control === undefined;
  return isPlain && typeof only.text === "string" ? only.text : parts;
}
