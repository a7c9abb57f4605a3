// How many fields the bytes of a message hold, told without making the message: for the same reason as `wire/json-items.ts`, since a
// repeated field needs two bytes for what takes a hundred in memory.

import type { DescMessage } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/**
 * True when the message and those inside it have more than `max` fields, each element of a repeated one counted. Stops there, and looks
 * no deeper than `depthMax` messages. Bytes that are no message are counted as far as they can be read.
 */
export function hasMoreFields(type: DescMessage, bytes: Uint8Array, max: number, depthMax: number): boolean {
  // Every field is at least two bytes.
  if (bytes.byteLength <= 2 * max) return false;
  const reader = new BinaryReader(bytes);
  let fields = 0;
  const count = (inside: MessageFields, end: number, depth: number): void => {
    while (reader.pos < end && fields <= max) {
      const [number, wireType] = reader.tag();
      fields++;
      const inner = wireType === WireType.LengthDelimited && depth < depthMax ? inside.get(number) : undefined;
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
