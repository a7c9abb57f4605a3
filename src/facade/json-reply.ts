// JSON answers.

import type { JsonValue } from "@bufbuild/protobuf";
import type { FastifyReply } from "fastify";

/** Sends `body` as `application/json`. */
export function sendJson(reply: FastifyReply, body: JsonValue): FastifyReply {
  // Bytes, since Fastify adds a charset parameter to JSON text, and JSON has none.
  return reply.header("content-type", "application/json").send(Buffer.from(JSON.stringify(body)));
}
