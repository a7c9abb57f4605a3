// One call to a provider over HTTP, as a stream of events. It hangs directly on undici's
// dispatcher, because everything between the socket and the decoder would be paid per read.

import type { IncomingHttpHeaders } from "node:http";
import type { JsonObject } from "@bufbuild/protobuf";
import type { Dispatcher } from "undici";
import type { Event, Failure } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../base/errors.ts";
import type { AnswerCodec, EventDecoder } from "../formats/codec.ts";
import { isObject, parseJson } from "../formats/json.ts";
import {
  aborted,
  failed,
  failureOfAnswer,
  failureOfEvent,
  readRetryAfterMs,
  timedOut,
} from "./failures.ts";
import type {
  ProviderCall,
  ProviderEnd,
  ProviderFailure,
  ProviderStream,
  Read,
} from "./provider.ts";
import { redactSecrets } from "./redact.ts";

/** A request that is ready to be sent. */
export type HttpRequest = {
  readonly dispatcher: Dispatcher;
  readonly path: string;
  /** Names and values by turns. */
  readonly headers: string[];
  readonly body: Buffer;
  /** Whether an event stream was asked for. */
  readonly stream: boolean;
  readonly codec: AnswerCodec;
  /** What must not be seen by a caller, should the provider repeat it. */
  readonly secrets: readonly string[];
};

// A microtask of Node's own carries a resource for async hooks, and costs several times as much.
const settled = Promise.resolve();

// A plain answer is at most 4,096 tokens long, so this bounds a provider that has gone astray.
const answerBytesMax = 64 * 1024 * 1024;
const errorBytesMax = 256 * 1024;

// Bytes that are decoded ahead of a reader that is busy; then the socket is left alone until it
// comes back.
const aheadBytesMax = 32 * 1024;

/** A running call. It is sent with the first `next`. */
export class HttpStream implements ProviderStream, Dispatcher.DispatchHandler {
  readonly #request: HttpRequest;
  readonly #call: ProviderCall;
  #isSent = false;
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  #retryAfterMs: number | undefined;
  /** What the bytes of the body are. */
  #reading: "events" | "answer" | "error" | "nothing" = "nothing";
  #decoder: EventDecoder | undefined;
  #body: Buffer[] = [];
  #bodyBytes = 0;
  /** Events that nobody has asked for yet, and how many bytes they came in. */
  #ready: Event[] = [];
  #aheadBytes = 0;
  /**
   * The events handed out last, as long as their reader cannot have looked at them: what the same
   * read still brings joins them.
   */
  #handedOut: Event[] | undefined;
  #waiter: { resolve: (read: Read) => void; reject: (apiError: ApiError) => void } | undefined;
  #end: ProviderEnd | undefined;

  constructor(request: HttpRequest, call: ProviderCall) {
    this.#request = request;
    this.#call = call;
  }

