// Connections whose client has closed its side. A client may do so and still read: its request must
// get an answer. But a client that hung up looks the same, and its request must be cancelled.
//
// An interim response distinguishes them, because the system of a client that hung up rejects it,
// and the next write then fails.

import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { OpenRequests } from "./drain.ts";

/** Pauses between two interim responses. The last one repeats. */
const pausesMs = [10, 20, 70, 200, 700, 1_000] as const;

/** Makes the server answer requests whose client has closed its side of the connection. */
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
