// Replies that are written to the connection directly, because they are streamed or end later than they are sent.

import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";

/** Takes the reply out of Fastify's hands and sends its head: the headers it has so far, and `headers`. */
export function startRaw(reply: FastifyReply, status: number, headers: Record<string, string>): ServerResponse {
  const head: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(reply.headers(headers).getHeaders())) head[name] = value;
  reply.hijack();
  return reply.raw.writeHead(status, head);
}
