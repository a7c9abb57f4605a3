// What can go wrong, once for every listener: a closed list of reasons, what gRPC says about each,
// and the one error class that carries a reason and its facts. `http/error-table.ts` is the twin of
// this file for HTTP.

import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  Reason,
  type Refusal as RefusalDetail,
  RefusalSchema,
} from "../../gen/gateway/common/v1/refusal_pb.ts";

/**
 * Every reason a call can fail for, with its gRPC code and the sentence shown when the thrower gave
 * none.
 */
export const errorCatalog = {
  missing_key: {
    reason: Reason.MISSING_KEY,
    rpc: Code.Unauthenticated,
    message: "No API key was sent.",
  },
  invalid_key: {
    reason: Reason.INVALID_KEY,
    rpc: Code.Unauthenticated,
    message: "This API key is not valid.",
  },
  revoked_key: {
    reason: Reason.REVOKED_KEY,
    rpc: Code.Unauthenticated,
    message: "This API key was revoked.",
  },
  wrong_credential_header: {
    reason: Reason.WRONG_CREDENTIAL_HEADER,
    rpc: Code.Unauthenticated,
    message: "The key came in a header that this endpoint does not read.",
  },
  not_permitted: {
    reason: Reason.NOT_PERMITTED,
    rpc: Code.PermissionDenied,
    message: "This credential may not call this method.",
  },
  auth_rate_limited: {
    reason: Reason.AUTH_RATE_LIMITED,
    rpc: Code.ResourceExhausted,
    message: "Too many failed credentials from this address.",
  },
  invalid_request: {
    reason: Reason.INVALID_REQUEST,
    rpc: Code.InvalidArgument,
    message: "The request is not valid.",
  },
  version_required: {
    reason: Reason.VERSION_REQUIRED,
    rpc: Code.InvalidArgument,
    message: "The version header is missing.",
  },
  version_unsupported: {
    reason: Reason.VERSION_UNSUPPORTED,
    rpc: Code.InvalidArgument,
    message: "This version is not supported.",
  },
  request_too_large: {
    reason: Reason.REQUEST_TOO_LARGE,
    rpc: Code.ResourceExhausted,
    message: "The request is too large.",
  },
  request_body_too_large_after_decoding: {
    reason: Reason.REQUEST_BODY_TOO_LARGE_AFTER_DECODING,
    rpc: Code.ResourceExhausted,
    message: "The request body is too large after decoding.",
  },
  request_body_encoding_unsupported: {
    reason: Reason.REQUEST_BODY_ENCODING_UNSUPPORTED,
    rpc: Code.InvalidArgument,
    message: "This content-encoding is not supported: use gzip, deflate, br or none.",
  },
  request_body_encoding_invalid: {
    reason: Reason.REQUEST_BODY_ENCODING_INVALID,
    rpc: Code.InvalidArgument,
    message: "The request body does not decode as its content-encoding says.",
  },
  responses_api_unsupported: {
    reason: Reason.RESPONSES_API_UNSUPPORTED,
    rpc: Code.InvalidArgument,
    message:
      "This body has the shape of the Responses API, which is not served here: send `messages`.",
  },
  not_found: { reason: Reason.NOT_FOUND, rpc: Code.NotFound, message: "There is no such thing." },
  method_not_allowed: {
    reason: Reason.METHOD_NOT_ALLOWED,
    rpc: Code.Unimplemented,
    message: "This path has no such method.",
  },
  request_id_used: {
    reason: Reason.REQUEST_ID_USED,
    rpc: Code.AlreadyExists,
    message: "This request id was used before.",
  },
  idempotency_key_reused: {
    reason: Reason.IDEMPOTENCY_KEY_REUSED,
    rpc: Code.AlreadyExists,
    message: "This idempotency key was used before with another body.",
  },
  key_not_active: {
    reason: Reason.KEY_NOT_ACTIVE,
    rpc: Code.FailedPrecondition,
    message: "The key is revoked.",
  },
  model_not_found: {
    reason: Reason.MODEL_NOT_FOUND,
    rpc: Code.NotFound,
    message: "There is no such model.",
  },
  model_not_allowed: {
    reason: Reason.MODEL_NOT_ALLOWED,
    rpc: Code.PermissionDenied,
    message: "This key may not use this model.",
  },
  feature_not_offered: {
    reason: Reason.FEATURE_NOT_OFFERED,
    rpc: Code.InvalidArgument,
    message: "This feature is not offered.",
  },
  thread_unsupported_request: {
    reason: Reason.THREAD_UNSUPPORTED_REQUEST,
    rpc: Code.InvalidArgument,
    message: "thread: stored threads are not offered; send the whole conversation.",
  },
  context_length_exceeded: {
    reason: Reason.CONTEXT_LENGTH_EXCEEDED,
    rpc: Code.InvalidArgument,
    message: "prompt is too long",
  },
  rate_limited: {
    reason: Reason.RATE_LIMITED,
    rpc: Code.ResourceExhausted,
    message: "Too many requests for this key.",
  },
  count_rate_limited: {
    reason: Reason.COUNT_RATE_LIMITED,
    rpc: Code.ResourceExhausted,
    message: "Too many counting calls for this key.",
  },
  // FailedPrecondition, not ResourceExhausted: waiting and retrying does not add credits.
  credits_exhausted: {
    reason: Reason.CREDITS_EXHAUSTED,
    rpc: Code.FailedPrecondition,
    message: "The credits of this key's pool do not cover this request.",
  },
  credits_held: {
    reason: Reason.CREDITS_HELD,
    rpc: Code.ResourceExhausted,
    message: "The remaining credits are held by running requests; try again when one has ended.",
  },
  monthly_cap_reached: {
    reason: Reason.MONTHLY_CAP_REACHED,
    rpc: Code.FailedPrecondition,
    message: "The monthly credit cap of this key is reached.",
  },
  insufficient_funds: {
    reason: Reason.INSUFFICIENT_FUNDS,
    rpc: Code.FailedPrecondition,
    message: "The pool has fewer free credits than that.",
  },
  gateway_unavailable: {
    reason: Reason.GATEWAY_UNAVAILABLE,
    rpc: Code.Unavailable,
    message: "The gateway cannot take this request now; try again shortly.",
  },
  billing_unavailable: {
    reason: Reason.BILLING_UNAVAILABLE,
    rpc: Code.Unavailable,
    message: "The ledger is not reachable; nothing was charged. Try again shortly.",
  },
  overloaded: {
    reason: Reason.OVERLOADED,
    rpc: Code.Unavailable,
    message: "The model is overloaded; try again shortly.",
  },
  upstream_error: {
    reason: Reason.UPSTREAM_ERROR,
    rpc: Code.Unavailable,
    message: "The model provider did not answer properly.",
  },
  upstream_refused: {
    reason: Reason.UPSTREAM_REFUSED,
    rpc: Code.InvalidArgument,
    message: "The model provider declined the request.",
  },
  timeout: {
    reason: Reason.TIMEOUT,
    rpc: Code.DeadlineExceeded,
    message: "The model did not answer in time.",
  },
  cancelled: { reason: Reason.CANCELLED, rpc: Code.Canceled, message: "The call was cancelled." },
  internal: { reason: Reason.INTERNAL, rpc: Code.Internal, message: "Internal error." },
  unimplemented: {
    reason: Reason.UNIMPLEMENTED,
    rpc: Code.Unimplemented,
    message: "There is no such method.",
  },
} as const satisfies Record<string, { reason: Reason; rpc: Code; message: string }>;

