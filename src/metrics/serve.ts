// The listener of GET /metrics. It has a port of its own, without a credential: the figures are for
// operators, and the public port must never show them.

import { once } from "node:events";
import { createServer } from "node:http";
import { render, type Snapshot } from "./text.ts";

export type MetricsListener = {
  /** `http://host:port` */
  readonly address: string;
  close(): Promise<void>;
};

const contentType = "text/plain; version=0.0.4; charset=utf-8";

/** Port 0: any free port. Throws the error of the listener, for a port in use for example. */
export async function serveMetrics(
  { host, port, cell }: { host: string; port: number; cell?: string },
  read: () => Snapshot | Promise<Snapshot>,
): Promise<MetricsListener> {
  const server = createServer(async (request, response) => {
    request.resume();
    const isMetrics = request.url?.split("?")[0] === "/metrics";
    if (!isMetrics || (request.method !== "GET" && request.method !== "HEAD")) {
      response.writeHead(isMetrics ? 405 : 404, isMetrics ? { allow: "GET, HEAD" } : {}).end();
      return;
    }
    try {
      const text = render(await read(), cell);
      response.writeHead(200, { "content-type": contentType }).end(text);
    } catch {
      response.writeHead(500).end();
    }
  });
  server.listen(port, host);
  await once(server, "listening");
  // A scrape must not keep the process from ending.
  server.unref();
  const bound = server.address();
  const name = host.includes(":") ? `[${host}]` : host;
  return {
    address: `http://${name}:${typeof bound === "object" && bound ? bound.port : port}`,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
