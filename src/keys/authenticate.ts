// Authenticates callers: the operator by the admin token, a key by its secret. A secret is looked
// up in the cache, then in the database.

import { timingSafeEqual } from "node:crypto";
import type { MisplacedUse } from "../base/client-address.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError, expiredSecret } from "../base/errors.ts";
import { SecretCache } from "../base/secret-cache.ts";
import { createSecretLookup } from "../base/secret-lookup.ts";
import { checkAddress } from "../contract/callers.ts";
import {
  type Authenticate,
  type Caller,
  type CallHeaders,
  environmentToken,
  type Origin,
} from "../contract/contract.ts";
import type { Metrics } from "../metrics/metrics.ts";
import { digestSecret, isManagementSecret, isSecret } from "./secret.ts";
import type { FoundSecret } from "./store.ts";

// About 1.5 KB per key, and 100 bytes per unknown secret (Node 24, 30,000 entries).
export const cacheLimits = {
  foundMax: 30_000,
  unknownMax: 30_000,
  freshMs: 5_000,
  staleMs: 30_000,
} as const;

type Authentication = {
  authenticate: Authenticate;
  /** Call when a key changed: its cached secrets become invalid. */
  forget(keyId: string): void;
};

/**
 * `adminToken` empty: no token authenticates the operator. `onUse`: called with the id of a secret
 * whose last recorded use is more than a minute ago. `maxWaitMs`: how long a call waits for an
 * unreachable database.
 */
export function createAuthentication(parts: {
  adminToken: string;
  findSecrets: (digests: readonly string[]) => Promise<FoundSecret[]>;
  onUse: (secretId: string) => void;
  /** Absent: there are no management keys. */
  authenticateManagement?: (
    secret: string,
    requestHeader: CallHeaders,
    origin: Origin | undefined,
  ) => Promise<Caller>;
  /** Called for each call from an address that the list of its key does not allow. */
  onMisplaced?: ((use: MisplacedUse) => void) | undefined;
  /** Called at each use of the admin token. */
  onAdminUse?: (() => void) | undefined;
  maxWaitMs?: number | undefined;
  clock?: Clock | undefined;
  /** Absent: nothing is counted. */
  metrics?: Metrics | undefined;
}): Authentication {
  const { adminToken, findSecrets, onUse, maxWaitMs, clock = systemClock } = parts;
  const cache = new SecretCache<FoundSecret>(cacheLimits, () => clock.now());
  // A secret is read because it is in use: a stale entry is read again at its next use. So to know
  // the last use costs nothing where a call finds its secret in the cache.
  const findUsed = async (digests: readonly string[]) => {
    const found = await findSecrets(digests);
    for (const one of found)
      if (one.useIsDue && refusalOf(one, false) === undefined) onUse(one.secretId);
    return found;
  };
  const lookup = createSecretLookup(findUsed, cache, {
    ...(maxWaitMs !== undefined && { maxWaitMs }),
    clock,
  });
  const isAdmin = adminCheck(adminToken);
  const looks = countLooks(parts.metrics);

  /**
   * Throws `invalid_key` for an unknown or expired secret, `revoked_key`, `account_suspended`,
   * `key_expired`, `key_paused` and `address_not_allowed`.
   */
  const callerOf = (
    found: FoundSecret | undefined,
    isExpired: boolean,
    requestHeader: CallHeaders,
    origin: Origin | undefined,
  ): Caller => {
    if (!found) throw new ApiError("invalid_key");
    const refusal = refusalOf(found, isExpired);
    if (refusal) throw refusal;
    const { caller, isAllowedAt } = found;
    if (isAllowedAt)
      checkAddress(isAllowedAt, { requestHeader, ...origin }, (address) => {
        const { key, secret } = caller;
        parts.onMisplaced?.({ ...key, id: key.keyId, hint: secret.hint, address });
      });
    return caller;
  };

  return {
    async authenticate(requestHeader, origin) {
      const token = bearerToken(requestHeader);
      if (parts.authenticateManagement && isManagementSecret(token))
        return parts.authenticateManagement(token, requestHeader, origin);
      if (!isSecret(token)) {
        if (isAdmin(token)) {
          parts.onAdminUse?.();
          return environmentToken;
        }
        throw new ApiError("invalid_key");
      }
      const digest = digestSecret(token);
      const cached = cache.get(digest);
      if (!cached) {
        const read = await lookup.find(digest);
        looks[read ? "miss" : "invalid"].value += 1;
        return callerOf(read, false, requestHeader, origin);
      }
      looks[cached.found ? "hit" : "invalid"].value += 1;
      // In the background: a failure matters only when the entry is too old to be used.
      if (cached.isStale) lookup.refresh(digest);
      return callerOf(cached.found, cached.isExpired, requestHeader, origin);
    },
    forget: (keyId) => cache.invalidate(keyId),
  };
}

function countLooks(metrics: Metrics | undefined) {
  const tally = (result: string) =>
    metrics?.counter("gateway_key_cache_total", [result]) ?? { value: 0 };
  return { hit: tally("hit"), miss: tally("miss"), invalid: tally("invalid") };
}

/** The error of a key or secret that is known, and must not be used. Undefined: it may. */
function refusalOf(found: FoundSecret, isExpired: boolean): ApiError | undefined {
  if (found.refusal) return new ApiError(found.refusal);
  if (isExpired || (found.expiresInMs !== undefined && found.expiresInMs <= 0))
    return found.expiresFirst === "key" ? new ApiError("key_expired") : expiredSecret();
  return found.paused ? new ApiError("key_paused") : undefined;
}

/** Compares digests in constant time, so that the duration reveals nothing about the token. */
function adminCheck(adminToken: string): (token: string) => boolean {
  if (adminToken === "") return () => false;
  const expected = Buffer.from(digestSecret(adminToken), "latin1");
  return (token) => timingSafeEqual(Buffer.from(digestSecret(token), "latin1"), expected);
}

// Longer than any credential of ours. A longer header is refused without parsing it.
const headerLengthMax = 512;

/**
 * The token of `authorization: Bearer …`, without surrounding blanks; the scheme is
 * case-insensitive. Throws `missing_key` without a token, and `invalid_key` for another scheme or
 * several values.
 */
function bearerToken(requestHeader: CallHeaders): string {
  const header = requestHeader.get("authorization");
  if (header === null || header.trim() === "") throw new ApiError("missing_key");
  if (header.length > headerLengthMax) throw new ApiError("invalid_key");
  const [, scheme = "", token = ""] = /^\s*(\S+)\s*(.*?)\s*$/.exec(header) ?? [];
  if (scheme.toLowerCase() !== "bearer") throw new ApiError("invalid_key");
  if (token === "") throw new ApiError("missing_key");
  // `Headers` joins repeated fields with a comma.
  if (/[\s,]/.test(token)) throw new ApiError("invalid_key");
  return token;
}
