// A generated answer as a stream of server-sent events, with keep-alive pings in its silences.

import assert from "node:assert/strict";
import type { FastifyReply } from "fastify";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type ApiError, toApiError } from "../base/errors.ts";
import { type Stopwatch, waitFor } from "../base/stopwatch.ts";
import type { EventEncoder } from "../formats/codec.ts";
import { ChunkedBody } from "./chunked-body.ts";
import { elapsedMs, type RequestContext } from "./context.ts";
import { toStreamErrorBody } from "./error-body.ts";
import { hijackReply } from "./reply.ts";
import { type AnswerFormat, admissionHeaders } from "./send-answer.ts";

export type KeepAlive = {
  /** Longest wait for the first event before the status line is sent without one. */
  readonly holdMs: number;
  /** Longest silence on an open stream. A coding assistant warns after 20 s without a byte. */
  readonly pingMs: number;
};

export type StreamSettings = {
  readonly keepAlive: KeepAlive;
  /** Whether the end of a stream shows what the request was charged. */
  readonly showCost: boolean;
};

// Within 35 s of silence, before or during an answer, a client gets something three times.
export const defaultKeepAlive: KeepAlive = { holdMs: 12_000, pingMs: 10_000 };

const streamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  // Both stop proxies from buffering or rewriting the stream.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/**
 * Streams the answer. Nothing is sent before the first events, so an earlier error is thrown and
 * gets its own HTTP status; a later one becomes the last event. A client that stops reading stops
 * the answer at its next message.
 */
export async function sendStream(
  reply: FastifyReply,
  answer: AsyncIterable<GenerateResponse>,
  format: AnswerFormat,
  context: RequestContext,
  signal: AbortSignal,
  keepAlive: KeepAlive,
): Promise<FastifyReply> {
  const stream = new EventStreamReply(reply, format, context, keepAlive);
  try {
    for await (const { kind } of answer) {
      if (kind.case === "events") {
        if (!stream.send(kind.value.events)) await stream.drained(signal, context.waits);
      } else if (kind.case === "admission") stream.admit(kind.value);
      else if (kind.case === "receipt") context.receipt = kind.value.receipt;
    }
    stream.end();
  } catch (error) {
    if (!stream.isOpen) throw error;
    // While this waited for `drained`, a broken connection shows on the socket before the signal.
    if (signal.aborted || reply.raw.socket?.destroyed) return reply;
    const apiError = toApiError(error);
    context.logFields.error = apiError.reason;
    stream.fail(apiError);
  } finally {
    stream.close();
  }
  return reply;
}

/** A reply of server-sent events: decides when its head is sent, and fills its silences. */
class EventStreamReply {
  readonly #reply: FastifyReply;
  readonly #format: AnswerFormat;
  readonly #context: RequestContext;
  readonly #keepAlive: KeepAlive;
  #encoder: EventEncoder | undefined;
  #body: ChunkedBody | undefined;
  #timer: NodeJS.Timeout;
  /** True if the wait for the first event ended before the admission came. */
  #isOverdue = false;
  /** True if nothing was written since the last tick. */
  #isQuiet = false;
  #deferred = "";
  /** True once the head is sent. */
  isOpen = false;

  constructor(
    reply: FastifyReply,
    format: AnswerFormat,
    context: RequestContext,
    keepAlive: KeepAlive,
  ) {
    this.#reply = reply;
    this.#format = format;
    this.#context = context;
    this.#keepAlive = keepAlive;
    this.#timer = setTimeout(() => this.#tick(), keepAlive.holdMs);
  }

  get #started(): EventEncoder {
    if (!this.#encoder) throw new Error("events came before the admission");
    return this.#encoder;
  }

  admit(admission: Admission): void {
    this.#context.logFields.model = admission.model;
    this.#encoder = this.#format.createEventEncoder(admission);
    this.#reply.headers(admissionHeaders(this.#format.envelope, admission));
    if (this.#isOverdue) this.#tick();
  }

  /** Returns false if the reader is behind: the caller should wait for `drained`. */
  send(events: readonly Event[]): boolean {
    // A provider's ping does not show yet whether the answer will succeed.
    if (!this.isOpen && events.every((event) => event.kind.case === "ping")) return true;
    const text = this.#started.encode(events);
    const isEnd = this.isOpen && events.at(-1)?.kind.case === "messageStop";
    if (!isEnd) return this.#write(text);
    // In one write with the end of the stream.
    this.#deferred += text;
    return true;
  }

  #write(text: string): boolean {
    // The head and the first events are sent in one write.
    if (!this.#body) return this.#open().begin(text);
    if (text === "") return true;
    this.#isQuiet = false;
    return this.#body.write(text);
  }

  /** Resolves when the reader has caught up. Throws if `signal` fires or the connection breaks. */
  drained(signal: AbortSignal, waits: Stopwatch | undefined): Promise<void> | undefined {
    const drained = this.#body?.drained(signal);
    return drained && waitFor(drained, waits);
  }

  end(): void {
    assert(this.#body, "a complete answer has events");
    this.#body.end(this.#deferred + this.#started.end());
  }

  fail(error: ApiError): void {
    const body = toStreamErrorBody(error, this.#format.envelope, this.#context.requestId);
    this.#body?.end(this.#deferred + this.#started.failure(body));
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #open(): ChunkedBody {
    this.isOpen = true;
    this.#context.logFields.firstByteMs = elapsedMs(this.#context);
    this.#body = new ChunkedBody(hijackReply(this.#reply, 200, streamHeaders));
    clearTimeout(this.#timer);
    // Half of `pingMs`: a tick only marks the stream as quiet, and the next one sends the ping.
    this.#timer = setInterval(() => this.#tick(), this.#keepAlive.pingMs / 2);
    return this.#body;
  }

  #tick(): void {
    // Before the admission the headers are unknown, and the request may still fail with a status.
    if (!this.#encoder) this.#isOverdue = true;
    else if (this.#body && !this.#isQuiet) this.#isQuiet = true;
    else if (!this.#body?.isBehind) this.#write(this.#encoder.ping());
  }
}
