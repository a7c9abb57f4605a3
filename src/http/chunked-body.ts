// The body of a streamed reply. It frames its own HTTP chunks: Node writes a chunk in four pieces,
// which costs more than everything else that happens to a delta in this listener.

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";

/** The body of a reply whose head is written but not yet sent. */
export class ChunkedBody {
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
