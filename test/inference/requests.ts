// Requests as doors hand them on.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { type GenerateRequest, GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { Refusal } from "../../src/base/errors.ts";

export type RequestMembers = Exclude<MessageInitShape<typeof GenerateRequestSchema>, GenerateRequest>;

/** One user message "Hello" to haiku, with whatever a test adds. */
export function requestOf(more: RequestMembers = {}): GenerateRequest {
  return create(GenerateRequestSchema, { model: "haiku", maxTokens: 100, messages: [said("Hello")], ...more });
}

export function said(text: string) {
  return { role: Role.USER, content: [{ kind: { case: "text" as const, value: { text } } }] };
}

/** The refusal that `work` throws; undefined when it returns. */
export function refusalOf(work: () => unknown): Refusal | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}
