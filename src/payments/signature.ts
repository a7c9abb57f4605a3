// Reading webhooks: their signature, and what they are about.

import { createHmac, timingSafeEqual } from "node:crypto";
import { ApiError } from "../base/errors.ts";

/**
 * Throws `invalid_signature` unless `hex` is the HMAC of the raw body. `secret` is never empty: a
 * processor without one has no webhooks.
 */
export function checkHmac(
  algorithm: "sha256" | "sha512",
  secret: string,
  raw: Buffer,
  hex: string,
): void {
  if (secret === "") throw new Error("a webhook secret is empty");
  const expected = createHmac(algorithm, secret).update(raw).digest();
  const given = /^[0-9a-f]*$/i.test(hex) ? Buffer.from(hex, "hex") : Buffer.alloc(0);
  if (given.length !== expected.length || !timingSafeEqual(given, expected))
    throw new ApiError("invalid_signature");
}

/** A text or number of a delivery, or empty: of another type, or longer than ids are. */
export function hookText(given: unknown): string {
  const value = typeof given === "number" ? String(given) : given;
  return typeof value === "string" && value.length <= 200 && !value.includes("\0") ? value : "";
}

/** The members of a signed body. None if it is no JSON object: then there is nothing to look at. */
export function hookMembers(raw: Buffer): Map<string, unknown> {
  try {
    const value: unknown = JSON.parse(raw.toString("utf8"));
    return new Map(typeof value === "object" && value !== null ? Object.entries(value) : []);
  } catch {
    return new Map();
  }
}

/** Deliveries are flat, but for one member or two. */
const depthMax = 16;

/**
 * A signed body as its sender signed it: the members of every object sorted by name, without
 * spaces, and numbers as JavaScript writes them. Throws `invalid_signature` for what cannot have
 * been signed.
 */
export function canonicalJson(raw: Buffer): Buffer {
  try {
    return Buffer.from(canonical(JSON.parse(raw.toString("utf8")), depthMax));
  } catch {
    throw new ApiError("invalid_signature");
  }
}

function canonical(value: unknown, depth: number): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (depth === 0) throw new RangeError("too deep");
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one, depth - 1)).join(",")}]`;
  const members = Object.entries(value)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, one]) => `${JSON.stringify(name)}:${canonical(one, depth - 1)}`);
  return `{${members.join(",")}}`;
}
