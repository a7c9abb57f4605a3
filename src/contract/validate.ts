// Validates a request by its descriptor, the same on every binding: required fields are set, values
// are within the limits of their fields, enums hold listed values, times are possible, and
// PostgreSQL can store the strings. (protobuf accepts unlisted enum numbers, so that old programs
// can pass on new values. In a request they have no meaning.)

import {
  type DescField,
  type DescMessage,
  isFieldSet,
  isMessage,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type Duration,
  DurationSchema,
  type Timestamp,
  TimestampSchema,
} from "@bufbuild/protobuf/wkt";
import { file_gateway_inference_v1_content } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  GenerateRequestSchema,
  OriginSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { type Check, compileLimits, type Fault, limitsOf } from "./limits.ts";

/** Throws `invalid_request` with the path of the first invalid field, as `messages[0].role`. */
export function checkRequest(type: DescMessage, request: Message): void {
  const fault = findFault(type, request);
  if (!fault) return;
  const field = fault.path.join("").slice(1);
  throw invalidField(field, fault.message, fault.allowed);
}

/**
 * Throws `invalid_request` for a field that this program does not know, at any depth: what changes
 * something must not lose a limit that a newer caller has set.
 */
export function refuseUnknownFields(type: DescMessage, message: Message): void {
  const [unknown] = message.$unknown ?? [];
  if (unknown)
    throw new ApiError("invalid_request", {
      message: `Field ${unknown.no} of ${type.typeName} is not known here.`,
    });
  for (const field of type.fields) {
    if (!field.message) continue;
    const property = field.oneof?.localName ?? field.localName;
    const value = readField(message, { property, field, inOneof: field.oneof !== undefined });
    const inner = field.fieldKind === "message" ? [value] : Object.values(Object(value));
    for (const one of inner) if (isMessage(one)) refuseUnknownFields(field.message, one);
  }
}

function findFault(type: DescMessage, message: Message): Fault | undefined {
  for (const rule of rulesOf(type)) {
    const { field, isRequired, check, isWalked } = rule;
    const value = readField(message, rule);
    const fault =
      isRequired && !isFieldSet(message, field)
        ? absence
        : value === undefined
          ? undefined
          : (check?.(value) ?? (isWalked ? findFieldFault(field, value) : undefined));
    if (fault) return { ...fault, path: [`.${field.name}`, ...fault.path] };
  }
  return undefined;
}

const absence: Fault = { path: [], message: "is required", allowed: [] };

function findFieldFault(field: DescField, value: unknown): Fault | undefined {
  // A map has no place to name: its keys are the caller's.
  const texts = field.fieldKind === "map" && Object.entries(Object(value)).flat();
  if (texts) return texts.map((one) => findValueFault(field, one)).find(Boolean);
  if (!Array.isArray(value)) return findValueFault(field, value);
  for (let index = 0; index < value.length; index++) {
    const fault = findValueFault(field, value[index]);
    if (fault) return { ...fault, path: [`[${index}]`, ...fault.path] };
  }
  return undefined;
}

function findValueFault(field: DescField, value: unknown): Fault | undefined {
  if (field.enum && typeof value === "number" && !field.enum.value[value]) {
    const isRequired = limitsOf(field)?.isRequired;
    const allowed = field.enum.values.filter((one) => one.number !== 0 || !isRequired);
    return {
      path: [],
      message: `${value} is not a ${field.enum.name}`,
      allowed: allowed.map((one) => one.name),
    };
  }
  if (typeof value === "string" && value.includes("\0"))
    return { path: [], message: "must not contain the character U+0000", allowed: [] };
  const { message } = field;
  if (!message || !isMessage(value)) return undefined;
  // By identity: conversations have thousands of messages.
  if (message === TimestampSchema)
    return isMessage(value, TimestampSchema) && !isTime(value) ? noTime : undefined;
  if (message === DurationSchema)
    return isMessage(value, DurationSchema) && !isDuration(value) ? noDuration : undefined;
  return findFault(message, value);
}

// Of the bounds of the standard types, which JSON keeps and a binary message need not.
const noTime: Fault = { path: [], message: "is not in the years 1 to 9999", allowed: [] };
const noDuration: Fault = { path: [], message: "is no duration", allowed: [] };
const secondsMin = BigInt(Date.parse("0001-01-01T00:00:00Z") / 1000);
const secondsEnd = BigInt(Date.parse("9999-12-31T23:59:59Z") / 1000) + 1n;
const durationSecondsMax = 315_576_000_000n;

function isTime({ seconds, nanos }: Timestamp): boolean {
  return seconds >= secondsMin && seconds < secondsEnd && nanos >= 0 && nanos <= 999_999_999;
}

function isDuration({ seconds, nanos }: Duration): boolean {
  const isMixed = (seconds > 0n && nanos < 0) || (seconds < 0n && nanos > 0);
  return (
    !isMixed &&
    seconds >= -durationSecondsMax &&
    seconds <= durationSecondsMax &&
    Math.abs(nanos) <= 999_999_999
  );
}

/** The value of a field. Undefined for one of a oneof that is not set. */
function readField(
  message: Message,
  { field, property, inOneof }: Pick<Rule, "field" | "property" | "inOneof">,
): unknown {
  const value: unknown = Reflect.get(message, property);
  if (!inOneof) return value;
  if (typeof value !== "object" || value === null || !("value" in value)) return undefined;
  return "case" in value && value.case === field.localName ? value.value : undefined;
}

type Rule = {
  readonly field: DescField;
  readonly isRequired: boolean;
  /** The limits of the field. */
  readonly check: Check | undefined;
  /** True if more than limits has to be looked at: a field with limits alone is not entered. */
  readonly isWalked: boolean;
  /** The property of a message that holds the field. */
  readonly property: string;
  /** True if the field shares the property with others. */
  readonly inOneof: boolean;
};
const rulesByType = new WeakMap<DescMessage, readonly Rule[]>();

// Read once for each type: reading one option costs more than all checks of a field.
function rulesOf(type: DescMessage): readonly Rule[] {
  const known = rulesByType.get(type);
  if (known) return known;
  const rules = type.fields
    .filter((field) => hasRules(field, new Set()))
    .map((field) => ({
      field,
      isRequired: limitsOf(field)?.isRequired ?? false,
      check: compileLimits(field),
      isWalked: isWalked(field, new Set()),
      property: field.oneof?.localName ?? field.localName,
      inOneof: field.oneof !== undefined,
    }));
  rulesByType.set(type, rules);
  return rules;
}

function hasRules(field: DescField, seen: Set<DescMessage>): boolean {
  return limitsOf(field) !== undefined || isWalked(field, seen);
}

function isWalked(field: DescField, seen: Set<DescMessage>): boolean {
  if (field.enum || isStoredText(field)) return true;
  const { message } = field;
  if (!message || seen.has(message)) return false;
  if (message === TimestampSchema || message === DurationSchema) return true;
  // google.protobuf.Struct is a plain object here, and the other standard types have no rules.
  if (message.typeName.startsWith("google.protobuf.")) return false;
  seen.add(message);
  return message.fields.some((inner) => hasRules(inner, seen));
}

/**
 * PostgreSQL stores ids, names and reasons, and cannot store U+0000. What a client asks a model for
 * is not stored, and may hold it.
 */
function isStoredText({ scalar, parent }: DescField): boolean {
  return (
    scalar === ScalarType.STRING &&
    parent !== GenerateRequestSchema &&
    parent !== OriginSchema &&
    parent.file.name !== file_gateway_inference_v1_content.name
  );
}
