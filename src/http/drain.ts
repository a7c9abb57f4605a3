// Counts the open requests of the listener, so that a drain can wait for them.

import type { Server } from "node:http";
import { Server as NetServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { FastifyReply } from "fastify";
import { shuttingDown } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { lingerMs } from "./receive-body.ts";

/** How long an idle connection stays open for its next request. */
const idleMs = 1_000;

export class OpenRequests {
  readonly #replies = new WeakMap<Socket, readonly FastifyReply[]>();
  readonly #open = new WaitGroup();
  /** Came after the drain began. They end soon, but a client can always open another. */
  readonly #late = new WaitGroup();
  readonly #stopping = new AbortController();
  #isLeaving = false;
  #isDraining = false;
  #isRetiring = false;

  /** True once `drain` was called: new requests get 503. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** True once `leave` or `drain` was called: balancers should send no more requests. */
  get isLeaving(): boolean {
    return this.#isLeaving || this.#isDraining;
  }

  /** True once `leave`, `drain` or `retire` was called: each reply ends its connection. */
  get endsConnections(): boolean {
    return this.isLeaving || this.#isRetiring;
  }

  /** Fires with `gateway_unavailable` once `drain` or `retire` was called: endless streams end. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** The open replies of a connection, oldest first. Several, if the client sends ahead. */
  repliesOn(socket: Socket): readonly FastifyReply[] {
    return this.#replies.get(socket) ?? [];
  }

  /** Open requests. */
  get count(): number {
    return this.#open.count + this.#late.count;
  }

  /** Counts a request until its response is sent or its client has hung up, and calls `onEnd`. */
  add(reply: FastifyReply, onEnd?: () => void): void {
    const { socket } = reply.request.raw;
    const group = this.#isDraining ? this.#late : this.#open;
    group.add();
    this.#replies.set(socket, [...this.repliesOn(socket), reply]);
    reply.raw.once("close", () => {
      this.#replies.set(
        socket,
        this.repliesOn(socket).filter((one) => one !== reply),
      );
      group.done();
      onEnd?.();
    });
  }

  /** Serves requests as before, until `drain`. */
  leave(): void {
    this.#isLeaving = true;
  }

  /**
   * Rejects new requests from now on, and closes idle connections after a second. Resolves when the
   * open requests have ended, and those that came later too, or two seconds later.
   */
  async drain(server: Server): Promise<void> {
    if (!this.#isDraining) setTimeout(() => server.closeIdleConnections(), idleMs).unref();
    this.#isDraining = true;
    this.#stopping.abort(shuttingDown());
    await this.#open.wait();
    await withTimeout(this.#late.wait(), lingerMs, () => undefined);
  }

  /**
   * Leaves the port to the other processes that listen on it. Connections that are open are served
   * until their next reply; idle ones are closed after a second. Resolves when no request is open.
   */
  async retire(server: Server): Promise<void> {
    this.#isRetiring = true;
    this.#stopping.abort(shuttingDown());
    // The method of the HTTP server would also close idle connections, at this moment: a client
    // that is about to send a request on one could not know whether it was read.
    NetServer.prototype.close.call(server);
    await delay(idleMs);
    server.closeIdleConnections();
    await this.#open.wait();
  }
}
