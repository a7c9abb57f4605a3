// Health probes: /healthz says that the process answers, /health whether it can serve.

import { performance } from "node:perf_hooks";
import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../base/errors.ts";
import { toErrorResponse } from "./error-body.ts";
import { sendJson } from "./reply.ts";

/**
 * `down` means that requests cannot be served; `degraded` that they are, with less than was
 * configured.
 */
export type PartState = { readonly state: "ok" | "degraded" | "down"; readonly says?: string };

/** The parts that requests need, by name, such as `database`, `limits`, `providers`. */
export type Readiness = Readonly<Record<string, PartState>>;

export function getLiveness() {
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    sendJson(reply, {
      status: "ok",
      service: "model-gateway",
      uptime_seconds: Math.floor(performance.now() / 1000),
      time: new Date().toISOString(),
    });
}

export function getReadiness(readiness: () => Promise<Readiness>, isDraining: () => boolean) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const parts: Readiness = {
      gateway: isDraining() ? { state: "down", says: "draining" } : { state: "ok" },
      ...(await readiness()),
    };
    const states = Object.values(parts).map((part) => part.state);
    const body: JsonObject = {
      parts: Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, { ...part }])),
    };
    if (!states.includes("down"))
      return sendJson(reply, { status: states.includes("degraded") ? "degraded" : "ok", ...body });

    const problem = toErrorResponse(
      new ApiError("gateway_unavailable"),
      "union",
      request.context.requestId,
    );
    reply.code(problem.status).headers(problem.headers);
    return sendJson(reply, { status: "unavailable", ...body, ...problem.body });
  };
}

/** A probe that only asks whether somebody answers. */
export function getNothing() {
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.code(200).send();
}
