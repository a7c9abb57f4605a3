// Turns an error into an HTTP response with the help of the error table.
//
// There are four envelopes: native and chat, which the SDKs of the two formats parse; that of the
// Responses format, which is chat's with its own names of fields; and a union of native and chat
// for endpoints that clients of several formats call.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { isObject } from "../formats/json.ts";
import { rfc3339 } from "./context.ts";
import { type Envelope, type Row, rowOf } from "./error-table.ts";

/** True for the two envelopes of OpenAI's formats. */
function isOpenai(envelope: Envelope): boolean {
  return envelope === "chat" || envelope === "responses";
}

/** An HTTP response. */
export type ErrorResponse = { status: number; headers: Record<string, string>; body: JsonObject };

/** The response to a failed request. */
export function toErrorResponse(
  error: ApiError,
  envelope: Envelope,
  requestId: string,
): ErrorResponse {
  const row = rowOf(error.reason);
  let status = envelope === "native" ? row.status : (row.chatStatus ?? row.status);
  if (error.reason === "upstream_refused" && error.facts.providerAnswer) {
    status = error.facts.providerAnswer.status;
    if (isOwnFault(status)) {
      const facts = accountFaults.has(status) ? { providerAnswer: { status } } : {};
      return toErrorResponse(new ApiError("upstream_error", facts), envelope, requestId);
    }
  }
  return {
    status,
    headers: headersOf(error, row, status, envelope),
    body: clean(relay(error, envelope, requestId) ?? bodyOf(error, row, envelope, requestId)),
  };
}

/**
 * The last event of a stream that fails after its status line was sent. Native clients know only
 * five types in a stream.
 */
export function toStreamErrorBody(
  error: ApiError,
  envelope: Envelope,
  requestId: string,
): JsonObject {
  const { body } = toErrorResponse(error, envelope, requestId);
  const content = body.error;
  if (isOpenai(envelope) || !isObject(content) || streamTypes.has(content.type)) return body;
  return { ...body, error: { ...content, type: "api_error" } };
}

const streamTypes = new Set<JsonValue | undefined>([
  "overloaded_error",
  "api_error",
  "timeout_error",
  "rate_limit_error",
  "authentication_error",
]);

function headersOf(
  error: ApiError,
  row: Row,
  status: number,
  envelope: Envelope,
): Record<string, string> {
  const { retryAfterMs, providerAnswer } = error.facts;
  // A provider that rejects our account or does not know a model needs the operator. A retry fails.
  const isHopeless = error.reason === "upstream_error" && providerAnswer !== undefined;
  const waits = status === 429 || status === 503 || status === 529;
  const retryAfterSeconds =
    retryAfterMs === undefined
      ? row.retryAfterSeconds
      : Math.max(1, Math.ceil(retryAfterMs / 1000));
  return {
    ...(waits && retryAfterSeconds !== undefined && { "retry-after": String(retryAfterSeconds) }),
    ...((row.shouldRetry === false || isHopeless) && { "x-should-retry": "false" }),
    ...(status === 401 && { "www-authenticate": challenges[envelope] }),
    // Its client may send the rest of the body for a long time, or never.
    ...((error.reason === "request_too_large" || error.reason === "body_too_slow") && {
      connection: "close",
    }),
    ...limitHeaders(error, envelope),
  };
}

const nativeChallenge = 'ApiKey realm="gateway", header="x-api-key"';
const bearerChallenge = 'Bearer realm="gateway"';
const challenges = {
  native: nativeChallenge,
  chat: bearerChallenge,
  responses: bearerChallenge,
  union: `${nativeChallenge}, ${bearerChallenge}`,
} as const;

function limitHeaders(error: ApiError, envelope: Envelope): Record<string, string> {
  const limit = error.facts.limit;
  if (limit?.name !== "requests_per_minute" || limit.limit === undefined) return {};
  const { seconds = 0n, nanos = 0 } = limit.resetsAt ?? {};
  const resetsAt = limit.resetsAt && new Date(Number(seconds) * 1000 + nanos / 1_000_000);
  return rateHeaders(envelope, {
    limit: Number(limit.limit),
    remaining: Number(limit.remaining ?? 0n),
    resetsAt,
  });
}

function bodyOf(error: ApiError, row: Row, envelope: Envelope, requestId: string): JsonObject {
  const [type, errorCode] = row.native;
  const [chatType, chatCode, chatParam] = row.chat;
  const field = chatParam ?? error.facts.field;
  const param = field === undefined ? null : ownName(field, envelope);
  const message = messageOf(error, envelope);
  if (isOpenai(envelope)) return { error: { message, type: chatType, param, code: chatCode } };

  const details = detailsOf(error, errorCode);
  const content = {
    type,
    message,
    ...(envelope === "union" && { param, code: chatCode }),
    ...(details && { details }),
  };
  return { type: "error", error: content, request_id: requestId };
}

