// The one fake model provider: a real HTTP server on the loopback that plays scripted answers with
// the timing, the splits and the faults that a test needs, and records the requests it receives.
// `provider-answers.ts` writes the scripts in either format; `catalog.ts` writes a configuration
// that leads to it. The bench runs it as a process of its own (`test/bench/provider.ts`).
//
//   const provider = await startFakeProvider();
//   provider.play(nativeStream({ text: ["Hel", "lo"] }));           // answers the next request
//   provider.always(nativeStream({ text: ["Hello"] }));             // answers all others
//   const catalog = catalogFor({ real: { kind: "anthropic", url: provider.url } });
//   …
//   provider.requests[0]?.body                                      // a request that it received
//   await provider.stop();

import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

/** One answer. */
export type Script = {
  /** Default: 200. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** The steps of the body, in order. The head goes out with the first. */
  readonly writes?: readonly WriteStep[];
  /** After the last step: a proper end (the default), a connection reset, or no end at all. */
  readonly end?: "good" | "reset" | "hang";
  /** Cuts each text into writes of at most this many bytes. */
  readonly splitBytes?: number;
  /** Pause before each write except the first. */
  readonly pauseMs?: number;
  /** The head waits at this gate. */
  readonly before?: Gate;
};

/** A text or bytes (one write each), a gate to wait at, or a pause. */
export type WriteStep = string | Uint8Array | Gate | { readonly pauseMs: number };

/** A point in a script that waits until the test opens it. Several answers can wait at one gate. */
export class Gate {
  readonly #reached = Promise.withResolvers<void>();
  readonly #opened = Promise.withResolvers<void>();
  #waiting = 0;

  /** Resolves when the first answer waits here. */
  get reached(): Promise<void> {
    return this.#reached.promise;
  }

  /** Answers that wait here, those of clients that hung up included. */
  get waiting(): number {
    return this.#waiting;
  }

  open(): void {
    this.#opened.resolve();
  }

  /** Called by the provider; resolves when the gate opens. */
  async pass(): Promise<void> {
    this.#reached.resolve();
    this.#waiting++;
    await this.#opened.promise;
    this.#waiting--;
  }
}

/** A request that the provider received, and the progress of its answer. */
export type ReceivedRequest = {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly bodyText: string;
  /** The body as a JSON object; empty when it is something else. */
  readonly body: JsonObject;
  /** Bytes of the answer, head included, that were handed to the operating system. */
  bytesTaken(): number;
  /** Resolves with the side that ended the answer. */
  readonly over: Promise<{ by: "provider" | "client" }>;
};

export type FakeProvider = {
  /**
   * `http://127.0.0.1:port`. A native provider's base_url; a chat provider's is this plus `/v1`.
   */
  readonly url: string;
  readonly port: number;
  /** Every request received, oldest first. */
  readonly requests: readonly ReceivedRequest[];
  /** Queues scripts: each answers one request. */
  play(...scripts: (Script | Respond)[]): void;
  /** Answers every request that finds the queue empty. Before this call, the answer is a 500. */
  always(script: Script | Respond): void;
  /** The next request, or request number `count` since the start. */
  received(count?: number): Promise<ReceivedRequest>;
  /** Totals since the start. */
  readonly served: { completed: number; clientGone: number; bytes: number };
  /** Number of open connections. */
  connections(): Promise<number>;
  /** Closes everything at once. */
  stop(): Promise<void>;
};

/** Chooses the script by the request. */
export type Respond = (request: ReceivedRequest) => Script;

const noScript: Script = {
  status: 500,
  headers: { "content-type": "application/json" },
  writes: ['{"type":"error","error":{"type":"api_error","message":"no script"}}'],
};

/**
 * Starts a provider on a free port of the loopback. With `record: false` it keeps no requests, so
 * that a long load does not fill the memory.
 */
