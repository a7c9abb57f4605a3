// The meaning of a provider's failure: for the caller (an error), for the router (where a further
// attempt may succeed) and for the operator (an alarm).

import type { IncomingHttpHeaders } from "node:http";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Failure } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../base/errors.ts";
import { proxyRefuses } from "../base/outbound.ts";
import { unreadableAnswer } from "../formats/codec.ts";
import { isObject, parseJsonText } from "../formats/json.ts";
import { findContextOverflow, type OverflowReport, overflowOf } from "./overflow-wordings.ts";
import type { ProviderFailure } from "./provider.ts";

/** An answer with an error status, as it was received. */
export type ErrorAnswer = {
  readonly status: number;
  /** The provider's own words, without secrets. */
  readonly reason?: string;
  /** The body without secrets, if it was a JSON object. */
  readonly body?: JsonObject;
  readonly retryAfterMs?: number;
  readonly headers?: IncomingHttpHeaders;
};

// Some providers send these with status 400 and the type of an invalid request, also for a call
// that only counts tokens. A caller that sees them would believe that its own key is wrong, or that
// its own credits are used up. At the start of a message alone: providers repeat values of a
// request inside of theirs.
const accountProblem = new RegExp(
  `^(?:${[
    "your credit balance is too low",
    "you have reached your specified",
    "this organization has been disabled",
    "(?:incorrect|invalid) api[ _-]?key",
    "api[ _-]?key (?:not valid|expired|not found|is (?:not valid|invalid|expired))",
    "(?:the|your) account .{0,60}(?:suspended|deactivated|not active)",
    "insufficient (?:account )?(?:balance|credits?|funds)",
    "access denied, please make sure your account",
  ].join("|")})`,
  "i",
);
const accountCodes: ReadonlySet<string> = new Set([
  ...["account_deactivated", "authentication_error", "billing_error", "billing_hard_limit_reached"],
  ...["billing_not_active", "exceeded_current_quota_error", "insufficient_quota"],
  ...["invalid_api_key"],
]);

/** The client never names a provider's model. The same holds of these. */
const modelProblem = new RegExp(
  `^(?:${[
    "(?:the )?(?:requested )?model\\b.{0,300}(?:not exist|not found)",
    "not found the model",
    "invalid model\\b",
    "\\S{1,300} is not a valid model",
    "the provided model identifier is invalid",
  ].join("|")})`,
  "i",
);

