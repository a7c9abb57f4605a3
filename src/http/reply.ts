// Replies that are written to the connection directly, because they are streamed or end later than
// they are sent.

import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { JsonValue } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";

/**
 * Takes the reply out of Fastify's hands and sends its head: the headers it has so far, and
 * `headers`.
 */
export function startRaw(
  reply: FastifyReply,
  status: number,
  headers: Record<string, string>,
): ServerResponse {
  const head: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(reply.headers(headers).getHeaders()))
    head[name] = value;
  reply.hijack();
  return reply.raw.writeHead(status, head);
}

// JSON answers.

/** Sends `body` as `application/json`. */
export function sendJson(reply: FastifyReply, body: JsonValue): FastifyReply {
  // Bytes, since Fastify adds a charset parameter to JSON text, and JSON has none.
  return reply.header("content-type", "application/json").send(Buffer.from(JSON.stringify(body)));
}

// Points in time as the two formats write them.

/** RFC 3339 in UTC, with milliseconds only where there are some: `2026-02-05T00:00:00Z`. */
export function rfc3339(time: Date): string {
  return time.toISOString().replace(".000Z", "Z");
}

/** The same of a message field; null where it is absent. */
export function rfc3339OrNull(time: Timestamp | undefined): string | null {
  return time === undefined ? null : rfc3339(timestampDate(time));
}
