// Counts the open requests of the listener, so that a drain can wait for them.

import type { Socket } from "node:net";
import type { FastifyReply } from "fastify";
import { WaitGroup } from "../base/wait-group.ts";

export class OpenRequests {
  readonly #replies = new WeakMap<Socket, readonly FastifyReply[]>();
  readonly #open = new WaitGroup();
  #isDraining = false;

  /** True once `drain` was called: new requests get 503. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** The open replies of a connection, oldest first. Several, if the client sends ahead. */
  repliesOn(socket: Socket): readonly FastifyReply[] {
    return this.#replies.get(socket) ?? [];
  }

  /** Counts a request until its response is sent or its client has hung up. */
  add(reply: FastifyReply): void {
    const { socket } = reply.request.raw;
    this.#open.add();
    this.#replies.set(socket, [...this.repliesOn(socket), reply]);
    reply.raw.once("close", () => {
      this.#replies.set(
        socket,
        this.repliesOn(socket).filter((one) => one !== reply),
      );
      this.#open.done();
    });
  }

  /** Rejects new requests from now on. Resolves when the open ones have ended. */
  drain(): Promise<void> {
    this.#isDraining = true;
    return this.#open.wait();
  }
}
