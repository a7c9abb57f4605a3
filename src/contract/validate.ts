// Validates a request by its descriptor, the same on every binding: required fields are set, enums
// hold listed values, and PostgreSQL can store the strings. (protobuf accepts unlisted enum
// numbers, so that old programs can pass on new values. In a request they have no meaning.)

import {
  type DescField,
  type DescMessage,
  getOption,
  isFieldSet,
  isMessage,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { required } from "../../gen/gateway/common/v1/options_pb.ts";
import { file_gateway_inference_v1_content } from "../../gen/gateway/inference/v1/content_pb.ts";
import { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";

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

/**
 * `path` holds parts such as `.messages`, `[0]`, `.role`. It is built only for an invalid field,
 * because conversations have thousands of items.
 */
type Fault = { path: string[]; message: string; allowed: string[] };

function findFault(type: DescMessage, message: Message): Fault | undefined {
  for (const rule of rulesOf(type)) {
    const { field } = rule;
    const fault =
      rule.isRequired && !isFieldSet(message, field)
        ? absence
        : findFieldFault(field, readField(message, rule));
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
    const allowed = field.enum.values.filter(
      (one) => one.number !== 0 || !getOption(field, required),
    );
    return {
      path: [],
      message: `${value} is not a ${field.enum.name}`,
      allowed: allowed.map((one) => one.name),
    };
  }
  if (typeof value === "string" && value.includes("\0"))
    return { path: [], message: "must not contain the character U+0000", allowed: [] };
  return field.message && isMessage(value) ? findFault(field.message, value) : undefined;
}

/** The value of a field. Undefined for one of a oneof that is not set. */
function readField(
  message: Message,
  { field, property, inOneof }: Omit<Rule, "isRequired">,
): unknown {
  const value: unknown = Reflect.get(message, property);
  if (!inOneof) return value;
  if (typeof value !== "object" || value === null || !("value" in value)) return undefined;
  return "case" in value && value.case === field.localName ? value.value : undefined;
}

type Rule = {
  readonly field: DescField;
  readonly isRequired: boolean;
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
      isRequired: getOption(field, required),
      property: field.oneof?.localName ?? field.localName,
      inOneof: field.oneof !== undefined,
    }));
  rulesByType.set(type, rules);
  return rules;
}

function hasRules(field: DescField, seen: Set<DescMessage>): boolean {
  if (field.enum || getOption(field, required) || isStoredText(field)) return true;
  const { message } = field;
  // google.protobuf.Struct is a plain object here, and the other standard types have no rules.
  if (!message || seen.has(message) || message.typeName.startsWith("google.protobuf."))
    return false;
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
    parent.typeName !== GenerateRequestSchema.typeName &&
    parent.file.name !== file_gateway_inference_v1_content.name
  );
}