export type ErrorReason = keyof typeof errorCatalog;

const nameOfReason = new Map<number, ErrorReason>();
for (const name of Object.keys(errorCatalog))
  if (isErrorReason(name)) nameOfReason.set(errorCatalog[name].reason, name);

function isErrorReason(name: string): name is ErrorReason {
  return Object.hasOwn(errorCatalog, name);
}

/** Facts of an error. Each is absent when it does not apply. */
export type ErrorFacts = {
  /** Shown instead of the table's sentence. */
  message?: string;
  /** Path of the request field at fault, as `messages[1].content`. */
  field?: string;
  /** What would have been accepted. */
  allowed?: readonly string[];
  /** Earliest useful time to try again, in milliseconds from now. */
  retryAfterMs?: number;
  limit?: MessageInitShape<typeof RefusalSchema>["limit"];
  /**
   * The provider's own answer, with `upstream_refused`; its status alone with an `upstream_error`
   * that only the operator can mend.
   */
  providerAnswer?: { status: number; body?: JsonObject };
  /** The original error, for the log only. */
  cause?: unknown;
};

/** A call that we understood and declined, or that failed for a reason callers can be told. */
export class ApiError extends Error {
  override readonly name = "Refusal";
  readonly reason: ErrorReason;
  readonly facts: ErrorFacts;

