// Who calls: the operator by the admin token, a key by its secret, as verified a moment ago or
// found in the database.

import { timingSafeEqual } from "node:crypto";
import { ApiError } from "../base/errors.ts";
import type { Authenticate, Caller } from "../contract/contract.ts";
import { KeyCache } from "./cache.ts";
import { createLookup } from "./lookup.ts";
import { digestSecret, isSecret } from "./secret.ts";
import type { FoundSecret } from "./store.ts";

// About 1.5 KB each, and 100 bytes each of those that do not exist (Node 24, 30,000 entries).
const cachedKeysMax = 30_000;
const cachedAbsentMax = 30_000;

const admin: Caller = { kind: "admin" };

type Authentication = {
  authenticate: Authenticate;
  /** A key changed: what was verified of it counts no more. */
  forget(keyId: string): void;
};

/** `adminToken` empty: no token is the operator's. */
export function createAuthentication(
  adminToken: string,
  findSecrets: (digests: readonly string[]) => Promise<FoundSecret[]>,
): Authentication {
  const cache = new KeyCache({ foundMax: cachedKeysMax, absentMax: cachedAbsentMax });
  const lookup = createLookup(findSecrets, cache);
  const isAdmin = adminCheck(adminToken);

  return {
    async authenticate(requestHeader) {
      const token = bearerToken(requestHeader);
      if (!isSecret(token)) {
        if (isAdmin(token)) return admin;
        throw new ApiError("invalid_key");
      }
      const digest = digestSecret(token);
      const known = cache.look(digest);
      if (!known) return callerOf(await lookup.find(digest), false);
      // Beside the call; a failure shows when the entry is too old to be used.
      if (known.stale) lookup.refresh(digest);
      return callerOf(known.found, known.expired);
    },
    forget: (keyId) => cache.change(keyId),
  };
}

/** Throws `invalid_key` for unknown and expired secrets alike, `revoked_key`. */
function callerOf(found: FoundSecret | undefined, expired: boolean): Caller {
  if (found?.revoked) throw new ApiError("revoked_key");
  if (!found || expired || (found.expiresInMs !== undefined && found.expiresInMs <= 0))
    throw new ApiError("invalid_key");
  return found.caller;
}

/** Compares digests, in a time that tells nothing about the token. */
function adminCheck(adminToken: string): (token: string) => boolean {
  if (adminToken === "") return () => false;
  const expected = Buffer.from(digestSecret(adminToken), "latin1");
  return (token) => timingSafeEqual(Buffer.from(digestSecret(token), "latin1"), expected);
}

// The credential of a call, as its headers carry it.

// More than any credential of ours; what is longer is not looked at.
const headerLengthMax = 512;

/**
 * The token of `authorization: Bearer …`, blanks trimmed, scheme in any case. Throws `missing_key`
 * without one, `invalid_key` for any other scheme and for several values.
 */
export function bearerToken(requestHeader: Headers): string {
  const header = requestHeader.get("authorization");
  if (header === null || header.trim() === "") throw new ApiError("missing_key");
  if (header.length > headerLengthMax) throw new ApiError("invalid_key");
  const [, scheme = "", token = ""] = /^\s*(\S+)\s*(.*?)\s*$/.exec(header) ?? [];
  if (scheme.toLowerCase() !== "bearer") throw new ApiError("invalid_key");
  if (token === "") throw new ApiError("missing_key");
  // Headers joins repeated fields with a comma.
  if (/[\s,]/.test(token)) throw new ApiError("invalid_key");
  return token;
}
