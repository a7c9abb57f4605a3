// Messages generated from their descriptors: the smallest valid request, and arbitrary messages.

import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJsonString,
  type Message,
  ScalarType,
  toJsonString,
} from "@bufbuild/protobuf";
import { isReflectMessage, type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import {
  DurationSchema,
  FieldMaskSchema,
  StructSchema,
  TimestampSchema,
} from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { limitsOf } from "../../../src/contract/limits.ts";

/** The account that the least requests name, which is that of the key of the scripted services. */
export const leastAccountId = "acc_1";

/** A request with every required field set, and the account, which operators have to name. */
export function leastRequest(type: DescMessage): Message {
  return complete(type, create(type));
}

/** An arbitrary request that a service accepts from a caller of the account of `leastRequest`. */
export function anyRequest(type: DescMessage): fc.Arbitrary<Message> {
  return anyMessage(type)
    .map((message) => complete(type, message))
    .filter((message) => !toJsonString(type, message).includes("\\u0000"));
}

/** Sets the account and the required fields that the message lacks, and returns it. */
function complete(type: DescMessage, message: Message): Message {
  const reflected = reflect(type, message, false);
  if (type.field.accountId) reflected.set(type.field.accountId, leastAccountId);
  // Together with an account it is refused.
  if (type.field.allAccounts) reflected.clear(type.field.allAccounts);
  for (const field of type.fields) {
    if (limitsOf(field)?.isRequired && !reflected.isSet(field)) {
      if (field.fieldKind === "list") reflected.get(field).add(leastItem(field));
      else if (field.fieldKind === "message") reflected.set(field, leastInner(field.message));
      else if (field.fieldKind === "enum") reflected.set(field, listedNumbers(field.enum)[1]);
      else if (field.fieldKind === "scalar") reflected.set(field, leastScalar(field.scalar));
    } else if (field.fieldKind === "message" && reflected.isSet(field)) {
      complete(field.message, reflected.get(field).message);
    } else if (field.fieldKind === "list") {
      for (const item of reflected.get(field))
        if (isReflectMessage(item)) complete(item.desc, item.message);
    }
  }
  return message;
}

export function requiredFields(type: DescMessage): DescField[] {
  return type.fields.filter((field) => limitsOf(field)?.isRequired);
}

function leastItem(field: DescField & { fieldKind: "list" }): unknown {
  if (field.message) return leastInner(field.message);
  return field.enum ? listedNumbers(field.enum)[1] : leastScalar(field.scalar);
}

function leastInner(type: DescMessage): ReflectMessage {
  return reflect(type, leastRequest(type), false);
}

function leastScalar(scalar: ScalarType): unknown {
  if (scalar === ScalarType.STRING) return "x";
  if (scalar === ScalarType.BYTES) return new Uint8Array([1]);
  if (scalar === ScalarType.BOOL) return true;
  return scalar === ScalarType.INT64 || scalar === ScalarType.UINT64 ? 1n : 1;
}

function listedNumbers(type: DescEnum): number[] {
  return type.values.map((value) => value.number);
}

/** The path of fields to a place inside a message. */
export type FieldPath = readonly DescField[];

/** Every enum field in a message, however deep; a type that holds itself is entered once. */
export function enumPaths(type: DescMessage, above: readonly DescMessage[] = []): FieldPath[] {
  if (above.includes(type) || type.typeName.startsWith("google.protobuf.")) return [];
  return type.fields.flatMap((field) => {
    if (field.enum) return [[field]];
    return field.message
      ? enumPaths(field.message, [...above, type]).map((path) => [field, ...path])
      : [];
  });
}

/** The path as an error names it. */
export function nameOfPath(path: FieldPath): string {
  return path
    .map((field) => (field.fieldKind === "list" ? `${field.name}[0]` : field.name))
    .join(".");
}

/** Sets an enum field and creates the messages on its path. Replaces the items of lists there. */
export function setEnum(
  type: DescMessage,
  message: Message,
  [field, ...rest]: FieldPath,
  value: number,
): void {
  if (!field) return;
  const reflected = reflect(type, message, false);
  if (!field.message) {
    if (field.fieldKind === "list") {
      reflected.clear(field);
      reflected.get(field).add(value);
    } else reflected.set(field, value);
    return;
  }
  const inner = leastRequest(field.message);
  setEnum(field.message, inner, rest, value);
  if (field.fieldKind === "list") {
    reflected.clear(field);
    reflected.get(field).add(reflect(field.message, inner, false));
  } else {
    reflected.set(field, reflect(field.message, inner, false));
  }
}

/** An arbitrary message of this type, `depth` levels deep. */
export function anyMessage(type: DescMessage, depth = 3): fc.Arbitrary<Message> {
  if (type.typeName === TimestampSchema.typeName) {
    return fc
      .record({ seconds: fc.bigInt(0n, 4_000_000_000n), nanos: fc.nat(999_999_999) })
      .map((init) => create(type, init));
  }
  if (type.typeName === DurationSchema.typeName) {
    return fc
      .record({ seconds: fc.bigInt(0n, 1_000_000n), nanos: fc.nat(999_999_999) })
      .map((init) => create(type, init));
  }
  if (type.typeName === FieldMaskSchema.typeName) {
    return fc
      .array(fc.stringMatching(/^[a-z]{1,8}(_[a-z]{1,8})?$/))
      .map((paths) => create(type, { paths }));
  }
  const members = type.members.map((member) => {
    if (member.kind === "field")
      return fc
        .option(anyValue(member, depth), { nil: undefined })
        .map((value) => ({ field: member, value }));
    const cases = member.fields.map((field) =>
      anyValue(field, depth).map((value) => ({ field, value })),
    );
    return fc.option(fc.oneof(...cases), { nil: undefined });
  });
  return fc.tuple(...members).map((chosen) => {
    const message = create(type);
    const reflected = reflect(type, message, false);
    for (const one of chosen) {
      if (one?.value === undefined) continue;
      if (one.field.fieldKind === "map" && one.value instanceof Map) {
        for (const [key, value] of one.value) reflected.get(one.field).set(key, value);
      } else if (one.field.fieldKind === "list" && Array.isArray(one.value)) {
        for (const item of one.value) reflected.get(one.field).add(item);
      } else {
        reflected.set(one.field, one.value);
      }
    }
    return message;
  });
}

function anyValue(field: DescField, depth: number): fc.Arbitrary<unknown> {
  const single = field.message
    ? anyInner(field.message, depth)
    : field.enum
      ? fc.constantFrom(...listedNumbers(field.enum))
      : anyScalar(field.scalar ?? ScalarType.STRING);
  if (field.fieldKind === "map")
    return fc
      .array(fc.tuple(anyScalar(field.mapKey), single), { maxLength: depth > 0 ? 3 : 0 })
      .map((entries) => new Map(entries));
  return field.fieldKind === "list" ? fc.array(single, { maxLength: depth > 0 ? 3 : 0 }) : single;
}

function anyInner(type: DescMessage, depth: number): fc.Arbitrary<unknown> {
  if (type.typeName === StructSchema.typeName) {
    return fc
      .dictionary(fc.string(), fc.jsonValue())
      .map((value) => reflect(type, fromJsonString(type, JSON.stringify(value))));
  }
  const message = depth > 0 ? anyMessage(type, depth - 1) : fc.constant(create(type));
  return message.map((one) => reflect(type, one, false));
}

// Made once: it makes tables of all characters.
const anyText = fc.string({ unit: "binary" });

function anyScalar(scalar: ScalarType): fc.Arbitrary<unknown> {
  switch (scalar) {
    case ScalarType.STRING:
      return anyText;
    case ScalarType.BYTES:
      return fc.uint8Array();
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.INT64:
      return fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n);
    case ScalarType.INT32:
      return fc.integer();
    case ScalarType.UINT32:
      return fc.nat(0xffff_ffff);
    case ScalarType.DOUBLE:
      // Zero has two signs in binary and one in JSON.
      return fc.double({ noNaN: true }).map((value) => value + 0);
    default:
      throw new Error(`no samples of ${ScalarType[scalar]}`);
  }
}
