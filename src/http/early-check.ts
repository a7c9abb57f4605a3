// Rejects requests of the two generating paths before their body is read, from what this process
// knows already: the limit of the key, its last error, and its failed requests. The services check
// everything again. Without it, a key that can pay for nothing makes the process receive and parse
// one large body after the other.
//
// A facade learns only of the changes that are made through it. After other changes it may repeat
// an error for a second.

import type { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { ApiError, type ErrorReason, toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { credits } from "../base/money.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";

/** An event after which an earlier error of a key may no longer hold. */
export type PayerChange =
  | { readonly kind: "transfer" | "settlement"; readonly accountId: string }
  | { readonly kind: "key"; readonly keyId: string };

/** Subscribes to the changes that this process makes or learns of. */
export type OnPayerChange = (listener: (change: PayerChange) => void) => void;

/** A request that passed the early check. */
export type CheckedRequest = {
  /** Reports the error of the request. `bodyBytes` is undefined if no body was read. */
  fail(error: ApiError, status: number, bodyBytes: number | undefined): void;
};

/** Throws `requests_not_allowed`, `rate_limited`, `too_many_failed`, or a 402. */
export type EarlyCheck = (key: Key) => CheckedRequest;

/** How long an error is answered again without a new check. */
const knownMs = 1_000;
const keysMax = 20_000;
const changesMax = 200_000;
/** Statuses of requests that failed although they could be read in full. */
export const failedStatuses: ReadonlySet<number> = new Set([400, 402, 403, 404, 413]);

/** The same check, which also reports each error that it throws. */
export function reportErrors(
  check: EarlyCheck,
  report: ((key: Key, reason: ErrorReason) => void) | undefined,
): EarlyCheck {
  if (!report) return check;
  return (key) => {
    try {
      return check(key);
    } catch (error) {
      report(key, toApiError(error).reason);
      throw error;
    }
  };
}

type KeyErrors = {
  /** An error that the next request of the key would meet, whatever it asks for. */
  readonly known: { readonly error: ApiError; readonly untilMs: number } | undefined;
  /** The last error of a request whose body was read. */
  readonly last: ApiError;
  /** When `last` was confirmed by a full check. */
  confirmedAtMs: number;
  /** Number of the last change before the request began. */
  readonly startedAt: number;
};

/** One instance per listener. `nowMs` must never go back. */
export function createEarlyCheck(
  limits: RateLimits,
  onPayerChange: OnPayerChange,
  nowMs: () => number = () => performance.now(),
): EarlyCheck {
  const errors = new BoundedMap<string, KeyErrors>(keysMax);
  // Changes are numbered. An error counts only if its request began after the last change of its
  // payer: the request may have been decided before a transfer, and fail after it was answered.
  let lastChange = 0;
  const changes = new BoundedMap<string, number>(changesMax);
  const settlements = new BoundedMap<string, number>(changesMax);
  onPayerChange((change) => {
    lastChange += 1;
    if (change.kind === "settlement") settlements.set(change.accountId, lastChange);
    else changes.set(change.kind === "key" ? change.keyId : change.accountId, lastChange);
  });

  /** The last error of a key, unless a transfer or a change of the key came after it. */
  function errorsOf({ keyId, accountId }: Key): KeyErrors | undefined {
    const found = errors.get(keyId);
    const changedAt = Math.max(changes.get(accountId) ?? 0, changes.get(keyId) ?? 0);
    return found && found.startedAt >= changedAt ? found : undefined;
  }

  function checkKnown(key: Key): void {
    const found = errorsOf(key);
    if (!found?.known || nowMs() >= found.known.untilMs) return;
    if (found.startedAt >= (settlements.get(key.accountId) ?? 0)) throw found.known.error;
  }

  function checkFailed(key: Key): void {
    const tooManyFailed = limits.tooManyFailed(key.keyId, key.requestsPerMinute);
    if (!tooManyFailed) return;
    const found = errorsOf(key);
    // After a transfer or a change of the key, the next request shows whether it still fails.
    if (!found) return;
    if (!isPayment(found.last)) throw tooManyFailed;
    // Another process may have added credits: one request a second is checked in full.
    const isByCount = tooManyFailed.facts.limit?.name === "failed_requests_per_minute";
    if (!isByCount || nowMs() - found.confirmedAtMs < knownMs) throw found.last;
    found.confirmedAtMs = nowMs();
  }

  return (key) => {
    limits.check(key.keyId, key.requestsPerMinute);
    checkKnown(key);
    checkFailed(key);
    const startedAt = lastChange;
    return {
      fail(error, status, bodyBytes) {
        if (bodyBytes === undefined) return;
        const remembered = withoutNeed(error);
        errors.set(key.keyId, {
          known: knownFrom(remembered, nowMs()),
          last: remembered,
          confirmedAtMs: nowMs(),
          startedAt,
        });
        if (failedStatuses.has(status))
          void limits.recordFailed(key.keyId, key.requestsPerMinute, bodyBytes);
      },
    };
  };
}

function isPayment({ reason }: ApiError): boolean {
  return reason === "credits_exhausted" || reason === "monthly_cap_reached";
}

/** The error as another request of its key meets it: what is free, not what this one needed. */
function withoutNeed(error: ApiError): ApiError {
  const { limit } = error.facts;
  if (!isPayment(error) || limit?.remaining === undefined) return error;
  const free = credits(limit.remaining);
  const message =
    error.reason === "credits_exhausted"
      ? `The ${familyNameOf(limit.family)}pool of this account has ${free} credits free. ` +
        "Add credits to continue."
      : `The monthly credit cap of this key is reached: ${free} credits of it are left.`;
  return new ApiError(error.reason, { ...error.facts, message });
}

function familyNameOf(family: Family | undefined): string {
  const name = family === undefined ? undefined : familyName(family);
  return name === undefined ? "" : `${name} `;
}

/** The error as every request of its key would meet it now, and until when at most. */
function knownFrom(error: ApiError, nowMs: number): KeyErrors["known"] {
  const { limit, retryAfterMs } = error.facts;
  if (error.reason === "rate_limited")
    return { error, untilMs: nowMs + Math.min(knownMs, retryAfterMs ?? knownMs) };
  if (!isPayment(error) || !limit?.exhausted) return undefined;
  const { resetsAt } = limit;
  const resetsInMs = resetsAt ? Number(resetsAt.seconds ?? 0n) * 1000 - Date.now() : knownMs;
  return { error, untilMs: nowMs + Math.min(knownMs, resetsInMs) };
}
