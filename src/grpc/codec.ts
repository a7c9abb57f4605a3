// Encodes and decodes messages and metadata of gRPC calls with protobuf-es, and enforces the limits
// of a request.

import {
  type DescMessage,
  type DescMethod,
  fromBinary,
  type Message,
  toBinary,
} from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Metadata } from "@grpc/grpc-js";
import { ApiError } from "../base/errors.ts";
import { recursionLimit, requestBytesMax } from "../contract/message-limits.ts";
import { jsonItemsMax } from "../formats/json.ts";

/**
 * The most fields of a request, including the fields of nested messages. A member of a JSON object
 * takes four fields.
 */
export const fieldsMax = 4 * jsonItemsMax;

/** The path of a method in a gRPC call. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Encodes a message without copying the bytes. */
export function encodeMessage(type: DescMessage, message: Message): Buffer {
  const bytes = toBinary(type, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Decodes a message from a trusted peer. */
export function decodeMessage(type: DescMessage, bytes: Uint8Array): Message {
  return fromBinary(type, bytes, { recursionLimit });
}

/**
 * Decodes a request. Throws `request_too_large`, or `invalid_request` if the bytes are not such a
 * message or are nested too deep.
 */
export function decodeRequest(method: DescMethod, bytes: Uint8Array): Message {
  const limit = requestBytesMax(method);
  if (bytes.byteLength > limit) {
    throw new ApiError("request_too_large", {
      limit: { name: "body_bytes", limit: BigInt(limit), used: BigInt(bytes.byteLength) },
    });
  }
  if (hasMoreFields(method.input, bytes, fieldsMax, recursionLimit)) {
    throw new ApiError("request_too_large", {
      message: `The request has more than ${fieldsMax} fields.`,
      limit: { name: "request_fields", limit: BigInt(fieldsMax) },
    });
  }
  try {
    return decodeMessage(method.input, bytes);
  } catch (cause) {
    const fault = cause instanceof Error ? cause.message : "";
    throw new ApiError("invalid_request", {
      message: `not a valid ${method.input.typeName}: ${fault}`,
      cause,
    });
  }
}

/**
 * True if the message and its nested messages have more than `max` fields. Each element of a
 * repeated field counts. Stops at `max`, and ignores messages deeper than `depthMax`. Counts
 * invalid bytes as far as they can be read.
 *
 * Counting happens before decoding, for the reason in `formats/json.ts`: an element of a repeated
 * field needs two bytes on the wire and a hundred in memory.
 */
export function hasMoreFields(
  type: DescMessage,
  bytes: Uint8Array,
  max: number,
  depthMax: number,
): boolean {
  // Every field is at least two bytes.
  if (bytes.byteLength <= 2 * max) return false;
  const reader = new BinaryReader(bytes);
  let fields = 0;
  const count = (inside: MessageFields, end: number, depth: number): void => {
    while (reader.pos < end && fields <= max) {
      const [number, wireType] = reader.tag();
      fields++;
      const inner =
        wireType === WireType.LengthDelimited && depth < depthMax ? inside.get(number) : undefined;
      if (inner) {
        const length = reader.uint32();
        count(inner(), reader.pos + length, depth + 1);
      } else {
        reader.skip(wireType, number);
      }
    }
  };
  try {
    count(fieldsOf(type), bytes.byteLength, 0);
  } catch {
    // Decoding the message reports the fault.
  }
  return fields > max;
}

/** The message fields of a message by number, each with the message fields inside it. */
type MessageFields = ReadonlyMap<number, () => MessageFields>;

const known = new WeakMap<DescMessage, MessageFields>();

function fieldsOf(type: DescMessage): MessageFields {
  const found = known.get(type);
  if (found) return found;
  const fields = new Map<number, () => MessageFields>();
  for (const { number, fieldKind, message } of type.fields) {
    if (!message) continue;
    const inside = () => fieldsOf(message);
    // An entry of a map is a message without a descriptor, whose value is field 2.
    const entry: MessageFields = new Map([[2, inside]]);
    fields.set(number, fieldKind === "map" ? () => entry : inside);
  }
  known.set(type, fields);
  return fields;
}

/** The most bytes of all metadata names and values of one call. */
const metadataBytesMax = 16 * 1024;

// Authentication before reading and the call itself convert the same metadata.
const headersByMetadata = new WeakMap<Metadata, Headers>();

/**
 * The text metadata of a call as headers. Services use no binary metadata, so it is left out.
 * Throws `request_too_large`.
 */
export function headersOf(metadata: Metadata): Headers {
  const known = headersByMetadata.get(metadata);
  if (known) return known;
  const headers = new Headers();
  let bytes = 0;
  for (const [name, values] of Object.entries(metadata.toJSON())) {
    for (const value of values) {
      bytes += name.length + value.length;
      if (typeof value === "string") headers.append(name, value);
    }
  }
  if (bytes > metadataBytesMax)
    throw new ApiError("request_too_large", { message: "The metadata of this call is too large." });
  headersByMetadata.set(metadata, headers);
  return headers;
}

const legalName = /^[0-9a-z_.-]+(?<!-bin)$/;
// gRPC allows printable ASCII only. A credential with another character is invalid in any case, and
// it stays invalid with the replacement.
const unprintable = /[^\x20-\x7e]/g;

/** Headers as metadata of a call. Drops names that gRPC does not allow. */
export function metadataOf(headers: HeadersInit | undefined): Metadata {
  const metadata = new Metadata();
  if (headers === undefined) return metadata;
  for (const [name, value] of headers instanceof Headers ? headers : new Headers(headers)) {
    if (legalName.test(name)) metadata.set(name, value.replace(unprintable, "?"));
  }
  return metadata;
}
