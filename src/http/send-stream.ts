// A generated answer as a stream of server-sent events: its loop, and its pace.

import assert from "node:assert/strict";
import type { FastifyReply } from "fastify";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type ApiError, toApiError } from "../base/errors.ts";
import type { EventEncoder } from "../formats/codec.ts";
import { ChunkedBody } from "./chunked-body.ts";
import { elapsedMs, type RequestContext } from "./context.ts";
import { toStreamErrorBody } from "./error-body.ts";
import { startRaw } from "./reply.ts";
import type { AnswerFormat } from "./send-answer.ts";
import { admissionHeaders } from "./send-answer.ts";

export type KeepAlive = {
  /** Longest wait for the first event before the status line leaves without one. */
  readonly holdMs: number;
  /**
   * Longest silence on an open stream. The coding assistant shows a banner after 20 s without a
   * byte.
   */
  readonly pingMs: number;
};

// Before or during an answer, 35 s of silence hold three signs of life.
export const defaultKeepAlive: KeepAlive = { holdMs: 12_000, pingMs: 10_000 };

const headers = {
  "content-type": "text/event-stream; charset=utf-8",
  // Both stop proxies from buffering or rewriting the stream.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/**
 * Streams the answer. Until its first events the reply is untouched, and a failure is thrown, so
 * that it gets its own HTTP status; after that a failure becomes the last event. A reader that
 * stops reading stops the answer at its next message.
 */
export async function sendStream(
  reply: FastifyReply,
  answer: AsyncIterable<GenerateResponse>,
  format: AnswerFormat,
  context: RequestContext,
  signal: AbortSignal,
  pace: KeepAlive,
): Promise<FastifyReply> {
  const paced = new PacedReply(reply, format, context, pace);
  try {
    for await (const { kind } of answer) {
      if (kind.case === "events") {
        const { events } = kind.value;
        // A provider's ping says nothing yet about how its answer will go.
        if (!paced.isOpen && events.every((event) => event.kind.case === "ping")) continue;
        const text = paced.encoder.encode(events);
        if (paced.isOpen && events.at(-1)?.kind.case === "messageStop") paced.keep(text);
        else if (!paced.write(text)) await paced.drained(signal);
      } else if (kind.case === "admission") paced.admit(kind.value);
      else if (kind.case === "receipt") context.receipt = kind.value.receipt;
    }
    paced.end();
  } catch (error) {
    if (!paced.isOpen) throw error;
    // A client that broke its connection while it was waited for is known by its socket first.
    if (signal.aborted || reply.raw.socket?.destroyed) return reply;
    const apiError = toApiError(error);
    context.logFields.error = apiError.reason;
    paced.fail(apiError);
  } finally {
    paced.close();
  }
  return reply;
}

/** A streamed reply: when its head leaves, and that something leaves every few seconds. */
class PacedReply {
  readonly #reply: FastifyReply;
  readonly #format: AnswerFormat;
  readonly #context: RequestContext;
  readonly #pace: KeepAlive;
  #encoder: EventEncoder | undefined;
  #body: ChunkedBody | undefined;
  #timer: NodeJS.Timeout;
  #isOverdue = false;
  /** True when nothing was written since the last beat. */
  #isQuiet = false;
  #kept = "";
  /** True once the head is out. */
  isOpen = false;

  constructor(reply: FastifyReply, format: AnswerFormat, context: RequestContext, pace: KeepAlive) {
    this.#reply = reply;
    this.#format = format;
    this.#context = context;
    this.#pace = pace;
    this.#timer = setTimeout(() => this.#beat(), pace.holdMs);
  }

  get encoder(): EventEncoder {
    if (!this.#encoder) throw new Error("events came before the admission");
    return this.#encoder;
  }

  admit(admission: Admission): void {
    this.#context.logFields.model = admission.model;
    this.#encoder = this.#format.createEventEncoder(admission);
    this.#reply.headers(admissionHeaders(this.#format.envelope, admission));
    if (this.#isOverdue) this.#beat();
  }

  /** False when the reader is behind and the writer should wait until it has `drained`. */
  write(text: string): boolean {
    // Head and first events leave together.
    if (!this.#body) return this.#open().begin(text);
    if (text === "") return true;
    this.#isQuiet = false;
    return this.#body.write(text);
  }

  /** Lets the last events leave with the end of the stream, which is about to come. */
  keep(text: string): void {
    this.#kept += text;
  }

  /** Throws when `signal` fires or the connection breaks. */
  drained(signal: AbortSignal): Promise<void> | undefined {
    return this.#body?.drained(signal);
  }

  end(): void {
    assert(this.#body, "an answer that ends well has events");
    this.#body.end(this.#kept + this.encoder.end());
  }

  fail(apiError: ApiError): void {
    const problem = toStreamErrorBody(apiError, this.#format.envelope, this.#context.requestId);
    this.#body?.end(this.#kept + this.encoder.failure(problem));
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #open(): ChunkedBody {
    this.isOpen = true;
    this.#context.logFields.firstByteMs = elapsedMs(this.#context);
    this.#body = new ChunkedBody(startRaw(this.#reply, 200, headers));
    this.#keepAlive();
    return this.#body;
  }

  #keepAlive(): void {
    clearTimeout(this.#timer);
    // Half the time, since a beat only finds out that nothing was written since the one before.
    this.#timer = setInterval(() => this.#beat(), this.#pace.pingMs / 2);
  }

  #beat(): void {
    // Without an admission the headers are not known, and the request may still be refused.
    if (!this.#encoder) this.#isOverdue = true;
    else if (this.#body && !this.#isQuiet) this.#isQuiet = true;
    else if (!this.#body?.isBehind) this.write(this.#encoder.ping());
  }
}
