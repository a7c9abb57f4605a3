// One line per request: ids, route, status, durations. Paths and headers as sent may hold secrets and are left out, bodies too.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Log } from "../log.ts";
import { elapsedMs } from "./exchange.ts";

/** Builds the function that writes the line of a request whose answer is out or whose client is gone. */
export function createRequestLog(log: Log): (request: FastifyRequest, reply: FastifyReply) => void {
  // Redaction looks at every member of a line: 3.7 of 4.5 µs. The members here are named below, and none is anybody's secret.
  const plain = log.child({}, { redact: [] });
  return (request, reply) => {
    const { requestId, route, identity, noted } = request.exchange;
    const status = reply.raw.statusCode;
    // Probes come every few seconds.
    const isProbe = identity === undefined && status < 400;
    plain[isProbe ? "debug" : "info"](
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
  };
}
