// The HTTP status and error body of each reason. `base/errors.ts` has the gRPC codes and messages.

import type { ErrorReason } from "../base/errors.ts";

export type Envelope = "native" | "chat" | "responses" | "union";

type NativeType =
  | "invalid_request_error"
  | "authentication_error"
  | "billing_error"
  | "permission_error"
  | "not_found_error"
  | "conflict_error"
  | "request_too_large"
  | "rate_limit_error"
  | "timeout_error"
  | "api_error"
  | "overloaded_error";

/** The HTTP side of one reason. */
export type Row = {
  status: number;
  /** Status in the chat format, where it differs. */
  chatStatus?: number;
  /** `error.type` and, where clients can use one, `error.details.error_code`. */
  native: readonly [type: NativeType, code?: string];
  /** `error.type`, `error.code` and, where it is always the same field, `error.param`. */
  chat: readonly [type: string, code: string | null, param?: string];
  /** False: SDKs must not retry. Absent: SDKs decide by the status. */
  shouldRetry?: false;
  /**
   * True: a client of the Responses format that asked for a stream gets one that fails at once. Of
   * these errors a person must read the message, and Codex repeats every status but two, which it
   * shows as raw JSON, or without the message.
   */
  failsInStream?: true;
  /** The `retry-after` of an error that has no time of its own. */
  retryAfterSeconds?: number;
};

const invalid = "invalid_request_error";
const authentication = "authentication_error";
const noRetry = { shouldRetry: false } as const;
const needsPerson = { shouldRetry: false, failsInStream: true } as const;

