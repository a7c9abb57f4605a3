// An answer as server-sent events.

import assert from "node:assert/strict";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";
import type { FastifyReply } from "fastify";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type Refusal, toRefusal } from "../errors.ts";
import type { AnswerFormat, EventEncoder } from "./answer.ts";
import { admissionHeaders } from "./answer-headers.ts";
import { type Exchange, elapsedMs } from "./exchange.ts";
import { toStreamProblem } from "./problem.ts";
import { startRaw } from "./raw-reply.ts";

export type StreamPace = {
  /** Longest wait for the first event before the status line leaves without one. */
  readonly holdMs: number;
  /** Longest silence on an open stream. The coding assistant shows a banner after 20 s without a byte. */
  readonly pingMs: number;
};

// Before or amid an answer, 35 s of silence hold three signs of life.
export const defaultPace: StreamPace = { holdMs: 12_000, pingMs: 10_000 };

const headers = {
  "content-type": "text/event-stream; charset=utf-8",
  // Both stop proxies from buffering or rewriting the stream.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/**
 * Streams the answer. Until its first events the reply is untouched, and a failure is thrown, so that it gets its own HTTP status;
 * after that a failure becomes the last event. A reader that stops reading stops the answer at its next message.
 */
export async function sendStream(
  reply: FastifyReply,
  answer: AsyncIterable<GenerateResponse>,
  format: AnswerFormat,
  exchange: Exchange,
  signal: AbortSignal,
  pace: StreamPace,
): Promise<FastifyReply> {
  const stream = new Stream(reply, format, exchange, pace);
  try {
    for await (const { kind } of answer) {
      if (kind.case === "events") {
        const { events } = kind.value;
        // A provider's ping says nothing yet about how its answer will go.
        if (!stream.isOpen && events.every((event) => event.kind.case === "ping")) continue;
        const text = stream.encoder.encode(events);
        if (stream.isOpen && events.at(-1)?.kind.case === "messageStop") stream.keep(text);
        else if (!stream.write(text)) await stream.drained(signal);
      } else if (kind.case === "admission") stream.admit(kind.value);
      else if (kind.case === "receipt") exchange.receipt = kind.value.receipt;
    }
    stream.end();
  } catch (error) {
    if (!stream.isOpen) throw error;
    // A client that broke its connection while it was waited for is known by its socket first.
    if (signal.aborted || reply.raw.socket?.destroyed) return reply;
    const refusal = toRefusal(error);
    exchange.noted.refusal = refusal.refusal;
    stream.fail(refusal);
  } finally {
    stream.close();
  }
  return reply;
}

/** The open end of a streamed reply: when the head leaves, and that something leaves every few seconds. */
class Stream {
  readonly #reply: FastifyReply;
  readonly #raw: ServerResponse;
  readonly #format: AnswerFormat;
  readonly #exchange: Exchange;
  readonly #pace: StreamPace;
  #encoder: EventEncoder | undefined;
  #timer: NodeJS.Timeout;
  #isOverdue = false;
  #isChunked = false;
  /** True when nothing was written since the last beat. */
  #isQuiet = false;
  #kept = "";
  isOpen = false;

  constructor(reply: FastifyReply, format: AnswerFormat, exchange: Exchange, pace: StreamPace) {
    this.#reply = reply;
    this.#raw = reply.raw;
    this.#format = format;
    this.#exchange = exchange;
    this.#pace = pace;
    this.#timer = setTimeout(() => this.#beat(), pace.holdMs);
  }

  get encoder(): EventEncoder {
    if (!this.#encoder) throw new Error("events came before the admission");
    return this.#encoder;
  }

  admit(admission: Admission): void {
    this.#exchange.noted.model = admission.model;
    this.#encoder = this.#format.createEventEncoder(admission);
    this.#reply.headers(admissionHeaders(this.#format.envelope, admission));
    if (this.#isOverdue) this.#beat();
  }

  /** False when the reader is behind and the writer should wait until it has `drained`. */
  write(text: string): boolean {
    if (this.isOpen) return text === "" || this.#send(text);
    this.#open();
    // Head and first events leave together.
    if (text !== "") return this.#raw.write(this.#frame(text));
    this.#raw.flushHeaders();
    return true;
  }

  /** Lets the last events leave with the end of the stream, which is about to come. */
  keep(text: string): void {
    this.#kept += text;
  }

  /** Throws when `signal` fires or the connection breaks. */
  async drained(signal: AbortSignal): Promise<void> {
    await once(this.#out, "drain", { signal });
  }

  end(): void {
    assert(this.isOpen, "an answer that ends well has events");
    this.#end(this.encoder.end());
  }

  fail(refusal: Refusal): void {
    this.#end(this.encoder.failure(toStreamProblem(refusal, this.#format.envelope, this.#exchange.requestId)));
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #open(): void {
    this.isOpen = true;
    this.#exchange.noted.firstByteMs = elapsedMs(this.#exchange);
    startRaw(this.#reply, 200, headers);
    // A client of HTTP/1.0 reads until the connection ends.
    this.#isChunked = this.#raw.chunkedEncoding;
    this.#raw.chunkedEncoding = false;
    this.#keepAlive();
  }

  #end(last: string): void {
    const text = this.#kept + last;
    this.#raw.end(this.#isChunked ? `${this.#frame(text)}0\r\n\r\n` : text);
  }

  // Node would write a chunk in four pieces, which costs more than all else that happens to a delta here.
  #frame(text: string): string {
    return this.#isChunked && text !== "" ? `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n` : text;
  }

  #keepAlive(): void {
    clearTimeout(this.#timer);
    // Half the time, since a beat only finds out that nothing was written since the one before.
    this.#timer = setInterval(() => this.#beat(), this.#pace.pingMs / 2);
  }

  #beat(): void {
    // Without an admission the headers are not known, and the request may still be refused.
    if (!this.#encoder) {
      this.#isOverdue = true;
      return;
    }
    if (!this.isOpen) this.write(this.#encoder.ping());
    else if (!this.#isQuiet) this.#isQuiet = true;
    else if (!this.#out.writableNeedDrain) this.#send(this.#encoder.ping());
  }

  #send(text: string): boolean {
    this.#isQuiet = false;
    return this.#out.write(this.#frame(text));
  }

  // The socket itself, once the head is out: the response would cork it until the tick ends, and a delta is alone in its tick.
  // There is none while the answer to an earlier request of the connection is on its way.
  get #out(): Writable {
    return this.#raw.socket ?? this.#raw;
  }
}
