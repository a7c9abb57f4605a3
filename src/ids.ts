// Ids. Those that are stored begin with their time (UUIDv7), so that indexes grow at one end; those that are only shown are random.

import { randomBytes, randomFillSync } from "node:crypto";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

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

/** `prefix` and 32 hexadecimal digits of a UUIDv7: 48 bits of milliseconds, 74 random bits. */
export function timeOrderedId(prefix: string): string {
  const time = Date.now().toString(16).padStart(12, "0");
  const random = Buffer.from(drawBytes(10)).toString("hex");
  const variant = (8 + (Number.parseInt(random[3] ?? "0", 16) % 4)).toString(16);
  return `${prefix}${time}7${random.slice(0, 3)}${variant}${random.slice(4, 19)}`;
}

/** `prefix` and `length` random characters of 0-9, A-Z, a-z. 24 of them are 142 bits. */
export function randomId(prefix: string, length = 24): string {
  let text = prefix;
  while (text.length < prefix.length + length) {
    for (const byte of drawBytes(length)) {
      // 248 is the largest multiple of 62 in a byte: above it, remainders would favour the first characters.
      if (byte < 248 && text.length < prefix.length + length) text += alphabet[byte % 62];
    }
  }
  return text;
}

/** A secret of `bytes` random bytes in base64url. */
export function randomSecret(bytes: number): string {
  return randomBytes(bytes).toString("base64url");
}

const requestIdForm = /^req_[0-9A-Za-z_-]{8,64}$/;

/** True when `text` may serve as a request id. */
export function isRequestId(text: string): boolean {
  return requestIdForm.test(text);
}

export function newRequestId(): string {
  return timeOrderedId("req_");
}
