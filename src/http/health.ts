// Health probes. GET /healthz: the process is alive. GET /health: it can serve requests.

import { performance } from "node:perf_hooks";
import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../base/errors.ts";
import { closed, count, oneOf, open, text, time } from "../base/json-schema.ts";
import { sendJson } from "./context.ts";
import { toErrorResponse } from "./error-body.ts";
import { json, type Operation } from "./operation.ts";

/** `degraded`: requests are served, but something configured is missing. `down`: they fail. */
export type PartState = { readonly state: "ok" | "degraded" | "down"; readonly message?: string };

/**
 * The state of each part that requests need, by name: `database`, `months`, `limits` and
 * `providers`, in a facade `core` in their place. The answer adds `gateway`, the process itself.
 */
export type Readiness = Readonly<Record<string, PartState>>;

const partStates = {
  type: "object",
  additionalProperties: closed({ state: oneOf("ok", "degraded", "down") }, { message: text }),
};

export const livenessOperation: Operation = {
  id: "getLiveness",
  summary: "Says that the process is alive",
  answer: {
    [json]: closed({
      status: oneOf("ok"),
      service: text,
      uptime_seconds: count,
      time,
    }),
  },
};

export const readinessOperation: Operation = {
  id: "getReadiness",
  summary: "Says whether requests can be served",
  answer: { [json]: closed({ status: oneOf("ok", "degraded"), parts: partStates }) },
  failures: {
    "503": open({ status: oneOf("unavailable"), parts: partStates, error: { type: "object" } }),
  },
};

export const emptyOperation: Operation = {
  id: "sayHello",
  summary: "Answers nothing, for clients that open a connection ahead",
  answer: {},
};

export function getLiveness() {
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    sendJson(reply, {
      status: "ok",
      service: "model-gateway",
      uptime_seconds: Math.floor(performance.now() / 1000),
      time: new Date().toISOString(),
    });
}

export function getReadiness(readiness: () => Promise<Readiness>, isLeaving: () => boolean) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const parts: Readiness = {
      gateway: isLeaving() ? { state: "down", message: "draining" } : { state: "ok" },
      ...(await readiness()),
    };
    const states = Object.values(parts).map((part) => part.state);
    const body: JsonObject = {
      parts: Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, { ...part }])),
    };
    if (!states.includes("down"))
      return sendJson(reply, { status: states.includes("degraded") ? "degraded" : "ok", ...body });

    const error = new ApiError("gateway_unavailable");
    const response = toErrorResponse(error, "union", request.context.requestId);
    reply.code(response.status).headers(response.headers);
    return sendJson(reply, { status: "unavailable", ...body, ...response.body });
  };
}

/** Answers 200 without a body. */
export function getEmpty() {
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.code(200).send();
}
