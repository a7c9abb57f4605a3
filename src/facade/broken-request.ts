// Requests that never become one: what Node's parser or Fastify's router refuses before any route.

import type { Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Refusal } from "../errors.ts";
import { newRequestId } from "../ids.ts";
import { sendJson } from "./json-reply.ts";
import { toProblem } from "./problem.ts";
import { requestIdHeaders } from "./request-id.ts";

/** Answers a path that is no valid URL, or one with a segment that nothing here is named by. */
export function refusePath(error: Error & { code?: string }, request: FastifyRequest, reply: FastifyReply): void {
  const refusal =
    error.code === "FST_ERR_BAD_URL"
      ? new Refusal("invalid_request", { message: "The path is not a valid URL." })
      : new Refusal("not_found");
  const { status, headers, body } = toProblem(refusal, "union", request.id);
  sendJson(reply.code(status).headers({ ...requestIdHeaders(request.id), ...headers }), body);
}

/** Answers bytes that are no HTTP request, on a socket on which no answer is under way. */
export function refuseBytes(error: Error & { code?: string }, socket: Socket, isBusy: boolean): void {
  if (error.code === "ECONNRESET" || !socket.writable || isBusy) {
    socket.destroy(error);
    return;
  }
  const [status, phrase, message] = answerOf(error.code);
  const requestId = newRequestId();
  const { headers, body } = toProblem(new Refusal("invalid_request", { message }), "union", requestId);
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
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return [408, "Request Timeout", "The request did not arrive in time."];
  if (code === "HPE_HEADER_OVERFLOW") return [431, "Request Header Fields Too Large", "The request headers are too large."];
  return [400, "Bad Request", "This is not a valid HTTP request."];
}
