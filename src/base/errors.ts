// The closed list of reasons for which a call can fail, with the gRPC code of each, and the one
// error class that carries a reason and its facts. `http/error-table.ts` has the HTTP side.

import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { type TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import type { LimitMetric } from "../../gen/gateway/common/v1/error_pb.ts";
import type { Family } from "../../gen/gateway/common/v1/family_pb.ts";

/** Every reason for which a call can fail, with its gRPC code and its default message. */
export const errorCatalog = {
  missing_key: {
    rpc: Code.Unauthenticated,
    message: "No API key was sent.",
  },
  invalid_key: {
    rpc: Code.Unauthenticated,
    // The vendor's words, by which clients of the chat format know it.
    message: "Incorrect API key provided.",
  },
  revoked_key: {
    rpc: Code.Unauthenticated,
    message: "This API key was revoked.",
  },
  key_expired: {
    rpc: Code.Unauthenticated,
    message: "This API key has expired.",
  },
  // PermissionDenied, not Unauthenticated: the key is right, and works again once it is resumed.
  key_paused: {
    rpc: Code.PermissionDenied,
    message: "This API key is paused. An owner of its account can resume it.",
  },
  // PermissionDenied, not Unauthenticated: the key is right, elsewhere.
  address_not_allowed: {
    rpc: Code.PermissionDenied,
    message: "This key may not be used from this address.",
  },
  management_key_here: {
    rpc: Code.Unauthenticated,
    message:
      "This is a management key, which pays for no requests. Create a key with it and use that.",
  },
  wrong_credential_header: {
    rpc: Code.Unauthenticated,
    message: "The key came in a header that this endpoint does not read.",
  },
  not_permitted: {
    rpc: Code.PermissionDenied,
    message: "This credential may not call this method.",
  },
  // PermissionDenied, not Unauthenticated: the credential is right.
  account_suspended: {
    rpc: Code.PermissionDenied,
    message: "This account is suspended. Its owner can ask the operator of this gateway why.",
  },
  auth_rate_limited: {
    rpc: Code.ResourceExhausted,
    message: "Too many failed credentials from this address.",
  },
  sign_in_failed: {
    rpc: Code.Unauthenticated,
    message: "These sign-in details are not right.",
  },
  invalid_session: {
    rpc: Code.Unauthenticated,
    message: "This session has ended. Sign in again.",
  },
  invalid_signature: {
    rpc: Code.Unauthenticated,
    message: "The signature of this webhook is not valid.",
  },
  // PermissionDenied, not Unauthenticated: the session stays valid.
  confirm_identity: {
    rpc: Code.PermissionDenied,
    message: "Confirm who you are, then repeat this call.",
  },
  invalid_request: {
    rpc: Code.InvalidArgument,
    message: "The request is not valid.",
  },
  version_required: {
    rpc: Code.InvalidArgument,
    message: "The version header is missing.",
  },
  version_unsupported: {
    rpc: Code.InvalidArgument,
    message: "This version is not supported.",
  },
  request_too_large: {
    rpc: Code.ResourceExhausted,
    message: "The request is too large.",
  },
  request_body_too_large_after_decoding: {
    rpc: Code.ResourceExhausted,
    message: "The request body is too large after decoding.",
  },
  request_body_encoding_unsupported: {
    rpc: Code.InvalidArgument,
    message: "This content-encoding is not supported: use gzip, deflate, br or none.",
  },
  request_body_encoding_invalid: {
    rpc: Code.InvalidArgument,
    message: "The request body does not match its content-encoding.",
  },
  body_too_slow: {
    rpc: Code.DeadlineExceeded,
    message: "The request body arrived too slowly, or not at all.",
  },
  not_found: { rpc: Code.NotFound, message: "Not found." },
  archived: {
    rpc: Code.NotFound,
    message: "The charges of that time were archived. The operator of this gateway has them.",
  },
  method_not_allowed: {
    rpc: Code.Unimplemented,
    message: "This path has no such method.",
  },
  request_id_used: {
    rpc: Code.AlreadyExists,
    message: "This request id was used before.",
  },
  idempotency_key_reused: {
    rpc: Code.AlreadyExists,
    message: "This idempotency key was used before with another body.",
  },
  key_not_active: {
    rpc: Code.FailedPrecondition,
    message: "The key is revoked.",
  },
  report_too_large: {
    rpc: Code.FailedPrecondition,
    message: "This report takes too long to read at once: ask for fewer months.",
  },
  account_closed: {
    rpc: Code.FailedPrecondition,
    message: "This account is closed.",
  },
  name_taken: {
    rpc: Code.AlreadyExists,
    message: "This name is or was in use. Choose another one.",
  },
  login_taken: {
    rpc: Code.AlreadyExists,
    message: "Another person has this login. Choose another one.",
  },
  wrong_state: {
    rpc: Code.FailedPrecondition,
    message: "The state of the order does not permit this.",
  },
  // FailedPrecondition: the call can succeed after another one exists.
  last_one: {
    rpc: Code.FailedPrecondition,
    message: "The last one must stay.",
  },
  sign_up_closed: {
    rpc: Code.PermissionDenied,
    message: "New people cannot sign up here in this way. Ask for an invitation.",
  },
  promotion_not_usable: {
    rpc: Code.FailedPrecondition,
    message: "This promotion code cannot be used.",
  },
  model_not_found: {
    rpc: Code.NotFound,
    message: "This model does not exist.",
  },
  model_not_allowed: {
    rpc: Code.PermissionDenied,
    message: "This key may not use this model.",
  },
  feature_not_offered: {
    rpc: Code.InvalidArgument,
    message: "This feature is not offered.",
  },
  thread_unsupported_request: {
    rpc: Code.InvalidArgument,
    message: "thread: stored threads are not supported; send the whole conversation.",
  },
  context_length_exceeded: {
    rpc: Code.InvalidArgument,
    message: "prompt is too long",
  },
  rate_limited: {
    rpc: Code.ResourceExhausted,
    message: "Too many requests for this key.",
  },
  requests_not_allowed: {
    rpc: Code.PermissionDenied,
    message: "This key may make no requests: its limit is 0 requests a minute.",
  },
  too_many_failed: {
    rpc: Code.ResourceExhausted,
    message: "Too many requests of this key failed; correct them before you send more.",
  },
  too_many_bodies: {
    rpc: Code.ResourceExhausted,
    message: "Too many large requests of this key are in progress; send fewer at once.",
  },
  too_many_keys: {
    rpc: Code.ResourceExhausted,
    message: "This account has as many keys as it may.",
  },
  limit_reached: {
    rpc: Code.ResourceExhausted,
    message: "There are as many of these as there may be.",
  },
  count_rate_limited: {
    rpc: Code.ResourceExhausted,
    message: "Too many counting calls for this key.",
  },
  // FailedPrecondition, not ResourceExhausted: waiting and retrying does not add credits.
  credits_exhausted: {
    rpc: Code.FailedPrecondition,
    message: "The credits of this key's pool do not cover this request.",
  },
  credits_held: {
    rpc: Code.ResourceExhausted,
    message: "Running requests hold the remaining credits; try again when one of them has ended.",
  },
  monthly_cap_reached: {
    rpc: Code.FailedPrecondition,
    message: "The monthly credit cap of this key is reached.",
  },
  // As credits_exhausted: a budget may not reset for weeks.
  budget_reached: {
    rpc: Code.FailedPrecondition,
    message: "A budget of this key, its manager or its pool is reached.",
  },
  too_many_running: {
    rpc: Code.ResourceExhausted,
    message: "As many requests run as may run at once; try again when one of them has ended.",
  },
  insufficient_funds: {
    rpc: Code.FailedPrecondition,
    message: "The pool has too few free credits.",
  },
  gateway_unavailable: {
    rpc: Code.Unavailable,
    message: "The gateway cannot accept this request now; try again shortly.",
  },
  database_unavailable: {
    rpc: Code.Unavailable,
    message: "The database is unreachable. Try again shortly.",
  },
  billing_unavailable: {
    rpc: Code.Unavailable,
    message: "The ledger is unreachable, and nothing was charged. Try again shortly.",
  },
  overloaded: {
    rpc: Code.Unavailable,
    message: "The model is overloaded; try again shortly.",
  },
  upstream_error: {
    rpc: Code.Unavailable,
    message: "The model provider failed or sent an invalid answer.",
  },
  upstream_refused: {
    rpc: Code.InvalidArgument,
    message: "The model provider rejected the request.",
  },
  timeout: {
    rpc: Code.DeadlineExceeded,
    message: "The model did not answer in time.",
  },
  cancelled: { rpc: Code.Canceled, message: "The call was cancelled." },
  internal: { rpc: Code.Internal, message: "Internal error." },
  unimplemented: {
    rpc: Code.Unimplemented,
    message: "This method does not exist.",
  },
} as const satisfies Record<string, { rpc: Code; message: string }>;

export type ErrorReason = keyof typeof errorCatalog;

/** True for a name of the catalogue. */
export function isErrorReason(name: string): name is ErrorReason {
  return Object.hasOwn(errorCatalog, name);
}

/** The names of limits, as `quota_metric` has them. */
export type LimitName = Lowercase<Exclude<keyof typeof LimitMetric, "UNSPECIFIED">>;

/** A limit that a call met. */
export type Limit = {
  /** Ends with the unit, as in `requests_per_minute`. */
  name: LimitName;
  limit: bigint;
  used?: bigint;
  remaining?: bigint;
  /** When part of the limit becomes free again. Absent: waiting alone frees nothing. */
  resetsAt?: MessageInitShape<typeof TimestampSchema>;
  /**
   * The pool or the month is spent, whatever running requests hold: every request of its keys meets
   * this error.
   */
  exhausted?: true;
  /** The pool's family, with `pool_microcredits` only. */
  family?: Family;
};

/** Facts of an error. Each is absent when it does not apply. */
export type ErrorFacts = {
  /** Replaces the default message of the catalogue. */
  message?: string;
  /** Path of the invalid request field, such as `messages[1].content`. */
  field?: string;
  /** The values that would have been accepted. */
  allowed?: readonly string[];
  /** Milliseconds from now until a retry can succeed. */
  retryAfterMs?: number;
  limit?: Limit;
  /**
   * Micro-credits that the request needs set aside, with a limit of credits. Callers read it in the
   * message alone.
   */
  neededMicro?: bigint;
  /**
   * The provider's own answer, with `upstream_refused`. With `upstream_error` its status alone, if
   * only the operator can solve the problem.
   */
  providerAnswer?: { status: number; body?: JsonObject };
  /** The original error. It appears in the log only. */
  cause?: unknown;
};

/** An error that the caller may see: a reason from the catalogue, a message and facts. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly reason: ErrorReason;
  readonly facts: ErrorFacts;

  constructor(reason: ErrorReason, facts: ErrorFacts = {}) {
    // Only an internal error needs its stack. Recording one takes a fifteenth of the time to reject
    // an unknown key.
    const { stackTraceLimit } = Error;
    if (reason !== "internal") Error.stackTraceLimit = 0;
    super(
      facts.message ?? errorCatalog[reason].message,
      facts.cause === undefined ? undefined : { cause: facts.cause },
    );
    Error.stackTraceLimit = stackTraceLimit;
    this.reason = reason;
    this.facts = facts;
  }
}

/** The error of one request field. `fault` continues its name, as in `must be a string`. */
export function invalidField(field: string, fault: string, allowed?: readonly string[]): ApiError {
  return new ApiError("invalid_request", {
    field,
    ...(allowed && { allowed }),
    message: `${field}: ${fault}`,
  });
}

/** How often something was done, and may be done until a time. */
type Frequency = {
  readonly name: LimitName;
  readonly most: number;
  readonly made: number;
  /** Null: not known. */
  readonly resetsAt: Date | null;
};

/** The error of what was done too often: its limit, and the time to wait. */
export function tooOften(
  reason: ErrorReason,
  message: string,
  { name, most, made, resetsAt }: Frequency,
): ApiError {
  return new ApiError(reason, {
    message,
    limit: {
      ...{ name, limit: BigInt(most), used: BigInt(made) },
      ...(resetsAt && { resetsAt: timestampFromDate(resetsAt) }),
    },
    ...(resetsAt && { retryAfterMs: Math.max(0, resetsAt.getTime() - Date.now()) }),
  });
}

/** The error of a request or call that arrives during the shutdown. */
export function shuttingDown(): ApiError {
  return new ApiError("gateway_unavailable", {
    message: "The gateway is shutting down; try again shortly.",
    retryAfterMs: 1_000,
  });
}

/**
 * Turns any thrown value into an ApiError. An unexpected one becomes `internal`: the caller sees no
 * details, and the log shows the original as `cause`.
 */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // The abort reason of a Connect call: the caller disconnected, or the deadline passed.
  if (error instanceof ConnectError) {
    return new ApiError(error.code === Code.DeadlineExceeded ? "timeout" : "cancelled", {
      cause: error,
    });
  }
  if (error instanceof Error && error.name === "AbortError")
    return new ApiError("cancelled", { cause: error });
  return new ApiError("internal", { cause: error });
}

/** The error of a secret whose time after a rotation is over. */
export function expiredSecret(): ApiError {
  return new ApiError("invalid_key", {
    message:
      "Incorrect API key provided: this secret expired after its key was rotated. Use the newest one.",
  });
}
