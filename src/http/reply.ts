// What the handlers of this listener share when they reply: JSON bodies, replies that are written
// directly to the connection, and times as text.

import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { JsonValue } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";

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
