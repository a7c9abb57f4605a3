// What the `encrypted_content` of a reasoning item holds: a provider's signed thinking, which a
// client returns with its next request. The listener seals and opens it.

import type { JsonValue } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { type Block, BlockSchema } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject, parseJsonText } from "../json.ts";

/** The entry of `include` that asks for it. */
export const sealedInclude = "reasoning.encrypted_content";

/** Encrypts a text, for the account of the request and the model that answers. */
export type SealContent = (text: string) => string;

/**
 * Decrypts what `SealContent` returned. Throws `invalid_request` for `at` if it is of another
 * account or model, was changed, or is too old.
 */
export type OpenContent = (sealed: string, at: string) => string;

/** The text to seal of a block; undefined for one without a signature. */
export function sealedText(
  kind: Block["kind"],
  text: string,
  signature: string,
): string | undefined {
  if (kind.case === "redactedThinking") return JSON.stringify({ data: kind.value.data });
  return signature === "" ? undefined : JSON.stringify({ thinking: text, signature });
}

/** The block of an opened text; undefined for a text that this gateway did not write. */
export function readSealedText(text: string): Block | undefined {
  const value: JsonValue | undefined = parseJsonText(text);
  if (!isObject(value)) return undefined;
  const { data, thinking, signature } = value;
  if (typeof data === "string")
    return create(BlockSchema, { kind: { case: "redactedThinking", value: { data } } });
  if (typeof thinking !== "string" || typeof signature !== "string") return undefined;
  return create(BlockSchema, { kind: { case: "thinking", value: { thinking, signature } } });
}
