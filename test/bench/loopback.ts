// Preloaded into another project's server: makes it listen on 127.0.0.1 instead of any address.

import { Server } from "node:net";

const listen: unknown = Reflect.get(Server.prototype, "listen");

Reflect.set(Server.prototype, "listen", function (this: Server, ...parts: unknown[]): unknown {
  if (typeof listen !== "function") throw new Error("this Node has servers that cannot listen");
  const [first] = parts;
  const port = typeof first === "object" && first !== null && "port" in first ? first.port : first;
  const callback = parts.find((part) => typeof part === "function");
  return Reflect.apply(listen, this, [{ port, host: "127.0.0.1" }, callback]);
});
