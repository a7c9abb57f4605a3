import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../src/formats/json.ts";

/** The objects in a list; none of anything else. */
export function objectsOf(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

export function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}
