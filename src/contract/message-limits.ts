// How large and how deep a message may be, on every listener alike.

import type { DescMethod } from "@bufbuild/protobuf";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";

/**
 * What one message may hold. The largest request carries the 32 MiB of the public listener and what
 * protobuf adds to them.
 */
export const messageBytesMax = 48 * 1024 * 1024;
const smallRequestBytesMax = 1024 * 1024;
const largeRequests = new Set<DescMethod>([
  InferenceService.method.generate,
  InferenceService.method.countTokens,
]);

/** Most bytes that a request of this method may have, on every listener. */
export function requestBytesMax(method: DescMethod): number {
  return largeRequests.has(method) ? messageBytesMax : smallRequestBytesMax;
}

/**
 * Most messages inside one another. JSON may be 200 levels deep, and a level is two messages: a
 * Struct or ListValue and its Value.
 */
export const recursionLimit = 401;
