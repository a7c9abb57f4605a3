// A generated answer, in the format of its caller: as one JSON body, or as a stream of server-sent
// events with keep-alive pings in its silences.

import assert from "node:assert/strict";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import { CostSchema, type Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type ApiError, toApiError } from "../base/errors.ts";
import { leftOutReasonName } from "../base/left-out.ts";
import { credits } from "../base/money.ts";
import { waitFor } from "../base/stopwatch.ts";
import { type Core, callerMsMax, callHeaders, toCaller } from "../contract/contract.ts";
import { type Generate, payingCaller, type Sink } from "../contract/generation.ts";
import { type EventEncoder, encodeCost } from "../formats/codec.ts";
import {
  callFor,
  elapsedMs,
  hijackReply,
  identityOf,
  type RequestContext,
  sendJson,
  streamHeaders,
} from "./context.ts";
import { rateHeaders, toStreamErrorBody } from "./error-body.ts";
import type { Envelope } from "./error-table.ts";

/** The parts of an answer that differ between the formats. */
export type AnswerFormat = {
  readonly envelope: Envelope;
  /** Whether the end of a stream shows the charge. */
  readonly showCost: boolean;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
  /** The whole stream of a request that fails before its answer. Absent: there is none. */
  encodeFailure?(body: JsonObject): string;
};

export type KeepAlive = {
  /** Longest wait for the first event before the status line is sent without one. */
  readonly holdMs: number;
  /** Longest silence on an open stream. A coding assistant warns after 20 s without a byte. */
  readonly pingMs: number;
};

/** The parts that the answers of all formats share. */
export type AnswerSettings = {
  readonly core: Core;
  readonly generate: Generate;
  readonly keepAlive: KeepAlive;
  /** Whether the end of a stream shows what the request was charged. */
  readonly showCost: boolean;
};

// Within 35 s of silence, before or during an answer, a client gets something three times.
export const defaultKeepAlive: KeepAlive = { holdMs: 12_000, pingMs: 10_000 };

export type Answering = AnswerSettings & {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly generateRequest: GenerateRequest;
  readonly format: AnswerFormat;
};

/**
 * Generates the answer to `generateRequest` and sends it. Nothing is sent before its first events,
 * or of a plain answer before its charge, so an earlier error is thrown and gets its own HTTP
 * status; a later one becomes the last event.
 */
export function sendAnswer(answering: Answering): Promise<FastifyReply> {
  // Only the body decides: the official SDKs send `accept: application/json` for streams as well.
  const stream = answering.generateRequest.origin?.streamed === true;
  answering.request.context.logFields.stream = stream;
  return stream ? sendStream(answering) : sendWhole(answering);
}

/** Generates the answer into `sink`. */
async function generateInto(sink: Sink, answering: Answering): Promise<Receipt> {
  const { core, generate, request, generateRequest } = answering;
  const { context } = request;
  const { caller, atMs, headers } = identityOf(request);
  // A slow body may take minutes.
  const isKnown = performance.now() - atMs < callerMsMax;
  const receipt = await generate({
    request: generateRequest,
    caller: payingCaller(
      toCaller(isKnown ? caller : await core.keys.authenticate({}, callFor(request))),
    ),
    headers: callHeaders(headers),
    requestId: context.requestId,
    isNewId: request.headers["x-request-id"] !== context.requestId,
    sink,
    client: context.hangUp.signal,
    waits: context.waits,
  });
  context.receipt = receipt;
  return receipt;
}

async function sendWhole(answering: Answering): Promise<FastifyReply> {
  const { reply, format } = answering;
  const whole = new WholeAnswer(answering);
  const receipt = await generateInto(whole, answering);
  const { admission, events } = whole;
  assert(admission, "a complete answer has an admission");
  const { requestId, chargedMicrocredits: amountMicrocredits, leftOut } = receipt;
  reply.header("x-gateway-cost-credits", credits(amountMicrocredits));
  const body = format.encodeAnswer(events, admission);
  if (leftOut.length === 0) return sendJson(reply, body);
  reply.header(leftOutHeader, writeLeftOut(leftOut));
  const cost = create(CostSchema, { requestId, chargedMicrocredits: amountMicrocredits, leftOut });
  return sendJson(reply, format.showCost ? { ...body, gateway: encodeCost(cost) } : body);
}

