// Rejects JSON requests with unlisted enum names. The JSON parser ignores them, as it ignores
// unknown members, and the call would run as if the field were absent.

import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { recursionLimit } from "../contract/message-limits.ts";
import { hasMoreItems, jsonItemsMax, tooManyItems } from "../formats/json.ts";
import { toConnectError } from "./connect-error.ts";

/** Throws for the JSON text of a request with an unlisted enum name, or with too many items. */
export function rejectUnlistedNames(input: DescMessage, text: Buffer): void {
  // The limit is twice that of the public formats: here each block holds its kind as one more
  // object.
  if (hasMoreItems(text, 2 * jsonItemsMax)) throw toConnectError(tooManyItems(2 * jsonItemsMax));
  let request: unknown;
  try {
    request = JSON.parse(text.toString());
  } catch {
    // Not JSON. Connect's own parser reports it.
    return;
  }
  const found = findUnlistedName(input, request);
  if (!found) return;
  const field = found.path.join("").slice(1);
  throw toConnectError(
    new ApiError("invalid_request", {
      field,
      allowed: found.allowed,
      message: `${field}: is not a listed value`,
    }),
  );
}

type Found = { path: string[]; allowed: string[] };

function findUnlistedName(type: DescMessage, value: unknown, depth = 0): Found | undefined {
  // The parser rejects deeper messages.
  if (depth > recursionLimit || type.typeName.startsWith("google.protobuf.")) return undefined;
  if (typeof value !== "object" || value === null) return undefined;
  for (const [name, member] of Object.entries(value)) {
    const field = type.fields.find((one) => one.jsonName === name || one.name === name);
    const found = field && findInField(field, member, depth + 1);
    if (found) return { ...found, path: [`.${field.name}`, ...found.path] };
  }
  return undefined;
}

function findInField(field: DescField, value: unknown, depth: number): Found | undefined {
  if (!Array.isArray(value)) return findInValue(field, value, depth);
  for (const [index, item] of value.entries()) {
    const found = findInValue(field, item, depth);
    if (found) return { ...found, path: [`[${index}]`, ...found.path] };
  }
  return undefined;
}

function findInValue(field: DescField, value: unknown, depth: number): Found | undefined {
  if (field.message) return findUnlistedName(field.message, value, depth);
  if (!field.enum || typeof value !== "string") return undefined;
  const allowed = field.enum.values.map((one) => one.name);
  return allowed.includes(value) ? undefined : { path: [], allowed };
}
