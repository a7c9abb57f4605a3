// Error responses: to requests that fail in a route, to paths and methods that no route serves, and
// to bytes that are no request at all.

import type { Socket } from "node:net";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { ApiError, toApiError } from "../base/errors.ts";
import { newRequestId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { asParam } from "../base/query.ts";
import { dropBody, whenSent } from "./body.ts";
import { lingerMs } from "./connections.ts";
import { hijackReply, requestIdHeaders, sendJson, streamHeaders } from "./context.ts";
import { type ErrorResponse, toErrorResponse } from "./error-body.ts";
import { failsInStream } from "./error-table.ts";

/**
 * Returns Fastify's error handler, for a request that fails before its response has begun. An
 * unexpected error is logged, and the client gets no detail of it.
 */
export function createErrorHandler(log: Log) {
  return (
    error: FastifyError | ApiError | Error,
    request: FastifyRequest,
    reply: FastifyReply,
  ): void => {
    const { context } = request;
    const apiError = fromFastifyError(error) ?? asParam(toApiError(error), request.query);
    // The interceptor of the services logs the errors that it wraps.
    if (!(error instanceof ApiError) && apiError.reason === "internal")
      log.error(
        { code: "internal_error", requestId: context.requestId, err: error },
        "request failed",
      );
    context.logFields.error = apiError.reason;
    const response = toErrorResponse(apiError, context.envelope, context.requestId);
    context.turn?.fail(apiError, response.status);
    reply.headers(response.headers);
    const stream = failsInStream(apiError.reason) && context.writeFailure?.(response.body);
    if (stream) sendFailedStream(reply, stream);
    else if (reply.getHeader("connection") === "close" && !request.raw.complete)
      sendAndLinger(request, reply, response);
    else sendJson(reply.code(response.status), response.body);
    dropBody(request.raw);
  };
}

function sendFailedStream(reply: FastifyReply, stream: string): void {
  const length = { "content-length": String(Buffer.byteLength(stream)) };
  hijackReply(reply, 200, { ...streamHeaders, ...length }).end(stream);
}

/** The error of a request that Fastify itself rejects before a handler runs. */
function fromFastifyError(error: Error): ApiError | undefined {
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

/** Sends the error at once, and closes the connection when the client has stopped sending. */
function sendAndLinger(
  request: FastifyRequest,
  reply: FastifyReply,
  response: ErrorResponse,
): void {
  const body = Buffer.from(JSON.stringify(response.body));
  const headers = { "content-type": "application/json", "content-length": String(body.length) };
  const raw = hijackReply(reply, response.status, headers);
  raw.write(body);
  void whenSent(request.raw).then(() => raw.end());
}

/** A path that routes serve, with `:name` for one free segment, and its methods. */
export type ServedPath = { readonly path: string; readonly methods: readonly string[] };

const chat = "POST /v1/chat/completions";
const native = "POST /v1/messages";
/** Paths of the two vendors that this gateway does not have. */
const guidance: readonly (readonly [prefix: string, advice: string])[] = [
  [
    "/v1/responses/compact",
    "Only OpenAI opens what this method makes, so it is not offered: compact with a request to " +
      "POST /v1/responses. Codex does so if its provider has another name than OpenAI.",
  ],
  [
    "/v1/responses/input_tokens",
    "Tokens of this format are not counted in advance: POST /v1/messages/count_tokens counts those " +
      "of the native format, and each answer has its usage.",
  ],
  [
    "/v1/responses",
    "Responses are not stored here: use POST /v1/responses, and send the whole input.",
  ],
  ["/v1/completions", `Text completions are not supported: use ${chat}.`],
  ["/v1/complete", `Text completions are not supported: use ${native}.`],
  ["/v1/messages/batches", `Batches are not supported: use ${native} for each request.`],
  ["/v1/files", `Files are not supported: put the content into the body of ${native}.`],
  [
    "/v1/embeddings",
    "No model of this gateway makes embeddings: all of them write answers. Use another provider " +
      "for your embeddings.",
  ],
];

/**
 * The error of a request that no route serves: 405 with the methods of the path if it has others,
 * otherwise 404 with every path in `listed`, and advice for paths that clients request by mistake.
 */
export function noRouteError(
  method: string,
  url: string,
  served: readonly ServedPath[],
  listed: readonly string[],
): { error: ApiError; allow: string[] } {
  const path = url.split(/[?#]/, 1)[0] ?? "";
  const allow = [
    ...new Set(served.filter((one) => matchesPath(path, one.path)).flatMap((one) => one.methods)),
  ];
  if (allow.length > 0) {
    const message = `This path does not support ${method}. It supports ${allow.join(", ")}.`;
    return { error: new ApiError("method_not_allowed", { message, allowed: allow }), allow };
  }
  const advice = guidance.find(([prefix]) =>
    pathVariants(prefix).some((one) => path === one || path.startsWith(`${one}/`)),
  )?.[1];
  const message = `${advice ?? "No such path."} Served are ${listed.join(", ")}.`;
  return { error: new ApiError("not_found", { message }), allow };
}

/**
 * Answers 426 to a WebSocket on a path that is served by POST. Coding agents that try one go on
 * over HTTP after this status.
 */
export function refuseUpgrade(request: FastifyRequest, reply: FastifyReply): void {
  const message = "WebSockets are not supported: send the request with POST over HTTP/1.1.";
  const error = new ApiError("method_not_allowed", { message });
  const { headers, body } = toErrorResponse(error, "chat", request.context.requestId);
  request.context.logFields.error = error.reason;
  sendJson(reply.code(426).headers({ ...headers, upgrade: "HTTP/1.1" }), body);
}

/** A path, and its variants for clients whose base URL has one `/v1` too few or too many. */
export function pathVariants(path: string): string[] {
  return [path, path.slice("/v1".length), `/v1${path}`];
}

function matchesPath(path: string, pattern: string): boolean {
  const segments = withoutSlash(path).split("/");
  const wanted = pattern.split("/");
  return (
    segments.length === wanted.length &&
    wanted.every((one, at) => one === segments[at] || (one.startsWith(":") && segments[at] !== ""))
  );
}

/** The path without one slash at its end, which is served as well. */
function withoutSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

/** Fastify's `frameworkErrors`: the path is not a valid URL, or one of its segments is too long. */
export function handleFrameworkError(
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

/**
 * Fastify's `clientErrorHandler`: Node's parser rejects the bytes on a socket. `open`: the replies
 * of this connection that are not sent yet, oldest first.
 */
export function handleClientError(
  error: Error & { code?: string },
  socket: Socket,
  open: readonly FastifyReply[],
): void {
  const last = open.at(-1);
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy(error);
  } else if (last === undefined) {
    rejectBytes(error, socket, newRequestId(), "request");
  } else if (last.request.raw.complete) {
    // Bytes after a complete request, for example because its `content-length` is too small.
    closeAfter(last, socket);
  } else if (open.length === 1 && !last.raw.headersSent) {
    // The body is broken or incomplete. Nothing more can be read on this connection.
    // The access log shows the status.
    last.raw.statusCode = rejectBytes(error, socket, last.request.id, "request body");
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    socket.once("close", () => clearTimeout(timer));
  } else {
    socket.destroy(error);
  }
}

const closing = new WeakSet<FastifyReply>();

function closeAfter(reply: FastifyReply, socket: Socket): void {
  // Every further byte is reported as well.
  if (closing.has(reply)) return;
  closing.add(reply);
  reply.raw.shouldKeepAlive = false;
  reply.raw.once("finish", () => socket.end());
}

/** Answers 400, 408 or 431, closes the connection, and returns the status. */
function rejectBytes(
  error: Error & { code?: string },
  socket: Socket,
  requestId: string,
  part: "request" | "request body",
): number {
  const [status, phrase, message] = statusOfClientError(error.code, part);
  const apiError = new ApiError("invalid_request", { message });
  const { headers, body } = toErrorResponse(apiError, "union", requestId);
  const text = JSON.stringify(body);
  const lines = Object.entries({
    ...requestIdHeaders(requestId),
    ...headers,
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
    connection: "close",
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${phrase}\r\n${lines.join("")}\r\n${text}`);
  return status;
}

function statusOfClientError(
  code: string | undefined,
  part: string,
): [status: number, phrase: string, message: string] {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return [408, "Request Timeout", "The request did not arrive in time."];
  if (code === "HPE_HEADER_OVERFLOW")
    return [431, "Request Header Fields Too Large", "The request headers are too large."];
  if (code === "HPE_INVALID_EOF_STATE")
    return [400, "Bad Request", "The connection was closed before the request was complete."];
  return [400, "Bad Request", `This is not a valid HTTP ${part}.`];
}
