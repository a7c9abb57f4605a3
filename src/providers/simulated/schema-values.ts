// Values that are valid against a JSON Schema: arguments of tool calls, and structured answers.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../formats/json.ts";

// Only recursive schemas are deeper. The value ends there with null.
const depthMax = 12;

/** An object valid against `schema`. It regards examples, constants, types and bounds. */
export function argumentsFor(schema: JsonObject | undefined): JsonObject {
  const value = schema === undefined ? {} : valueFor(schema, schema, "value", 0);
  return isObject(value) ? value : {};
}

/** Any value valid against `schema`. It regards the same. */
export function answerFor(schema: JsonObject): JsonValue {
  return valueFor(schema, schema, "value", 0);
}

function valueFor(
  schema: JsonValue | undefined,
  root: JsonObject,
  name: string,
  depth: number,
): JsonValue {
  if (!isObject(schema) || depth > depthMax) return null;
  if (schema.const !== undefined) return schema.const;
  for (const choices of [schema.enum, schema.examples]) {
    if (Array.isArray(choices) && choices[0] !== undefined) return choices[0];
  }
  if (schema.default !== undefined) return schema.default;
  if (typeof schema.$ref === "string")
    return valueFor(resolve(schema.$ref, root), root, name, depth + 1);
  if (Array.isArray(schema.allOf))
    return valueFor(merge(schema, schema.allOf, root), root, name, depth + 1);
  for (const choices of [schema.anyOf, schema.oneOf]) {
    if (Array.isArray(choices))
      return valueFor(merge(schema, choices.slice(0, 1), root), root, name, depth + 1);
  }
  switch (typeOf(schema)) {
    case "string":
      return textFor(schema, name);
    case "integer":
      return numberFor(schema, 1);
    case "number":
      return numberFor(schema, 0);
    case "boolean":
      return true;
    case "array":
      return listFor(schema, root, name, depth);
    case "object":
      return objectFor(schema, root, depth);
    default:
      return null;
  }
}

function typeOf(schema: JsonObject): JsonValue {
  if (Array.isArray(schema.type)) return schema.type.find((type) => type !== "null") ?? "null";
  if (schema.type !== undefined) return schema.type;
  if (schema.properties !== undefined || schema.required !== undefined) return "object";
  return schema.items !== undefined ? "array" : "string";
}

// The required properties, or near the root all of them if none is stated as required.
function objectFor(schema: JsonObject, root: JsonObject, depth: number): JsonObject {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const names = Array.isArray(schema.required)
    ? schema.required
    : depth < 2
      ? Object.keys(properties)
      : [];
  const entries: [string, JsonValue][] = [];
  for (const name of names) {
    if (typeof name !== "string") continue;
    const property = Object.hasOwn(properties, name) ? properties[name] : { type: "string" };
    entries.push([name, valueFor(property, root, name, depth + 1)]);
  }
  return Object.fromEntries(entries);
}

function listFor(schema: JsonObject, root: JsonObject, name: string, depth: number): JsonValue[] {
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const min = Math.min(bound(schema.minItems) ?? Math.max(first.length, 1), 100);
  const max = bound(schema.maxItems) ?? min;
  const list: JsonValue[] = [];
  for (let index = 0; index < Math.min(min, max); index++) {
    list.push(
      valueFor(
        first[index] ?? schema.items ?? { type: "string" },
        root,
        `${name}_${index + 1}`,
        depth + 1,
      ),
    );
  }
  return list;
}

const textOfFormat: Record<string, string> = {
  "date-time": "2026-01-02T03:04:05Z",
  date: "2026-01-02",
  time: "03:04:05Z",
  duration: "PT1H",
  email: "someone@example.com",
  hostname: "example.com",
  ipv4: "192.0.2.1",
  ipv6: "2001:db8::1",
  uri: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

function textFor(schema: JsonObject, name: string): string {
  const text =
    (typeof schema.format === "string" ? textOfFormat[schema.format] : undefined) ?? name;
  const min = Math.min(bound(schema.minLength) ?? 0, 10_000);
  return text.padEnd(min, "x").slice(0, bound(schema.maxLength));
}

// The smallest number in bounds, in steps of `multipleOf`; for integers `step` is 1.
function numberFor(schema: JsonObject, step: number): number {
  const multiple =
    typeof schema.multipleOf === "number" && schema.multipleOf > 0 ? schema.multipleOf : step;
  const over = typeof schema.exclusiveMinimum === "number" ? schema.exclusiveMinimum : undefined;
  const min = typeof schema.minimum === "number" ? schema.minimum : over;
  if (min === undefined) {
    const max = typeof schema.maximum === "number" ? schema.maximum : schema.exclusiveMaximum;
    const fits = typeof max !== "number" || max > (multiple || 1);
    if (fits) return multiple || 1;
    return multiple === 0 ? max - 1 : Math.floor((max - multiple) / multiple) * multiple;
  }
  if (multiple === 0) return min === over ? min + stepAbove(schema, min) : min;
  const rounded = Math.ceil(min / multiple) * multiple;
  return rounded === over ? rounded + multiple : rounded;
}

// A step above an exclusive minimum that stays below the maximum.
function stepAbove(schema: JsonObject, min: number): number {
  const max = typeof schema.maximum === "number" ? schema.maximum : schema.exclusiveMaximum;
  return typeof max === "number" ? Math.min(1, (max - min) / 2) : 1;
}

function bound(value: JsonValue | undefined): number | undefined {
  return typeof value === "number" && value >= 0 ? Math.floor(value) : undefined;
}

// References such as `#/$defs/name`, the only kind that a tool's schema can contain.
function resolve(reference: string, root: JsonObject): JsonValue | undefined {
  if (!reference.startsWith("#")) return undefined;
  let found: JsonValue | undefined = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    found = isObject(found) && Object.hasOwn(found, name) ? found[name] : undefined;
  }
  return found;
}

function merge(schema: JsonObject, others: readonly JsonValue[], root: JsonObject): JsonObject {
  const { allOf: _allOf, anyOf: _anyOf, oneOf: _oneOf, ...merged } = schema;
  const properties = { ...objectOf(merged.properties) };
  const required = [...listOf(merged.required)];
  for (const other of others) {
    const part =
      isObject(other) && typeof other.$ref === "string" ? resolve(other.$ref, root) : other;
    if (!isObject(part)) continue;
    const { properties: moreProperties, required: moreRequired, ...members } = part;
    Object.assign(properties, objectOf(moreProperties));
    for (const name of listOf(moreRequired)) required.push(name);
    Object.assign(merged, members);
  }
  if (Object.keys(properties).length > 0) merged.properties = properties;
  if (required.length > 0) merged.required = required;
  return merged;
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}

function listOf(value: JsonValue | undefined): JsonValue[] {
  return Array.isArray(value) ? value : [];
}
