// Who calls at the public listener: asked of the keys service before a body is read, on behalf of
// both listeners there. An address that sent too many wrong credentials is not asked about any
// more, unless the credential was good lately.

import { hash } from "node:crypto";
import { isIPv6 } from "node:net";
import type { CallOptions } from "@connectrpc/connect";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Core } from "../contract/contract.ts";
import { windowMs } from "../rate-limits/rate-limits.ts";

// Enough for the keys that are in use at one time, in a few megabytes.
const knownMax = 10_000;
// Whatever a request asks of the services is checked by them again, so what is trusted here is only
// that its body is worth reading.
const trustedMs = 1_000;

/** Who asks to be let in. */
export type LoginAttempt = {
  /** The credential, as the call to the services carries it. Empty without one. */
  readonly authorization: string;
  /** Of the client. */
  readonly address: string;
  /** Asks for what the key spent this month, which costs a look into the database. */
  readonly monthUsage: boolean;
};

/** Throws what `authenticate` of the keys service throws, and `auth_rate_limited`. */
export type IdentifyCaller = (
  knock: LoginAttempt,
  call: CallOptions,
) => Promise<AuthenticateResponse>;

/** Of one listener: its listeners share what they learnt of credentials and addresses. */
export function createIdentifyCaller(
  core: Core,
  failedCredentials: FailedCredentials,
): IdentifyCaller {
  // Digests of credentials that were good lately: an address shared by many is not closed to those
  // who use good ones from it.
  const known = new BoundedMap<string, { caller: AuthenticateResponse; atMs: number }>(knownMax);

  return async ({ authorization, address, monthUsage }, call) => {
    const digest = hash("sha256", authorization, "base64");
    const lately = known.get(digest);
    if (lately && !monthUsage && performance.now() - lately.atMs < trustedMs) return lately.caller;
    if (!lately) failedCredentials.check(address);
    try {
      const caller = await core.keys.authenticate({ monthUsage }, call);
      known.set(digest, { caller, atMs: performance.now() });
      return caller;
    } catch (error) {
      known.delete(digest);
      if (toApiError(error).reason === "invalid_key") failedCredentials.record(address);
      throw error;
    }
  };
}

// Guessing credentials is slowed down per client address. In the memory of one process: it protects
// the process, and a guess at 256 random bits is hopeless anyhow.

/** Failures of one address in any 60 seconds, beyond which it is refused unread. */
const failuresMax = 100;
// At most 100 times each: 10 MB when all of them guess.
const addressesMax = 10_000;

export type FailedCredentials = {
  /** Throws `auth_rate_limited` for an address that failed too often in the last minute. */
  check(address: string): void;
  record(address: string): void;
};

/** `nowMs` must never go back. */
export function createFailedCredentials(
  nowMs: () => number = () => performance.now(),
): FailedCredentials {
  const failures = new BoundedMap<string, number[]>(addressesMax);

  function failuresOf(client: string): number[] {
    const oldestMs = nowMs() - windowMs;
    return (failures.get(client) ?? []).filter((atMs) => atMs > oldestMs);
  }

  return {
    check(address) {
      const times = failuresOf(clientOf(address));
      const first = times.at(-failuresMax);
      if (first !== undefined)
        throw new ApiError("auth_rate_limited", {
          retryAfterMs: Math.ceil(first + windowMs - nowMs()),
        });
    },
    record(address) {
      const client = clientOf(address);
      failures.set(client, [...failuresOf(client).slice(1 - failuresMax), nowMs()]);
    },
  };
}

/**
 * An IPv6 client owns at least the 64-bit network of its address, and would otherwise never run out
 * of addresses.
 */
function clientOf(address: string): string {
  if (!isIPv6(address)) return address;
  const mapped = /^::ffff:([\d.]+)$/i.exec(address);
  if (mapped?.[1]) return mapped[1];
  const [head = "", tail] = address.split("%")[0]?.split("::") ?? [];
  const groups = head === "" ? [] : head.split(":");
  const missing =
    tail === undefined ? 0 : 8 - groups.length - (tail === "" ? 0 : tail.split(":").length);
  const all = [...groups, ...Array<string>(missing).fill("0"), ...(tail ? tail.split(":") : [])];
  return all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}
