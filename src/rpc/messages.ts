// How messages travel over gRPC: protobuf-es as the serializer of grpc-js, and how much is read before a call is refused.

import { type DescMessage, type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { InferenceService } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { Refusal } from "../errors.ts";
import { jsonItemsMax } from "../wire/json-items.ts";
import { hasMoreFields } from "./field-count.ts";

/** What one message may hold. The largest request carries the 32 MiB of the public door and what protobuf adds to them. */
export const messageBytesMax = 48 * 1024 * 1024;
const smallRequestBytesMax = 1024 * 1024;
/** Most fields that a request may hold, all messages inside it included: a member of a JSON object takes four of them. */
export const fieldsMax = 4 * jsonItemsMax;
const largeRequests = new Set<DescMethod>([InferenceService.method.generate, InferenceService.method.countTokens]);

/** Most bytes that a request of this method may have, on every door. */
export function requestBytesMax(method: DescMethod): number {
  return largeRequests.has(method) ? messageBytesMax : smallRequestBytesMax;
}

/** Most messages inside one another. JSON may be 200 levels deep, and a level is two messages: a Struct or ListValue and its Value. */
export const recursionLimit = 401;

/** The name of a method on the wire. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** A message as bytes, without a copy. */
export function encodeMessage(type: DescMessage, message: Message): Buffer {
  const bytes = toBinary(type, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A message from bytes of a peer that we trust with its form. */
export function decodeMessage(type: DescMessage, bytes: Uint8Array): Message {
  return fromBinary(type, bytes, { recursionLimit });
}

/** The request in `bytes`. Throws `request_too_large`, or `invalid_request` for what is no such message or is nested too deep. */
export function decodeRequest(method: DescMethod, bytes: Uint8Array): Message {
  const limit = requestBytesMax(method);
  if (bytes.byteLength > limit) {
    throw new Refusal("request_too_large", {
      limit: { name: "body_bytes", limit: BigInt(limit), used: BigInt(bytes.byteLength) },
    });
  }
  if (hasMoreFields(method.input, bytes, fieldsMax, recursionLimit)) {
    throw new Refusal("request_too_large", {
      message: `The request has more than ${fieldsMax} fields.`,
      limit: { name: "request_fields", limit: BigInt(fieldsMax) },
    });
  }
  try {
    return decodeMessage(method.input, bytes);
  } catch (cause) {
    const problem = cause instanceof Error ? cause.message : "";
    throw new Refusal("invalid_request", { message: `not a valid ${method.input.typeName}: ${problem}`, cause });
  }
}
