// F0, the baseline of the gateway: node:http in, undici out, bytes forwarded unread. A process of
// its own.

import { createServer } from "node:http";
import { Pool } from "undici";

const pool = new Pool(process.argv[2] ?? "", { connections: 256 });

const server = createServer((request, response) => {
  pool
    .stream(
      {
        path: request.url ?? "/",
        method: request.method === "GET" ? "GET" : "POST",
        headers: {
          "content-type": "application/json",
          "content-length": request.headers["content-length"] ?? "0",
        },
        body: request,
      },
      ({ statusCode, headers }) => {
        response.writeHead(statusCode, { "content-type": String(headers["content-type"]) });
        return response;
      },
    )
    .catch(() => response.destroy());
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === "object" ? address?.port : 0 }));
});
