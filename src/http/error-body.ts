// A error as an HTTP answer, by what `problems.ts` says about its reason.
//
// Three envelopes: native and chat as the SDKs of the two formats parse them, and a union of both
// for endpoints that either calls.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { isObject } from "../formats/json.ts";
import { errorTable, type Row } from "./error-table.ts";
import { rfc3339 } from "./reply.ts";

export type Envelope = "native" | "chat" | "union";

/** An HTTP answer. */
export type ErrorResponse = { status: number; headers: Record<string, string>; body: JsonObject };

/** The answer to a refused or failed request. */
export function toErrorResponse(
  apiError: ApiError,
  envelope: Envelope,
  requestId: string,
): ErrorResponse {
  const row: Row = errorTable[apiError.reason];
  let status = envelope === "native" ? row.status : (row.chatStatus ?? row.status);
  if (apiError.reason === "upstream_refused" && apiError.facts.providerAnswer) {
    status = apiError.facts.providerAnswer.status;
    if (isOwnFault(status)) {
      const facts = accountFaults.has(status) ? { providerAnswer: { status } } : {};
      return toErrorResponse(new ApiError("upstream_error", facts), envelope, requestId);
    }
  }
  return {
    status,
    headers: headersOf(apiError, row, status, envelope),
    body: clean(relay(apiError, envelope, requestId) ?? bodyOf(apiError, row, envelope, requestId)),
  };
}

/**
 * The last event of a stream that fails after its status line is gone. Native clients know five
 * types there.
 */
