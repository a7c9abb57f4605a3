// Compares every JSON answer of our HTTP listener with /openapi.json, and every request that is
// served. Streams pass unread. Loaded once in each worker, which may run many files of tests.
//
// Answers of listeners in this process are looked at where they are written, for all readers; a
// listener of another process is looked at through `fetch`, which the official SDKs use too.

import { subscribe } from "node:diagnostics_channel";
import { IncomingMessage, ServerResponse } from "node:http";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import type { checker as openChecker, Place } from "./openapi.ts";

type Checker = Awaited<ReturnType<typeof openChecker>>;

let loaded: Checker | undefined;
let loading: Promise<Checker> | undefined;

/** Only when it is needed: most files have no such answers. */
async function load(): Promise<Checker> {
  loading ??= import("./openapi.ts").then(({ checker }) => checker());
  loaded = await loading;
  return loaded;
}

function placeOf(method: string, path: string, status: number, type: string): Place {
  // Some clients are set up with the version in the base address, and add it again.
  return { method, path: path.replace(/^\/v1\/v1\//, "/v1/"), status, type };
}

const real = globalThis.fetch;

globalThis.fetch = async (input, init) => {
  const response = await real(input, init);
  const type = response.headers.get("content-type") ?? "";
  const method = init?.method ?? (input instanceof Request ? input.method : "GET");
  const isOurs = /^req_/.test(response.headers.get("request-id") ?? "");
  if (!isOurs || method === "HEAD") return response;
  const place = placeOf(method, new URL(response.url).pathname, response.status, type);
  if (type === "application/json") {
    const answer: unknown = await response.clone().json();
    (await load()).check("answer", place, answer);
  }
  // Not those of processors, which write as they like.
  const sent = place.path.startsWith("/v1/") ? init?.body : undefined;
  if (response.ok && typeof sent === "string") {
    const body: unknown = JSON.parse(sent.replace(/^\uFEFF/, ""));
    (await load()).check("request", { ...place, type: "application/json" }, body);
  }
  return response;
};

const faults: unknown[] = [];
const waiting = new Set<Promise<void>>();

function checkAnswer(place: Place, text: string): void {
  const check = ({ check }: Checker) => {
    try {
      check("answer", place, JSON.parse(text));
    } catch (error) {
      faults.push(error);
    }
  };
  if (loaded) {
    check(loaded);
    return;
  }
  const done = load().then(check);
  waiting.add(done);
  void done.finally(() => waiting.delete(done));
}

subscribe("http.server.request.start", (message) => {
  const { request, response, server } = Object(message);
  // Providers of tests are servers too: only our listener answers this event.
  if (!(request instanceof IncomingMessage) || server?.listenerCount("checkExpectation") !== 1)
    return;
  if (response instanceof ServerResponse) watch(request, response);
});

/** Looks at the answer once it is written. */
function watch({ method = "", url = "" }: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  let head: Record<string, unknown> = {};
  const keep = ([chunk]: readonly unknown[]) => {
    if (typeof chunk === "string" || chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
  };
  response.write = observed(response.write, keep);
  response.end = observed(response.end, keep);
  response.writeHead = observed(response.writeHead, (args) => {
    head = { ...Object(args.at(-1)) };
  });
  response.once("finish", () => {
    const type = String(response.getHeader("content-type") ?? head["content-type"] ?? "");
    if (type !== "application/json" || method === "HEAD" || chunks.length === 0) return;
    const [path = ""] = url.split("?");
    const encoding = response.getHeader("content-encoding") ?? head["content-encoding"];
    const text = unpack(Buffer.concat(chunks), encoding).toString();
    checkAnswer(placeOf(method, path, response.statusCode, type), text);
  });
}

function unpack(bytes: Buffer, encoding: unknown): Buffer {
  if (encoding === "br") return brotliDecompressSync(bytes);
  return encoding === "gzip" ? gunzipSync(bytes) : bytes;
}

/** The same function. `look` sees the arguments of each call. */
function observed<T extends (...args: never[]) => unknown>(
  real: T,
  look: (args: readonly unknown[]) => void,
): T {
  return new Proxy(real, {
    apply(target, self, args) {
      look(args);
      return Reflect.apply(target, self, args);
    },
  });
}

/** Throws the first fault since the last call. */
export async function throwFault(): Promise<void> {
  await Promise.all(waiting);
  const [fault] = faults.splice(0);
  if (fault !== undefined) throw fault;
}
