// The header that gives a request tags, in every public format.

import type { IncomingHttpHeaders } from "node:http";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { addHeaderTags, tagsHeader } from "../base/tags.ts";

/** The request with the tags of its header beside its own. Throws `invalid_request`. */
export function withHeaderTags(
  request: GenerateRequest,
  headers: IncomingHttpHeaders,
): GenerateRequest {
  const header = headers[tagsHeader];
  if (header === undefined) return request;
  return { ...request, tags: { ...addHeaderTags(request.tags, header) } };
}
