// Limits what one client address may hold open. Clients that connect directly are limited by their
// connections. Through a trusted proxy, whose connections serve many clients, they are limited by
// their requests in progress.

import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { FastifyReply, FastifyRequest } from "fastify";
import { addTo } from "../base/bounded-map.ts";
import { type AddressMatcher, networkOf } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";

export type AddressLimitSettings = {
  /** Connections of one address, or requests in progress of one forwarded address. */
  readonly max: number;
  /** True for an address whose connections are not limited: this machine, or a trusted proxy. */
  readonly isExempt: AddressMatcher;
};

/** One instance per listener. */
export class AddressLimit {
  readonly #settings: AddressLimitSettings;
  readonly #connections = new Map<string, number>();
  readonly #requests = new Map<string, number>();

  constructor(settings: AddressLimitSettings) {
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

  /** The client that a trusted proxy names. Undefined for a client that connects directly. */
  #forwardedClient({ ip, socket }: FastifyRequest): string | undefined {
    return ip === socket.remoteAddress ? undefined : networkOf(ip);
  }
}
