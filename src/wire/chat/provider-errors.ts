// Errors that providers report inside an answer.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../json.ts";
import { failure } from "../new-events.ts";

/**
 * The error in a chunk or answer, as a failure of the native type that its words and numbers mean: `{error: {…}}`, `{error: "…"}`, or
 * older servers' `{object: "error", message, …}`.
 */
export function readProviderError(body: JsonObject): Event | undefined {
  const error = body.object === "error" ? body : body.error;
  if (error === undefined || error === null) return undefined;
  const { message, type, code, status } = isObject(error) ? error : { message: error };
  const sentence = typeof message === "string" && message !== "" ? message : "The model provider failed amid its answer.";
  return failure(typeOf([type, code, status]), sentence);
}

// The provider's rate limit is not the key's: to the client the model is busy.
const kinds: readonly [words: RegExp, type: string][] = [
  [/overloaded|rate.?limit|too many|unavailable|\b(429|503|529)\b/i, "overloaded_error"],
  [/time.?out|\b(408|504)\b/i, "timeout_error"],
  [/authentication|permission|quota|\b(401|402|403)\b/i, "authentication_error"],
  [/invalid.?request|bad.?request|context_length|\b(400|413|422)\b/i, "invalid_request_error"],
];

function typeOf(hints: readonly (JsonValue | undefined)[]): string {
  const words = hints.filter((hint) => typeof hint === "string" || typeof hint === "number").join(" ");
  return kinds.find(([form]) => form.test(words))?.[1] ?? "api_error";
}
