// A server that stands in for an HTTP interface which speaks JSON.

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";

export type JsonCall = {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  /** Undefined: none was sent. */
  readonly body: unknown;
};

/** What is answered. A text is sent as it is, and a `Buffer` too. */
export type JsonReply = { status?: number; body: unknown };

/** How the next answers go wrong. `after`: once the call has been carried out. */
export type Trouble =
  | { kind: "status"; status: number; body?: unknown }
  | { kind: "text"; text: string }
  | { kind: "hang-up" }
  | { kind: "hang-up-after" };

export type JsonServer = {
  readonly url: string;
  readonly calls: JsonCall[];
  /** Taken one by one, by the calls whose path contains `path`. */
  readonly troubles: { path: string; trouble: Trouble }[];
  stop(): Promise<void>;
};

export async function startJsonServer(
  answer: (call: JsonCall) => JsonReply | Promise<JsonReply>,
): Promise<JsonServer> {
  const calls: JsonCall[] = [];
  const troubles: JsonServer["troubles"] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    const text = Buffer.concat(chunks).toString("utf8");
    const url = new URL(request.url ?? "/", "http://localhost");
    const call: JsonCall = {
      method: request.method ?? "",
      path: url.pathname,
      query: url.searchParams,
      headers: request.headers,
      body: text === "" ? undefined : JSON.parse(text),
    };
    calls.push(call);
    const at = troubles.findIndex(({ path }) => `${call.method} ${call.path}`.includes(path));
    const [found] = at < 0 ? [] : troubles.splice(at, 1);
    const trouble = found?.trouble;
    const send = ({ status = 200, body }: JsonReply) => {
      response.writeHead(status, { "content-type": "application/json; charset=utf-8" });
      response.end(typeof body === "string" ? body : JSON.stringify(body));
    };
    if (trouble?.kind === "hang-up") return void request.socket.destroy();
    if (trouble?.kind === "status")
      return send({ status: trouble.status, body: trouble.body ?? {} });
    if (trouble?.kind === "text") return send({ body: trouble.text });
    const reply = await answer(call);
    if (trouble?.kind === "hang-up-after") return void request.socket.destroy();
    send(reply);
  });
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    calls,
    troubles,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