/** The HTTP side of each reason. */
export const errorTable = {
  missing_key: {
    status: 401,
    native: [authentication, "missing_key"],
    chat: [invalid, "invalid_api_key"],
    ...noRetry,
  },
  invalid_key: {
    status: 401,
    native: [authentication, "invalid_key"],
    chat: [invalid, "invalid_api_key"],
    ...noRetry,
  },
  revoked_key: {
    status: 401,
    native: [authentication, "revoked_key"],
    chat: [invalid, "revoked_api_key"],
    ...noRetry,
  },
  key_expired: {
    status: 401,
    native: [authentication, "key_expired"],
    chat: [invalid, "expired_api_key"],
    ...noRetry,
  },
  key_paused: {
    status: 403,
    native: ["permission_error", "key_paused"],
    chat: [invalid, "key_paused"],
    ...noRetry,
  },
  address_not_allowed: {
    status: 403,
    native: ["permission_error", "address_not_allowed"],
    chat: [invalid, "address_not_allowed"],
    ...noRetry,
  },
  management_key_here: {
    status: 401,
    native: [authentication, "management_key_here"],
    chat: [invalid, "management_key_here"],
    ...noRetry,
  },
  wrong_credential_header: {
    status: 401,
    native: [authentication, "wrong_credential_header"],
    chat: [invalid, "wrong_credential_header"],
    ...noRetry,
  },
  not_permitted: {
    status: 403,
    native: ["permission_error", "not_permitted"],
    chat: [invalid, "not_permitted"],
    ...noRetry,
  },
  account_suspended: {
    status: 403,
    native: ["permission_error", "account_suspended"],
    chat: [invalid, "account_suspended"],
    ...noRetry,
  },
  auth_rate_limited: {
    status: 429,
    native: ["rate_limit_error", "auth_rate_limited"],
    chat: ["requests", "auth_rate_limited"],
    retryAfterSeconds: 60,
  },
  sign_in_failed: {
    status: 401,
    native: [authentication, "sign_in_failed"],
    chat: [invalid, "sign_in_failed"],
    ...noRetry,
  },
  invalid_session: {
    status: 401,
    native: [authentication, "invalid_session"],
    chat: [invalid, "invalid_session"],
    ...noRetry,
  },
  invalid_signature: {
    status: 401,
    native: [authentication, "invalid_signature"],
    chat: [invalid, "invalid_signature"],
    ...noRetry,
  },
  confirm_identity: {
    status: 403,
    native: ["permission_error", "confirm_identity"],
    chat: [invalid, "confirm_identity"],
    ...noRetry,
  },

  invalid_request: { status: 400, native: [invalid], chat: [invalid, null], ...noRetry },
  version_required: {
    status: 400,
    native: [invalid, "version_required"],
    chat: [invalid, "version_required"],
    ...noRetry,
  },
  version_unsupported: {
    status: 400,
    native: [invalid, "version_unsupported"],
    chat: [invalid, "version_unsupported"],
    ...noRetry,
  },
  request_too_large: {
    status: 413,
    native: ["request_too_large"],
    chat: [invalid, "request_too_large"],
    ...noRetry,
  },
  request_body_too_large_after_decoding: {
    status: 413,
    native: [invalid, "request_body_too_large_after_decoding"],
    chat: [invalid, "request_body_too_large_after_decoding"],
    ...noRetry,
  },
  request_body_encoding_unsupported: {
    status: 400,
    native: [invalid, "request_body_encoding_unsupported"],
    chat: [invalid, "request_body_encoding_unsupported"],
    ...noRetry,
  },
  request_body_encoding_invalid: {
    status: 400,
    native: [invalid, "request_body_encoding_invalid"],
    chat: [invalid, "request_body_encoding_invalid"],
    ...noRetry,
  },
  body_too_slow: {
    status: 408,
    native: ["timeout_error", "body_too_slow"],
    chat: [invalid, "body_too_slow"],
  },
  not_found: {
    status: 404,
    native: ["not_found_error", "not_found"],
    chat: [invalid, "not_found"],
    ...noRetry,
  },
  archived: {
    status: 410,
    native: ["not_found_error", "archived"],
    chat: [invalid, "archived"],
    ...noRetry,
  },
  method_not_allowed: {
    status: 405,
    native: [invalid, "method_not_allowed"],
    chat: [invalid, "method_not_allowed"],
    ...noRetry,
  },
  request_id_used: {
    status: 409,
    native: ["conflict_error", "request_id_used"],
    chat: [invalid, "request_id_used"],
    ...noRetry,
  },
  idempotency_key_reused: {
    status: 409,
    native: ["conflict_error", "idempotency_key_reused"],
    chat: [invalid, "idempotency_key_reused"],
    ...noRetry,
  },
  key_not_active: {
    status: 409,
    native: ["conflict_error", "key_not_active"],
    chat: [invalid, "key_not_active"],
    ...noRetry,
  },
  account_closed: {
    status: 409,
    native: ["conflict_error", "account_closed"],
    chat: [invalid, "account_closed"],
    ...noRetry,
  },
  name_taken: {
    status: 409,
    native: ["conflict_error", "name_taken"],
    chat: [invalid, "name_taken"],
    ...noRetry,
  },

  report_too_large: {
    status: 400,
    native: [invalid, "report_too_large"],
    chat: [invalid, "report_too_large"],
    ...noRetry,
  },
  // 404, never 400: a coding assistant answers a 400 by dropping its capabilities one by one, in
  // six calls.
  login_taken: {
    status: 409,
    native: ["conflict_error", "login_taken"],
    chat: [invalid, "login_taken"],
    ...noRetry,
  },
  wrong_state: {
    status: 409,
    native: ["conflict_error", "wrong_state"],
    chat: [invalid, "wrong_state"],
    ...noRetry,
  },
  last_one: {
    status: 409,
    native: ["conflict_error", "last_one"],
    chat: [invalid, "last_one"],
    ...noRetry,
  },
  sign_up_closed: {
    status: 403,
    native: ["permission_error", "sign_up_closed"],
    chat: [invalid, "sign_up_closed"],
    ...noRetry,
  },
  promotion_not_usable: {
    status: 409,
    native: ["conflict_error", "promotion_not_usable"],
    chat: [invalid, "promotion_not_usable"],
    ...noRetry,
  },
  model_not_found: {
    status: 404,
    native: ["not_found_error", "model_not_found"],
    chat: [invalid, "model_not_found", "model"],
    ...needsPerson,
  },
  model_not_allowed: {
    status: 403,
    native: ["permission_error", "model_not_allowed"],
    chat: [invalid, "model_not_allowed", "model"],
    ...needsPerson,
  },
  feature_not_offered: {
    status: 400,
    native: [invalid, "feature_not_offered"],
    chat: [invalid, "feature_not_offered"],
    ...noRetry,
  },
  thread_unsupported_request: {
    status: 400,
    native: [invalid, "thread_unsupported_request"],
    chat: [invalid, "thread_unsupported_request"],
  },
  context_length_exceeded: {
    status: 400,
    native: [invalid],
    chat: [invalid, "context_length_exceeded", "messages"],
    ...noRetry,
  },

  rate_limited: {
    status: 429,
    native: ["rate_limit_error", "rate_limited"],
    chat: ["requests", "rate_limit_exceeded"],
    retryAfterSeconds: 60,
  },
  requests_not_allowed: {
    status: 403,
    native: ["permission_error", "requests_not_allowed"],
    chat: [invalid, "requests_not_allowed"],
    ...needsPerson,
  },
  too_many_failed: {
    status: 429,
    native: ["rate_limit_error", "too_many_failed"],
    chat: ["requests", "too_many_failed"],
    retryAfterSeconds: 60,
  },
  too_many_bodies: {
    status: 429,
    native: ["rate_limit_error", "too_many_bodies"],
    chat: ["requests", "too_many_bodies"],
    retryAfterSeconds: 1,
  },
  too_many_keys: {
    status: 429,
    native: ["rate_limit_error", "too_many_keys"],
    chat: ["requests", "too_many_keys"],
    ...noRetry,
  },
  limit_reached: {
    status: 429,
    native: ["rate_limit_error", "limit_reached"],
    chat: ["requests", "limit_reached"],
    ...noRetry,
  },
  count_rate_limited: {
    status: 429,
    native: ["rate_limit_error", "count_rate_limited"],
    chat: ["requests", "count_rate_limited"],
    retryAfterSeconds: 1,
  },
  // 402, not 429: clients never retry a 402 by themselves.
  credits_exhausted: {
    status: 402,
    native: ["billing_error", "credits_exhausted"],
    chat: ["insufficient_quota", "insufficient_quota"],
    ...needsPerson,
  },
  credits_held: {
    status: 429,
    native: ["rate_limit_error", "credits_held"],
    chat: ["requests", "credits_held"],
    retryAfterSeconds: 1,
  },
  monthly_cap_reached: {
    status: 402,
    native: ["billing_error", "monthly_cap_reached"],
    chat: ["insufficient_quota", "monthly_cap_reached"],
    ...needsPerson,
  },
  budget_reached: {
    status: 402,
    native: ["billing_error", "budget_reached"],
    chat: ["insufficient_quota", "budget_reached"],
    ...needsPerson,
  },
  too_many_running: {
    status: 429,
    native: ["rate_limit_error", "too_many_running"],
    chat: ["requests", "too_many_running"],
    retryAfterSeconds: 1,
  },
  insufficient_funds: {
    status: 402,
    native: ["billing_error", "insufficient_funds"],
    chat: ["insufficient_quota", "insufficient_funds"],
    ...needsPerson,
  },

  gateway_unavailable: {
    status: 503,
    native: ["api_error", "gateway_unavailable"],
    chat: ["server_error", "gateway_unavailable"],
    retryAfterSeconds: 2,
  },
  database_unavailable: {
    status: 503,
    native: ["api_error", "database_unavailable"],
    chat: ["server_error", "database_unavailable"],
    retryAfterSeconds: 2,
  },
  billing_unavailable: {
    status: 503,
    native: ["api_error", "billing_unavailable"],
    chat: ["server_error", "billing_unavailable"],
    retryAfterSeconds: 2,
  },
  // Never 429, because it is not a limit of the key.
  overloaded: {
    status: 529,
    chatStatus: 503,
    native: ["overloaded_error"],
    chat: ["server_error", "overloaded"],
  },
  upstream_error: {
    status: 502,
    native: ["api_error", "upstream_error"],
    chat: ["server_error", "upstream_error"],
  },
  // Used only if the provider's own answer cannot be passed on.
  upstream_refused: { status: 400, native: [invalid], chat: [invalid, null], ...noRetry },
  timeout: { status: 504, native: ["timeout_error"], chat: ["server_error", "timeout"] },
  cancelled: {
    status: 499,
    native: ["api_error", "cancelled"],
    chat: ["server_error", "cancelled"],
    ...noRetry,
  },
  internal: { status: 500, native: ["api_error"], chat: ["server_error", null] },
  unimplemented: {
    status: 501,
    native: ["api_error", "unimplemented"],
    chat: ["server_error", "unimplemented"],
    ...noRetry,
  },
} as const satisfies Record<ErrorReason, Row>;

/** True for an error that such a stream has. */
export function failsInStream(reason: ErrorReason): boolean {
  const row: Row = errorTable[reason];
  return row.failsInStream === true;
}
