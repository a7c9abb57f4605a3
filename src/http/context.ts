// Shared by the handlers of this listener: the context of a request, the line of the access log
// that is written from it, and how they reply. The line has ids, route, status, durations and cost.
// It leaves out the path and headers as sent, which may hold secrets, and all bodies.

import assert from "node:assert/strict";
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { performance } from "node:perf_hooks";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { createContextValues } from "@connectrpc/connect";
import type { FastifyReply, FastifyRequest } from "fastify";
import { OutcomeSchema, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { ErrorReason } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { isRequestId, newRequestId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Stopwatch } from "../base/stopwatch.ts";
import { type TokenCategory, tokenCategories } from "../base/token-categories.ts";
import { knownCaller, withFacts } from "../contract/contract.ts";
import type { Incoming } from "../tracing/tracing.ts";
import type { IdentifiedCaller } from "./authenticate.ts";
import { type Envelope, failsInStream, rowOf } from "./error-table.ts";
import type { Turn } from "./key-load.ts";

export type RequestContext = {
  readonly requestId: string;
  envelope: Envelope;
  /** The path of the matched route, such as `/v1/models/:id`, never the path as sent. */
  readonly route: string;
  /** The first spelling of that path. */
  readonly pattern: string;
  readonly startedMs: number;
  /** Absent: this process traces nothing. */
  readonly trace?: Incoming | undefined;
  /** Runs while the request waits for its client or for providers. Absent: nothing is counted. */
  readonly waits?: Stopwatch | undefined;
  /** Aborted when the client hangs up before its answer is complete. */
  readonly hangUp: AbortController;
  /** Absent until the caller is authenticated. */
  identity?: IdentifiedCaller & { readonly headers: Readonly<Record<string, string>> };
  /** Version and beta flags of a native request. Absent until they are checked. */
  vendor?: { readonly version: string; readonly beta: string };
  /** The request's part of its key's load. Absent until it is checked or its body is read. */
  turn?: Turn;
  /** Writes the stream of a request that fails before its answer. Absent: the status says it. */
  writeFailure?: ((body: JsonObject) => string) | undefined;
  /** Absent until the answer is charged; stays absent if it failed or the client hung up. */
  receipt?: Receipt | undefined;
  /** Members of the log line beside ids, status, duration and cost. */
  readonly logFields: {
    model?: string;
    stream?: boolean;
    firstByteMs?: number;
    error?: ErrorReason;
  };
};

declare module "fastify" {
  interface FastifyRequest {
    context: RequestContext;
  }
}

/** The authenticated caller, on a route that requires a credential. */
export function identityOf(request: FastifyRequest): NonNullable<RequestContext["identity"]> {
  const { identity } = request.context;
  assert(identity, "the route authenticates its callers");
  return identity;
}

/** The options of each call that the request makes to the services, which name its caller. */
export function callFor(request: FastifyRequest) {
  const { hangUp, waits } = request.context;
  const { headers, caller, atMs } = identityOf(request);
  // For services of the same process.
  const facts = { known: knownCaller(caller, atMs), waits };
  const contextValues = withFacts(createContextValues(), facts);
  return { headers, signal: hangUp.signal, contextValues };
}

/** The account of the caller's key; empty for a caller without one. */
export function accountOf(request: FastifyRequest): string {
  return identityOf(request).caller.key?.accountId ?? "";
}

/** Milliseconds since the request arrived, to a tenth. */
export function elapsedMs(context: RequestContext): number {
  return Math.round((performance.now() - context.startedMs) * 10) / 10;
}

/**
 * How a request ended, once its connection is done with it. `context`: absent on a route that was
 * added from outside. `isSent`: false if its client hung up before the end of the answer.
 * `isFailed`: true if the gateway or a provider failed, rather than the client.
 */
export function endOf({ raw }: FastifyReply, context: RequestContext | undefined) {
  // Nothing was sent: Node shows 200 until another status is set.
  const isUnanswered = !raw.headersSent && !raw.writableEnded && raw.statusCode === 200;
  const status = isUnanswered ? rowOf("cancelled").status : raw.statusCode;
  const error = context?.logFields.error ?? (isUnanswered ? "cancelled" : undefined);
  // An error in a stream comes after its status.
  const isLate = error !== undefined && status < 400 && !failsInStream(error);
  const isFailed = status >= 500 || isLate;
  return { isSent: raw.writableEnded, status, error, isFailed };
}

/** A `:name` segment of the route's path, decoded. */
export function pathParam(request: FastifyRequest, name: string): string {
  const { params } = request;
  const value: unknown =
    typeof params === "object" && params !== null ? Reflect.get(params, name) : undefined;
  return typeof value === "string" ? value : "";
}

/** A parameter of the query, empty if it is absent or given several times. */
export function queryParam(request: FastifyRequest, name: string): string {
  const { query } = request;
  const value: unknown =
    typeof query === "object" && query !== null ? Reflect.get(query, name) : undefined;
  return typeof value === "string" ? value : "";
}

/** The request id that the client proposes, if it is well-formed; otherwise a new one. */
export function requestIdOf(request: Pick<IncomingMessage, "headers">): string {
  const proposed = request.headers["x-request-id"];
  return typeof proposed === "string" && isRequestId(proposed) ? proposed : newRequestId();
}

/** The request id under both names: native clients read the first, chat clients the second. */
export function requestIdHeaders(requestId: string): {
  "request-id": string;
  "x-request-id": string;
} {
  return { "request-id": requestId, "x-request-id": requestId };
}

/**
 * Returns the function that writes a request's line. Call it when the connection is done with it.
 */
export function createAccessLog(log: Log): (request: FastifyRequest, reply: FastifyReply) => void {
  // Redaction inspects every member of a line: 3.7 of 4.5 µs. This line has the members named below
  // and none of them is secret.
  const plain = log.child({}, { redact: [] });
  return (request, reply) => {
    const { requestId, route, identity, logFields, receipt, trace } = request.context;
    const key = identity?.caller.key;
    const { isSent, status, error } = endOf(reply, request.context);
    // Probes come every few seconds.
    const isProbe = identity === undefined && status < 400;
    plain[isProbe ? "debug" : "info"](
      {
        requestId,
        method: request.method,
        route,
        status,
        ms: elapsedMs(request.context),
        // pino leaves out undefined members. All members in one literal cost less than spreads.
        accountId: key?.accountId,
        keyId: key?.keyId,
        family: key && familyName(key.family),
        model: logFields.model,
        stream: logFields.stream,
        firstByteMs: logFields.firstByteMs,
        error,
        outcome: receipt && OutcomeSchema.value[receipt.outcome]?.localName,
        amountMicrocredits: receipt?.chargedMicrocredits.toString(),
        tokens: receipt?.usage && tokensOf(receipt.usage),
        webSearches: receipt?.usage?.webSearches || undefined,
        traceId: trace?.span?.traceId,
        hungUp: isSent ? undefined : true,
      },
      "request",
    );
  };
}

/** The categories that have tokens. */
function tokensOf(usage: Usage): Partial<Record<TokenCategory, number>> {
  const tokens: Partial<Record<TokenCategory, number>> = {};
  for (const category of tokenCategories)
    if (usage[category] > 0) tokens[category] = usage[category];
  return tokens;
}

/** Sends `body` as `application/json`, with the status and the headers set so far. */
export function sendJson(reply: FastifyReply, body: JsonValue): FastifyReply {
  const text = JSON.stringify(body);
  // Not by Fastify, which adds a charset parameter that JSON's media type does not have. As text,
  // because Node joins it with the head: one buffer less to make and to write.
  hijackReply(reply, reply.statusCode, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
  }).end(text);
  return reply;
}

/**
 * Takes the reply over from Fastify and writes its head: the headers set so far, and `headers`. For
 * a reply that is streamed, or whose connection stays open after its body.
 */
export function hijackReply(
  reply: FastifyReply,
  status: number,
  headers: Record<string, string>,
): ServerResponse {
  const head: OutgoingHttpHeaders = {};
  Object.assign(head, reply.headers(headers).getHeaders());
  reply.hijack();
  return reply.raw.writeHead(status, head);
}

/** RFC 3339 in UTC, with milliseconds only if they are not zero: `2026-02-05T00:00:00Z`. */
export function rfc3339(time: Date): string {
  return time.toISOString().replace(".000Z", "Z");
}

/** A message's time as RFC 3339, or null if it is absent. */
export function rfc3339OrNull(time: Timestamp | undefined): string | null {
  return time === undefined ? null : rfc3339(timestampDate(time));
}

/** The headers of an event stream. */
export const streamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  // Both stop proxies from buffering or rewriting the stream.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};