export function toStreamErrorBody(
  apiError: ApiError,
  envelope: Envelope,
  requestId: string,
): JsonObject {
  const { body } = toErrorResponse(apiError, envelope, requestId);
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

function headersOf(
  apiError: ApiError,
  row: Row,
  status: number,
  envelope: Envelope,
): Record<string, string> {
  const { retryAfterMs, providerAnswer } = apiError.facts;
  // A provider that doubts our account, or does not know a model, goes on so until an operator has
  // looked.
  const isHopeless = apiError.reason === "upstream_error" && providerAnswer !== undefined;
  const waits = status === 429 || status === 503 || status === 529;
  const retryAfterSeconds =
    retryAfterMs === undefined
      ? row.retryAfterSeconds
      : Math.max(1, Math.ceil(retryAfterMs / 1000));
  return {
    ...(waits && retryAfterSeconds !== undefined && { "retry-after": String(retryAfterSeconds) }),
    ...((row.shouldRetry === false || isHopeless) && { "x-should-retry": "false" }),
    ...(status === 401 && { "www-authenticate": challenges[envelope] }),
    ...(apiError.reason === "request_too_large" && { connection: "close" }),
    ...limitHeaders(apiError, envelope),
  };
}

const nativeChallenge = 'ApiKey realm="gateway", header="x-api-key"';
const challenges = {
  native: nativeChallenge,
  chat: 'Bearer realm="gateway"',
  union: `${nativeChallenge}, Bearer realm="gateway"`,
} as const;

function limitHeaders(apiError: ApiError, envelope: Envelope): Record<string, string> {
  const limit = apiError.facts.limit;
  if (limit?.name !== "requests_per_minute" || limit.limit === undefined) return {};
  const { seconds = 0n, nanos = 0 } = limit.resetsAt ?? {};
  const resetsAt = limit.resetsAt && new Date(Number(seconds) * 1000 + nanos / 1_000_000);
  return rateHeaders(envelope, {
    limit: Number(limit.limit),
    remaining: Number(limit.remaining ?? 0n),
    resetsAt,
  });
}

function bodyOf(apiError: ApiError, row: Row, envelope: Envelope, requestId: string): JsonObject {
  const [type, errorCode] = row.native;
  const [chatType, chatCode, chatParam] = row.chat;
  const param = chatParam ?? apiError.facts.field ?? null;
  const message = messageOf(apiError, envelope);
  if (envelope === "chat") return { error: { message, type: chatType, param, code: chatCode } };

  const details = detailsOf(apiError, errorCode);
  const error = {
    type,
    message,
    ...(envelope === "union" && { param, code: chatCode }),
    ...(details && { details }),
  };
  return { type: "error", error, request_id: requestId };
}

function detailsOf(apiError: ApiError, errorCode: string | undefined): JsonObject | undefined {
  if (errorCode === undefined) return undefined;
  // The SDK's tool runners read which fields were refused, then go on without stored threads by
  // themselves.
  if (apiError.reason === "thread_unsupported_request")
    return { error_code: errorCode, unsupported: [] };
  return { error_code: errorCode };
}

/** The error's sentence with those of its facts that a reader of the text alone needs. */
function messageOf(apiError: ApiError, envelope: Envelope): string {
  const { field } = apiError.facts;
  const message = withAllowed(apiError);
  // Clients compact their conversation when a message begins as this one does.
  const isWording = apiError.reason === "context_length_exceeded";
  return envelope === "chat" || field === undefined || isWording
    ? message
    : withVendorPath(message, field);
}

function withAllowed({ reason, message, facts: { allowed } }: ApiError): string {
  if (reason !== "model_not_found" && reason !== "model_not_allowed") return message;
  return allowed?.length && !allowed.every((id) => message.includes(id))
    ? `${message.replace(/\.$/, "")}. Models of this key: ${allowed.join(", ")}.`
    : message;
}

/** The vendor begins its messages with the path of the field, written `messages.1.content`. */
function withVendorPath(message: string, field: string): string {
  const path = field.replace(/\[(\d+)\]/g, ".$1");
  if (message.startsWith(`${path}:`) || message.startsWith(`${path}.`)) return message;
  const says = message.startsWith(field)
    ? /^:? +(.*)$/s.exec(message.slice(field.length))?.[1]
    : undefined;
  return `${path}: ${says ?? message}`;
}

// A provider's doubt about our credential, our balance there or our pace is not the client's fault.
const accountFaults = new Set([401, 402, 403]);
const ownFaults = new Set([...accountFaults, 407, 408, 429]);

function isOwnFault(status: number): boolean {
  return status < 400 || status >= 500 || ownFaults.has(status);
}

/** The provider's own answer in the client's format; undefined when it gave none. */
function relay(apiError: ApiError, envelope: Envelope, requestId: string): JsonObject | undefined {
  const body =
    apiError.reason === "upstream_refused" ? apiError.facts.providerAnswer?.body : undefined;
  if (body?.type !== "error" || !isObject(body.error)) return undefined;
  // Unmodified, since clients recognise the vendor's wording and act on it.
  if (envelope !== "chat") return { ...body, request_id: requestId };
  const { message } = body.error;
  return {
    error: {
      message: typeof message === "string" ? message : apiError.message,
      type: "invalid_request_error",
      param: null,
      code: null,
    },
  };
}

// Coding assistants replace a body that names the native key header by "log in again", whatever it
// says; and a key pasted into the wrong field must not come back.
const headerName = /x-api-key/gi;
const keyShape = /sk-gw2-[0-9A-Za-z]{8,}/g;

function clean(body: JsonObject): JsonObject {
  const text = JSON.stringify(body);
  const cleaned = text.replace(headerName, "API key header").replace(keyShape, "sk-gw2-…");
  if (cleaned === text) return body;
  const value: JsonObject = JSON.parse(cleaned);
  return value;
}

// The key's requests per minute, in the headers that the clients of each format read.

type RateState = { limit: number; remaining: number; resetsAt: Date | undefined };

/**
 * Rate headers of one format; the chat ones state the reset as a duration from now. Shared
 * endpoints have none.
 */
export function rateHeaders(
  envelope: Envelope,
  state: RateState,
  nowMs = Date.now(),
): Record<string, string> {
  const { limit, remaining, resetsAt } = state;
  if (envelope === "native") {
    return {
      "anthropic-ratelimit-requests-limit": String(limit),
      "anthropic-ratelimit-requests-remaining": String(remaining),
      ...(resetsAt && { "anthropic-ratelimit-requests-reset": rfc3339(resetsAt) }),
    };
  }
  if (envelope === "chat") {
    return {
      "x-ratelimit-limit-requests": String(limit),
      "x-ratelimit-remaining-requests": String(remaining),
      ...(resetsAt && {
        "x-ratelimit-reset-requests": `${Math.max(0, Math.ceil((resetsAt.getTime() - nowMs) / 1000))}s`,
      }),
    };
  }
  return {};
}
