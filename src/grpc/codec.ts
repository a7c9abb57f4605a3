// How messages travel over gRPC: protobuf-es as the serializer of grpc-js, and how much is read
// before a call is refused.

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
 * Most fields that a request may hold, all messages inside it included: a member of a JSON object
 * takes four of them.
 */
export const fieldsMax = 4 * jsonItemsMax;

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

/**
 * The request in `bytes`. Throws `request_too_large`, or `invalid_request` for what is no such
 * message or is nested too deep.
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
    const problem = cause instanceof Error ? cause.message : "";
    throw new ApiError("invalid_request", {
      message: `not a valid ${method.input.typeName}: ${problem}`,
      cause,
    });
  }
}

// How many fields the bytes of a message hold, told without making the message: for the same reason
// as `formats/json.ts`, since a repeated field needs two bytes for what takes a hundred in memory.

/**
 * True when the message and those inside it have more than `max` fields, each element of a repeated
 * one counted. Stops there, and looks no deeper than `depthMax` messages. Bytes that are no message
 * are counted as far as they can be read.
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
    // Whoever makes the message says what is wrong.
  }
  return fields > max;
}

/** The fields of a message that hold messages, by number, each with the fields inside it. */
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

// Metadata of a gRPC call as the headers that services read, and back.

/** Most bytes of names and values that one call may bring. */
const metadataBytesMax = 16 * 1024;

// The gate in front of a call and the call itself read the same metadata.
const headersByMetadata = new WeakMap<Metadata, Headers>();

/**
 * The text headers of a call. Throws `request_too_large`. Binary metadata means nothing to our
 * services and is left out.
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
// gRPC allows printable ASCII only. A credential with anything else in it is wrong in any case: it
// is sent as far as it can be, and refused over there as it would be here.
const unprintable = /[^\x20-\x7e]/g;

/** The metadata that carries these headers. */
export function metadataOf(headers: HeadersInit | undefined): Metadata {
  const metadata = new Metadata();
  if (headers === undefined) return metadata;
  for (const [name, value] of headers instanceof Headers ? headers : new Headers(headers)) {
    if (legalName.test(name)) metadata.set(name, value.replace(unprintable, "?"));
  }
  return metadata;
}