/** Members that the gateway sets, whatever the client sends. */
const gatewayMembers: ReadonlySet<string> = new Set([
  ...["max_completion_tokens", "max_output_tokens", "max_tokens", "model", "store", "stream"],
  "stream_options",
]);
/** A member that a provider does not know at all, as its only group. */
const unknownMember = [
  /^(?:unsupported|unknown|unrecognized)[^:'"`]{0,40}(?:parameter|argument|field)s?[^:'"`]{0,40}:\s*['"`]?(\w+)(?!\w|\.\w|\[)/i,
  /^(\w+): extra (?:inputs are|fields) not permitted/i,
];

/** The meaning of an answer with an error status. `model` is the requested name at the provider. */
export function failureOfAnswer(answer: ErrorAnswer, model: string): ProviderFailure {
  const { reason } = answer;
  return { ...meaningOf(answer, model), ...(reason !== undefined && { reason }) };
}

function meaningOf({ status, body, retryAfterMs }: ErrorAnswer, model: string): ProviderFailure {
  const error = readErrorBody(body);
  // No provider answers so: a proxy did, in place of forwarding the request.
  if (status === 407) return failed(status, { alarm: `the proxy ${proxyRefuses}` });
  const isAccountStatus = status === 401 || status === 402 || status === 403;
  if (isAccountStatus || isAccountProblem(status, body)) {
    return failed(status, {
      alarm: `the provider refuses our credential or account with status ${status}`,
    });
  }
  if (status === 429 && isDayQuota(body, error))
    return { ...overloaded(status, retryAfterMs), isDayQuota: true, retry: "elsewhere" };
  if (status === 429) return overloaded(status, retryAfterMs);
  if (status === 408) return timedOut(status);
  if (status >= 500) return meaningOfFault(status, error, retryAfterMs);
  if (isWrongModel(status, body, model))
    return failed(status, { alarm: `the provider has no model ${model}` });
  const member = refusedMember(body);
  if (member !== undefined)
    return failed(status, { alarm: `the provider refuses the member ${member} of the gateway` });
  if (status === 400 || status === 413 || status === 422 || (status === 404 && body))
    return refusedRequest(status, body, error);
  return failed(status, { alarm: `the provider answers status ${status}` });
}

/** The meaning of a status from 500 on. */
function meaningOfFault(
  status: number,
  error: OverflowReport,
  retryAfterMs: number | undefined,
): ProviderFailure {
  if (status === 529 || isOverload(error)) return overloaded(status, retryAfterMs);
  return { ...failed(status), ...(status === 503 && waiting(retryAfterMs)) };
}

function isAccountProblem(status: number, body: JsonObject | undefined): boolean {
  const { type, code, message } = status < 429 ? ownErrorOf(body) : readErrorBody(body);
  return accountCodes.has(code) || accountCodes.has(type) || accountProblem.test(message);
}

/** The member of the gateway that a provider does not know, which no client can change. */
function refusedMember(body: JsonObject | undefined): string | undefined {
  const { message } = ownErrorOf(body);
  const names = unknownMember.map((words) => words.exec(message)?.[1]);
  return names.find((name) => name !== undefined && gatewayMembers.has(name));
}

/** Of Google's `QuotaFailure`, and of Bedrock's sentence. */
function isDayQuota(body: JsonObject | undefined, { message }: OverflowReport): boolean {
  if (/too many tokens per day/i.test(message)) return true;
  const details = isObject(body?.error) ? body.error.details : undefined;
  const violations = (Array.isArray(details) ? details : []).flatMap((detail) =>
    isObject(detail) && Array.isArray(detail.violations) ? detail.violations : [],
  );
  return violations.some((one) => isObject(one) && String(one.quotaId).includes("PerDay"));
}

function isOverload({ type, code, message }: OverflowReport): boolean {
  return /overloaded/i.test(`${type} ${code}`) || /\boverloaded\b/i.test(message);
}

/** The meaning of an error after status 200: an error event, or an error body. */
export function failureOfEvent(
  { type, message, extensions }: Pick<Failure, "type" | "message" | "extensions">,
  status: number,
): ProviderFailure {
  if (accountProblem.test(message))
    return failed(status, { alarm: `the provider refuses our account: ${type}` });
  switch (type) {
    case "overloaded_error":
    case "rate_limit_error":
    case "rate_limit_exceeded":
      return overloaded(status, undefined);
    case "timeout_error":
      return timedOut(status);
    case unreadableAnswer:
      return { ...failed(status), scope: "request" };
    case "authentication_error":
    case "permission_error":
    case "billing_error":
    case "insufficient_quota":
      return failed(status, { alarm: `the provider refuses our credential or account: ${type}` });
    case "invalid_request_error":
    case "request_too_large": {
      const body = nativeBody("invalid_request_error", { message, ...extensions });
      const { code, message: words } = readErrorBody(body);
      return refusedRequest(400, body, { type, code, message: words });
    }
    default:
      return failed(status);
  }
}

/**
 * A failure of the provider. `alarm` reports a fault that only the operator can repair; `cause` is
 * for the log.
 */
export function failed(
  status: number,
  more: { alarm?: string; cause?: unknown; message?: string } = {},
): ProviderFailure {
  const { alarm, cause, message } = more;
  return {
    outcome: "failed",
    status,
    error: new ApiError("upstream_error", {
      ...(cause !== undefined && { cause }),
      ...(message !== undefined && { message }),
      // The status only makes the caller's error one that it should not retry, because the operator
      // must help first.
      ...(alarm !== undefined && { providerAnswer: { status } }),
    }),
    retry: alarm === undefined ? "anywhere" : "elsewhere",
    // A refused credential or an unknown model fails every request.
    ...(alarm !== undefined && { alarm, scope: "provider" as const }),
  };
}

/** A timeout of the provider. `cause` is for the log. */
export function timedOut(status: number, cause?: unknown): ProviderFailure {
  const error = new ApiError("timeout", cause === undefined ? {} : { cause });
  return { outcome: "timeout", status, error, retry: "anywhere" };
}

/** A call that we stopped ourselves. */
export function aborted(error: ApiError, status: number): ProviderFailure {
  return {
    outcome: error.reason === "timeout" ? "timeout" : "aborted",
    status,
    error,
    retry: "nowhere",
    isOurs: true,
  };
}

/** This machine lacked what the call needed: no verdict on the provider. `cause` is for the log. */
export function short(cause: unknown): ProviderFailure {
  const error = new ApiError("gateway_unavailable", { retryAfterMs: 1_000, cause });
  return { outcome: "failed", status: 0, error, retry: "nowhere", isOurs: true };
}

function waiting(retryAfterMs: number | undefined): Partial<ProviderFailure> {
  return { isOverload: true, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

function overloaded(status: number, retryAfterMs: number | undefined): ProviderFailure {
  const facts = retryAfterMs === undefined ? {} : { retryAfterMs };
  return {
    outcome: "failed",
    status,
    error: new ApiError("overloaded", facts),
    retry: "anywhere",
    ...waiting(retryAfterMs),
  };
}

/** `body` undefined: it was no JSON object, and the status alone says what is wrong. */
function refusedRequest(
  status: number,
  body: JsonObject | undefined,
  error: OverflowReport,
): ProviderFailure {
  return {
    outcome: "refused",
    status,
    error: errorOfRefusal(status, body, error),
    retry: "nowhere",
  };
}

function errorOfRefusal(
  status: number,
  body: JsonObject | undefined,
  error: OverflowReport,
): ApiError {
  const isLarge = status === 413 && body === undefined;
  const overflow = isLarge ? overflowOf() : findContextOverflow(error);
  if (overflow?.part === "prompt") {
    return new ApiError("context_length_exceeded", {
      message: overflow.message,
      field: "messages",
    });
  }
  const answer =
    overflow === undefined
      ? toNativeBody(status, body ?? {})
      : nativeBody("invalid_request_error", {
          message: overflow.message,
          code: "context_length_exceeded",
        });
  return new ApiError("upstream_refused", {
    providerAnswer: { status: status === 422 ? 400 : status, body: answer },
  });
}

// With status 404, a provider means the model. A native one may also mean a file of the client.
// Without a body, the address may be wrong.
function isWrongModel(status: number, body: JsonObject | undefined, model: string): boolean {
  const { code, message } = ownErrorOf(body);
  if (code === "model_not_found" || modelProblem.test(message)) return true;
  if (status !== 404 || !body) return false;
  const isFile = body.type === "error" && /\bfile/i.test(message);
  return !isFile || message.includes(model);
}

// Listeners expect the native error body, so that of a chat provider is converted. It keeps the
// provider's `code` and `param`.
function toNativeBody(status: number, body: JsonObject): JsonObject {
  const inner = innermost(body);
  if (body.type === "error" && isObject(body.error) && inner.error === body.error) return body;
  const type =
    status === 404
      ? "not_found_error"
      : status === 413
        ? "request_too_large"
        : "invalid_request_error";
  const { code, param = null } = inner.error;
  return nativeBody(type, {
    message: readErrorBody(body).message,
    code: typeof code === "string" ? code : inner.code,
    param,
  });
}

function nativeBody(type: string, { message, code, param }: JsonObject): JsonObject {
  return {
    type: "error",
    error: {
      type,
      message: message ?? "",
      ...(typeof code === "string" && code !== "" && { code }),
      ...(typeof param === "string" && { param }),
    },
  };
}

/** An error body in words, for operators. */
export function wordsOf(body: JsonObject): string {
  const { type, code, message } = readErrorBody(body);
  if (message === noMessage) return JSON.stringify(body);
  return [type, code, message].filter((word) => word !== "").join(": ");
}

const noMessage = "The provider declined the request.";

/**
 * The error that a provider wrote itself: without what stands in the middle of its message, where a
 * value of the client may be.
 */
function ownErrorOf(body: JsonObject | undefined): OverflowReport {
  return readErrorBody(body, true);
}

/** The members of an error body that describe the error, in either format. */
export function readErrorBody(body: JsonObject | undefined, isOwn = false): OverflowReport {
  const { error, message, type, code } = innermost(body ?? {}, isOwn);
  return {
    type,
    code,
    message: message || noMessage,
    ...(typeof error.n_prompt_tokens === "number" && { promptTokens: error.n_prompt_tokens }),
    ...(typeof error.n_ctx === "number" && { contextTokens: error.n_ctx }),
  };
}

/** Errors inside the message of another: a gateway before us, and one before it. */
const nestedMax = 3;

/**
 * The innermost error of a body. Gateways write the body of their provider as JSON into their own
 * message. Type and code are those of the innermost error that has them. `isOwn`: only
 * of errors with which the message around them ends.
 */
function innermost(body: JsonObject, isOwn = false): Fault {
  let fault = { ...faultIn(body), type: "", code: "" };
  for (let level = 0, at: JsonObject | undefined = body; at && level <= nestedMax; level++) {
    const { error, message } = faultIn(at);
    const { type, code } = fault;
    fault = { error, message, type: textOf(error.type) || type, code: textOf(error.code) || code };
    const isEnd = !isOwn || message.trimEnd().endsWith("}");
    at =
      (isEnd ? nestedIn(message) : undefined) ??
      nestedIn(textOf(isObject(error.metadata) && error.metadata.raw));
  }
  return fault;
}

/** What an error body says. */
type Fault = {
  /** The object with its members. */
  readonly error: JsonObject;
  readonly message: string;
  readonly type: string;
  readonly code: string;
};

function faultIn(body: JsonObject): Pick<Fault, "error" | "message"> {
  const error = isObject(body.error) ? body.error : body;
  const message =
    textOf(error.message) ||
    detailOf(error.detail) ||
    textOf(error.detail) ||
    textOf(body.message) ||
    textOf(body.error);
  return { error, message };
}

/** The error body in a message; undefined if there is none that says anything. */
function nestedIn(message: string): JsonObject | undefined {
  const json = message.slice(message.indexOf("{"), message.lastIndexOf("}") + 1);
  const value = json === "" ? undefined : parseJsonText(json);
  return isObject(value) && faultIn(value).message !== "" ? value : undefined;
}

/** The faults that FastAPI lists: those of the first three. Empty if this is no such list. */
function detailOf(detail: JsonValue | undefined): string {
  const faults = (Array.isArray(detail) ? detail : []).filter(isObject).slice(0, 3);
  return faults
    .map(({ loc, msg }) => {
      const place = (Array.isArray(loc) ? loc : []).filter((one) => one !== "body").join(".");
      return [place, textOf(msg)].filter((word) => word !== "").join(": ");
    })
    .join("; ");
}

function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

/**
 * Reads `retry-after-ms`, or `retry-after` in seconds or as a date, in milliseconds from now.
 * Undefined if neither is valid.
 */
export function readRetryAfterMs(
  headers: IncomingHttpHeaders,
  now: number = Date.now(),
): number | undefined {
  const exact = headers["retry-after-ms"];
  if (typeof exact === "string" && /^\d{1,9}$/.test(exact)) return Number(exact);
  const text = headers["retry-after"];
  if (text === undefined) return undefined;
  if (/^\d{1,7}$/.test(text)) return Number(text) * 1000;
  const ms = Date.parse(text) - now;
  return ms > 0 ? ms : undefined;
}
