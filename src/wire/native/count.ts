// The answer to a request to count, both ways. `decodeCountRequest` and `encodeCountRequest` stand with the requests.

import type { JsonObject } from "@bufbuild/protobuf";
import type { CountTokensResponse } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { Refusal } from "../../errors.ts";
import { isCount, kept } from "./extensions.ts";

/** What a client is told. */
export function encodeCount(count: CountTokensResponse): JsonObject {
  return { input_tokens: count.inputTokens, ...count.extensions };
}

/** What a provider counted. Throws `upstream_error` for a body without a number. */
export function decodeCount(body: JsonObject): { inputTokens: number; extensions?: JsonObject } {
  const { input_tokens, ...rest } = body;
  if (!isCount(input_tokens)) throw new Refusal("upstream_error");
  const extensions = kept(rest);
  return { inputTokens: input_tokens, ...(extensions && { extensions }) };
}
