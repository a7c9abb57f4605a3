// JSON Schema 2020-12, the language of OpenAPI 3.1, for what this gateway documents of its bodies.

import type { JsonObject } from "@bufbuild/protobuf";

export type Schema = JsonObject;
type Members = Readonly<Record<string, Schema>>;

/** The schema with words for its readers. */
export function described(description: string, schema: Schema): Schema {
  return { ...schema, description };
}

/** A schema that the document defines once, under this name. */
export function ref(name: string): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

/** Marks what `unchecked` returns. */
export const uncheckedMark = "x-unchecked";

/** What a member should be, although it may be anything: it is ignored, or the provider decides. */
export function unchecked(schema: Schema): Schema {
  return { ...schema, [uncheckedMark]: true };
}

export const object: Schema = { type: "object" };
export const text: Schema = { type: "string" };
export const boolean: Schema = { type: "boolean" };
export const number: Schema = { type: "number" };
export const time: Schema = { type: "string", format: "date-time" };
/** A whole number of at least 0. */
export const count: Schema = { type: "integer", minimum: 0 };
/** An exact decimal number, as a text. */
export const decimal: Schema = { type: "string", pattern: "^-?\\d+(\\.\\d+)?$" };

/** One of these texts. */
export function oneOf(...values: readonly string[]): Schema {
  return values.length === 1 ? { const: values[0] ?? "" } : { type: "string", enum: [...values] };
}

export function orNull(schema: Schema): Schema {
  return { anyOf: [schema, { type: "null" }] };
}

export function anyOf(...schemas: readonly Schema[]): Schema {
  return { anyOf: [...schemas] };
}

export function allOf(...schemas: readonly Schema[]): Schema {
  return { allOf: [...schemas] };
}

/** Members of which null counts as absent. */
export function orAbsent(members: Members): Record<string, Schema> {
  return Object.fromEntries(Object.entries(members).map(([name, one]) => [name, orNull(one)]));
}

export function list(items: Schema, more: Schema = {}): Schema {
  return { type: "array", items, ...more };
}

/** An object that has `required` and may have `optional`, and nothing else. */
export function closed(required: Members, optional: Members = {}): Schema {
  return { ...open(required, optional), additionalProperties: false };
}

/** As `closed`, and any other members. */
export function open(required: Members, optional: Members = {}): Schema {
  const names = Object.keys(required);
  return {
    type: "object",
    properties: { ...required, ...optional },
    ...(names.length > 0 && { required: names }),
  };
}
