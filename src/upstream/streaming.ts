// Whether a provider is asked for a stream.

import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

// A longer answer would leave a connection idle for so long that something between here and the provider closes it, and a hang-up
// would tell nothing about what was produced.
const plainTokensMax = 4096;

/** True when the client wants a stream, and for every answer that may become long. */
export function wantsStream({ stream = false, maxTokens = Number.POSITIVE_INFINITY }: GenerateRequest): boolean {
  return stream || maxTokens > plainTokensMax;
}
