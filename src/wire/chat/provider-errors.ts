// Errors that providers report inside an answer.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../json.ts";
import { failure } from "./new-events.ts";

/** The error in a chunk or answer: `{error: {…}}`, `{error: "…"}`, or older servers' `{object: "error", message, …}`. */
export function readProviderError(body: JsonObject): Event | undefined {
  const error = body.object === "error" ? body : body.error;
  if (error === undefined || error === null) return undefined;
  const { message, type, code, status } = isObject(error) ? error : { message: error };
  const sentence = typeof message === "string" && message !== "" ? message : "The model provider failed amid its answer.";
  return failure(typeOf([type, code, status]), sentence);
}

function typeOf(hints: readonly (JsonValue | undefined)[]): string {
  const words = hints.filter((hint) => typeof hint === "string" || typeof hint === "number").join(" ");
  // The provider's rate limit is not the key's: to the client the model is busy.
  if (/overloaded|rate.?limit|too many|unavailable|\b(429|503|529)\b/i.test(words)) return "overloaded_error";
  if (/time.?out|\b(408|504)\b/i.test(words)) return "timeout_error";
  return "api_error";
}
