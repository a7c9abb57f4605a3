// One call to a provider over HTTP. It pushes the events of its answer. It is a handler of undici's
// dispatcher, because every layer between the socket and the decoder would cost time on each read.

import type { IncomingHttpHeaders } from "node:http";
import { Readable, type Transform } from "node:stream";
import {
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from "node:zlib";
import type { JsonObject } from "@bufbuild/protobuf";
import type { Dispatcher } from "undici";
import type { Event, Failure } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import { ProxyError } from "../base/outbound.ts";
import { isLocalShortage } from "../base/shortage.ts";
import { tlsProblemOf } from "../base/tls-problem.ts";
import { awsEventStream } from "../formats/aws-event-stream.ts";
import type { AnswerCodec, AnswerSource, EventDecoder } from "../formats/codec.ts";
import { isObject, isSound, parseAnswerJson } from "../formats/json.ts";
import {
  aborted,
  type ErrorAnswer,
  failed,
  failureOfEvent,
  readRetryAfterMs,
  short,
  timedOut,
  wordsOf,
} from "./failures.ts";
import type {
  CallReader,
  ProviderCall,
  ProviderEnd,
  ProviderFailure,
  RunningCall,
} from "./provider.ts";
import { redactSecrets, redactText } from "./redact.ts";
import {
  type Authenticator,
  CredentialError,
  type Surface,
  type UnprovenRequest,
} from "./surface.ts";

/** A request as it is sent, without the headers that prove who sends it. */
export type WrittenRequest = {
  readonly path: string;
  /** Name, value, name, value, … */
  readonly headers: readonly string[];
  readonly body: JsonObject;
  /** What is known of its answer. */
  readonly source: AnswerSource;
};

/** How requests are sent, and their answers read. */
export type HttpParts = {
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  readonly authenticator: Authenticator;
  /** True when the request is for an event stream. */
  readonly stream: boolean;
  readonly codec: AnswerCodec;
  /** Strings that are removed from error texts of the provider before a caller sees them. */
  readonly secrets: () => readonly string[];
  /** Writes the request once more. */
  readonly write: () => WrittenRequest;
  /** Decides after a refusal, with a promise if need be, whether it is written and sent again. */
  readonly mayRepeat: (answer: ErrorAnswer) => boolean | Promise<boolean>;
  readonly failureOf: (answer: ErrorAnswer, model: string) => ProviderFailure;
  /** The failure that a JSON body without an error status may be. */
  readonly failureInAnswer: Surface["failureOf"];
};

// Its `then` queues a microtask. `queueMicrotask` costs several times as much, because Node
// attaches a resource for async hooks to it.
const settled = Promise.resolve();

// A plain answer has at most 4,096 tokens, so only a provider with a fault reaches this.
const answerBytesMax = 64 * 1024 * 1024;
const errorBytesMax = 256 * 1024;
/** Longest wait for the end of the body after the end of the answer. */
const bodyEndMaxMs = 1_000;

// Its bytes have memory of their own, which takes 1.4 µs. Those that `Buffer.from` makes of a short
// text are part of a pool, all of which would stay for as long as one stream is open.
const encoder = new TextEncoder();
const decoder = new TextDecoder();

// Larger bodies of requests are forgotten once they are sent. Their stream costs 4 µs.
const keptBytesMax = 16 * 1024;

// Bytes that are decoded ahead of a reader that is behind. Beyond this, the socket is paused until
// it has caught up.
const aheadBytesMax = 32 * 1024;

export class HttpCall implements RunningCall, Dispatcher.DispatchHandler {
  readonly #parts: HttpParts;
  readonly #call: ProviderCall;
  readonly #reader: CallReader;
  #unsent: WrittenRequest | undefined;
  #source: AnswerSource;
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  /** Of an answer with an error status. */
  #errorHeaders: IncomingHttpHeaders | undefined;
  /** How the bytes of the body are read. `unknown`: of an answer that has not begun. */
  #reading: "unknown" | "events" | "answer" | "error" | "nothing" = "nothing";
  /** The media type of the answer, which is a hint. */
  #mediaType = "";
  /** Unpacks the body, if a proxy packed it although nobody asked for that. */
  #unpacker: Transform | undefined;
  #decoder: EventDecoder | undefined;
  #body: Buffer[] = [];
  #bodyBytes = 0;
  /** Events to be written, and the number of bytes that a reader is behind. */
  #ready: Event[] = [];
  #aheadBytes = 0;
  /** True while the ready events are about to be written. */
  #isWaking = false;
  /** True until the reader has caught up. */
  #isBehind = false;
  readonly #done = Promise.withResolvers<ApiError | undefined>();
  #end: ProviderEnd | undefined;
  /** True once the provider has ended the body, or its connection. */
  #hasBodyEnd = false;
  /** True once the connection serves nothing of this call any more. */
  #isReleased = false;
  #cancelTimer = () => {};

  constructor(parts: HttpParts, first: WrittenRequest, call: ProviderCall, reader: CallReader) {
    this.#parts = parts;
    this.#reader = reader;
    this.#unsent = first;
    this.#source = first.source;
    this.#call = call;
  }

  get isPlain(): boolean {
    return this.#reading === "answer";
  }

  run(): Promise<ApiError | undefined> {
    if (this.#unsent) this.#send(this.#unsent);
    return this.#done.promise;
  }

  stop(error: ApiError): void {
    // First: the reader may stop the call within a write.
    this.#ready = [];
    if (this.#end === undefined) this.#fail(aborted(error, this.#status));
    this.#done.resolve(error);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // The call was stopped while it waited for a connection.
    if (this.#end !== undefined) controller.abort(new Error("stopped"));
  }

  onRequestSent(): void {
    if (this.#end === undefined) this.#reader.accepted();
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    // Unused, and they occupy 3 KB for as long as the stream is open.
    controller.rawHeaders = null;
    if (status < 200 || this.#end !== undefined) return;
    this.#status = status;
    if (status >= 400) this.#errorHeaders = headers;
    this.#reading = status >= 400 ? "error" : "unknown";
    this.#mediaType = String(headers["content-type"] ?? "").toLowerCase();
    const encoding = String(headers["content-encoding"] ?? "identity").toLowerCase();
    const createUnpacker = unpackers.get(encoding);
    if (createUnpacker) this.#unpack(createUnpacker());
    else if (encoding !== "identity" || (status > 200 && status < 400)) this.#failUnknown();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#end !== undefined) return;
    const unpacker = this.#unpacker;
    if (!unpacker) this.#read(chunk);
    else if (!unpacker.write(chunk)) {
      this.#controller?.pause();
      unpacker.once("drain", () => this.#controller?.resume());
    }
  }

  onResponseEnd(): void {
    this.#hasBodyEnd = true;
    if (this.#end !== undefined) this.#release();
    else if (this.#unpacker) this.#unpacker.end();
    else this.#readEnd();
  }

  #unpack(unpacker: Transform): void {
    this.#unpacker = unpacker;
    unpacker.on("data", (chunk: Buffer) => {
      if (this.#end === undefined) this.#read(chunk);
    });
    unpacker.on("end", () => {
      if (this.#end === undefined) this.#readEnd();
    });
    unpacker.on("error", (error) => {
      if (this.#end === undefined) this.#failUnreadable(error);
    });
  }

  #read(chunk: Buffer): void {
    if (this.#reading === "unknown" && !this.#begin(chunk)) return;
    if (this.#decoder === undefined) {
      this.#collect(chunk);
      return;
    }
    this.#accept(() => this.#decoder?.push(chunk) ?? []);
    if (!this.#isBehind) return;
    this.#aheadBytes += chunk.length;
    if (this.#aheadBytes >= aheadBytesMax) (this.#unpacker ?? this.#controller)?.pause();
  }

  /** Finds out how the answer is read. False if it has not begun, or cannot be read. */
  #begin(chunk: Buffer): boolean {
    const kind = kindOfBody(chunk, this.#mediaType);
    if (kind === "blank") return false;
    if (kind === undefined) {
      this.#failUnknown();
      return false;
    }
    this.#reading = kind;
    const { codec } = this.#parts;
    if (kind === "events")
      this.#decoder = codec.createEventDecoder(this.#reader.takesRuns, this.#source);
    return true;
  }

  #failUnknown(): void {
    const cause = new Error("the answer is neither an event stream nor JSON");
    this.#fail(failed(this.#status, { cause }));
  }

  #readEnd(): void {
    if (this.#reading === "events") this.#accept(() => this.#decoder?.end() ?? []);
    else if (this.#reading === "answer") this.#accept(() => this.#readAnswer());
    else {
      this.#readRefusal();
      return;
    }
    // Every decoder ends its answer. Should one fail to, the reader must not wait for ever.
    if (this.#end === undefined) this.#failUnreadable(new Error("the answer has no end"));
  }

  /** Ends the call, or sends its request again where that may help. */
  #readRefusal(): void {
    const answer = this.#readError();
    const mayRepeat = this.#parts.mayRepeat(answer);
    const isWaitedFor = mayRepeat !== false && this.#reader.refused();
    const decide = (isRepeated: boolean) => {
      if (this.#end !== undefined) return;
      if (isRepeated) this.#repeat();
      else this.#fail(this.#failureOf(answer));
    };
    if (typeof mayRepeat === "boolean") decide(isWaitedFor);
    else
      mayRepeat.then(
        // The client may have left meanwhile.
        (isRepeated) => decide(isRepeated && this.#reader.refused()),
        (cause) => {
          if (this.#end === undefined) this.#fail(failed(answer.status, { cause }));
        },
      );
  }

  #repeat(): void {
    this.#controller = undefined;
    this.#status = 0;
    this.#errorHeaders = undefined;
    this.#reading = "nothing";
    this.#mediaType = "";
    this.#unpacker = undefined;
    this.#body = [];
    this.#bodyBytes = 0;
    this.#hasBodyEnd = false;
    try {
      const written = this.#parts.write();
      this.#source = written.source;
      this.#send(written);
    } catch (error) {
      this.#fail(aborted(toApiError(error), 0));
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#hasBodyEnd = true;
    if (this.#end !== undefined) {
      this.#release();
      return;
    }
    if (this.#reading === "error") {
      this.#fail(this.#failureOf(this.#readError()));
      return;
    }
    this.#flushDecoder();
    const failure = {
      ...failureOfTransport(error, this.#status),
      reason: shorten(redactText(describe(error), this.#parts.secrets())),
    };
    // Without a connection, nothing of the request was sent.
    this.#fail(this.#controller === undefined ? { ...failure, scope: "provider" } : failure);
  }

  #send({ path, headers, body }: WrittenRequest): void {
    this.#unsent = undefined;
    if (this.#end !== undefined) return;
    const text = JSON.stringify(body);
    const bytes = this.#parts.stream ? encoder.encode(text) : Buffer.from(text);
    const request = { method: "POST", path, headers, body: bytes } as const;
    const proof = this.#parts.authenticator.headers(request);
    if (!(proof instanceof Promise)) this.#dispatch(request, proof);
    else
      proof.then(
        (proved) => this.#dispatch(request, proved),
        (error: unknown) => this.#failUnproven(error),
      );
  }

  #dispatch({ path, headers, body: bytes }: UnprovenRequest, proof: readonly string[]): void {
    if (this.#end !== undefined) return;
    const all = [...headers, ...proof];
    for (const [name, value] of Object.entries(this.#call.traceHeaders ?? {}))
      all.push(name, value);
    const body = bytes.length > keptBytesMax ? forgetting(bytes) : bytes;
    this.#parts.dispatcher.dispatch({ method: "POST", path, headers: all, body }, this);
  }

  #failUnproven(cause: unknown): void {
    if (this.#end !== undefined) return;
    if (!(cause instanceof CredentialError)) {
      this.#fail(failed(0, { cause }));
      return;
    }
    const reason = shorten(redactText(cause.message, this.#parts.secrets()));
    this.#fail({ ...failed(0, { alarm: reason, cause }), reason });
  }

  // `decode` throws when the provider's bytes are malformed.
  #accept(decode: () => Event[]): void {
    let events: Event[];
    try {
      events = decode();
    } catch (error) {
      this.#failUnreadable(error);
      return;
    }
    const last = events.at(-1)?.kind;
    if (last?.case === "failure") events.pop();
    this.#deliver(events);
    if (last?.case === "failure") this.#fail(this.#readFailureEvent(last.value));
    else if (last?.case === "messageStop")
      this.#finish({ outcome: "delivered", status: this.#status });
  }

  #deliver(events: Event[]): void {
    if (events.length === 0) return;
    this.#ready = this.#ready.length === 0 ? events : this.#ready.concat(events);
    if (this.#isBehind || this.#isWaking) return;
    // undici calls once for each chunk of a socket read, all in one turn. The reader gets them
    // together, after that turn.
    this.#isWaking = true;
    void settled.then(this.#write);
  }

  readonly #write = (): void => {
    this.#isWaking = false;
    if (this.#isBehind) return;
    try {
      const waiting = this.#ready.length > 0 ? this.#reader.write(this.#ready) : undefined;
      this.#isBehind = waiting !== undefined;
      waiting?.then(this.#goOn, this.#giveUp);
    } catch (error) {
      this.stop(toApiError(error));
    }
    if (this.#isBehind) return;
    this.#ready = [];
    if (this.#end) this.#done.resolve(errorOf(this.#end));
  };

  readonly #goOn = (): void => {
    this.#isBehind = false;
    this.#aheadBytes = 0;
    (this.#unpacker ?? this.#controller)?.resume();
    this.#write();
  };

  readonly #giveUp = (error: unknown): void => this.stop(toApiError(error));

  // The connection broke. Events that the decoder still held back were produced by the provider,
  // and their usage counts. The end that the decoder adds was not.
  #flushDecoder(): void {
    try {
      const events = this.#decoder?.end() ?? [];
      this.#deliver(
        events.filter(({ kind }) => kind.case !== "failure" && kind.case !== "messageStop"),
      );
    } catch {
      // The failure of the connection is reported anyway.
    }
  }

  #collect(chunk: Buffer): void {
    this.#body.push(chunk);
    this.#bodyBytes += chunk.length;
    if (this.#reading === "error" && this.#bodyBytes > errorBytesMax) {
      this.#fail(this.#failureOf(this.#readError()));
    } else if (this.#bodyBytes > answerBytesMax) {
      this.#failUnreadable(new Error("the answer is too large"));
    }
  }

  #readAnswer(): Event[] {
    const body = parseAnswerJson(decoder.decode(Buffer.concat(this.#body)));
    if (!isObject(body) || !isSound(body, false)) throw new ApiError("upstream_error");
    const { failureInAnswer } = this.#parts;
    const failure = failureInAnswer?.({ status: this.#status, body }, this.#call.route.model);
    if (failure) {
      this.#fail(failure);
      return [];
    }
    return this.#parts.codec.decodeAnswer(body, this.#source);
  }

  #readError(): ErrorAnswer {
    const secrets = this.#parts.secrets();
    const parsed = this.#bodyBytes > errorBytesMax ? undefined : parseErrorBody(this.#body);
    const body = parsed && redactSecrets(parsed, secrets);
    const headers = this.#errorHeaders;
    const retryAfterMs = headers && readRetryAfterMs(headers);
    return {
      status: this.#status,
      reason: shorten(body ? wordsOf(body) : textOf(this.#body, secrets)),
      ...(headers && { headers }),
      ...(body !== undefined && { body }),
      ...(retryAfterMs !== undefined && { retryAfterMs }),
    };
  }

  #failureOf(answer: ErrorAnswer): ProviderFailure {
    return this.#parts.failureOf(answer, this.#call.route.model);
  }

  #readFailureEvent({ type, message, extensions }: Failure): ProviderFailure {
    const { message: redacted, ...others } = redactSecrets(
      { ...extensions, message },
      this.#parts.secrets(),
    );
    const failure = failureOfEvent(
      { type, message: String(redacted), extensions: others },
      this.#status,
    );
    return { ...failure, reason: shorten(`${type}: ${redacted}`) };
  }

  // The content of an answer depends on its request, so one that cannot be read is no verdict on
  // the provider's other answers.
  #failUnreadable(cause: unknown): void {
    this.#fail({ ...failed(this.#status, { cause }), scope: "request" });
  }

  #fail(failure: ProviderFailure): void {
    this.#finish(failure);
    this.#controller?.abort(failure.error);
  }

  #finish(end: ProviderEnd): void {
    this.#end = end;
    this.#body = [];
    this.#unpacker?.destroy();
    // Bytes after the end are read and dropped, so that the connection can serve the next call.
    this.#controller?.resume();
    this.#reader.ended(end);
    if (end.outcome !== "delivered" || this.#hasBodyEnd) this.#release();
    else
      this.#cancelTimer = this.#parts.clock.after(bodyEndMaxMs, () =>
        this.#controller?.abort(new Error("the answer has ended, and its connection has not")),
      );
    this.#write();
  }

  #release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#cancelTimer();
    this.#reader.released();
  }
}

/** The error of an end; undefined for a complete answer. */
function errorOf(end: ProviderEnd): ApiError | undefined {
  return end.outcome === "delivered" ? undefined : end.error;
}

/** The bytes as a stream that lets go of them. undici holds on to a body until the answer ends. */
function forgetting(bytes: Uint8Array): Readable {
  const unread = [bytes];
  return new Readable({
    read() {
      for (const one of unread.splice(0)) this.push(one);
      this.push(null);
    },
  });
}

const unpackers: ReadonlyMap<string, () => Transform> = new Map<string, () => Transform>([
  ["gzip", () => createGunzip()],
  ["x-gzip", () => createGunzip()],
  ["deflate", () => createInflate()],
  ["br", () => createBrotliDecompress()],
  ["zstd", () => createZstdDecompress()],
]);

/**
 * What the body is by its first bytes: some servers label their answers wrongly. Undefined for
 * what is neither events nor JSON.
 */
function kindOfBody(bytes: Buffer, mediaType: string): "events" | "answer" | "blank" | undefined {
  // Binary: its first bytes may look like anything.
  if (mediaType.startsWith(awsEventStream)) return "events";
  const begin = bytes
    .subarray(0, beginBytes)
    .toString("utf8")
    .replace(/^\ufeff/, "")
    .trimStart();
  const isLabelled = mediaType.startsWith("text/event-stream");
  // A stream may begin with empty lines, which keep the connection alive.
  if (begin === "") return isLabelled ? "events" : "blank";
  if (begin.startsWith("{")) return "answer";
  // The rest of a field's name may come with the next bytes.
  const isEvents = sseFields.some((field) => begin.startsWith(field) || field.startsWith(begin));
  return isEvents || (isLabelled && !begin.startsWith("<")) ? "events" : undefined;
}

const sseFields = ["data:", "event:", "id:", "retry:", ":"];
/** Bytes of a body that show what it is, after its blanks. */
const beginBytes = 64;

function parseErrorBody(pieces: readonly Buffer[]): JsonObject | undefined {
  try {
    const parsed = parseAnswerJson(decoder.decode(Buffer.concat(pieces)));
    // Google's endpoint reports an error in a list.
    const body = Array.isArray(parsed) && parsed.length === 1 ? parsed[0] : parsed;
    return isObject(body) && isSound(body, false) ? body : undefined;
  } catch {
    return undefined;
  }
}

/** Of an error body, this much is read for the log. */
const reasonBytesMax = 8 * 1024;
const reasonLength = 500;

/** The beginning of an error body that is not JSON, without secrets. */
function textOf(pieces: readonly Buffer[], secrets: readonly string[]): string {
  const text = Buffer.concat(pieces).subarray(0, reasonBytesMax).toString("utf8");
  return text === "" ? "no body" : redactText(text, secrets);
}

/** One line of printable text. */
function shorten(text: string): string {
  return text
    .replace(/[\p{C}\p{Z}\ufffd]+/gu, " ")
    .trim()
    .slice(0, reasonLength);
}

function describe(error: Error & { code?: unknown }): string {
  const code = typeof error.code === "string" ? error.code : error.name;
  return error.message.includes(code) ? error.message : `${code} ${error.message}`;
}

function failureOfTransport(error: Error & { code?: unknown }, status: number): ProviderFailure {
  if (isLocalShortage(error)) return short(error);
  if (error instanceof ProxyError) {
    const failure = failed(status, { alarm: error.message, cause: error });
    return error.isTimeout ? { ...failure, outcome: "timeout" } : failure;
  }
  const code = typeof error.code === "string" ? error.code : "";
  if (
    [
      "UND_ERR_CONNECT_TIMEOUT",
      "UND_ERR_HEADERS_TIMEOUT",
      "UND_ERR_BODY_TIMEOUT",
      "ETIMEDOUT",
    ].includes(code)
  ) {
    return timedOut(status, error);
  }
  const failure = failed(status, { cause: error });
  const tls = tlsProblemOf(error);
  if (!tls) return failure;
  return { ...failure, retry: "elsewhere", alarm: `the provider ${tls.text} (${code})` };
}