export async function startFakeProvider({ record = true } = {}): Promise<FakeProvider> {
  const requests: ReceivedRequest[] = [];
  const queue: (Script | Respond)[] = [];
  const waiting: { count: number; resolve: (request: ReceivedRequest) => void }[] = [];
  const served = { completed: 0, clientGone: 0, bytes: 0 };
  let otherwise: Script | Respond = noScript;

  const server = createServer((message, response) => {
    receive(message, response)
      .then(async (request) => {
        if (record) requests.push(request);
        for (const waiter of waiting.filter(({ count }) => count <= requests.length)) {
          waiting.splice(waiting.indexOf(waiter), 1);
          waiter.resolve(request);
        }
        const script = queue.shift() ?? otherwise;
        request.over.then(
          ({ by }) => {
            served[by === "client" ? "clientGone" : "completed"]++;
            served.bytes += request.bytesTaken();
          },
          () => {},
        );
        await perform(typeof script === "function" ? script(request) : script, response);
      })
      .catch(() => response.destroy());
  });
  server.keepAliveTimeout = 60_000;
  // The bench opens thousands of connections at once.
  server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 });
  await once(server, "listening");
  const port = portOf(server.address());

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    requests,
    served,
    play: (...scripts) => queue.push(...scripts),
    always: (script) => {
      otherwise = script;
    },
    received: (count = requests.length + 1) => {
      const already = requests[count - 1];
      if (already !== undefined) return Promise.resolve(already);
      return new Promise((resolve) => waiting.push({ count, resolve }));
    },
    connections: () =>
      new Promise((resolve, reject) =>
        server.getConnections((e, n) => (e ? reject(e) : resolve(n))),
      ),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

async function receive(
  message: IncomingMessage,
  response: ServerResponse,
): Promise<ReceivedRequest> {
  const pieces: Buffer[] = [];
  message.on("data", (piece: Buffer) => pieces.push(piece));
  await once(message, "end");
  const bytes = Buffer.concat(pieces);
  const bodyText = (
    message.headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes
  ).toString();
  let parsed: JsonObject | undefined;
  const socket: Socket = message.socket;
  const takenBefore = socket.bytesWritten;
  const over = new Promise<{ by: "provider" | "client" }>((resolve) => {
    response.once("close", () =>
      resolve({
        by: response.writableFinished || response.destroyed === false ? "provider" : "client",
      }),
    );
  });
  return {
    method: message.method ?? "",
    path: message.url ?? "",
    headers: message.headers,
    bodyText,
    get body() {
      parsed ??= parseObject(bodyText);
      return parsed;
    },
    bytesTaken: () => socket.bytesWritten - takenBefore - socket.writableLength,
    over,
  };
}

/** A JSON object, or an empty one when the text is something else. */
export function parseObject(text: string): JsonObject {
  try {
    const value: JsonValue = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

async function perform(script: Script, response: ServerResponse): Promise<void> {
  const { status = 200, headers = {}, end = "good", pauseMs = 0 } = script;
  const gone = new AbortController();
  const closed = new Promise<void>((resolve) =>
    response.once("close", () => {
      gone.abort();
      resolve();
    }),
  );
  if (script.before !== undefined) await Promise.race([script.before.pass(), closed]);
  response.socket?.setNoDelay(true);
  let isFirst = true;
  for (const step of splitWrites(script.writes ?? [], script.splitBytes)) {
    if (response.closed || response.destroyed) return;
    if (step instanceof Gate) {
      if (isFirst) response.writeHead(status, headers).flushHeaders();
      isFirst = false;
      await Promise.race([step.pass(), closed]);
      continue;
    }
    if (typeof step === "object" && "pauseMs" in step) {
      await pause(response, step.pauseMs);
      continue;
    }
    if (isFirst) response.writeHead(status, headers);
    else if (pauseMs > 0) await pause(response, pauseMs);
    isFirst = false;
    if (!response.write(step)) await once(response, "drain", gone).catch(() => undefined);
  }
  if (response.closed || response.destroyed) return;
  if (isFirst) response.writeHead(status, headers);
  if (end === "good") response.end();
  else if (end === "hang") response.flushHeaders();
  else await reset(response);
}

/** Waits for the time, or until the connection is closed: it leaves no timer behind. */
function pause(response: ServerResponse, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      response.off("close", finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    response.once("close", finish);
  });
}

// A reset makes the reader drop the bytes it has not read yet. A reader in this process gets five
// turns of the event loop to read them. For a reader in another process, end the writes with a gate
// and open it when the reader has shown that it read them.
async function reset(response: ServerResponse): Promise<void> {
  response.flushHeaders();
  for (let turn = 0; turn < 5; turn++) await setImmediate();
  response.socket?.resetAndDestroy();
}

function* splitWrites(
  writes: readonly WriteStep[],
  splitBytes: number | undefined,
): Generator<WriteStep> {
  for (const write of writes) {
    if (splitBytes === undefined || (typeof write !== "string" && !(write instanceof Uint8Array))) {
      yield write;
      continue;
    }
    const bytes = typeof write === "string" ? Buffer.from(write) : write;
    for (let at = 0; at < bytes.length; at += splitBytes) yield bytes.subarray(at, at + splitBytes);
  }
}
