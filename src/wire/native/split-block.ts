// A block of an answer as a stream tells it: an empty form first, then deltas. Clients build on the empty form.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";
import { encodeBlock } from "./encode-block.ts";

type SplitBlock = {
  /** The block as it starts; undefined for a kind that this format does not carry. */
  start: JsonObject | undefined;
  /** What follows at once. */
  deltas: JsonObject[];
  /** What follows right before the end of the block, unless the provider sends such deltas itself. */
  late: { kind: "inputJson" | "signature"; delta: JsonObject } | undefined;
};

/** Splits `block`. What has no deltas in this format stays complete in `start`. */
export function splitBlock(block: Block): SplitBlock {
  const whole = encodeBlock(block, true);
  const split: SplitBlock = { start: whole, deltas: [], late: undefined };
  if (!whole) return split;
  switch (whole.type) {
    case "text":
      if (typeof whole.text === "string" && whole.text !== "") {
        split.start = { ...whole, text: "" };
        split.deltas.push({ type: "text_delta", text: whole.text });
      }
      if (Array.isArray(whole.citations) && whole.citations.length > 0) {
        split.start = { ...split.start, citations: [] };
        split.deltas.push(...whole.citations.map((citation) => ({ type: "citations_delta", citation })));
      }
      return split;
    case "thinking":
      split.start = { ...whole, thinking: "", signature: "" };
      if (whole.thinking) split.deltas.push({ type: "thinking_delta", thinking: whole.thinking });
      if (whole.signature) {
        split.late = { kind: "signature", delta: { type: "signature_delta", signature: whole.signature } };
      }
      return split;
    case "tool_use":
    case "server_tool_use":
    case "mcp_tool_use":
      if (isObject(whole.input) && Object.keys(whole.input).length > 0) {
        split.start = { ...whole, input: {} };
        const delta = { type: "input_json_delta", partial_json: JSON.stringify(whole.input) };
        split.late = { kind: "inputJson", delta };
      }
      return split;
    case "compaction":
      if (whole.content) {
        const { type, ...content } = whole;
        split.start = { type, content: null };
        split.deltas.push({ type: "compaction_delta", ...content });
      }
      return split;
    default:
      return split;
  }
}
