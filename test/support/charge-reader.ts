// Reads a stream of charges to its end, for tests that wait for what it shows.

import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { WatchChargesResponse } from "../../gen/gateway/usage/v1/usage_pb.ts";

export class ChargeReader {
  readonly messages: WatchChargesResponse[] = [];
  /** When each message came, in milliseconds. */
  readonly times: number[] = [];
  /** Resolves with what ended the stream; undefined if it ended by itself. */
  readonly ended: Promise<unknown>;
  readonly #now: () => number;
  readonly #stop = new AbortController();
  #onMessage = () => {};
  #hasEnded = false;

  constructor(
    open: (signal: AbortSignal) => AsyncIterable<WatchChargesResponse>,
    now = () => performance.now(),
  ) {
    this.#now = now;
    this.ended = this.#read(open(this.#stop.signal))
      .catch((error: unknown) => error)
      .finally(() => {
        this.#hasEnded = true;
        this.#onMessage();
      });
  }

  get charges(): Receipt[] {
    return this.messages.flatMap(({ charges }) => charges);
  }

  get ids(): string[] {
    return this.charges.map(({ requestId }) => requestId);
  }

  /** Resolves when `is` holds after a message. Throws if the stream has ended before. */
  async until(is: (reader: ChargeReader) => boolean): Promise<void> {
    while (!is(this)) {
      if (this.#hasEnded) throw new Error("the stream has ended", { cause: await this.ended });
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onMessage = resolve;
      await promise;
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.ended;
  }

  async #read(stream: AsyncIterable<WatchChargesResponse>): Promise<void> {
    for await (const message of stream) {
      this.messages.push(message);
      this.times.push(this.#now());
      this.#onMessage();
    }
  }
}
