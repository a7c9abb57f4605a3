// The replies that are not yet out, and whether new requests are taken.

import type { Socket } from "node:net";
import type { FastifyReply } from "fastify";
import { WaitGroup } from "../base/wait-group.ts";

export class OpenReplies {
  readonly #busySockets = new WeakSet<Socket>();
  readonly #open = new WaitGroup();
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
    this.#open.add();
    if (socket) this.#busySockets.add(socket);
    raw.once("close", () => {
      if (socket) this.#busySockets.delete(socket);
      this.#open.done();
    });
  }

  /** Refuses new requests from now on; resolves when those that run have ended. */
  drain(): Promise<void> {
    this.#isDraining = true;
    return this.#open.wait();
  }
}
