// One line per request: ids, route, status, durations. Paths and headers as sent may hold secrets and are left out, bodies too.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Log } from "../log.ts";
import { elapsedMs } from "./exchange.ts";

/** Writes the line of a request whose answer is out or whose client is gone. */
export function logRequest(log: Log, request: FastifyRequest, reply: FastifyReply): void {
  const { requestId, route, identity, noted } = request.exchange;
  const status = reply.raw.statusCode;
  // Probes come every few seconds.
  const isProbe = identity === undefined && status < 400;
  log[isProbe ? "debug" : "info"](
    {
      requestId,
      method: request.method,
      route,
      status,
      ms: elapsedMs(request.exchange),
      ...(identity?.caller.key && { keyId: identity.caller.key.keyId }),
      ...noted,
      ...(!reply.raw.writableEnded && { hungUp: true }),
    },
    "request",
  );
}
