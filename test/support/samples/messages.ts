// Messages generated from their descriptors: the smallest valid request, and arbitrary messages.

import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJsonString,
  isMessage,
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
  timestampFromMs,
} from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { compileLimits, type Limits, limitsOf } from "../../../src/contract/limits.ts";

/** The account that the least requests name, which is that of the key of the scripted services. */
export const leastAccountId = "acc_1";

/**
 * A request with every required field set, within its limits, and the account, which operators have
 * to name.
 */
export function leastRequest(type: DescMessage): Message {
  return complete(type, create(type));
}

/** An arbitrary request that a service accepts from a caller of the account of `leastRequest`. */
export function anyRequest(type: DescMessage): fc.Arbitrary<Message> {
  return anyMessage(type)
    .map((message) => complete(type, message))
    .filter((message) => !toJsonString(type, message).includes("\\u0000"));
}

/**
 * Sets the account and the required fields that the message lacks, clears fields that break their
 * limits, and returns it.
 */
function complete(type: DescMessage, message: Message): Message {
  const reflected = reflect(type, message, false);
  if (type.field.accountId) reflected.set(type.field.accountId, leastAccountId);
  // Together with an account it is refused.
  if (type.field.allAccounts) reflected.clear(type.field.allAccounts);
  for (const field of type.fields) {
    if (reflected.isSet(field) && compileLimits(field)?.(rawValue(message, field)))
      reflected.clear(field);
    if (limitsOf(field)?.isRequired && !reflected.isSet(field)) {
      if (field.fieldKind === "list")
        reflected.get(field).add(leastItem(field, limitsOf(field)?.items));
      else if (field.fieldKind === "message") reflected.set(field, leastInner(field.message));
      else if (field.fieldKind === "enum")
        reflected.set(field, leastNumber(field.enum, limitsOf(field)));
      else if (field.fieldKind === "scalar")
        reflected.set(field, leastScalar(field.scalar, limitsOf(field)));
    } else if (field.fieldKind === "message" && reflected.isSet(field)) {
      complete(field.message, reflected.get(field).message);
    } else if (field.fieldKind === "list") {
      for (const item of reflected.get(field))
        if (isReflectMessage(item)) complete(item.desc, item.message);
    } else if (field.fieldKind === "map") {
      for (const [, item] of reflected.get(field))
        if (isReflectMessage(item)) complete(item.desc, item.message);
    }
  }
  return message;
}

export function requiredFields(type: DescMessage): DescField[] {
  return type.fields.filter((field) => limitsOf(field)?.isRequired);
}

function rawValue(message: Message, { oneof, localName }: DescField): unknown {
  const value: unknown = Reflect.get(message, oneof?.localName ?? localName);
  return oneof ? Reflect.get(Object(value), "value") : value;
}

function leastItem(field: DescField & { fieldKind: "list" }, limits?: Limits): unknown {
  if (field.message) return leastInner(field.message);
  return field.enum ? leastNumber(field.enum, limits) : leastScalar(field.scalar, limits);
}

function leastInner(type: DescMessage): ReflectMessage {
  const inHour = () => timestampFromMs(Date.now() + 3_600_000);
  // A time that is required may have to be in the future.
  const inner = type.typeName === TimestampSchema.typeName ? inHour() : leastRequest(type);
  return reflect(type, inner, false);
}

function leastScalar(scalar: ScalarType, { pattern, lengthMin = 1, least = 1 }: Limits = {}) {
  if (scalar === ScalarType.STRING) return pattern ? sampleOf(pattern) : "x".repeat(lengthMin);
  if (scalar === ScalarType.BYTES) return new Uint8Array([1]);
  if (scalar === ScalarType.BOOL) return true;
  const number = least > 1 ? least : 1;
  return scalar === ScalarType.INT64 || scalar === ScalarType.UINT64
    ? BigInt(number)
    : Number(number);
}

const samples = new Map<RegExp, string>();

