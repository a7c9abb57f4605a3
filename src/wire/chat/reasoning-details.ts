// Signed thinking as chat clients carry it: `reasoning_details`, an extension that several gateways share. A client that sends it back
// with its history lets the model go on with the thoughts it had; to others it is one more member to ignore.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";

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

/** One thought in a provider's details. Either member may be empty. */
export type Thought = { text: string; signature: string };

/** The thoughts among a provider's details; entries of other kinds say nothing that can be shown. */
export function readDetails(details: readonly JsonValue[]): Thought[] {
  return details.flatMap((detail) => {
    if (!isObject(detail) || detail.type !== "reasoning.text") return [];
    const { text, signature } = detail;
    return [{ text: typeof text === "string" ? text : "", signature: typeof signature === "string" ? signature : "" }];
  });
}

/** The reasoning in a provider's delta or message, under either name that providers give it. Some write both, one of them empty. */
export function readReasoning(from: JsonObject): string {
  const named = from.reasoning_content || from.reasoning;
  return typeof named === "string" ? named : "";
}