/** Collects an answer that is sent in one piece, after its charge. */
class WholeAnswer implements Sink {
  readonly takesRuns = false;
  readonly events: Event[] = [];
  admission: Admission | undefined;
  readonly #answering: Answering;

  constructor(answering: Answering) {
    this.#answering = answering;
  }

  accepted(): void {
    this.#answering.request.context.turn?.accepted();
  }

  admit(admission: Admission): void {
    const { request, reply, format } = this.#answering;
    this.admission = admission;
    request.context.logFields.model = admission.model;
    reply.headers(admissionHeaders(format.envelope, admission));
  }

  write(events: Event[]): boolean {
    this.events.push(...events);
    return true;
  }

  async drained(): Promise<void> {}
}

/** A client that stops reading stops the answer at its next read. */
async function sendStream(answering: Answering): Promise<FastifyReply> {
  const { request, reply, format } = answering;
  const { context } = request;
  const { signal } = request.context.hangUp;
  context.writeFailure = format.encodeFailure;
  const out = new EventStreamReply(answering);
  try {
    await generateInto(out, answering);
    out.end();
  } catch (error) {
    if (!out.isOpen) throw error;
    // A broken connection may show on the socket before the signal.
    if (signal.aborted || reply.raw.socket?.destroyed) return reply;
    const apiError = toApiError(error);
    context.logFields.error = apiError.reason;
    out.fail(apiError);
  } finally {
    out.close();
  }
  return reply;
}

/** A reply of server-sent events: decides when its head is sent, and fills its silences. */
class EventStreamReply implements Sink {
  readonly takesRuns = true;
  readonly #reply: FastifyReply;
  readonly #format: AnswerFormat;
  readonly #context: RequestContext;
  readonly #keepAlive: KeepAlive;
  readonly #signal: AbortSignal;
  #leftOut: readonly LeftOut[] = [];
  #encoder: EventEncoder | undefined;
  #body: ChunkedBody | undefined;
  #timer: NodeJS.Timeout;
  /** True if the wait for the first event ended before the admission came. */
  #isOverdue = false;
  /** True if nothing was written since the last tick. */
  #isQuiet = false;
  #deferred = "";

  constructor({ request, reply, format, keepAlive }: Answering) {
    this.#reply = reply;
    this.#format = format;
    this.#context = request.context;
    this.#keepAlive = keepAlive;
    this.#signal = request.context.hangUp.signal;
    this.#timer = setTimeout(() => this.#tick(), keepAlive.holdMs);
  }

  accepted(): void {
    this.#context.turn?.accepted();
  }

  /** True once the head is sent. */
  get isOpen(): boolean {
    return this.#body !== undefined;
  }

  get #started(): EventEncoder {
    if (!this.#encoder) throw new Error("events came before the admission");
    return this.#encoder;
  }