  constructor(apiError: ErrorReason, facts: ErrorFacts = {}) {
    // Where an answer to a caller was made tells nobody anything, and noting it is a fifteenth of
    // refusing an unknown key.
    const { stackTraceLimit } = Error;
    if (apiError !== "internal") Error.stackTraceLimit = 0;
    super(
      facts.message ?? errorCatalog[apiError].message,
      facts.cause === undefined ? undefined : { cause: facts.cause },
    );
    Error.stackTraceLimit = stackTraceLimit;
    this.reason = apiError;
    this.facts = facts;
  }

  /** The error detail of this error. */
  toDetail(): RefusalDetail {
    const { field, allowed, retryAfterMs, limit, providerAnswer } = this.facts;
    return create(RefusalSchema, {
      reason: errorCatalog[this.reason].reason,
      message: this.message,
      ...(field !== undefined && { field }),
      ...(allowed !== undefined && { allowed: [...allowed] }),
      ...(retryAfterMs !== undefined && {
        retryAfter: durationOf(Math.ceil(retryAfterMs)),
      }),
      ...(limit !== undefined && { limit }),
      ...(providerAnswer !== undefined && { providerAnswer }),
    });
  }

  /**
   * The error that a detail stands for; a reason that this version does not know becomes
   * `internal`.
   */
  static fromDetail(detail: RefusalDetail): ApiError {
    const { field, allowed, retryAfter, limit, providerAnswer } = detail;
    return new ApiError(nameOfReason.get(detail.reason) ?? "internal", {
      message: detail.message,
      ...(field !== "" && { field }),
      ...(allowed.length > 0 && { allowed }),
      ...(retryAfter !== undefined && {
        retryAfterMs: Number(retryAfter.seconds) * 1000 + retryAfter.nanos / 1_000_000,
      }),
      ...(limit !== undefined && { limit }),
      ...(providerAnswer !== undefined && {
        providerAnswer: {
          status: providerAnswer.status,
          ...(providerAnswer.body !== undefined && { body: providerAnswer.body }),
        },
      }),
    });
  }
}

/**
 * The error of one field or member of a request. `fault` goes on where its name ends, as in `must
 * be a string`.
 */
export function invalidField(field: string, fault: string, allowed?: readonly string[]): ApiError {
  return new ApiError("invalid_request", {
    field,
    ...(allowed && { allowed }),
    message: `${field}: ${fault}`,
  });
}

function durationOf(ms: number): { seconds: bigint; nanos: number } {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: (ms % 1000) * 1_000_000 };
}

/**
 * Gives any thrown value its error. What we did not foresee tells the caller nothing; the original
 * stays as `cause`.
 */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // The reason of a signal that Connect fired: its caller left, or let the deadline pass.
  if (error instanceof ConnectError) {
    return new ApiError(error.code === Code.DeadlineExceeded ? "timeout" : "cancelled", {
      cause: error,
    });
  }
  if (error instanceof Error && error.name === "AbortError")
    return new ApiError("cancelled", { cause: error });
  return new ApiError("internal", { cause: error });
}

// What every listener says that takes nothing new.

/** The error of a request or call that comes while the gateway ends. */
export function shuttingDown(): ApiError {
  return new ApiError("gateway_unavailable", {
    message: "The gateway is shutting down; try again shortly.",
    retryAfterMs: 1_000,
  });
}
