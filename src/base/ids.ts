// Ids. Stored ids begin with their time (UUIDv7), so that indexes grow at one end. Other ids are
// random.

import { randomBytes, randomFillSync } from "node:crypto";
import { base62Digits } from "./base62.ts";

// Random bytes come in blocks: one system call serves many ids.
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

// Ids of the same millisecond count up in the next 12 bits, so that later ids of a process sort
// later.
const countMax = 0xfff;
/** Clocks of processes and of the database differ, and an admission may wait. */
const skewMs = 3_600_000;
let lastMs = 0;
let count = 0;
/** The bytes of the last id. */
const uuid = Buffer.alloc(16);

/**
 * `prefix` and the 32 hexadecimal digits of a UUIDv7: 48 bits of milliseconds, a 12-bit count and
 * 62 random bits. Each id is above the one before, unless the clock was set back by more than an
 * hour: then ids follow it, since those of another day to come are refused.
 */
export function timeOrderedId(prefix: string): string {
  const now = Date.now();
  if (now > lastMs || now < lastMs - skewMs) {
    lastMs = now;
    count = 0;
  } else if (count < countMax) {
    count++;
  } else {
    // All counts of this millisecond are used, or the clock was set back a little: use the next
    // millisecond.
    lastMs++;
    count = 0;
  }
  uuid.writeUIntBE(lastMs, 0, 6);
  uuid.writeUInt16BE(0x7000 | count, 6);
  uuid.set(drawBytes(8), 8);
  uuid.writeUInt8((uuid.readUInt8(8) & 0x3f) | 0x80, 8);
  return prefix + uuid.toString("hex");
}

/** `prefix` and `length` random characters of 0-9, A-Z, a-z. 24 characters are 142 bits. */
export function randomId(prefix: string, length = 24): string {
  let text = prefix;
  while (text.length < prefix.length + length) {
    for (const byte of drawBytes(length)) {
      // 248 is the largest multiple of 62 in a byte. Larger bytes would favour the first
      // characters.
      if (byte < 248 && text.length < prefix.length + length) text += base62Digits[byte % 62];
    }
  }
  return text;
}

/** `bytes` random bytes in base64url. */
export function randomSecret(bytes: number): string {
  return randomBytes(bytes).toString("base64url");
}

const requestIdForm = /^req_[0-9A-Za-z_-]{8,64}$/;

const dayMs = 86_400_000;

/** Continues the field name in the error of an invalid request id. */
export const requestIdRule =
  "must be req_ and 8 to 64 of a-z, A-Z, 0-9, _ and -, and no UUIDv7 of another day to come";

/**
 * True if `text` may be a request id. One with a later time would be taken for a new one when that
 * time has come, even if it was used by then.
 */
export function isRequestId(text: string): boolean {
  if (!requestIdForm.test(text)) return false;
  const madeAtMs = timeOf(text);
  return madeAtMs === undefined || madeAtMs <= Date.now() + dayMs;
}

/**
 * True if the id may have been used more than two days ago. False for an id that `newRequestId`
 * made within the last day, and for any other id that carries such a time.
 */
export function mayBeOld(requestId: string): boolean {
  const madeAtMs = timeOf(requestId);
  return madeAtMs === undefined || madeAtMs < Date.now() - dayMs;
}

const timeOrderedForm = /^req_([0-9a-f]{12})7[0-9a-f]{3}[89ab][0-9a-f]{15}$/;

/** The time in an id of `newRequestId`, in milliseconds. Undefined for an id of another form. */
export function timeOf(requestId: string): number | undefined {
  const digits = timeOrderedForm.exec(requestId)?.[1];
  return digits === undefined ? undefined : Number.parseInt(digits, 16);
}

/**
 * The months, as their first days, in which a request with this id was admitted, if a gateway made
 * the id. Undefined: the id tells no time.
 */
export function monthsNear(requestId: string): string[] | undefined {
  const madeAtMs = timeOf(requestId);
  if (madeAtMs === undefined) return undefined;
  const months = [madeAtMs - skewMs, madeAtMs + skewMs].map(
    (ms) => `${new Date(ms).toISOString().slice(0, 7)}-01`,
  );
  return [...new Set(months)];
}

/**
 * Between which ids those of a range of time are, both exclusive: clocks of processes and of the
 * database differ.
 */
export function idsBetween(
  prefix: string,
  { from, to }: { readonly from: Date | undefined; readonly to: Date | undefined },
): { readonly first: string; readonly last: string } {
  const idAt = (ms: number) => prefix + Math.max(0, ms).toString(16).padStart(12, "0");
  return {
    first: from ? idAt(from.getTime() - skewMs) : prefix,
    // Behind every hexadecimal digit.
    last: to ? idAt(to.getTime() + skewMs) : `${prefix}g`,
  };
}

export function newRequestId(): string {
  return timeOrderedId("req_");
}
