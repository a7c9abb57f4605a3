// Parses request bodies. Large ones are parsed in worker threads, so that they do not block the
// other requests of the process.

import { setImmediate } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { ApiError, type ErrorFacts, type ErrorReason } from "../base/errors.ts";
import { type ParsedRequest, parseRequest } from "../formats/json.ts";

/**
 * Largest body that is parsed at once. Parsing takes up to 20 ms for a megabyte, and finding the
 * fault of a malformed one 35 ms. The way to a worker and back takes about a millisecond.
 */
export const parsedAtOnceMax = 1024 * 1024;

/** Largest body that is parsed and decoded in one turn of the event loop. */
const sameTurnMax = 64 * 1024;

/** More workers would take the processor from the requests of others. */
const workersMax = 2;
/** A worker that had nothing to do for this time ends, and gives its memory back. */
const idleMs = 10_000;

/** What a worker answers. */
export type Parsed = ParsedRequest | { readonly reason: ErrorReason; readonly facts: ErrorFacts };

type Job = {
  readonly bytes: Uint8Array;
  readonly resolve: (parsed: ParsedRequest) => void;
  readonly reject: (error: unknown) => void;
};

/** Bodies that wait for a worker. The memory of all bodies is bounded, and so is their number. */
const waiting: Job[] = [];
const workers = new Set<ParseWorker>();

/**
 * Parses a request body as `parseRequest` does, a small one at once. The bytes must not be used
 * afterwards: a worker takes their memory.
 */
export function parseBody(bytes: Uint8Array): ParsedRequest | Promise<ParsedRequest> {
  return bytes.length <= sameTurnMax ? parseRequest(bytes) : parseLarge(bytes);
}

async function parseLarge(bytes: Uint8Array): Promise<ParsedRequest> {
  const isAtOnce = bytes.length <= parsedAtOnceMax;
  const parsed = isAtOnce ? parseRequest(bytes) : await parseInWorker(bytes);
  // Decoding a value of many items takes longer than parsing it, and gets a turn of its own.
  await setImmediate();
  return parsed;
}

function parseInWorker(bytes: Uint8Array): Promise<ParsedRequest> {
  return new Promise((resolve, reject) => {
    waiting.push({ bytes, resolve, reject });
    startWaiting();
  });
}

function startWaiting(): void {
  for (const worker of workers) if (worker.isFree) startSmallest(worker);
  if (waiting.length === 0 || workers.size >= workersMax) return;
  const worker = new ParseWorker();
  workers.add(worker);
  startSmallest(worker);
}

// The smallest body first: a few very large ones do not delay the others.
function startSmallest(worker: ParseWorker): void {
  const job = waiting.reduce<Job | undefined>(
    (smallest, one) => (smallest && smallest.bytes.length <= one.bytes.length ? smallest : one),
    undefined,
  );
  if (job === undefined) return;
  waiting.splice(waiting.indexOf(job), 1);
  worker.start(job);
}

/** A worker thread, which parses one body at a time. */
class ParseWorker {
  // Without the environment, which holds secrets.
  readonly #thread = new Worker(new URL("./parse-worker.ts", import.meta.url), {
    env: {},
    execArgv: [],
  });
  #job: Job | undefined;
  #idleTimer: NodeJS.Timeout | undefined;

  constructor() {
    this.#thread.on("message", (parsed: Parsed) => this.#finish(parsed));
    this.#thread.on("error", (error) => this.#fail(error));
    this.#thread.on("exit", () => this.#fail(new Error("the worker that parses bodies ended")));
  }

  get isFree(): boolean {
    return this.#job === undefined;
  }

  start(job: Job): void {
    clearTimeout(this.#idleTimer);
    this.#job = job;
    this.#thread.ref();
    const { bytes } = job;
    // A buffer that shares its memory with others is copied.
    const isWhole = bytes.byteLength === bytes.buffer.byteLength;
    this.#thread.postMessage(
      bytes,
      isWhole && bytes.buffer instanceof ArrayBuffer ? [bytes.buffer] : [],
    );
  }

  #finish(parsed: Parsed): void {
    const job = this.#job;
    this.#job = undefined;
    this.#thread.unref();
    this.#idleTimer = setTimeout(() => this.#close(), idleMs).unref();
    startWaiting();
    if ("value" in parsed) job?.resolve(parsed);
    else job?.reject(new ApiError(parsed.reason, parsed.facts));
  }

  #close(): void {
    workers.delete(this);
    void this.#thread.terminate();
  }

  #fail(error: unknown): void {
    clearTimeout(this.#idleTimer);
    workers.delete(this);
    const job = this.#job;
    this.#job = undefined;
    job?.reject(error);
    startWaiting();
  }
}
