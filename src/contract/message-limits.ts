// The size and depth limits of messages, the same on every listener.

import type { DescMethod } from "@bufbuild/protobuf";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";

/**
 * The most bytes of one message. The largest request holds the 32 MiB of a public request plus the
 * overhead of protobuf.
 */
export const messageBytesMax = 48 * 1024 * 1024;
const smallRequestBytesMax = 1024 * 1024;
const largeRequests = new Set<DescMethod>([
  InferenceService.method.generate,
  InferenceService.method.countTokens,
]);

/** The most bytes of a request of this method. */
export function requestBytesMax(method: DescMethod): number {
  return largeRequests.has(method) ? messageBytesMax : smallRequestBytesMax;
}

/**
 * The most nested messages. JSON may be 200 levels deep, and one level of JSON is two messages: a
 * Struct or ListValue, and its Value.
 */
export const recursionLimit = 401;
