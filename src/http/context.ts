// One request and its answer, as the hooks and handlers of this listener share them.

import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { performance } from "node:perf_hooks";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { ErrorReason } from "../base/errors.ts";
import { isRequestId, newRequestId } from "../base/ids.ts";
import type { Envelope } from "./error-body.ts";

/** Headers and signal of every call that a request makes to the services. */
type CallOfRequest = { readonly headers: Headers; readonly signal: AbortSignal };

export type RequestContext = {
  readonly requestId: string;
  readonly envelope: Envelope;
  /** Path as it stands in the table of routes, never as the client wrote it. */
  readonly route: string;
  readonly startedMs: number;
  /** Absent until the request is identified. */
  identity?: { readonly call: CallOfRequest; readonly caller: AuthenticateResponse };
  /** Version and beta flags of a native call, once they are known to be good. */
  vendor?: { readonly version: string; readonly beta: string };
  /**
   * What the answer cost. Absent until it is charged, and for good where the answer failed or its
   * client left.
   */
  receipt?: Receipt | undefined;
  /** What the log line tells beside ids, status, duration and cost. */
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

/** The caller of an identified request. */
export function identityOf(request: FastifyRequest): NonNullable<RequestContext["identity"]> {
  const { identity } = request.context;
  assert(identity, "the route identifies its callers");
  return identity;
}

/** Milliseconds since the request arrived, to a tenth. */
export function elapsedMs(context: RequestContext): number {
  return Math.round((performance.now() - context.startedMs) * 10) / 10;
}

/** Fires when the client hangs up before its answer is complete. */
export function hangUpSignal(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once("close", () => {
    if (!reply.raw.writableEnded) controller.abort();
  });
  return controller.signal;
}

/** A `:name` segment of the route's path, decoded. */
export function pathParam(request: FastifyRequest, name: string): string {
  const { params } = request;
  const value: unknown =
    typeof params === "object" && params !== null ? Reflect.get(params, name) : undefined;
  return typeof value === "string" ? value : "";
}

// The id that names a request in its answer, its log line and its receipt.

/** The id that the client proposes, when it is well-formed, or a new one. */
export function requestIdOf(request: Pick<IncomingMessage, "headers">): string {
  const proposed = request.headers["x-request-id"];
  return typeof proposed === "string" && isRequestId(proposed) ? proposed : newRequestId();
}

/** Both names of the id: native clients read the first, chat clients the second. */
export function requestIdHeaders(requestId: string): {
  "request-id": string;
  "x-request-id": string;
} {
  return { "request-id": requestId, "x-request-id": requestId };
}
