// Requests as the listeners pass them to the inference service.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  type GenerateRequest,
  GenerateRequestSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../src/base/errors.ts";

export type RequestMembers = Exclude<
  MessageInitShape<typeof GenerateRequestSchema>,
  GenerateRequest
>;

/** One user message "Hello" to haiku, with the members of `more`. */
export function requestOf(more: RequestMembers = {}): GenerateRequest {
  return create(GenerateRequestSchema, {
    model: "haiku",
    maxTokens: 100,
    messages: [userMessage("Hello")],
    ...more,
  });
}

export function userMessage(text: string) {
  return { role: Role.USER, content: [{ kind: { case: "text" as const, value: { text } } }] };
}

/** The `ApiError` that `work` throws; undefined when it returns. */
export function errorOf(work: () => unknown): ApiError | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}
