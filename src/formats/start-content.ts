// The content of an answer that starts complete. A native provider answers so during programmatic
// tool calling: the start has the blocks and the stop reason, and no deltas follow.

import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { MessageStart } from "../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "./json.ts";
import { completeBlock, decodeBlock } from "./native/decode-block.ts";

/** The blocks and the stop reason in the start of an answer; most starts have neither. */
export function readStartContent({ extensions }: MessageStart): {
  blocks: Block[];
  stopReason: string | undefined;
} {
  const { content, stop_reason: reason } = extensions ?? {};
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  return {
    blocks: blocks.map((block) => decodeBlock(completeBlock(block))),
    stopReason: typeof reason === "string" ? reason : undefined,
  };
}
