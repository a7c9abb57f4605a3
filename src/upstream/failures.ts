// What a provider's failure means: for the caller (a refusal), for the router (whether another try makes sense) and for the operator.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Failure } from "../../gen/gateway/inference/v1/event_pb.ts";
import { Refusal } from "../errors.ts";
import { isObject } from "../wire/json.ts";
import type { ProviderFailure } from "./provider.ts";

/** An answer with an error status. */
export type ErrorAnswer = {
  readonly status: number;
  /** The body, if it was a JSON object; secrets removed. */
  readonly body?: JsonObject;
  readonly retryAfterMs?: number;
};

/** The members of an error body that tell what happened, in either format. */
type ErrorBody = { readonly type: string; readonly code: string; readonly message: string };

/** The meaning of an answer with an error status. `model` is the name that we asked for. */
export function failureOfAnswer({ status, body, retryAfterMs }: ErrorAnswer, model: string): ProviderFailure {
  const error = readErrorBody(body);
  if (status === 401 || status === 402 || status === 403 || error.code === "insufficient_quota") {
    return failed(status, { alarm: `the provider refuses our credential or account with status ${status}` });
  }
  if (status === 429 || status === 529) return overloaded(status, retryAfterMs);
  if (status === 408) return { ...failed(status, { mayRetry: true }), outcome: "timeout", refusal: new Refusal("timeout") };
  if (status >= 500) return failed(status, { mayRetry: true });
  if (body === undefined) return failed(status, { alarm: `the provider answers status ${status} without a JSON body` });
  if (isWrongModel(status, body, error, model)) return failed(status, { alarm: `the provider has no model ${model}` });
  if (status === 400 || status === 404 || status === 413 || status === 422) return refused(status, body, error);
  return failed(status, { alarm: `the provider answers status ${status}` });
}

/** The meaning of an error that came after the status line: an error event, or an error body under status 200. */
export function failureOfEvent({ type, message }: Pick<Failure, "type" | "message">, status: number): ProviderFailure {
  switch (type) {
    case "overloaded_error":
    case "rate_limit_error":
    case "rate_limit_exceeded":
      return overloaded(status, undefined);
    case "timeout_error":
      return { outcome: "timeout", status, refusal: new Refusal("timeout"), mayRetry: true };
    case "authentication_error":
    case "permission_error":
    case "billing_error":
    case "insufficient_quota":
      return failed(status, { alarm: `the provider refuses our credential or account: ${type}` });
    case "invalid_request_error":
    case "request_too_large":
      return refused(400, { type: "error", error: { type: "invalid_request_error", message } }, { type, code: "", message });
    default:
      return failed(status, { mayRetry: true });
  }
}

/** A provider that does not behave. `cause` is for the log. */
export function failed(
  status: number,
  more: { mayRetry?: boolean; alarm?: string; cause?: unknown; message?: string } = {},
): ProviderFailure {
  const { mayRetry = false, alarm, cause, message } = more;
  return {
    outcome: "failed",
    status,
    refusal: new Refusal("upstream_error", {
      ...(cause !== undefined && { cause }),
      ...(message !== undefined && { message }),
      // The caller is told the same whatever the status, but not to try again where only the operator can help.
      ...(alarm !== undefined && { upstream: { status } }),
    }),
    mayRetry,
    ...(alarm !== undefined && { alarm }),
  };
}

/** A call that we stopped ourselves. */
export function aborted(refusal: Refusal, status: number): ProviderFailure {
  return { outcome: refusal.refusal === "timeout" ? "timeout" : "aborted", status, refusal, mayRetry: false, isOurs: true };
}

function overloaded(status: number, retryAfterMs: number | undefined): ProviderFailure {
  const facts = retryAfterMs === undefined ? {} : { retryAfterMs };
  return {
    outcome: "failed",
    status,
    refusal: new Refusal("overloaded", facts),
    mayRetry: true,
    ...(retryAfterMs !== undefined && { coolDownMs: retryAfterMs }),
  };
}

function refused(status: number, body: JsonObject, error: ErrorBody): ProviderFailure {
  const tooLong = findContextOverflow(error);
  const refusal =
    tooLong === undefined
      ? new Refusal("upstream_refused", {
          upstream: { status: status === 422 ? 400 : status, body: toNativeBody(status, body) },
        })
      : new Refusal("context_length_exceeded", { message: tooLong, field: "messages" });
  return { outcome: "refused", status, refusal, mayRetry: false };
}

// A chat provider has nothing else that could be missing; a native one has files, too.
function isWrongModel(status: number, body: JsonObject, error: ErrorBody, model: string): boolean {
  if (error.code === "model_not_found" || /not a valid model/i.test(error.message)) return true;
  return status === 404 && (body.type !== "error" || error.message.includes(model));
}

// Clients compact their conversation when they recognise this wording, so every provider's own is turned into it.
function findContextOverflow({ type, code, message }: ErrorBody): string | undefined {
  if (message.startsWith("prompt is too long")) return message;
  const figures = /maximum context length is (\d+) tokens\D+(\d+)/.exec(message);
  if (figures !== null) return `prompt is too long: ${figures[2]} tokens > ${figures[1]} maximum`;
  return code === "context_length_exceeded" || type === "exceed_context_size_error" ? "prompt is too long" : undefined;
}

// Doors read the native envelope; a chat provider's is put into it.
function toNativeBody(status: number, body: JsonObject): JsonObject {
  if (body.type === "error" && isObject(body.error)) return body;
  const type = status === 404 ? "not_found_error" : status === 413 ? "request_too_large" : "invalid_request_error";
  return { type: "error", error: { type, message: readErrorBody(body).message } };
}

function readErrorBody(body: JsonObject | undefined): ErrorBody {
  const error = isObject(body?.error) ? body.error : (body ?? {});
  const text = (value: JsonValue | undefined) => (typeof value === "string" ? value : "");
  const said = text(error.message) || text(error.detail) || text(body?.message) || text(body?.error);
  return { type: text(error.type), code: text(error.code), message: said || "The provider declined the request." };
}
