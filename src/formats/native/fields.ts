// How members that the schema does not name stay with their message. A decoder takes an object
// apart with a rest pattern, reads each named member with one of the functions below, and keeps
// what is left; rest patterns and spreads define members instead of assigning them, so that one
// called `__proto__` is a member like any other.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../json.ts";

/** Members of an object that no typed field holds. A fresh object of the decoder's own. */
export type UnknownFields = JsonObject;

/** `rest`, or undefined when nothing is left. */
export function unknownFields(rest: UnknownFields): JsonObject | undefined {
  for (const _ in rest) return rest;
  return undefined;
}

/**
 * `value` if it is a string; another value goes back to `rest` under `name`. The same holds for the
 * other readers.
 */
export function readString(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): string | undefined {
  return typeof value === "string" ? value : restore(rest, name, value);
}

/** As `readString`, for fields where the empty string means that the member is absent. */
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
 * Puts a member that a typed field cannot express among the extensions. `name` is one that the
 * schema knows.
 */
export function restore(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): undefined {
  if (value !== undefined) rest[name] = value;
  return undefined;
}

/** True for what a uint32 field holds. */
export function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff;
}