/** A text of this form, always the same. */
function sampleOf(pattern: RegExp): string {
  const found =
    samples.get(pattern) ?? fc.sample(fc.stringMatching(pattern), { seed: 1, numRuns: 1 })[0];
  if (found === undefined) throw new Error(`${pattern} has no sample`);
  samples.set(pattern, found);
  return found;
}

/** The first value that is not "not set" and that the limits allow. */
function leastNumber(type: DescEnum, limits?: Limits): number | undefined {
  return listedNumbers(type).find((value) => value !== 0 && !limits?.notIn?.includes(value));
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
export function setEnum(type: DescMessage, message: Message, path: FieldPath, value: number): void {
  setAt(type, message, path, path.at(-1)?.fieldKind === "list" ? [value] : value);
}

/**
 * Sets the field at the end of a path and creates the messages on the path. `value`: of a list an
 * array, of a map a record.
 */
function setAt(
  type: DescMessage,
  message: Message,
  [field, ...rest]: FieldPath,
  value: unknown,
): void {
  if (!field) return;
  if (rest.length === 0 || !field.message) {
    put(type, message, field, value);
    return;
  }
  const inner = leastRequest(field.message);
  setAt(field.message, inner, rest, value);
  const wrapped = { list: [inner], map: { a: inner }, message: inner };
  put(type, message, field, Reflect.get(wrapped, field.fieldKind));
}

function put(type: DescMessage, message: Message, field: DescField, value: unknown): void {
  const reflected = reflect(type, message, false);
  const inner = (one: unknown) =>
    field.message && isMessage(one) ? reflect(field.message, one, false) : one;
  reflected.clear(field);
  if (field.fieldKind === "list" && Array.isArray(value)) {
    for (const one of value) reflected.get(field).add(inner(one));
  } else if (field.fieldKind === "map") {
    for (const [key, one] of Object.entries(Object(value)))
      reflected.get(field).set(key, inner(one));
  } else {
    reflected.set(field, inner(value));
  }
}

/** A value at the edge of a limit, in a request. */
export type Edge = {
  /** As an error names it. */
  readonly field: string;
  /** The limit. */
  readonly kind: string;
  readonly isValid: boolean;
  readonly request: Message;
};

/** Requests with values one below, at and above each limit of a message, at every depth. */
export function limitEdges(type: DescMessage): Edge[] {
  return limitPaths(type).flatMap((path) => {
    const field = path.at(-1);
    const limits = field && limitsOf(field);
    if (!limits) return [];
    const above = path.slice(0, -1);
    const name = [...(above.length > 0 ? [nameOfPath(above)] : []), field.name].join(".");
    return edgesOf(limits, field).map(({ kind, value, isValid, at = "" }) => {
      const request = leastRequest(type);
      setAt(type, request, path, value);
      return { field: name + at, kind, isValid, request };
    });
  });
}

function limitPaths(type: DescMessage, above: readonly DescMessage[] = []): FieldPath[] {
  if (above.includes(type) || type.typeName.startsWith("google.protobuf.")) return [];
  return type.fields.flatMap((field) => [
    ...(limitsOf(field) ? [[field]] : []),
    ...(field.message
      ? limitPaths(field.message, [...above, type]).map((path) => [field, ...path])
      : []),
  ]);
}

type ValueEdge = {
  readonly kind: string;
  readonly value: unknown;
  readonly isValid: boolean;
  /** The place in the field that an error names. */
  readonly at?: string;
};

function edgesOf(limits: Limits, field: DescField): ValueEdge[] {
  const { itemsMin, itemsMax, isUnique, items, keys, values, skipsZero } = limits;
  if (field.fieldKind === "list") {
    const list = (length: number) => Array.from({ length }, (_, index) => itemAt(field, index));
    return [
      ...around("itemsMin", itemsMin, (size) => list(Number(size)), 0),
      ...around("itemsMax", itemsMax, (size) => list(Number(size)), 0),
      ...(isUnique
        ? [{ kind: "isUnique", value: [...list(1), ...list(1)], isValid: false, at: "[1]" }]
        : []),
      ...(items ? scalarEdges(items, field) : []).map(({ value, ...edge }) => ({
        ...edge,
        value: [value],
        at: "[0]",
      })),
    ];
  }
  if (field.fieldKind === "map") {
    const one = field.message ? leastRequest(field.message) : "x";
    const map = (length: number) =>
      Object.fromEntries(Array.from({ length }, (_, index) => [`k${index}`, one]));
    return [
      ...around("itemsMax", itemsMax, (size) => map(Number(size)), 0),
      ...(keys ? scalarEdges(keys, field) : []).map(({ value, ...edge }) => ({
        ...edge,
        value: { [String(value)]: one },
      })),
      ...(values ? scalarEdges(values, field) : []).map(({ value, ...edge }) => ({
        ...edge,
        value: { k: value },
      })),
    ];
  }
  const zero = field.scalar === ScalarType.STRING ? "" : 0;
  return [
    ...(skipsZero ? [{ kind: "skipsZero", value: zero, isValid: true }] : []),
    ...scalarEdges(limits, field),
  ];
}

/** The entry `index` of a list without two equal ones. */
function itemAt(field: DescField, index: number): unknown {
  if (field.enum) return listedNumbers(field.enum)[index + 1] ?? 1;
  if (field.message) return leastRequest(field.message);
  return field.scalar === ScalarType.STRING ? `x${index}` : index + 1;
}

function scalarEdges(limits: Limits, field: DescField): ValueEdge[] {
  const { lengthMin, lengthMax, bytesMax, pattern, least, most, notIn, isFuture } = limits;
  const isBytes = field.scalar === ScalarType.BYTES;
  // Characters that take two units and four bytes: the limit counts characters.
  const text = (length: number | bigint) => "😀".repeat(Number(length));
  const bytes = (length: number | bigint) =>
    isBytes ? new Uint8Array(Number(length)) : "x".repeat(Number(length));
  const number = (value: number | bigint) => (field.message ? durationOf(value) : value);
  return [
    ...around("lengthMin", lengthMin, text, limits.skipsZero ? 1 : 0),
    ...around("lengthMax", lengthMax, text, 0),
    ...around("bytesMax", bytesMax, bytes, 0),
    ...(pattern
      ? [
          { kind: "pattern", value: sampleOf(pattern), isValid: true },
          { kind: "pattern", value: `${sampleOf(pattern)}\n`, isValid: false },
          { kind: "pattern", value: "é", isValid: false },
        ]
      : []),
    ...around("least", least, number, field.scalar === ScalarType.UINT32 ? 0 : undefined),
    ...around("most", most, number),
    ...(notIn ?? []).map((value) => ({ kind: "notIn", value, isValid: false })),
    ...(isFuture
      ? [
          { kind: "isFuture", value: timestampFromMs(Date.now() - 1_000), isValid: false },
          { kind: "isFuture", value: timestampFromMs(Date.now() + 86_400_000), isValid: true },
        ]
      : []),
  ];
}

function durationOf(nanoseconds: number | bigint): Message {
  const all = BigInt(nanoseconds);
  const nanos = Number(all % 1_000_000_000n);
  return create(DurationSchema, { seconds: all / 1_000_000_000n, nanos });
}

/** The values one below, at and one above a bound. `lowest`: of the type. */
function around(
  kind: "itemsMin" | "itemsMax" | "lengthMin" | "lengthMax" | "bytesMax" | "least" | "most",
  bound: number | bigint | undefined,
  make: (value: number | bigint) => unknown,
  lowest?: number,
): ValueEdge[] {
  if (bound === undefined) return [];
  const isLower = kind === "itemsMin" || kind === "lengthMin" || kind === "least";
  return [-1, 0, 1].flatMap((step) => {
    const value = typeof bound === "bigint" ? bound + BigInt(step) : bound + step;
    if (lowest !== undefined && value < lowest) return [];
    return [{ kind, value: make(value), isValid: isLower ? step >= 0 : step <= 0 }];
  });
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
