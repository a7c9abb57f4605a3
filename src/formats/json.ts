// JSON between bytes and values: parsing with the limits that every listener enforces, counting
// items before parsing, and text that is safe on one line of an event stream. And readers of the
// members of an object, which preserve the members that a schema does not name.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { findFault, jsonDepthMax } from "./json-fault.ts";

/** True for `{…}`, false for arrays, null and scalars. */
export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Largest value of a count in the canonical request, which is a uint32. */
export const countMax = 0xffff_ffff;

/** True for the values of a uint32 field. */
export function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= countMax;
}

/** A count that may be larger than can be said: then it is the largest that can. */
export function countUpToMax(value: JsonValue | undefined): number | undefined {
  const isHuge = typeof value === "number" && Number.isInteger(value) && value > countMax;
  return isHuge ? countMax : isCount(value) ? value : undefined;
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses a request body. A byte order mark is skipped; of duplicate members the last one counts.
 *
 * Throws `invalid_request` unless `bytes` are UTF-8 JSON of at most `jsonDepthMax` levels, without
 * lone surrogates and without numbers that overflow. The message has the byte offset of the fault,
 * never content.
 */
export function parseJson(bytes: Uint8Array): JsonValue {
  try {
    const text = decoder.decode(bytes);
    const value: JsonValue = JSON.parse(text);
    if (isSound(value, mayHoldSurrogates(text))) return value;
  } catch {
    // V8's message repeats content. `findFault` writes a message without it.
  }
  const { offset, problem } = findFault(bytes) ?? { offset: 0, problem: "unreadable text" };
  throw new ApiError("invalid_request", {
    message: `The body is not acceptable JSON: ${problem} at byte ${offset}.`,
  });
}

/** A parsed request body, and the number of its members and elements; 0 for a small body. */
export type ParsedRequest = { readonly value: JsonValue; readonly items: number };

/** Bytes of a body whose items are not counted. */
const uncountedBytes = 16 * 1024;

/**
 * Parses a request body of the public formats as `parseJson` does. Throws `request_too_large` if it
 * has more than `jsonItemsMax` items, before it is parsed.
 */
export function parseRequest(bytes: Uint8Array): ParsedRequest {
  const items = bytes.length > uncountedBytes ? countItems(bytes, jsonItemsMax) : 0;
  if (items > jsonItemsMax) throw tooManyItems(jsonItemsMax);
  return { value: parseJson(bytes), items };
}

/**
 * Parses JSON that a provider wrote. Lone surrogates, which some leave where they cut a text,
 * become U+FFFD. Throws `SyntaxError` for a text that is not JSON.
 */
export function parseAnswerJson(text: string, hasSurrogates = mayHoldSurrogates(text)): JsonValue {
  const value: JsonValue = JSON.parse(text);
  return hasSurrogates ? wellFormed(value) : value;
}

function wellFormed(value: JsonValue): JsonValue {
  if (typeof value === "string") return value.toWellFormed();
  if (typeof value !== "object" || value === null || isSound(value, true)) return value;
  if (Array.isArray(value)) return value.map(wellFormed);
  const entries = Object.entries(value).map(([name, member]) => [
    name.toWellFormed(),
    wellFormed(member),
  ]);
  return Object.fromEntries(entries);
}

/**
 * Parses a JSON text that is a string in another value, such as the arguments of a tool call.
 * Returns undefined where `parseJson` throws.
 */
export function parseJsonText(text: string): JsonValue | undefined {
  try {
    const value: JsonValue = JSON.parse(text);
    return isSound(value, true) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * True if `value` has at most `levels` levels and only finite numbers (`1e999` is infinite, and
 * would be serialised as null). With `checkStrings`, its strings have no lone surrogates either.
 */
export function isSound(value: JsonValue, checkStrings: boolean, levels = jsonDepthMax): boolean {
  if (typeof value === "string") return !checkStrings || value.isWellFormed();
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  if (levels === 0) return false;
  if (Array.isArray(value)) {
    for (const item of value) if (!isSound(item, checkStrings, levels - 1)) return false;
    return true;
  }
  for (const name in value) {
    const member = value[name];
    if (checkStrings && !name.isWellFormed()) return false;
    if (member !== undefined && !isSound(member, checkStrings, levels - 1)) return false;
  }
  return true;
}

// UTF-8 cannot hold surrogates, so they occur as escapes only, and most bodies have none.
export function mayHoldSurrogates(text: string): boolean {
  return text.includes("\\ud") || text.includes("\\uD");
}

/**
 * Serialises `value` with U+2028, U+2029 and U+0085 as escapes, because some clients split event
 * streams at them. These characters occur inside strings only, so the value stays the same.
 */
export function stringifyJson(value: JsonValue): string {
  return escapeLineSeparators(JSON.stringify(value));
}

/** Replaces the line separators in a JSON text by escapes, as `stringifyJson` does. */
export function escapeLineSeparators(json: string): string {
  // Three searches that nearly always fail are cheaper than a regular expression.
  if (!json.includes("\u2028") && !json.includes("\u2029") && !json.includes("\u0085")) return json;
  return json
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029")
    .replaceAll("\u0085", "\\u0085");
}

/**
 * Most items (members and elements, of all objects and arrays together) of a request. The cost of
 * parsing and of everything after it grows with the items rather than the bytes: a body of a
 * million members would block all other requests for seconds.
 *
 * A coding assistant's conversation of a long day has tens of thousands. A conversation of
 * `partsMax` messages has at least three for each message.
 */
export const jsonItemsMax = 100_000;

const [quote, backslash, comma, openBrace, openBracket] = [0x22, 0x5c, 0x2c, 0x7b, 0x5b];

/** Bytes of a string to search in JavaScript before a call of the native search pays off. */
const shortBytes = 256;

/** True if the JSON text has more than `max` members and elements. */
export function hasMoreItems(bytes: Uint8Array, max: number): boolean {
  // Every item is at least a byte.
  return bytes.length > max && countItems(bytes, max) > max;
}

/** The error for a request with more than `max` members and elements. */
export function tooManyItems(max: number): ApiError {
  return new ApiError("request_too_large", {
    message: `The request has more than ${max} members and elements in its objects and lists.`,
    limit: { name: "body_items", limit: BigInt(max) },
  });
}

/**
 * Counts the members and elements of a JSON text: its commas, braces and brackets outside strings,
 * so that an empty object or array counts as one. Stops as soon as the count exceeds `max`. Linear
 * in the bytes. The count has no meaning for text that is not JSON.
 */
export function countItems(bytes: Uint8Array, max: number): number {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let items = 0;
  for (let at = 0; at < buffer.length; at++) {
    const byte = buffer[at];
    if (byte === comma || byte === openBrace || byte === openBracket) {
      items++;
      if (items > max) return items;
    } else if (byte === quote) at = endOfString(buffer, at + 1);
  }
  return items;
}

/** Offset of the quote that ends the string whose content begins at `start`. */
function endOfString(buffer: Buffer, start: number): number {
  let at = start;
  for (;;) {
    const long = at + shortBytes;
    for (; at < long; at++) {
      const byte = buffer[at];
      if (byte === quote || byte === undefined) return at;
      if (byte === backslash) at++;
    }
    const found = buffer.indexOf(quote, at);
    if (found < 0) return buffer.length;
    let slashes = 0;
    while (found - slashes > at && buffer[found - slashes - 1] === backslash) slashes++;
    if (slashes % 2 === 0) return found;
    at = found + 1;
  }
}

/**
 * The members of an object that no typed field holds. The decoder's own copy, which it changes: it
 * destructures the object with a rest pattern, and stores the rest as `extensions`. Rest patterns
 * and spreads define members instead of assigning them, so that a member called `__proto__` is like
 * any other.
 */
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
