// What HTTP says about every refusal: the twin of src/errors.ts, which holds the gRPC column.
//
// Three envelopes: native and chat as the SDKs of the two formats parse them, and a union of both for endpoints that either calls.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Refusal, type RefusalName } from "../errors.ts";
import { isObject } from "../wire/json.ts";
import { rateHeaders } from "./rate-headers.ts";

export type Envelope = "native" | "chat" | "union";

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

type Row = {
  status: number;
  /** Status in the chat format, where it differs. */
  chatStatus?: number;
  /** `error.type` and, where clients can use one, `error.details.error_code`. */
  native: readonly [type: NativeType, code?: string];
  /** `error.type`, `error.code` and, where it is always the same field, `error.param`. */
  chat: readonly [type: string, code: string | null, param?: string];
  /** False tells SDKs that repeating the request is pointless. Without it they go by the status. */
  shouldRetry?: false;
  /** Sent when the refusal itself does not know when to try again. */
  retryAfterSeconds?: number;
};

const invalid = "invalid_request_error";
const authentication = "authentication_error";
const noRetry = { shouldRetry: false } as const;

/** What HTTP says about each reason. */
export const problems = {
  missing_key: { status: 401, native: [authentication, "missing_key"], chat: [invalid, "invalid_api_key"], ...noRetry },
  invalid_key: { status: 401, native: [authentication, "invalid_key"], chat: [invalid, "invalid_api_key"], ...noRetry },
  revoked_key: { status: 401, native: [authentication, "revoked_key"], chat: [invalid, "revoked_api_key"], ...noRetry },
  wrong_credential_header: {
    status: 401,
    native: [authentication, "wrong_credential_header"],
    chat: [invalid, "wrong_credential_header"],
    ...noRetry,
  },
  not_permitted: { status: 403, native: ["permission_error", "not_permitted"], chat: [invalid, "not_permitted"], ...noRetry },
  auth_rate_limited: {
    status: 429,
    native: ["rate_limit_error", "auth_rate_limited"],
    chat: ["requests", "auth_rate_limited"],
    retryAfterSeconds: 60,
  },

  invalid_request: { status: 400, native: [invalid], chat: [invalid, null], ...noRetry },
  version_required: { status: 400, native: [invalid, "version_required"], chat: [invalid, "version_required"], ...noRetry },
  version_unsupported: {
    status: 400,
    native: [invalid, "version_unsupported"],
    chat: [invalid, "version_unsupported"],
    ...noRetry,
  },
  request_too_large: { status: 413, native: ["request_too_large"], chat: [invalid, "request_too_large"], ...noRetry },
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
  responses_api_unsupported: {
    status: 400,
    native: [invalid, "responses_api_unsupported"],
    chat: [invalid, "responses_api_unsupported"],
    ...noRetry,
  },
  not_found: { status: 404, native: ["not_found_error", "not_found"], chat: [invalid, "not_found"], ...noRetry },
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
  key_not_active: { status: 409, native: ["conflict_error", "key_not_active"], chat: [invalid, "key_not_active"], ...noRetry },

  // 404, never 400: a coding assistant answers a 400 by dropping its capabilities one by one, in six calls.
  model_not_found: {
    status: 404,
    native: ["not_found_error", "model_not_found"],
    chat: [invalid, "model_not_found", "model"],
    ...noRetry,
  },
  model_not_allowed: {
    status: 403,
    native: ["permission_error", "model_not_allowed"],
    chat: [invalid, "model_not_allowed", "model"],
    ...noRetry,
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
  count_rate_limited: {
    status: 429,
    native: ["rate_limit_error", "count_rate_limited"],
    chat: ["requests", "count_rate_limited"],
    retryAfterSeconds: 1,
  },
  // 402, not 429: it is the one status that no client repeats by itself.
  credits_exhausted: {
    status: 402,
    native: ["billing_error", "credits_exhausted"],
    chat: ["insufficient_quota", "insufficient_quota"],
    ...noRetry,
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
    ...noRetry,
  },
  insufficient_funds: {
    status: 402,
    native: ["billing_error", "insufficient_funds"],
    chat: ["insufficient_quota", "insufficient_funds"],
    ...noRetry,
  },

  gateway_unavailable: {
    status: 503,
    native: ["api_error", "gateway_unavailable"],
    chat: ["server_error", "gateway_unavailable"],
    retryAfterSeconds: 2,
  },
  billing_unavailable: {
    status: 503,
    native: ["api_error", "billing_unavailable"],
    chat: ["server_error", "billing_unavailable"],
    retryAfterSeconds: 2,
  },
  // Never 429: it is not the key's limit.
  overloaded: { status: 529, chatStatus: 503, native: ["overloaded_error"], chat: ["server_error", "overloaded"] },
  upstream_error: { status: 502, native: ["api_error", "upstream_error"], chat: ["server_error", "upstream_error"] },
  // Only where the provider's answer cannot be relayed.
  upstream_refused: { status: 400, native: [invalid], chat: [invalid, null], ...noRetry },
  timeout: { status: 504, native: ["timeout_error"], chat: ["server_error", "timeout"] },
  cancelled: { status: 499, native: ["api_error", "cancelled"], chat: ["server_error", "cancelled"], ...noRetry },
  internal: { status: 500, native: ["api_error"], chat: ["server_error", null] },
  unimplemented: { status: 501, native: ["api_error", "unimplemented"], chat: ["server_error", "unimplemented"], ...noRetry },
} as const satisfies Record<RefusalName, Row>;

/** An HTTP answer. */
export type Problem = { status: number; headers: Record<string, string>; body: JsonObject };

/** The answer to a refused or failed request. */
export function toProblem(refusal: Refusal, envelope: Envelope, requestId: string): Problem {
  const row: Row = problems[refusal.refusal];
  let status = envelope === "native" ? row.status : (row.chatStatus ?? row.status);
  if (refusal.refusal === "upstream_refused" && refusal.facts.upstream) {
    status = refusal.facts.upstream.status;
    if (isOwnFault(status)) {
      const facts = accountFaults.has(status) ? { upstream: { status } } : {};
      return toProblem(new Refusal("upstream_error", facts), envelope, requestId);
    }
  }
  return {
    status,
    headers: headersOf(refusal, row, status, envelope),
    body: clean(relay(refusal, envelope, requestId) ?? bodyOf(refusal, row, envelope, requestId)),
  };
}

/** The last event of a stream that fails after its status line is gone. Native clients know five types there. */
export function toStreamProblem(refusal: Refusal, envelope: Envelope, requestId: string): JsonObject {
  const { body } = toProblem(refusal, envelope, requestId);
  const error = body.error;
  if (envelope === "chat" || !isObject(error) || streamTypes.has(error.type)) return body;
  return { ...body, error: { ...error, type: "api_error" } };
}

const streamTypes = new Set<JsonValue | undefined>([
  "overloaded_error",
  "api_error",
  "timeout_error",
  "rate_limit_error",
  "authentication_error",
]);

function headersOf(refusal: Refusal, row: Row, status: number, envelope: Envelope): Record<string, string> {
  const { retryAfterMs, upstream } = refusal.facts;
  // A provider that doubts our account, or does not know a model, goes on so until an operator has looked.
  const isHopeless = refusal.refusal === "upstream_error" && upstream !== undefined;
  const waits = status === 429 || status === 503 || status === 529;
  const retryAfterSeconds = retryAfterMs === undefined ? row.retryAfterSeconds : Math.max(1, Math.ceil(retryAfterMs / 1000));
  return {
    ...(waits && retryAfterSeconds !== undefined && { "retry-after": String(retryAfterSeconds) }),
    ...((row.shouldRetry === false || isHopeless) && { "x-should-retry": "false" }),
    ...(status === 401 && { "www-authenticate": challenges[envelope] }),
    ...(refusal.refusal === "request_too_large" && { connection: "close" }),
    ...limitHeaders(refusal, envelope),
  };
}

const nativeChallenge = 'ApiKey realm="gateway", header="x-api-key"';
const challenges = {
  native: nativeChallenge,
  chat: 'Bearer realm="gateway"',
  union: `${nativeChallenge}, Bearer realm="gateway"`,
} as const;

function limitHeaders(refusal: Refusal, envelope: Envelope): Record<string, string> {
  const limit = refusal.facts.limit;
  if (limit?.name !== "requests_per_minute" || limit.limit === undefined) return {};
  const { seconds = 0n, nanos = 0 } = limit.resetsAt ?? {};
  const resetsAt = limit.resetsAt && new Date(Number(seconds) * 1000 + nanos / 1_000_000);
  return rateHeaders(envelope, { limit: Number(limit.limit), remaining: Number(limit.remaining ?? 0n), resetsAt });
}

function bodyOf(refusal: Refusal, row: Row, envelope: Envelope, requestId: string): JsonObject {
  const [type, errorCode] = row.native;
  const [chatType, chatCode, chatParam] = row.chat;
  const param = chatParam ?? refusal.facts.field ?? null;
  const message = messageOf(refusal, envelope);
  if (envelope === "chat") return { error: { message, type: chatType, param, code: chatCode } };

  const details = detailsOf(refusal, errorCode);
  const error = {
    type,
    message,
    ...(envelope === "union" && { param, code: chatCode }),
    ...(details && { details }),
  };
  return { type: "error", error, request_id: requestId };
}

function detailsOf(refusal: Refusal, errorCode: string | undefined): JsonObject | undefined {
  if (errorCode === undefined) return undefined;
  // The SDK's tool runners read which fields were refused, then go on without stored threads by themselves.
  if (refusal.refusal === "thread_unsupported_request") return { error_code: errorCode, unsupported: [] };
  return { error_code: errorCode };
}

/** The refusal's sentence with those of its facts that a reader of the text alone needs. */
function messageOf(refusal: Refusal, envelope: Envelope): string {
  const { field } = refusal.facts;
  const message = withAllowed(refusal);
  // Clients compact their conversation when a message begins as this one does.
  const isWording = refusal.refusal === "context_length_exceeded";
  return envelope === "chat" || field === undefined || isWording ? message : withVendorPath(message, field);
}

function withAllowed({ refusal, message, facts: { allowed } }: Refusal): string {
  if (refusal !== "model_not_found" && refusal !== "model_not_allowed") return message;
  return allowed?.length && !allowed.every((id) => message.includes(id))
    ? `${message.replace(/\.$/, "")}. Models of this key: ${allowed.join(", ")}.`
    : message;
}

/** The vendor begins its messages with the path of the field, written `messages.1.content`. */
function withVendorPath(message: string, field: string): string {
  const path = field.replace(/\[(\d+)\]/g, ".$1");
  if (message.startsWith(`${path}:`) || message.startsWith(`${path}.`)) return message;
  const says = message.startsWith(field) ? /^:? +(.*)$/s.exec(message.slice(field.length))?.[1] : undefined;
  return `${path}: ${says ?? message}`;
}

// A provider's doubt about our credential, our balance there or our pace is not the client's fault.
const accountFaults = new Set([401, 402, 403]);
const ownFaults = new Set([...accountFaults, 407, 408, 429]);

function isOwnFault(status: number): boolean {
  return status < 400 || status >= 500 || ownFaults.has(status);
}

/** The provider's own answer in the client's format; undefined when it gave none. */
function relay(refusal: Refusal, envelope: Envelope, requestId: string): JsonObject | undefined {
  const body = refusal.refusal === "upstream_refused" ? refusal.facts.upstream?.body : undefined;
  if (body?.type !== "error" || !isObject(body.error)) return undefined;
  // Unmodified, since clients recognise the vendor's wording and act on it.
  if (envelope !== "chat") return { ...body, request_id: requestId };
  const { message } = body.error;
  return {
    error: { message: typeof message === "string" ? message : refusal.message, type: invalid, param: null, code: null },
  };
}

// Coding assistants replace a body that names the native key header by "log in again", whatever it says; and a key pasted into the
// wrong field must not come back.
const headerName = /x-api-key/gi;
const keyShape = /sk-gw2-[0-9A-Za-z]{8,}/g;

function clean(body: JsonObject): JsonObject {
  const text = JSON.stringify(body);
  const cleaned = text.replace(headerName, "API key header").replace(keyShape, "sk-gw2-…");
  if (cleaned === text) return body;
  const value: JsonObject = JSON.parse(cleaned);
  return value;
}
