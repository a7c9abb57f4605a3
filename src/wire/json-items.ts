// How many things a JSON text holds, told from its bytes. Parsing costs by the value, not by the byte, and so does all that is done with
// a request afterwards: a body of a million members would keep everybody else waiting for seconds.

import { Refusal } from "../errors.ts";

/**
 * Most members and elements of a request, those of all its objects and lists together. A long day's work of a coding assistant has
 * tens of thousands; the most messages that a conversation may have are three each.
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
export function tooManyItems(max: number): Refusal {
  return new Refusal("request_too_large", {
    message: `The request has more than ${max} members and elements in its objects and lists.`,
    limit: { name: "body_items", limit: BigInt(max) },
  });
}

/**
 * Members and elements of a JSON text: each stands behind a comma or opens its object or list, and an empty one counts as if it held
 * something. Stops beyond `max`, and looks at no byte more than a few times. The figure means nothing for text that is not JSON.
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
