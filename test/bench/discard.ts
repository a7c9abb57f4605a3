// A server that reads request bodies, drops them and answers 402: what an attack costs the machine
// if the gateway has nothing to do with it. Prints its port as JSON.

import { createServer } from "node:http";

const server = createServer((request, response) => {
  request.resume().once("end", () => response.writeHead(402).end("{}"));
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === "object" ? address?.port : 0 }));
});
