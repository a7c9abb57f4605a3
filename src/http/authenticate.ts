// Authentication of HTTP callers, REST and Connect, before a body is read. The keys service decides
// whether a credential is good. A client address that sent too many wrong credentials is rejected
// without a look at the credential, unless that credential was good before.

import { hash } from "node:crypto";
import type { CallOptions } from "@connectrpc/connect";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { networkOf } from "../base/client-address.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import { type Core, callerMsMax } from "../contract/contract.ts";
import { windowMs } from "../rate-limits/rate-limits.ts";
import type { OnPayerChange } from "./early-check.ts";

/** A request to be authenticated. */
export type LoginAttempt = {
  /** The `Authorization` header of the call to the services. Empty if the client sent no key. */
  readonly authorization: string;
  /** IP address of the client, which the headers of the call name too. */
  readonly address: string;
  /** True to read the spending of the key this month, which costs a database query. */
  readonly monthUsage: boolean;
};

/**
 * A caller, when the keys service identified it, by `performance.now()`, and the address of its
 * call then.
 */
export type IdentifiedCaller = {
  readonly caller: AuthenticateResponse;
  readonly atMs: number;
  readonly address: string;
};

/**
 * Finds the caller, without a promise where it is known. Throws the errors of
 * `KeysService.Authenticate`, and `auth_rate_limited`.
 */
export type IdentifyCaller = (
  attempt: LoginAttempt,
  call: CallOptions,
) => IdentifiedCaller | Promise<IdentifiedCaller>;

// All keys that are in use at one time, in a few megabytes.
const knownCredentialsMax = 10_000;
// A revocation reaches free calls within a second: the change feed takes up to half of it, this
// reuse at most the rest.
const reuseMs = callerMsMax;

/** One instance per listener, shared by REST and Connect. */
export function createIdentifyCaller(
  core: Core,
  failedCredentials: FailedCredentials,
  onPayerChange: OnPayerChange = () => {},
): IdentifyCaller {
  // By digest of the credential. A good credential is served even from an address that is blocked,
  // which many clients may share.
  const known = new BoundedMap<string, IdentifiedCaller>(knownCredentialsMax);

  // After a change of any key, each key is read again.
  let keysChangedAtMs = Number.NEGATIVE_INFINITY;
  onPayerChange(({ kind }) => {
    if (kind === "key") keysChangedAtMs = performance.now();
  });
  const isReusable = (earlier: IdentifiedCaller, address: string) =>
    performance.now() - earlier.atMs < reuseMs &&
    earlier.atMs > keysChangedAtMs &&
    // A list of addresses is checked anew for each of them.
    (earlier.address === address || earlier.caller.key?.allowedAddresses.length === 0);

  async function identify(
    digest: string,
    { address, monthUsage }: LoginAttempt,
    call: CallOptions,
  ) {
    if (!known.get(digest)) failedCredentials.check(address);
    try {
      const atMs = performance.now();
      const caller = await core.keys.authenticate({ monthUsage }, call);
      const identified = { caller, atMs, address };
      known.set(digest, identified);
      return identified;
    } catch (error) {
      const { reason } = toApiError(error);
      // The credential is good, elsewhere.
      if (reason !== "address_not_allowed") known.delete(digest);
      if (reason === "invalid_key" || reason === "invalid_session")
        failedCredentials.record(address);
      throw error;
    }
  }

  return (attempt, call) => {
    const digest = hash("sha256", attempt.authorization, "base64");
    const earlier = known.get(digest);
    if (earlier && !attempt.monthUsage && isReusable(earlier, attempt.address)) return earlier;
    return identify(digest, attempt, call);
  };
}

/** The same, but admin tokens fail with `not_permitted`. */
export function refuseAdminTokens(identify: IdentifyCaller): IdentifyCaller {
  const refuse = (identified: IdentifiedCaller) => {
    if (identified.caller.admin)
      throw new ApiError("not_permitted", { message: "Admin tokens are not accepted here." });
    return identified;
  };
  return (attempt, call) => {
    const identified = identify(attempt, call);
    return identified instanceof Promise ? identified.then(refuse) : refuse(identified);
  };
}

/** Counts wrong credentials per client address. */
export type FailedCredentials = {
  /** Throws `auth_rate_limited` for an address that failed too often in the last minute. */
  check(address: string): void;
  record(address: string): void;
};

/** Failures of one client in any 60 seconds after which its new credentials are rejected unread. */
const failuresMax = 100;
// Each holds at most 100 times: 10 MB if all of them are full.
const clientsMax = 10_000;

/**
 * Counts in this process only: the limit protects the process, and a guess at 256 random bits is
 * hopeless anyhow. `nowMs` must never go back.
 */
export function createFailedCredentials(
  nowMs: () => number = () => performance.now(),
): FailedCredentials {
  const failures = new BoundedMap<string, number[]>(clientsMax);

  function recentFailures(client: string): number[] {
    const oldestMs = nowMs() - windowMs;
    return (failures.get(client) ?? []).filter((atMs) => atMs > oldestMs);
  }

  return {
    check(address) {
      const first = recentFailures(networkOf(address)).at(-failuresMax);
      if (first !== undefined)
        throw new ApiError("auth_rate_limited", {
          retryAfterMs: Math.ceil(first + windowMs - nowMs()),
        });
    },
    record(address) {
      const client = networkOf(address);
      failures.set(client, [...recentFailures(client).slice(1 - failuresMax), nowMs()]);
    },
  };
}
