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

/** A text of a delivery, or empty: of any other type, or longer than ids are. */
export function hookText(value: unknown): string {
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
