// JSON at the doors: bytes in, values out, with the limits that every door keeps, and text that is
// safe on one line of an event stream.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { findFault, jsonDepthMax } from "./json-fault.ts";

/** True for `{…}`, false for arrays, null and scalars. */
export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * The value of a request body. A byte order mark is skipped; of duplicate members the last one
 * counts. Throws `invalid_request` for anything else than UTF-8 JSON of at most `jsonDepthMax`
 * levels, without lone surrogates and numbers beyond all range; the message names the byte, never
 * content.
 */
export function parseJson(bytes: Uint8Array): JsonValue {
  try {
    const value: JsonValue = JSON.parse(decoder.decode(bytes));
    if (isSound(value, mayHoldSurrogates(bytes))) return value;
  } catch {
    // The parser's own message would repeat the content; the fault is looked up below.
  }
  const { offset, problem } = findFault(bytes) ?? { offset: 0, problem: "unreadable text" };
  throw new ApiError("invalid_request", {
    message: `The body is not acceptable JSON: ${problem} at byte ${offset}.`,
  });
}

/**
 * The value of a JSON text inside another value, such as the arguments of a tool. Undefined where
 * `parseJson` would refuse.
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
 * True when `value` is at most `jsonDepthMax` levels deep, its numbers are finite (`1e999` is not,
 * and would become null on its way) and, if asked, no string in it holds half a surrogate pair.
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

// UTF-8 cannot hold surrogates, so they come as escapes only, and most bodies have none.
function mayHoldSurrogates(bytes: Uint8Array): boolean {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.includes("\\ud") || buffer.includes("\\uD");
}

/**
 * JSON text of `value` in which U+2028, U+2029 and U+0085 are escaped: some clients split event
 * streams at them. They stand inside strings only, so the value stays the same.
 */
export function stringifyJson(value: JsonValue): string {
  return escapeLineSeparators(JSON.stringify(value));
}

/** `json` with the line separators of Unicode as escapes. */
export function escapeLineSeparators(json: string): string {
  // Three searches that nearly always fail are cheaper than a pattern run over the text.
  if (!json.includes("\u2028") && !json.includes("\u2029") && !json.includes("\u0085")) return json;
  return json
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029")
    .replaceAll("\u0085", "\\u0085");
}

// How many things a JSON text holds, told from its bytes. Parsing costs by the value, not by the
// byte, and so does all that is done with a request afterwards: a body of a million members would
// keep everybody else waiting for seconds.

/**
 * Most members and elements of a request, those of all its objects and lists together. A long day's
 * work of a coding assistant has tens of thousands; the most messages that a conversation may have
 * are three each.
 */
export const jsonItemsMax = 400_000;

const [quote, backslash, comma, openBrace, openBracket] = [0x22, 0x5c, 0x2c, 0x7b, 0x5b];

// Searching natively pays for itself beyond this many bytes.
const shortBytes = 256;

/** True when the JSON text has more than `max` members and elements. */
export function hasMoreItems(bytes: Uint8Array, max: number): boolean {
  // Every item is at least a byte.
  return bytes.length > max && countItems(bytes, max) > max;
}

/** The refusal of a request with more than `max` of them. */
export function tooManyItems(max: number): ApiError {
  return new ApiError("request_too_large", {
    message: `The request has more than ${max} members and elements in its objects and lists.`,
    limit: { name: "body_items", limit: BigInt(max) },
  });
}

/**
 * Members and elements of a JSON text: each stands behind a comma or opens its object or list, and
 * an empty one counts as if it held something. Stops beyond `max`, and looks at no byte more than a
 * few times. The figure means nothing for text that is not JSON.
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

/** Where the string that has begun before `start` ends. */
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
