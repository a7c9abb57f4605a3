// The HTTP status and error body of each reason. `base/errors.ts` has the gRPC codes and messages.

import type { ErrorReason } from "../base/errors.ts";

export type Envelope = "native" | "chat" | "responses" | "union";

/** The HTTP side of one reason. */
export type Row = {
  readonly status: number;
  /** Status in the chat format, where it differs. */
  readonly chatStatus?: number;
  /** `error.type` and, where clients can use one, `error.details.error_code`. */
  readonly native: readonly [type: string, code?: string];
  /** `error.type`, `error.code` and, where it is always the same field, `error.param`. */
  readonly chat: readonly [type: string, code: string | null, param?: string];
  /** False: SDKs must not retry. Absent: SDKs decide by the status. */
  readonly shouldRetry?: false;
  /**
   * True: a client of the Responses format that asked for a stream gets one that fails at once. Of
   * these errors a person must read the message, and Codex repeats every status but two, which it
   * shows as raw JSON, or without the message.
   */
  readonly failsInStream?: true;
  /** The `retry-after` of an error that has no time of its own. */
  readonly retryAfterSeconds?: number;
};

const invalid = "invalid_request_error";

/** The `error.type` that goes with a status, in the native and in the chat format. */
const typesOf = {
  400: [invalid, invalid],
  401: ["authentication_error", invalid],
  402: ["billing_error", "insufficient_quota"],
  403: ["permission_error", invalid],
  404: ["not_found_error", invalid],
  405: [invalid, invalid],
  408: ["timeout_error", invalid],
  409: ["conflict_error", invalid],
  410: ["not_found_error", invalid],
  413: ["request_too_large", invalid],
  429: ["rate_limit_error", "requests"],
  499: ["api_error", "server_error"],
  500: ["api_error", "server_error"],
  501: ["api_error", "server_error"],
  502: ["api_error", "server_error"],
  503: ["api_error", "server_error"],
  504: ["timeout_error", "server_error"],
  529: ["overloaded_error", "server_error"],
} as const;

/** What a reason says beside its status, where it differs from the reasons of its status. */
type Differences = Pick<Row, "chatStatus" | "failsInStream" | "retryAfterSeconds"> & {
  /** `error.type` in the native format. */
  readonly type?: string;
  /** Null: none. Absent: the name of the reason. */
  readonly nativeCode?: null;
  readonly chatCode?: string | null;
  readonly param?: string;
  /** Absent: true for what passes by itself, which are 408, 429 and 500 and above. */
  readonly mayRetry?: boolean;
};

const needsPerson = { failsInStream: true } as const;

/** By reason. */
const reasons: Readonly<
  Record<ErrorReason, readonly [status: keyof typeof typesOf, Differences?]>
> = {
  missing_key: [401, { chatCode: "invalid_api_key" }],
  invalid_key: [401, { chatCode: "invalid_api_key" }],
  revoked_key: [401, { chatCode: "revoked_api_key" }],
  key_expired: [401, { chatCode: "expired_api_key" }],
  key_paused: [403],
  address_not_allowed: [403],
  management_key_here: [401],
  wrong_credential_header: [401],
  not_permitted: [403],
  account_suspended: [403],
  auth_rate_limited: [429, { retryAfterSeconds: 60 }],
  sign_in_failed: [401],
  invalid_session: [401],
  invalid_signature: [401],
  confirm_identity: [403],

  invalid_request: [400, { nativeCode: null, chatCode: null }],
  version_required: [400],
  version_unsupported: [400],
  request_too_large: [413, { nativeCode: null }],
  request_body_too_large_after_decoding: [413, { type: invalid }],
  request_body_encoding_unsupported: [400],
  request_body_encoding_invalid: [400],
  body_too_slow: [408],
  not_found: [404],
  archived: [410],
  method_not_allowed: [405],
  request_id_used: [409],
  idempotency_key_reused: [409],
  key_not_active: [409],
  account_closed: [409],
  name_taken: [409],
  report_too_large: [400],
  login_taken: [409],
  wrong_state: [409],
  last_one: [409],
  sign_up_closed: [403],
  promotion_not_usable: [409],
  // 404, never 400: a coding assistant answers a 400 by dropping its capabilities one by one, in
  // six calls.
  model_not_found: [404, { param: "model", ...needsPerson }],
  model_not_allowed: [403, { param: "model", ...needsPerson }],
  feature_not_offered: [400],
  thread_unsupported_request: [400, { mayRetry: true }],
  context_length_exceeded: [400, { nativeCode: null, param: "messages" }],

  rate_limited: [429, { chatCode: "rate_limit_exceeded", retryAfterSeconds: 60 }],
  requests_not_allowed: [403, needsPerson],
  too_many_failed: [429, { retryAfterSeconds: 60 }],
  too_many_bodies: [429, { retryAfterSeconds: 1 }],
  too_many_keys: [429, { mayRetry: false }],
  limit_reached: [429, { mayRetry: false }],
  count_rate_limited: [429, { retryAfterSeconds: 1 }],
  // 402, not 429: clients never retry a 402 by themselves.
  credits_exhausted: [402, { chatCode: "insufficient_quota", ...needsPerson }],
  credits_held: [429, { retryAfterSeconds: 1 }],
  monthly_cap_reached: [402, needsPerson],
  budget_reached: [402, needsPerson],
  too_many_running: [429, { retryAfterSeconds: 1 }],
  insufficient_funds: [402, needsPerson],

  gateway_unavailable: [503, { retryAfterSeconds: 2 }],
  database_unavailable: [503, { retryAfterSeconds: 2 }],
  billing_unavailable: [503, { retryAfterSeconds: 2 }],
  // Never 429, because it is not a limit of the key.
  overloaded: [529, { nativeCode: null, chatStatus: 503 }],
  upstream_error: [502],
  // Used only if the provider's own answer cannot be passed on.
  upstream_refused: [400, { nativeCode: null, chatCode: null }],
  timeout: [504, { nativeCode: null }],
  cancelled: [499],
  internal: [500, { nativeCode: null, chatCode: null }],
  unimplemented: [501, { mayRetry: false }],
};

/** The HTTP side of a reason. */
export function rowOf(reason: ErrorReason): Row {
  const [status, differences = {}] = reasons[reason];
  const { type, nativeCode, chatCode = reason, param, mayRetry, ...others } = differences;
  const [nativeType, chatType] = typesOf[status];
  const passes = status === 408 || status === 429 || status >= 500;
  return {
    status,
    native: nativeCode === null ? [type ?? nativeType] : [type ?? nativeType, reason],
    chat: param === undefined ? [chatType, chatCode] : [chatType, chatCode, param],
    ...(!(mayRetry ?? passes) && { shouldRetry: false }),
    ...others,
  };
}

/** True for an error that such a stream has. */
export function failsInStream(reason: ErrorReason): boolean {
  return reasons[reason][1]?.failsInStream === true;
}
