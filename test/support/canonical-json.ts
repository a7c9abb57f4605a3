import type { JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../src/formats/json.ts";

/**
 * JSON text with members in order of their names, so that equal values have equal texts,
 * `__proto__` and all.
 */
export function canonical(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join()}}`;
}
