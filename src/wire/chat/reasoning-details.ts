// Signed thinking as chat clients carry it: `reasoning_details`, an extension that several gateways share. A client that sends it back
// with its history lets the model go on with the thoughts it had; to others it is one more member to ignore.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";

/** One entry. */
export function reasoningDetail(text: string, signature: string): JsonObject {
  return { type: "reasoning.text", text, signature };
}

/** Entries for the thinking among the blocks that has a signature. */
export function signedThinking(blocks: readonly Block[]): JsonObject[] {
  return blocks.flatMap(({ kind }) =>
    kind.case === "thinking" && kind.value.signature !== "" ? [reasoningDetail(kind.value.thinking, kind.value.signature)] : [],
  );
}
