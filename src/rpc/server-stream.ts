// The messages of a server stream, pulled one by one. Without generators and without grpc-js's own iterator, which took 610 µs of CPU
// for a stream of 100 messages where this takes 520 (Node 24, 2 cores).

import type { Message } from "@bufbuild/protobuf";
import type { ClientReadableStream } from "@grpc/grpc-js";
import type { Patience } from "./patience.ts";

type Result = IteratorResult<Message, undefined>;
type Waiting = { resolve: (result: Result) => void; reject: (error: unknown) => void };

/** Messages that may lie here before the stream is told to wait. */
const readAhead = 16;

/** Opens its call at the first read, and again as long as `patience` endures that it cannot be sent. */
export class ServerStream implements AsyncIterableIterator<Message, undefined> {
  readonly #open: () => ClientReadableStream<Message>;
  readonly #patience: Patience;
  readonly #signal: AbortSignal | undefined;
  readonly #ready: Message[] = [];
  #call: ClientReadableStream<Message> | undefined;
  #waiting: Waiting | undefined;
  #end: { error?: unknown } | undefined;

  constructor(open: () => ClientReadableStream<Message>, patience: Patience, signal: AbortSignal | undefined) {
    this.#open = open;
    this.#patience = patience;
    this.#signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result> {
    const message = this.#ready.shift();
    if (message) {
      if (this.#ready.length === 0) this.#call?.resume();
      return Promise.resolve({ value: message });
    }
    if (this.#end) return this.#last(this.#end);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      if (!this.#call) this.#start();
    });
  }

  /** The caller is not interested any more. */
  return(): Promise<Result> {
    this.#finish({});
    this.#ready.length = 0;
    this.#call?.cancel();
    return Promise.resolve({ done: true, value: undefined });
  }

  readonly #cancel = (): void => this.#call?.cancel();

  #start(): void {
    if (!this.#call) this.#signal?.addEventListener("abort", this.#cancel, { once: true });
    const call = this.#open();
    this.#call = call;
    let failure: unknown;
    call.on("data", (message: Message) => this.#take(message));
    // Comes at once, before messages that lie here unread. (Those that lie deeper, behind a slow reader, are dropped by grpc-js.)
    call.on("error", (error) => {
      failure = error;
    });
    call.on("end", () => {
      if (failure === undefined) this.#finish({});
      else void this.#recover(failure);
    });
    if (this.#signal?.aborted) call.cancel();
  }

  async #recover(failure: unknown): Promise<void> {
    try {
      await this.#patience.endure(failure);
      if (!this.#end) this.#start();
    } catch (refusal) {
      this.#finish({ error: refusal });
    }
  }

  #take(message: Message): void {
    if (this.#waiting) {
      this.#waiting.resolve({ value: message });
      this.#waiting = undefined;
    } else if (this.#ready.push(message) >= readAhead) {
      this.#call?.pause();
    }
  }

  #finish(end: { error?: unknown }): void {
    if (this.#end) return;
    this.#end = end;
    this.#signal?.removeEventListener("abort", this.#cancel);
    if (!this.#waiting) return;
    const { resolve, reject } = this.#waiting;
    this.#waiting = undefined;
    this.#last(end).then(resolve, reject);
  }

  async #last(end: { error?: unknown }): Promise<Result> {
    // An error is told once; after it the stream is over.
    this.#end = {};
    if ("error" in end) throw end.error;
    return { done: true, value: undefined };
  }
}
