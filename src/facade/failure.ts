// The answer to a request that failed before its answer began.

import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { Refusal, toRefusal } from "../errors.ts";
import type { Log } from "../log.ts";
import { sendJson } from "./json-reply.ts";
import { type Problem, toProblem } from "./problem.ts";
import { startRaw } from "./raw-reply.ts";

// A client that is still sending 2 s after its refusal is not listening.
const lingerMs = 2_000;

/** Builds Fastify's error handler. What nobody foresaw goes to the log and tells the client nothing. */
export function createFailureHandler(log: Log) {
  return (error: FastifyError | Refusal | Error, request: FastifyRequest, reply: FastifyReply): void => {
    const { exchange } = request;
    const refusal = refusalOfFastify(error) ?? toRefusal(error);
    // The guard of the services has logged what it wrapped.
    if (refusal !== error && refusal.refusal === "internal")
      log.error({ requestId: exchange.requestId, err: error }, "request failed");
    exchange.noted.refusal = refusal.refusal;
    const problem = toProblem(refusal, exchange.envelope, exchange.requestId);
    reply.headers(problem.headers);
    if (reply.getHeader("connection") === "close" && !request.raw.complete) sendAndLinger(request, reply, problem);
    else sendJson(reply.code(problem.status), problem.body);
  };
}

/** What Fastify itself refuses before a handler runs. */
function refusalOfFastify(error: Error): Refusal | undefined {
  if (!("code" in error) || !("statusCode" in error) || typeof error.code !== "string") return undefined;
  if (error.code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new Refusal("invalid_request", { message: "content-type: must be application/json" });
  }
  const isClientError = typeof error.statusCode === "number" && error.statusCode >= 400 && error.statusCode < 500;
  return error.code.startsWith("FST_") && isClientError ? new Refusal("invalid_request", { cause: error }) : undefined;
}

/**
 * Answers at once and closes only when the client has stopped sending: a socket closed over unread bytes is reset, and the reset can
 * overtake the answer.
 */
function sendAndLinger(request: FastifyRequest, reply: FastifyReply, problem: Problem): void {
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
