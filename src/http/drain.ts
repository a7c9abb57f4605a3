// The replies that are not yet out, and whether new requests are taken.

import type { Socket } from "node:net";
import type { FastifyReply } from "fastify";

export class OpenReplies {
  readonly #busySockets = new WeakSet<Socket>();
  readonly #waiting: (() => void)[] = [];
  #count = 0;
  #isDraining = false;

  /** True once new requests are refused. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** True while an answer is under way on this connection. */
  isBusy(socket: Socket): boolean {
    return this.#busySockets.has(socket);
  }

  /** Counts a request until its answer is out or its client gone. */
  add({ raw }: FastifyReply): void {
    const { socket } = raw;
    this.#count++;
    if (socket) this.#busySockets.add(socket);
    raw.once("close", () => {
      this.#count--;
      if (socket) this.#busySockets.delete(socket);
      if (this.#count === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    });
  }

  /** Refuses new requests from now on; resolves when those that run have ended. */
  drain(): Promise<void> {
    this.#isDraining = true;
    return this.#count === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
