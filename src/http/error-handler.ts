// The answer to a request that failed before its answer began.

import type { Socket } from "node:net";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { ApiError, toApiError } from "../base/errors.ts";
import { newRequestId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { requestIdHeaders } from "./context.ts";
import { type ErrorResponse, toErrorResponse } from "./error-body.ts";
import { sendJson, startRaw } from "./reply.ts";

// A client that is still sending 2 s after its error is not listening.
const lingerMs = 2_000;

/**
 * Builds Fastify's error handler. What nobody foresaw goes to the log and tells the client nothing.
 */
export function createFailureHandler(log: Log) {
  return (
    error: FastifyError | ApiError | Error,
    request: FastifyRequest,
    reply: FastifyReply,
  ): void => {
    const { context } = request;
    const apiError = refusalOfFastify(error) ?? toApiError(error);
    // The guard of the services has logged what it wrapped.
    if (apiError !== error && apiError.reason === "internal")
      log.error({ requestId: context.requestId, err: error }, "request failed");
    context.logFields.error = apiError.reason;
    const problem = toErrorResponse(apiError, context.envelope, context.requestId);
    reply.headers(problem.headers);
    if (reply.getHeader("connection") === "close" && !request.raw.complete)
      sendAndLinger(request, reply, problem);
    else sendJson(reply.code(problem.status), problem.body);
  };
}

/** What Fastify itself refuses before a handler runs. */
function refusalOfFastify(error: Error): ApiError | undefined {
  if (!("code" in error) || !("statusCode" in error) || typeof error.code !== "string")
    return undefined;
  if (error.code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new ApiError("invalid_request", { message: "content-type: must be application/json" });
  }
  const isClientError =
    typeof error.statusCode === "number" && error.statusCode >= 400 && error.statusCode < 500;
  return error.code.startsWith("FST_") && isClientError
    ? new ApiError("invalid_request", { cause: error })
    : undefined;
}

/**
 * Answers at once and closes only when the client has stopped sending: a socket closed over unread
 * bytes is reset, and the reset can overtake the answer.
 */
function sendAndLinger(request: FastifyRequest, reply: FastifyReply, problem: ErrorResponse): void {
  const body = Buffer.from(JSON.stringify(problem.body));
  const headers = { "content-type": "application/json", "content-length": String(body.length) };
  const raw = startRaw(reply, problem.status, headers);
  raw.write(body);
  const close = () => {
    clearTimeout(timer);
    raw.end();
  };
  const timer = setTimeout(close, lingerMs);
  request.raw.once("end", close).once("close", close).resume();
}

// Requests that never become one: what Node's parser or Fastify's router refuses before any route.

/** Answers a path that is no valid URL, or one with a segment that nothing here is named by. */
export function answerBadPath(
  error: Error & { code?: string },
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const apiError =
    error.code === "FST_ERR_BAD_URL"
      ? new ApiError("invalid_request", { message: "The path is not a valid URL." })
      : new ApiError("not_found");
  const { status, headers, body } = toErrorResponse(apiError, "union", request.id);
  sendJson(reply.code(status).headers({ ...requestIdHeaders(request.id), ...headers }), body);
}

/** Answers bytes that are no HTTP request, on a socket on which no answer is under way. */
export function answerBadBytes(
  error: Error & { code?: string },
  socket: Socket,
  isBusy: boolean,
): void {
  if (error.code === "ECONNRESET" || !socket.writable || isBusy) {
    socket.destroy(error);
    return;
  }
  const [status, phrase, message] = answerOf(error.code);
  const requestId = newRequestId();
  const { headers, body } = toErrorResponse(
    new ApiError("invalid_request", { message }),
    "union",
    requestId,
  );
  const text = JSON.stringify(body);
  const lines = Object.entries({
    ...requestIdHeaders(requestId),
    ...headers,
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
    connection: "close",
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${phrase}\r\n${lines.join("")}\r\n${text}`);
}

function answerOf(code: string | undefined): [status: number, phrase: string, message: string] {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return [408, "Request Timeout", "The request did not arrive in time."];
  if (code === "HPE_HEADER_OVERFLOW")
    return [431, "Request Header Fields Too Large", "The request headers are too large."];
  return [400, "Bad Request", "This is not a valid HTTP request."];
}

// Requests to paths or with methods that are not served: 404 with guidance where people are known
// to take a wrong turn, or 405.

/** A served path, with `:name` for one free segment, and its methods. */
export type Served = { readonly path: string; readonly methods: readonly string[] };

const chat = "POST /v1/chat/completions";
const native = "POST /v1/messages";
const guidance: readonly (readonly [prefix: string, advice: string])[] = [
  [
    "/v1/responses",
    `The Responses API is not served here: use ${chat} (with @ai-sdk/openai take the chat model, or the openai-compatible package).`,
  ],
  ["/v1/completions", `Text completions are not served here: use ${chat}.`],
  ["/v1/complete", `Text completions are not served here: use ${native}.`],
  ["/v1/messages/batches", `Batches are not served here: use ${native} for each request.`],
  ["/v1/files", `There is no file store here: put the content into the request of ${native}.`],
  ["/v1/embeddings", `Embeddings are not served here; this gateway serves ${native} and ${chat}.`],
];

/** The error of a request that no route serves, and the methods that its path has. */
export function notServedError(
  method: string,
  url: string,
  served: readonly Served[],
): { error: ApiError; allow: string[] } {
  const path = url.split(/[?#]/, 1)[0] ?? "";
  const allow = [
    ...new Set(served.filter((one) => matchesPath(path, one.path)).flatMap((one) => one.methods)),
  ];
  if (allow.length > 0) {
    const message = `This path has no method ${method}; it has ${allow.join(", ")}.`;
    return { error: new ApiError("method_not_allowed", { message, allowed: allow }), allow };
  }
  const advice = guidance.find(([prefix]) =>
    pathVariants(prefix).some((one) => path === one || path.startsWith(`${one}/`)),
  )?.[1];
  const message = advice ?? `There is no such path. Served are ${native}, ${chat}, GET /v1/models.`;
  return { error: new ApiError("not_found", { message }), allow };
}

/** A path, and what it becomes when a client's base address has one `/v1` too few or too many. */
export function pathVariants(path: string): string[] {
  return [path, path.slice("/v1".length), `/v1${path}`];
}

function matchesPath(path: string, pattern: string): boolean {
  const segments = path.split("/");
  const wanted = pattern.split("/");
  return (
    segments.length === wanted.length &&
    wanted.every((one, at) => one === segments[at] || (one.startsWith(":") && segments[at] !== ""))
  );
}