function detailsOf(error: ApiError, errorCode: string | undefined): JsonObject | undefined {
  if (errorCode === undefined) return undefined;
  // The tool runners of the SDK read the list of unsupported fields and then continue without
  // stored threads.
  if (error.reason === "thread_unsupported_request")
    return { error_code: errorCode, unsupported: [] };
  return { error_code: errorCode };
}

/** The message of the error, with the facts that a reader of only the message needs. */
function messageOf(error: ApiError, envelope: Envelope): string {
  const { field } = error.facts;
  const message = withAllowed(error);
  // Clients recognize the beginning of this message and compact their conversation.
  const isWording = error.reason === "context_length_exceeded";
  if (field === undefined || isWording) return message;
  if (!isOpenai(envelope)) return withVendorPath(message, field);
  const own = ownName(field, envelope);
  return message.startsWith(field) ? own + message.slice(field.length) : message;
}

/**
 * The fields of the canonical request and of providers, by their names in OpenAI's two formats. The
 * path inside a conversation is lost: its items and messages are counted in different ways.
 */
const fieldNames: readonly [names: RegExp, chat: string, responses: string][] = [
  [/^(max_tokens|max_completion_tokens|max_output_tokens)$/, "max_tokens", "max_output_tokens"],
  [/^messages\b/, "messages", "input"],
  [/^input\b/, "messages", "input"],
  [/^(reasoning_effort|reasoning\.effort)$/, "reasoning_effort", "reasoning.effort"],
  [/^(response_format|text\.format)\b/, "response_format", "text.format"],
  [/^stop_sequences$/, "stop", "stop"],
];

/** The name of a field in the format of the client. Its own names stay as they are. */
function ownName(field: string, envelope: Envelope): string {
  const column = envelope === "chat" ? 1 : 2;
  const own = envelope === "chat" ? chatPath : responsesPath;
  if (!isOpenai(envelope) || own.test(field)) return field;
  return fieldNames.find(([names]) => names.test(field))?.[column] ?? field;
}

// Paths that the decoders of the two formats report.
const chatPath = /^(messages|max_tokens|max_completion_tokens|reasoning_effort|response_format)\b/;
const responsesPath = /^(input|max_output_tokens|reasoning|text)\b/;

function withAllowed({ reason, message, facts: { allowed } }: ApiError): string {
  if (reason !== "model_not_found" && reason !== "model_not_allowed") return message;
  return allowed?.length && !allowed.every((id) => message.includes(id))
    ? `${message.replace(/\.$/, "")}. Models of this key: ${allowed.join(", ")}.`
    : message;
}

/** Adds the path of the field in the form of the vendor, such as `messages.1.content`. */
function withVendorPath(message: string, field: string): string {
  const path = field.replace(/\[(\d+)\]/g, ".$1");
  if (message.startsWith(`${path}:`) || message.startsWith(`${path}.`)) return message;
  const fault = message.startsWith(field)
    ? /^:? +(.*)$/s.exec(message.slice(field.length))?.[1]
    : undefined;
  return `${path}: ${fault ?? message}`;
}

// Our credential, balance or rate at the provider is not the client's fault.
const accountFaults = new Set([401, 402, 403]);
const ownFaults = new Set([...accountFaults, 407, 408, 429]);

function isOwnFault(status: number): boolean {
  return status < 400 || status >= 500 || ownFaults.has(status);
}

/** The provider's own error body in the client's format. Undefined: there is none. */
function relay(error: ApiError, envelope: Envelope, requestId: string): JsonObject | undefined {
  const body = error.reason === "upstream_refused" ? error.facts.providerAnswer?.body : undefined;
  if (body?.type !== "error" || !isObject(body.error)) return undefined;
  // Unchanged, because clients recognize the vendor's wording and act on it.
  if (!isOpenai(envelope)) return { ...body, request_id: requestId };
  const { message, param, code } = body.error;
  return {
    error: {
      message: typeof message === "string" ? message : error.message,
      type: "invalid_request_error",
      param: typeof param === "string" ? ownName(param, envelope) : null,
      code: typeof code === "string" ? code : null,
    },
  };
}

// Coding assistants replace every body that names the native key header with "log in again". And a
// response must not repeat a key that was sent in the wrong field.
const headerName = /x-api-key/gi;
const keyShape = /\b(sk|mk|adm)-gw2-[0-9A-Za-z]{8,}/g;

function clean(body: JsonObject): JsonObject {
  const text = JSON.stringify(body);
  const cleaned = text.replace(headerName, "API key header").replace(keyShape, "$1-gw2-…");
  if (cleaned === text) return body;
  const value: JsonObject = JSON.parse(cleaned);
  return value;
}

type RateState = { limit: number; remaining: number; resetsAt: Date | undefined };

/**
 * The key's requests per minute, as headers of one format. The chat format gives the reset as a
 * duration from now. Endpoints of both formats send no such headers.
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
  if (isOpenai(envelope)) {
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
