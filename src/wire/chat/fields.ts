// Members of a body, read with the type they must have. Null counts as absent: clients of this format send it freely.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { invalidField, Refusal } from "../../errors.ts";
import { isObject } from "../json.ts";

/** Largest number that the hub carries in its counts. */
const countMax = 4_294_967_295;

/** The refusal of one member. `at` is its path, as `messages[1].content`. */
export function invalid(at: string, problem: string, allowed?: readonly string[]): Refusal {
  return at === "" ? new Refusal("invalid_request", { message: problem }) : invalidField(at, problem, allowed);
}

export function objectAt(value: JsonValue | undefined, at: string): JsonObject {
  if (!isObject(value)) throw invalid(at, "must be an object");
  return value;
}

export function optionalObject(value: JsonValue | undefined, at: string): JsonObject | undefined {
  return value === undefined || value === null ? undefined : objectAt(value, at);
}

export function optionalArray(value: JsonValue | undefined, at: string): JsonValue[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw invalid(at, "must be an array");
  return value;
}

export function textAt(value: JsonValue | undefined, at: string): string {
  if (typeof value !== "string") throw invalid(at, "must be a string");
  return value;
}

export function optionalText(value: JsonValue | undefined, at: string): string | undefined {
  return value === undefined || value === null ? undefined : textAt(value, at);
}

export function optionalBoolean(value: JsonValue | undefined, at: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "boolean") throw invalid(at, "must be true or false");
  return value;
}

export function optionalNumber(
  value: JsonValue | undefined,
  at: string,
  range: { min: number; max: number },
): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || value < range.min || value > range.max) {
    throw invalid(at, `must be a number from ${range.min} to ${range.max}`);
  }
  return value;
}

export function optionalInteger(value: JsonValue | undefined, at: string, min: number): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > countMax) {
    throw invalid(at, `must be an integer of at least ${min}`);
  }
  return value;
}

/** The texts of a content that is a list of parts. */
export function textsOf(content: readonly JsonValue[]): string[] {
  return content.flatMap((part) => (isObject(part) && typeof part.text === "string" && part.text !== "" ? [part.text] : []));
}
