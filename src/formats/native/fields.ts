// Readers of the members of an object, which preserve the members that the schema does not name.
// A decoder destructures an object with a rest pattern, reads each named member with one of the
// functions below, and stores the rest as `extensions`. Rest patterns and spreads define members
// instead of assigning them, so that a member called `__proto__` is like any other.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isCount, isObject } from "../json.ts";

/** The members of an object that no typed field holds. The decoder's own copy, which it changes. */
export type UnknownFields = JsonObject;

/** `rest` as extensions; undefined if it is empty. */
export function unknownFields(rest: UnknownFields): JsonObject | undefined {
  for (const _ in rest) return rest;
  return undefined;
}

/**
 * `value` if it is a string; undefined otherwise, with `value` restored to `rest` under `name`. The
 * other readers do the same for their types.
 */
export function readString(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): string | undefined {
  return typeof value === "string" ? value : restore(rest, name, value);
}

/** As `readString`, for typed fields where the empty string means that the member is absent. */
export function readName(rest: UnknownFields, name: string, value: JsonValue | undefined): string {
  return typeof value === "string" && value !== "" ? value : (restore(rest, name, value) ?? "");
}

export function readBoolean(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): boolean | undefined {
  return typeof value === "boolean" ? value : restore(rest, name, value);
}

export function readCount(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): number | undefined {
  return isCount(value) ? value : restore(rest, name, value);
}

export function readObject(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): JsonObject | undefined {
  return isObject(value) ? value : restore(rest, name, value);
}

/**
 * Returns a member to `rest` because its typed field cannot express the value. `name` is a name
 * from the schema, never one from the client.
 */
export function restore(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): undefined {
  if (value !== undefined) rest[name] = value;
  return undefined;
}
