// Requests and answers of the chat format.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { type Event, EventSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../../../src/base/errors.ts";
import { decodeRequest } from "../../../src/formats/chat/chat.ts";

/** The smallest request, with further members. */
export function bodyWith(members: JsonObject): JsonObject {
  return { model: "sonnet", messages: [{ role: "user", content: "Hello" }], ...members };
}

/** The error that decoding the body throws. Throws when the body is accepted. */
export function errorOf(body: JsonValue): ApiError {
  try {
    decodeRequest(body);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("the body was accepted");
}

export const context = {
  model: "model-sonnet-4.6",
  estimatedInputTokens: 7,
  includeUsage: true,
  createdAtMs: 1_764_000_000_500,
};

/** Events from their kinds. */
export function eventsOf(...kinds: MessageInitShape<typeof EventSchema>["kind"][]): Event[] {
  return kinds.map((kind) => create(EventSchema, { ...(kind && { kind }) }));
}

/**
 * The values of the `data:` lines of a stream, `[DONE]` as that string. Throws where a line is
 * anything else.
 */
export function readStream(text: string): (JsonObject | "[DONE]")[] {
  const frames = text.split("\n\n");
  if (frames.pop() !== "") throw new Error("the stream does not end with a blank line");
  return frames
    .filter((frame) => frame !== ": keep-alive")
    .map((frame) => {
      if (!frame.startsWith("data: ") || frame.includes("\n"))
        throw new Error(`not one data line: ${frame}`);
      return frame === "data: [DONE]" ? "[DONE]" : JSON.parse(frame.slice("data: ".length));
    });
}

/** A provider's stream of these values. */
export function streamOf(...values: (JsonValue | "[DONE]")[]): Buffer {
  return Buffer.from(
    values
      .map((value) => `data: ${value === "[DONE]" ? value : JSON.stringify(value)}\n\n`)
      .join(""),
  );
}

/** A provider's chunk with this delta. */
export function chunkOf(delta: JsonObject, finishReason: string | null = null): JsonObject {
  return {
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1,
    model: "m",
    choices: [{ index: 0, delta, finish_reason: finishReason }],
  };
}
