// Counts the open requests of the listener, so that a drain can wait for them.

import type { Socket } from "node:net";
import type { FastifyReply } from "fastify";
import { WaitGroup } from "../base/wait-group.ts";

export class OpenRequests {
  readonly #busySockets = new WeakSet<Socket>();
  readonly #open = new WaitGroup();
  #isDraining = false;

  /** True once `drain` was called: new requests get 503. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** True while a request of this connection is being answered. */
  isBusy(socket: Socket): boolean {
    return this.#busySockets.has(socket);
  }

  /** Counts a request until its response is sent or its client has hung up. */
  add({ raw }: FastifyReply): void {
    const { socket } = raw;
    this.#open.add();
    if (socket) this.#busySockets.add(socket);
    raw.once("close", () => {
      if (socket) this.#busySockets.delete(socket);
      this.#open.done();
    });
  }

  /** Rejects new requests from now on. Resolves when the open ones have ended. */
  drain(): Promise<void> {
    this.#isDraining = true;
    return this.#open.wait();
  }
}