  next(): Promise<Read> {
    if (!this.#isSent) this.#send();
    if (this.#ready.length > 0) {
      const value = this.#ready;
      this.#ready = [];
      this.#aheadBytes = 0;
      this.#controller?.resume();
      return Promise.resolve({ done: false, value });
    }
    const end = this.#end;
    if (end === undefined) {
      return new Promise((resolve, reject) => {
        this.#waiter = { resolve, reject };
      });
    }
    if (end.outcome === "delivered") return Promise.resolve({ done: true, value: undefined });
    return Promise.reject(end.error);
  }

  stop(why: ApiError): void {
    if (this.#end !== undefined) return;
    this.#fail(aborted(why, this.#status));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Stopped while it waited for a connection.
    if (this.#end !== undefined) controller.abort(new Error("stopped"));
  }

  onRequestSent(): void {
    if (this.#end === undefined) this.#call.onAccepted();
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    // Nobody reads them, and they would take 3 KB for as long as the stream is open.
    controller.rawHeaders = null;
    if (status < 200 || this.#end !== undefined) return;
    this.#status = status;
    this.#retryAfterMs = readRetryAfterMs(headers);
    const kind = status >= 400 ? "error" : kindOfBody(status, headers, this.#request.stream);
    if (kind === undefined) {
      this.#fail(
        failed(status, { cause: new Error("the answer is neither an event stream nor JSON") }),
      );
      return;
    }
    this.#reading = kind;
    if (kind === "events") this.#decoder = this.#request.codec.createEventDecoder();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#end !== undefined) return;
    if (this.#decoder === undefined) {
      this.#collect(chunk);
      return;
    }
    this.#accept(() => this.#decoder?.push(chunk) ?? []);
    if (this.#ready.length === 0) return;
    this.#aheadBytes += chunk.length;
    if (this.#aheadBytes >= aheadBytesMax) this.#controller?.pause();
  }

  onResponseEnd(): void {
    if (this.#end !== undefined) return;
    if (this.#reading === "events") this.#accept(() => this.#decoder?.end() ?? []);
    else if (this.#reading === "answer") this.#accept(() => this.#readAnswer());
    else this.#fail(this.#readFailure());
    // Decoders end every answer; should one not, the reader must not wait for ever.
    if (this.#end === undefined) this.#fail(failed(this.#status, { cause: new Error("no end") }));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#end !== undefined) return;
    if (this.#reading === "error") {
      this.#fail(this.#readFailure());
      return;
    }
    this.#handHeldBack();
    this.#fail(failureOfTransport(error, this.#status));
  }

  #send(): void {
    this.#isSent = true;
    if (this.#end !== undefined) return;
    const { dispatcher, path, headers, body } = this.#request;
    dispatcher.dispatch({ method: "POST", path, headers, body }, this);
  }

  // `decode` throws an error when the provider's bytes cannot be read.
  #accept(decode: () => Event[]): void {
    let events: Event[];
    try {
      events = decode();
    } catch (error) {
      this.#fail(failed(this.#status, { cause: error }));
      return;
    }
    const last = events.at(-1)?.kind;
    if (last?.case === "failure") events.pop();
    this.#hand(events);
    if (last?.case === "failure") this.#fail(this.#readFailureEvent(last.value));
    else if (last?.case === "messageStop")
      this.#finish({ outcome: "delivered", status: this.#status });
  }

  #hand(events: Event[]): void {
    if (events.length === 0) return;
    if (this.#handedOut !== undefined) {
      this.#handedOut.push(...events);
    } else if (this.#waiter !== undefined) {
      const { resolve } = this.#waiter;
      this.#waiter = undefined;
      this.#handedOut = events;
      resolve({ done: false, value: events });
      // The reader goes on in a microtask of its own, queued before this one.
      void settled.then(this.#letGo);
    } else {
      this.#ready = this.#ready.length === 0 ? events : this.#ready.concat(events);
    }
  }

  // What the decoder kept until it would know more was produced as well, and its figures count. The
  // end that it makes up was not.
  #handHeldBack(): void {
    try {
      const events = this.#decoder?.end() ?? [];
      this.#hand(
        events.filter(({ kind }) => kind.case !== "failure" && kind.case !== "messageStop"),
      );
    } catch {
      // The connection's failure says enough.
    }
  }

  readonly #letGo = (): void => {
    this.#handedOut = undefined;
  };

  #collect(chunk: Buffer): void {
    this.#body.push(chunk);
    this.#bodyBytes += chunk.length;
    if (this.#reading === "error" && this.#bodyBytes > errorBytesMax) {
      this.#body = [];
      this.#fail(this.#readFailure());
    } else if (this.#bodyBytes > answerBytesMax) {
      this.#fail(failed(this.#status, { cause: new Error("the answer is too large") }));
    }
  }

  #readAnswer(): Event[] {
    const body = parseJson(Buffer.concat(this.#body));
    if (!isObject(body)) throw new ApiError("upstream_error");
    return this.#request.codec.decodeAnswer(body);
  }

  #readFailure(): ProviderFailure {
    const body = parseErrorBody(this.#body);
    return failureOfAnswer(
      {
        status: this.#status,
        ...(body !== undefined && { body: redactSecrets(body, this.#request.secrets) }),
        ...(this.#retryAfterMs !== undefined && { retryAfterMs: this.#retryAfterMs }),
      },
      this.#call.route.model,
    );
  }

  #readFailureEvent({ type, message }: Failure): ProviderFailure {
    const { message: shown } = redactSecrets({ message }, this.#request.secrets);
    return failureOfEvent({ type, message: String(shown) }, this.#status);
  }

  #fail(failure: ProviderFailure): void {
    this.#finish(failure);
    this.#controller?.abort(failure.error);
  }

  #finish(end: ProviderEnd): void {
    this.#end = end;
    this.#body = [];
    // What comes after the end is let in and dropped, so that the connection can carry the next
    // call.
    this.#controller?.resume();
    this.#call.onEnd(end);
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (end.outcome === "delivered") waiter?.resolve({ done: true, value: undefined });
    else waiter?.reject(end.error);
  }
}

function kindOfBody(
  status: number,
  headers: IncomingHttpHeaders,
  stream: boolean,
): "events" | "answer" | undefined {
  if (status !== 200) return undefined;
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") return undefined;
  const type = headers["content-type"]?.toLowerCase();
  if (type === undefined) return stream ? "events" : "answer";
  if (type.startsWith("text/event-stream")) return "events";
  return /^application\/([^;]*\+)?json\b/.test(type) ? "answer" : undefined;
}

function parseErrorBody(pieces: readonly Buffer[]): JsonObject | undefined {
  try {
    const body = parseJson(Buffer.concat(pieces));
    return isObject(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

function failureOfTransport(error: Error & { code?: unknown }, status: number): ProviderFailure {
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
  const isUntrusted = /CERT|SELF_SIGNED|UNABLE_TO_VERIFY/.test(code);
  if (!isUntrusted) return failure;
  return {
    ...failure,
    retry: "elsewhere",
    alarm: `the provider's certificate is not accepted: ${code}`,
  };
}
