// The connections of the listener: the open requests on them, for which a drain waits; clients that
// have closed their side; and the share of one client address.

import type { Server } from "node:http";
import { Server as NetServer, type Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import { addTo } from "../base/bounded-map.ts";
import { type AddressMatcher, networkOf } from "../base/client-address.ts";
import { aborted, withTimeout } from "../base/clock.ts";
import { ApiError, type LimitName, shuttingDown } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";

/** How long an idle connection stays open for its next request once it is to be closed. */
const idleMs = 1_000;

/** A client that still sends so long after its error does not read it. */
export const lingerMs = 2_000;

export class OpenRequests {
  readonly #replies = new Map<Socket, readonly FastifyReply[]>();
  readonly #open = new WaitGroup();
  /** Came after the drain began. They end soon, but a client can always open another. */
  readonly #late = new WaitGroup();
  readonly #stopping = new AbortController();
  #isLeaving = false;
  #isDraining = false;
  /** Resolves when the last connection has ended. Undefined until `retire`. */
  #disconnected: Promise<void> | undefined;

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
    return this.isLeaving || this.#disconnected !== undefined;
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
    if (this.endsConnections) endConnection(reply);
    reply.raw.once("close", () => {
      const others = this.repliesOn(socket).filter((one) => one !== reply);
      if (others.length > 0) this.#replies.set(socket, others);
      else this.#replies.delete(socket);
      group.done();
      onEnd?.();
    });
  }

  /** Serves requests as before, until `drain`. */
  leave(): void {
    this.#isLeaving = true;
    this.#endConnections();
  }

  /**
   * Rejects new requests from now on, and closes idle connections after a second. Resolves when the
   * open requests have ended, and those that came later too, or two seconds later.
   */
  async drain(server: Server): Promise<void> {
    if (!this.#isDraining) void closeIdleSoon(server);
    this.#isDraining = true;
    this.#endConnections();
    this.#stopping.abort(shuttingDown());
    await this.#open.wait();
    await withTimeout(this.#late.wait(), lingerMs, () => undefined);
  }

  /**
   * Leaves the port to the other processes that listen on it. Requests on connections that are open
   * are served. Resolves when no request is open.
   */
  async retire(server: Server): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#disconnected = promise;
    this.#endConnections();
    this.#stopping.abort(shuttingDown());
    // The method of the HTTP server would also close idle connections, at this moment: a client
    // that is about to send a request on one could not know whether it was read.
    NetServer.prototype.close.call(server, () => resolve());
    await this.#open.wait();
  }

  /**
   * After `retire`: resolves when the last connection has ended, by its next answer or because it
   * was idle for as long as its client was told that it may be. Once `hurry` fires, idle ones are
   * closed after a second, and it resolves when no request is open.
   */
  async disconnect(server: Server, hurry: AbortSignal): Promise<void> {
    const closed = aborted(hurry).then(() => closeIdleSoon(server));
    await Promise.race([this.#disconnected, closed]);
    await this.#open.wait();
  }

  /** Lets each open connection end with its answer. A head that is sent cannot say so any more. */
  #endConnections(): void {
    for (const replies of this.#replies.values()) for (const reply of replies) endConnection(reply);
  }
}

/** On the connection itself: replies of Connect do not pass through Fastify. */
function endConnection({ raw }: FastifyReply): void {
  if (!raw.headersSent) raw.setHeader("connection", "close");
}

/** Resolves when the idle connections are closed. */
function closeIdleSoon(server: Server): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(() => {
      server.closeIdleConnections();
      resolve();
    }, idleMs).unref();
  });
}

/** Pauses between two interim responses. The last one repeats. */
const pausesMs = [10, 20, 70, 200, 700, 1_000] as const;

/**
 * Makes the server answer requests whose client has closed its side of the connection. A client may
 * do so and still read. But one that hung up looks the same, and its request must be cancelled. An
 * interim response distinguishes them: the system of a client that hung up rejects it, and the next
 * write then fails.
 */
export function allowHalfClose(server: Server, openRequests: OpenRequests): void {
  // Without this member of Node's server, Node itself drops such requests.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on("connection", (socket: Socket) =>
    socket.on("end", () => {
      if (socket.writable) watchClient(socket, openRequests, 0);
    }),
  );
}