  admit(admission: Admission): void {
    this.#context.logFields.model = admission.model;
    this.#leftOut = admission.leftOut;
    this.#encoder = this.#format.createEventEncoder(admission);
    this.#reply.headers(admissionHeaders(this.#format.envelope, admission));
    if (this.#isOverdue) this.#tick();
  }

  write(events: Event[]): boolean {
    // A provider's ping does not show yet whether the answer will succeed.
    if (!this.isOpen && events.every((event) => event.kind.case === "ping")) return true;
    const first = events[0]?.kind;
    if (first?.case === "messageStart" && first.value.leftOut.length > 0)
      this.#leftOut = [...this.#leftOut, ...first.value.leftOut];
    const text = this.#started.encode(events);
    const isEnd = this.isOpen && events.at(-1)?.kind.case === "messageStop";
    if (!isEnd) return this.#send(text);
    // In one write with the end of the stream.
    this.#deferred += text;
    return true;
  }

  #send(text: string): boolean {
    // The head and the first events are sent in one write.
    if (!this.#body) return this.#open().begin(text);
    if (text === "") return true;
    this.#isQuiet = false;
    return this.#body.write(text);
  }

  drained(): Promise<void> {
    const drained = this.#body?.drained(this.#signal) ?? Promise.resolve();
    return waitFor(drained, this.#context.waits);
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
    this.#context.logFields.firstByteMs = elapsedMs(this.#context);
    // As far as it is known before the first byte.
    if (this.#leftOut.length > 0) this.#reply.header(leftOutHeader, writeLeftOut(this.#leftOut));
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
    else if (!this.#body?.isBehind) this.#send(this.#encoder.ping());
  }
}

const leftOutHeader = "x-gateway-left-out";
const [leftOutMax, leftOutCharacters] = [20, 1_000];

/**
 * Parts of a request that its provider did not get, for a header: `seed=seed;member`, with `;3`
 * after it for three of them. Of long lists the beginning, and the number of the others.
 */
function writeLeftOut(entries: readonly LeftOut[]): string {
  const shown: string[] = [];
  let length = 0;
  for (const { where, what, why, count } of entries.slice(0, leftOutMax)) {
    const times = count > 1 ? `;${count}` : "";
    const entry = `${headerText(where)}=${headerText(what)};${leftOutReasonName(why)}${times}`;
    length += entry.length + 2;
    if (length > leftOutCharacters) break;
    shown.push(entry);
  }
  const rest = entries.length - shown.length;
  return [...shown, ...(rest > 0 ? [`+${rest}`] : [])].join(", ");
}

/** The text with all characters escaped that separate entries, or that no header may have. */
function headerText(text: string): string {
  return text
    .toWellFormed()
    .replace(/[^\w.[\]$/:@-]/gu, (character) => encodeURIComponent(character));
}

/** The headers of an admitted request: a reduced output limit, and the state of the rate limit. */
function admissionHeaders(envelope: Envelope, admission: Admission): Record<string, string> {
  const { rateLimit, grantedMaxTokens, requestedMaxTokens } = admission;
  const headers: Record<string, string> = {};
  if (grantedMaxTokens < requestedMaxTokens)
    headers["x-gateway-max-tokens"] = String(grantedMaxTokens);
  if (rateLimit) {
    const resetsAt = rateLimit.resetsAt && timestampDate(rateLimit.resetsAt);
    Object.assign(headers, rateHeaders(envelope, { ...rateLimit, resetsAt }));
  }
  return headers;
}

/**
 * The body of a reply whose head is written but not yet sent. It frames its own HTTP chunks: Node
 * writes a chunk in four pieces, which costs more than everything else that happens to a delta in
 * this listener.
 */
class ChunkedBody {
  readonly #raw: ServerResponse;
  readonly #isChunked: boolean;

  constructor(raw: ServerResponse) {
    this.#raw = raw;
    // False for an HTTP/1.0 client, which reads until the connection closes.
    this.#isChunked = raw.chunkedEncoding;
    raw.chunkedEncoding = false;
  }

  /** Sends the head, and `text` in the same write. Returns the same as `write`. */
  begin(text: string): boolean {
    if (text !== "") return this.#raw.write(this.#frame(text));
    this.#raw.flushHeaders();
    return true;
  }

  /** Returns false if the reader is behind: the caller should wait for `drained`. */
  write(text: string): boolean {
    return this.#out.write(this.#frame(text));
  }

  /** True while the reader is behind. */
  get isBehind(): boolean {
    return this.#out.writableNeedDrain;
  }

  /** Resolves when the reader has caught up. Throws if `signal` fires or the connection breaks. */
  async drained(signal: AbortSignal): Promise<void> {
    await once(this.#out, "drain", { signal });
  }

  end(text: string): void {
    this.#raw.end(this.#isChunked ? `${this.#frame(text)}0\r\n\r\n` : text);
  }

  #frame(text: string): string {
    return this.#isChunked && text !== ""
      ? `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
      : text;
  }

  // The socket itself: the response would cork it until the end of the tick, which gains nothing
  // for a delta, since it is alone in its tick. The response has no socket yet while an earlier
  // request of the connection is being answered (pipelining).
  get #out(): Writable {
    return this.#raw.socket ?? this.#raw;
  }
}
