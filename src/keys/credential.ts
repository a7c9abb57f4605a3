// The credential of a call, as its headers carry it.

import { Refusal } from "../errors.ts";

// More than any credential of ours; what is longer is not looked at.
const headerLengthMax = 512;

/**
 * The token of `authorization: Bearer …`, blanks trimmed, scheme in any case. Throws `missing_key` without one, `invalid_key` for any
 * other scheme and for several values.
 */
export function bearerToken(requestHeader: Headers): string {
  const header = requestHeader.get("authorization");
  if (header === null || header.trim() === "") throw new Refusal("missing_key");
  if (header.length > headerLengthMax) throw new Refusal("invalid_key");
  const [, scheme = "", token = ""] = /^\s*(\S+)\s*(.*?)\s*$/.exec(header) ?? [];
  if (scheme.toLowerCase() !== "bearer") throw new Refusal("invalid_key");
  if (token === "") throw new Refusal("missing_key");
  // Headers joins repeated fields with a comma.
  if (/[\s,]/.test(token)) throw new Refusal("invalid_key");
  return token;
}