function watchClient(socket: Socket, openRequests: OpenRequests, probes: number): void {
  const raw = openRequests.repliesOn(socket)[0]?.raw;
  if (socket.destroyed || raw === undefined || raw.writableEnded) return;
  if (raw.headersSent) {
    // A client that leaves during a stream has hung up. For a later stream, its writes show it.
    if (probes === 0) socket.destroy();
    return;
  }
  // HTTP/1.0 has no interim responses: the client is believed to read.
  if (raw.req.httpVersionMinor === 0) return;
  raw.writeProcessing();
  const pauseMs = pausesMs[Math.min(probes, pausesMs.length - 1)];
  // Nothing clears it: after the reply it finds none that is open.
  setTimeout(() => watchClient(socket, openRequests, probes + 1), pauseMs).unref();
}

export type AddressLoadSettings = {
  /** Connections of one address, or requests in progress of one forwarded address. */
  readonly max: number;
  /** Bytes of memory of the bodies of one address. */
  readonly bodyBytesMax: number;
  /** True for an address whose connections are not limited: this machine, or a trusted proxy. */
  readonly isExempt: AddressMatcher;
};

/**
 * The load of a client address, and its limits. Clients that connect directly are limited by
 * their connections. Through a trusted proxy, whose connections serve many clients, they are
 * limited by their requests in progress. One instance per listener.
 */
export class AddressLoad {
  readonly #settings: AddressLoadSettings;
  readonly #connections = new Map<string, number>();
  readonly #requests = new Map<string, number>();
  readonly #bodyBytes = new Map<string, number>();

  constructor(settings: AddressLoadSettings) {
    this.#settings = settings;
  }

  /** Closes the further connections of an address at once. */
  limitConnections(server: Server): void {
    server.on("connection", (socket: Socket) => {
      const { remoteAddress } = socket;
      if (remoteAddress === undefined || this.#settings.isExempt(remoteAddress)) return;
      const client = networkOf(remoteAddress);
      if ((this.#connections.get(client) ?? 0) >= this.#settings.max) {
        socket.destroy();
        return;
      }
      addTo(this.#connections, client, 1);
      socket.once("close", () => addTo(this.#connections, client, -1));
    });
  }

  /** Counts a request until its reply is sent or its client has hung up. */
  countRequest(request: FastifyRequest, reply: FastifyReply): void {
    const client = this.#forwardedClient(request);
    if (client === undefined) return;
    addTo(this.#requests, client, 1);
    reply.raw.once("close", () => addTo(this.#requests, client, -1));
  }

  /** Throws `gateway_unavailable` for a request beyond the limit, which is counted already. */
  checkRequest(request: FastifyRequest): void {
    const client = this.#forwardedClient(request);
    const { max } = this.#settings;
    if (client === undefined || (this.#requests.get(client) ?? 0) <= max) return;
    throw new ApiError("gateway_unavailable", {
      message: "Too many requests from this address are in progress; try again shortly.",
      retryAfterMs: 1_000,
      limit: { name: "address_requests", limit: BigInt(max) },
    });
  }

  /** Throws `gateway_unavailable` if `client`, by `networkOf`, may not hold so many bytes more. */
  checkBytes(client: string, more: number): void {
    const { bodyBytesMax } = this.#settings;
    const used = this.#bodyBytes.get(client) ?? 0;
    if (used + more <= bodyBytesMax) return;
    throw new ApiError("gateway_unavailable", {
      message: "Requests from this address fill its share of the memory; try again shortly.",
      retryAfterMs: 1_000,
      limit: shareOf("address_body_memory_bytes", bodyBytesMax, used),
    });
  }

  addBytes(client: string, bytes: number): void {
    addTo(this.#bodyBytes, client, bytes);
  }

  /** The client that a trusted proxy names. Undefined for a client that connects directly. */
  #forwardedClient({ ip, socket }: FastifyRequest): string | undefined {
    return ip === socket.remoteAddress ? undefined : networkOf(ip);
  }
}

/** A limit and how much of it is used, for an error. */
export function shareOf(name: LimitName, limit: number, used: number) {
  return {
    name,
    limit: BigInt(limit),
    used: BigInt(used),
    remaining: BigInt(Math.max(0, limit - used)),
  };
}
