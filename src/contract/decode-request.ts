// Decodes the protobuf of a request and enforces its limits, the same on every listener.

import { type DescMessage, type DescMethod, fromBinary, type Message } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { ApiError } from "../base/errors.ts";
import { jsonItemsMax } from "../formats/json.ts";
import { recursionLimit, requestBytesMax } from "./message-limits.ts";

/**
 * The most fields of a request, including the fields of nested messages. A member of a JSON object
 * takes four fields.
 */
export const fieldsMax = 4 * jsonItemsMax;

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
    return fromBinary(method.input, bytes, { recursionLimit });
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
