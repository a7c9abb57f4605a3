// Ids. Those that are stored begin with their time (UUIDv7), so that indexes grow at one end; those
// that are only shown are random.

import { randomBytes, randomFillSync } from "node:crypto";
import { base62Digits } from "./base62.ts";

// Random bytes are drawn in blocks: one system call serves many ids.
const block = new Uint8Array(4096);
let drawn = block.length;
function drawBytes(count: number): Uint8Array {
  if (drawn + count > block.length) {
    randomFillSync(block);
    drawn = 0;
  }
  drawn += count;
  return block.subarray(drawn - count, drawn);
}

// Ids of one millisecond count up in the 12 bits after it, so that what a process makes later also
// sorts later.
const countMax = 0xfff;
let lastMs = 0;
let count = 0;

/**
 * `prefix` and 32 hexadecimal digits of a UUIDv7: 48 bits of milliseconds, 12 of a count, 62 random
 * ones. Each is above the last.
 */
export function timeOrderedId(prefix: string): string {
  const now = Date.now();
  if (now > lastMs) {
    lastMs = now;
    count = 0;
  } else if (count < countMax) {
    count++;
  } else {
    // More ids than the millisecond, or the clock that was set back, has counts for: time is
    // borrowed.
    lastMs++;
    count = 0;
  }
  const random = Buffer.from(drawBytes(8)).toString("hex");
  const variant = (8 + (Number.parseInt(random[0] ?? "0", 16) % 4)).toString(16);
  return `${prefix}${lastMs.toString(16).padStart(12, "0")}7${count.toString(16).padStart(3, "0")}${variant}${random.slice(1)}`;
}

/** `prefix` and `length` random characters of 0-9, A-Z, a-z. 24 of them are 142 bits. */
export function randomId(prefix: string, length = 24): string {
  let text = prefix;
  while (text.length < prefix.length + length) {
    for (const byte of drawBytes(length)) {
      // 248 is the largest multiple of 62 in a byte: above it, remainders would favour the first
      // characters.
      if (byte < 248 && text.length < prefix.length + length) text += base62Digits[byte % 62];
    }
  }
  return text;
}

/** A secret of `bytes` random bytes in base64url. */
export function randomSecret(bytes: number): string {
  return randomBytes(bytes).toString("base64url");
}

const requestIdForm = /^req_[0-9A-Za-z_-]{8,64}$/;

/** What is said of a request id that is none. */
export const requestIdRule = "is req_ and 8 to 64 of a-z, A-Z, 0-9, _ and -";

/** True when `text` may serve as a request id. */
export function isRequestId(text: string): boolean {
  return requestIdForm.test(text);
}

export function newRequestId(): string {
  return timeOrderedId("req_");
}
