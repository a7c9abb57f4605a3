// The body of a streamed reply, as it goes over its connection.

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";

/** The body of a reply whose head is written and has not left yet. Its chunks are made here. */
export class ChunkedBody {
  readonly #raw: ServerResponse;
  readonly #isChunked: boolean;

  constructor(raw: ServerResponse) {
    this.#raw = raw;
    // A client of HTTP/1.0 reads until the connection ends.
    this.#isChunked = raw.chunkedEncoding;
    raw.chunkedEncoding = false;
  }

  /** Sends the head, and `text` with it. Returns as `write` does. */
  begin(text: string): boolean {
    if (text !== "") return this.#raw.write(this.#frame(text));
    this.#raw.flushHeaders();
    return true;
  }

  /** False when the reader is behind and the writer should wait until it has `drained`. */
  write(text: string): boolean {
    return this.#out.write(this.#frame(text));
  }

  /** True while the reader is behind. */
  get isBehind(): boolean {
    return this.#out.writableNeedDrain;
  }

  /** Throws when `signal` fires or the connection breaks. */
  async drained(signal: AbortSignal): Promise<void> {
    await once(this.#out, "drain", { signal });
  }

  end(text: string): void {
    this.#raw.end(this.#isChunked ? `${this.#frame(text)}0\r\n\r\n` : text);
  }

  // Node would write a chunk in four pieces, which costs more than all else that happens to a delta
  // here.
  #frame(text: string): string {
    return this.#isChunked && text !== ""
      ? `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
      : text;
  }

  // The socket itself, once the head is out: the response would cork it until the tick ends, and a
  // delta is alone in its tick. There is none while the answer to an earlier request of the
  // connection is on its way.
  get #out(): Writable {
    return this.#raw.socket ?? this.#raw;
  }
}
