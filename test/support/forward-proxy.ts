// A real HTTP proxy on loopback, as companies have them: it opens tunnels by CONNECT and forwards
// plain requests. Every name is this machine for it, so a test may call its servers as it likes.

import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createTlsServer } from "node:https";
import { connect, type Server as NetServer, type Socket } from "node:net";
import { pipeline } from "node:stream";
import { createServer as createTlsFront } from "node:tls";
import type { Pair } from "./certificates.ts";

/** A status: it refuses with it. */
export type ProxyMood = "well" | "stalls" | "closes" | number;

export type ForwardProxy = {
  readonly port: number;
  /** Its URL for the gateway, with the password. */
  readonly url: string;
  /** Of each request: method, target and headers. */
  readonly seen: readonly Pick<IncomingMessage, "method" | "url" | "headers">[];
  /** Changes what it does from the next request on. */
  become(mood: ProxyMood): void;
  stop(): void;
};

export const proxyPassword = "the-pass-word-of-the-proxy";

/** `tls`: it is reached over TLS, as `localhost`. */
export async function startForwardProxy({
  hasPassword = false,
  tls,
}: {
  hasPassword?: boolean;
  tls?: Pair;
} = {}): Promise<ForwardProxy> {
  let mood: ProxyMood = "well";
  const seen: IncomingMessage[] = [];
  const sockets = new Set<Socket>();
  const server: Server = tls
    ? createTlsServer({ cert: tls.certificate, key: tls.privateKey })
    : createServer();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  };
  server.on("connection", keep);
  const right = `Basic ${Buffer.from(`gateway:${proxyPassword}`).toString("base64")}`;
  /** The status that refuses a request. Undefined: none does. */
  const refusal = ({ headers }: IncomingMessage) => {
    if (hasPassword && headers["proxy-authorization"] !== right) return 407;
    return typeof mood === "number" ? mood : undefined;
  };

  server.on("connect", (asked: IncomingMessage, socket: Socket, head: Buffer) => {
    seen.push(asked);
    keep(socket);
    if (mood === "stalls") return;
    if (mood === "closes") {
      socket.destroy();
      return;
    }
    const status = refusal(asked);
    if (status !== undefined) {
      socket.end(`HTTP/1.1 ${status} No\r\nproxy-authenticate: Basic\r\n\r\n`);
      return;
    }
    const far = connect(Number(asked.url?.split(":").at(-1)), "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      far.write(head);
      join(socket, far);
    });
    keep(far);
    far.on("error", () => socket.destroy());
  });

  server.on("request", (asked: IncomingMessage, answer: ServerResponse) => {
    seen.push(asked);
    if (mood === "stalls") return;
    if (mood === "closes") {
      asked.socket.destroy();
      return;
    }
    const status = refusal(asked);
    if (status !== undefined) {
      answer.writeHead(status, { "proxy-authenticate": "Basic" }).end("no");
      return;
    }
    const { "proxy-authorization": _, ...headers } = asked.headers;
    const { port, pathname, search } = new URL(asked.url ?? "");
    const { method } = asked;
    const far = request({ host: "127.0.0.1", port, path: pathname + search, method, headers });
    far.on("response", (got) => {
      answer.writeHead(got.statusCode ?? 502, got.headers);
      answer.flushHeaders();
      pipeline(got, answer, () => {});
    });
    far.on("error", () => answer.destroy());
    answer.on("close", () => far.destroy());
    asked.pipe(far);
  });

  const port = await listen(server);
  const user = hasPassword ? `gateway:${proxyPassword}@` : "";
  return {
    port,
    url: `${tls ? "https" : "http"}://${user}localhost:${port}`,
    seen,
    become(next) {
      mood = next;
    },
    stop() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Puts TLS before a server of plain HTTP. Returns its port, and what stops it. */
export async function startTlsFront(
  { certificate, privateKey }: Pair,
  behind: number,
): Promise<{ port: number; connections: () => number; stop(): void }> {
  const sockets = new Set<Socket>();
  const server = createTlsFront({ cert: certificate, key: privateKey }, (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    join(socket, connect(behind, "127.0.0.1"));
  });
  // A client that does not trust it hangs up.
  server.on("tlsClientError", () => {});
  const port = await listen(server);
  const stop = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return { port, connections: () => sockets.size, stop };
}

/** Hands on what each of them sends, and ends both with either. */
function join(one: Socket, other: Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const)
    from
      .on("error", () => to.destroy())
      .on("close", () => to.destroy())
      .pipe(to);
}

async function listen(server: NetServer): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}
