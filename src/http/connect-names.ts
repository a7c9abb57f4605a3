// Refuses JSON requests with names that are not known here: members of messages, and values of
// enums. The JSON parser ignores both, and the call would run as if the field were absent: a limit
// that is misspelt would be none.

import { type DescField, type DescMessage, type DescMethod, getOption } from "@bufbuild/protobuf";
import { lenient } from "../../gen/gateway/common/v1/options_pb.ts";
import { ApiError } from "../base/errors.ts";
import { nearestName } from "../base/nearest-name.ts";
import { recursionLimit } from "../contract/message-limits.ts";
import { hasMoreItems, jsonItemsMax, tooManyItems } from "../formats/json.ts";
import { toConnectError } from "./connect-error.ts";

/**
 * Throws `invalid_request` with the path of the first name in the JSON text of a request that is
 * not known: of a value of an enum, and unless the method is lenient of a member. Also for a member
 * that is given under both of its names, and for too many items.
 */
export function refuseUnknownNames(method: DescMethod, text: Buffer): void {
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
  const isStrict = !isLenient(method);
  const found = findInMessage(method.input, request, { isStrict, depth: 0 });
  if (!found) return;
  const field = found.path.join("").slice(1);
  const message = `${field}: ${found.message}`;
  throw toConnectError(new ApiError("invalid_request", { field, allowed: found.allowed, message }));
}

const known = new WeakMap<DescMethod, boolean>();

// To read an option takes several times as long as the walk.
function isLenient(method: DescMethod): boolean {
  const found = known.get(method) ?? getOption(method, lenient);
  known.set(method, found);
  return found;
}

type Found = {
  /** Parts such as `.keys`, `[0]`, `.name`. */
  readonly path: readonly string[];
  readonly message: string;
  readonly allowed: readonly string[];
};

type How = { readonly isStrict: boolean; readonly depth: number };

function findInMessage(type: DescMessage, value: unknown, how: How): Found | undefined {
  // The parser rejects deeper messages. The standard types have a JSON form of their own.
  if (how.depth > recursionLimit || type.typeName.startsWith("google.protobuf.")) return undefined;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const given = new Set<DescField>();
  for (const [name, member] of Object.entries(value)) {
    const field = type.fields.find((one) => one.jsonName === name || one.name === name);
    if (!field) {
      if (how.isStrict) return unknownMember(type, name);
      continue;
    }
    if (how.isStrict && given.has(field))
      return at(`.${name}`, { message: `is given twice, as ${field.jsonName} and ${field.name}` });
    given.add(field);
    const found = findInField(field, member, { ...how, depth: how.depth + 1 });
    if (found) return at(`.${field.name}`, found);
  }
  return undefined;
}

function unknownMember(type: DescMessage, name: string): Found {
  const names = type.fields.flatMap((field) => [field.jsonName, field.name]);
  const nearest = nearestName(name, names);
  const hint = nearest === undefined ? "" : `; did you mean ${nearest}?`;
  return at(`.${name}`, { message: `is not a member of ${type.typeName}${hint}` });
}

function at(part: string, found: Partial<Found> & { readonly message: string }): Found {
  const { path = [], message, allowed = [] } = found;
  return { path: [part, ...path], message, allowed };
}

function findInField(field: DescField, value: unknown, how: How): Found | undefined {
  // The keys of a map are data.
  const isMap = field.fieldKind === "map";
  if (isMap ? typeof value !== "object" : !Array.isArray(value))
    return findInValue(field, value, how);
  for (const [key, item] of Object.entries(Object(value))) {
    const found = findInValue(field, item, how);
    if (found) return at(`[${isMap ? JSON.stringify(key) : key}]`, found);
  }
  return undefined;
}

function findInValue(field: DescField, value: unknown, how: How): Found | undefined {
  if (field.message) return findInMessage(field.message, value, how);
  if (!field.enum || typeof value !== "string") return undefined;
  const allowed = field.enum.values.map((one) => one.name);
  if (allowed.includes(value)) return undefined;
  return { path: [], message: "is not a listed value", allowed };
}
