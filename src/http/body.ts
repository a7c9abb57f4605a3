// The body of a POST: received whole, unpacked, within the size limit, the memory budget and the
// lowest pace, and parsed. A key whose large requests pay for nothing waits before they are
// received. Bodies that nobody wants are read and dropped at a low rate.

import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import type { JsonValue } from "@bufbuild/protobuf";
import type { FastifyRequest } from "fastify";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { waitFor } from "../base/stopwatch.ts";
import { addHeaderTags, tagsHeader } from "../base/tags.ts";
import { lingerMs } from "./connections.ts";
import type { KeyLoad, Turn } from "./key-load.ts";
import { parseBody } from "./parse-body.ts";

/**
 * Reads the body as a JSON value. Throws `invalid_request` and the errors of `receiveBody`. Sets
 * `context.turn`, which ends when a provider has taken the request or the request has ended.
 */
export type ReadJson = (
  request: Pick<FastifyRequest, "raw" | "context" | "ip">,
) => Promise<JsonValue>;

export function createReadJson(load: KeyLoad, clock: Clock): ReadJson {
  return async ({ raw, context, ip }) => {
    checkDeclared(raw);
    requireJson(raw.headers["content-type"]);
    const keyId = context.identity?.caller.key?.keyId;
    const turn = context.turn ?? load.open({ keyId, address: ip });
    context.turn = turn;
    const isPacked = raw.headers["content-encoding"] !== undefined;
    const waiting = turn.take(isPacked ? undefined : declaredBytes(raw));
    if (waiting) await waiting;
    const receiving = receiveBody(raw, { turn, clock });
    const bytes =
      receiving instanceof Promise ? await waitFor(receiving, context.waits) : receiving;
    turn.readWhole();
    // The parser of a large body takes its bytes away.
    const { length } = bytes;
    const parsing = parseBody(bytes);
    const { value, items } = parsing instanceof Promise ? await parsing : parsing;
    turn.read(length, items);
    return value;
  };
}

/**
 * Reads a small body as its bytes, for example to check a signature over them. Throws
 * `request_too_large`, and the other errors of `receiveBody`.
 */
export type ReadRaw = (
  request: Pick<FastifyRequest, "raw" | "context" | "ip">,
  bytesMax: number,
) => Promise<Buffer>;

export function createReadRaw(load: KeyLoad, clock: Clock): ReadRaw {
  return async ({ raw, context, ip }, bytesMax) => {
    checkDeclared(raw, bytesMax);
    // The bytes as they are sent are what is signed.
    if (raw.headers["content-encoding"] !== undefined)
      throw new ApiError("request_body_encoding_unsupported", {
        message: "This body must not be packed.",
        allowed: ["identity"],
      });
    const turn = load.open({ address: ip });
    try {
      const receiving = receiveBody(raw, { turn, clock, bytesMax });
      return await waitFor(Promise.resolve(receiving), context.waits);
    } finally {
      turn.free();
    }
  };
}

function requireJson(contentType: string | undefined): void {
  if (contentType === "application/json") return;
  const type = contentType?.split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    throw new ApiError("invalid_request", { message: "content-type: must be application/json" });
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType ?? "")?.[1]?.toLowerCase();
  if (charset !== undefined && charset !== "utf-8" && charset !== "utf8") {
    throw new ApiError("invalid_request", { message: "content-type: the charset must be utf-8" });
  }
}

/**
 * Largest body, before and after decompression. A prompt of a coding assistant has 100 KB, one with
 * images tens of megabytes.
 */
export const bodyBytesMax = 32 * 1024 * 1024;

/** Time over which the pace of a body is measured, and the bytes that must arrive in it. */
export const paceMs = 10_000;
export const paceBytes = 8 * 1024 * (paceMs / 1000);

type ReceiveParts = {
  readonly turn: Turn;
  readonly clock: Clock;
  /** Default: `bodyBytesMax`. */
  readonly bytesMax?: number;
};

/**
 * Receives a whole body, after `checkDeclared`. Returns no promise for one that has come already.
 * Throws or rejects with `request_too_large`, `request_body_encoding_unsupported`,
 * `request_body_encoding_invalid`, `request_body_too_large_after_decoding`, `body_too_slow`, the
 * errors of the turn, and `cancelled` if the client hung up while sending.
 */
function receiveBody(request: IncomingMessage, parts: ReceiveParts): Buffer | Promise<Buffer> {
  const declared = declaredBytes(request);
  const encoding = request.headers["content-encoding"]?.trim().toLowerCase() ?? "";
  const isPacked = encoding !== "" && encoding !== "identity";
  if (isPacked && !isEncoding(encoding))
    throw new ApiError("request_body_encoding_unsupported", {
      allowed: ["gzip", "deflate", "br", "identity"],
    });
  parts.turn.grow(declared ?? 0);
  // A small body comes with its headers. To take it at once saves a timer and three listeners.
  const isHere = request.readableLength === declared && declared <= chunkedBelow;
  if (isHere && !isPacked && !request.destroyed) return takeWhole(request, parts);
  const whole = new WholeBody(isPacked ? undefined : declared, parts);
  const target = isPacked ? new Unpacking(encoding, whole) : whole;
  return receive(request, target, parts);
}

/** The length that the headers declare. Undefined for a body in chunks. */
function declaredBytes({ headers }: IncomingMessage): number | undefined {
  const declared = headers["content-length"];
  return declared === undefined ? undefined : Number(declared);
}

/** Throws `request_too_large` if the headers declare a body that is larger than `bytesMax`. */
function checkDeclared(request: IncomingMessage, bytesMax = bodyBytesMax): void {
  if ((declaredBytes(request) ?? 0) > bytesMax) throw tooLarge(bytesMax);
}

function tooLarge(bytesMax: number): ApiError {
  return new ApiError("request_too_large", {
    message: `The request is larger than ${bytesMax} bytes.`,
    limit: { name: "body_bytes", limit: BigInt(bytesMax) },
  });
}

/** The body of a request whose last byte has come. */
function takeWhole(request: IncomingMessage, { turn }: ReceiveParts): Buffer {
  const bytes: Buffer = request.read() ?? Buffer.alloc(0);
  // Its end has yet to come, and Node holds on to a request that has not ended.
  request.resume();
  turn.read(bytes.length);
  return bytes;
}

/** Takes the bytes of a body in order. */
interface Target {
  /** Called when bytes that were written before cannot be read. */
  onError: (error: unknown) => void;
  /** Throws an ApiError. */
  write(chunk: Buffer): void;
  /** The body, after its last byte. */
  end(): Promise<Buffer> | Buffer;
  /** Forgets everything. */
  drop(): void;
}

function receive(
  request: IncomingMessage,
  target: Target,
  { clock, turn, bytesMax = bodyBytesMax }: ReceiveParts,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // The client hung up, or its body broke off, while it was authenticated.
    if (request.destroyed) {
      reject(new ApiError("cancelled"));
      return;
    }
    let received = 0;
    const stopPace = watchPace(
      clock,
      () => received,
      () => fail(new ApiError("body_too_slow")),
    );
    const onData = (chunk: Buffer) => {
      received += chunk.length;
      try {
        if (received > bytesMax) throw tooLarge(bytesMax);
        // Of a packed body too: its bytes wait for the decompressor.
        turn.grow(received);
        target.write(chunk);
      } catch (error) {
        fail(error);
      }
    };
    const onEnd = () => {
      stop();
      try {
        resolve(target.end());
      } catch (error) {
        reject(error);
      }
    };
    const onHangUp = () => {
      if (!request.complete) fail(new ApiError("cancelled"));
    };
    // These callbacks would otherwise live until the answer ends.
    const stop = () => {
      stopPace();
      request.off("data", onData).off("end", onEnd).off("close", onHangUp);
    };
    const fail = (error: unknown) => {
      stop();
      request.pause();
      target.drop();
      reject(error);
    };
    target.onError = fail;
    // Node closes a request that broke off, and needs no listener for its error.
    request.on("data", onData).once("end", onEnd).once("close", onHangUp);
  });
}

/** Calls `onSlow` if fewer than `paceBytes` arrive in `paceMs`. Returns the function to stop. */
export function watchPace(clock: Clock, received: () => number, onSlow: () => void): () => void {
  let before = 0;
  let cancel = () => {};
  const begin = () => {
    before = received();
    cancel = clock.after(paceMs, () => (received() - before < paceBytes ? onSlow() : begin()));
  };
  begin();
  return () => cancel();
}

/** Collects a body. */
class WholeBody implements Target {
  onError = () => {};
  readonly #parts: ReceiveParts;
  /** Memory for a body of known length. The system provides its pages as they are written. */
  #whole: Buffer | undefined;
  #chunks: Buffer[] = [];
  #length = 0;

  constructor(declared: number | undefined, parts: ReceiveParts) {
    this.#parts = parts;
    if (declared !== undefined && declared > chunkedBelow)
      this.#whole = Buffer.allocUnsafeSlow(declared);
  }

  write(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    this.#parts.turn.grow(length);
    // The parser of HTTP passes on as many bytes as were declared, never more.
    if (this.#whole) {
      this.#whole.set(chunk, this.#length);
      free(chunk);
    } else this.#chunks.push(chunk);
    this.#length = length;
    this.#parts.turn.read(length);
  }

  end(): Buffer {
    const [first] = this.#chunks;
    const whole =
      this.#whole ??
      (this.#chunks.length === 1 && first ? first : Buffer.concat(this.#chunks, this.#length));
    this.drop();
    return whole;
  }

  drop(): void {
    this.#whole = undefined;
    this.#chunks = [];
  }
}

/**
 * Frees the memory of a chunk now. The garbage collector would let 64 MB of chunks pile up, and the
 * heap of the C library, which they stretch, does not shrink afterwards.
 */
function free({ buffer, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) buffer.transfer(0);
}

/** A body up to this length mostly arrives in one chunk, which needs no copy. */
const chunkedBelow = 64 * 1024;

type Encoding = "gzip" | "x-gzip" | "deflate" | "br";

function isEncoding(name: string): name is Encoding {
  return name === "gzip" || name === "x-gzip" || name === "deflate" || name === "br";
}

/** Unpacks a body while it arrives, so that one that unpacks to gigabytes is stopped early. */
class Unpacking implements Target {
  onError: (error: unknown) => void = () => {};
  readonly #encoding: Encoding;
  readonly #whole: WholeBody;
  #stream: Transform | undefined;
  #ended: Promise<void> | undefined;
  #length = 0;

  constructor(encoding: Encoding, whole: WholeBody) {
    this.#encoding = encoding;
    this.#whole = whole;
  }

  write(chunk: Buffer): void {
    this.#stream ??= this.#open(chunk);
    this.#stream.write(chunk);
  }

  async end(): Promise<Buffer> {
    this.#stream ??= this.#open(Buffer.alloc(0));
    this.#stream.end();
    await this.#ended;
    return this.#whole.end();
  }

  drop(): void {
    this.#whole.drop();
    this.#stream?.destroy();
  }

  #open(first: Buffer): Transform {
    const stream = createUnpacker(this.#encoding, first);
    this.#ended = new Promise((resolve, reject) => {
      const fail = (error: unknown) => {
        stream.destroy();
        reject(error);
        this.onError(error);
      };
      stream.on("data", (chunk: Buffer) => {
        this.#length += chunk.length;
        try {
          if (this.#length > bodyBytesMax)
            throw new ApiError("request_body_too_large_after_decoding");
          this.#whole.write(chunk);
        } catch (error) {
          fail(error);
        }
      });
      stream.once("end", resolve);
      stream.on("error", (cause) => fail(new ApiError("request_body_encoding_invalid", { cause })));
    });
    // An error before the end of the body is reported by `onError`.
    this.#ended.catch(() => {});
    return stream;
  }
}

function createUnpacker(encoding: Encoding, first: Buffer): Transform {
  if (encoding === "br") return createBrotliDecompress();
  if (encoding !== "deflate") return createGunzip();
  // "deflate" means the zlib format in HTTP, but some clients send raw deflate. The zlib format has
  // its method, 8, in the low four bits of the first byte.
  return ((first[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw();
}

/** Bytes of a rejected request that are dropped at once: most requests are smaller. */
const droppedAtOnce = 256 * 1024;
/** Reads of all other rejected bodies of the process, of up to 64 KiB each, in one pause. */
const readsPerPause = 4;
const pauseMs = 10;
/** Requests whose next read waits for a pause to end, oldest first. */
const paused = new Set<IncomingMessage>();
let pauseTimer: NodeJS.Timeout | undefined;

/**
 * Reads and drops the rest of a request that was rejected: a client may read the answer only after
 * it has sent everything. All together get 25 MB a second, so that the bodies of rejected requests
 * do not take the processor from the others.
 */
export function dropBody(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= droppedAtOnce) return;
    request.pause();
    paused.add(request);
    pauseTimer ??= setInterval(readPaused, pauseMs).unref();
  });
  // If its receiver has stopped in between.
  request.resume();
}

function readPaused(): void {
  let reads = readsPerPause;
  for (const request of paused) {
    if (reads === 0) return;
    paused.delete(request);
    if (request.destroyed) continue;
    reads -= 1;
    request.resume();
  }
  if (paused.size > 0) return;
  clearInterval(pauseTimer);
  pauseTimer = undefined;
}

/**
 * Resolves when the client has sent its whole request, or has hung up, or after two seconds. Wait
 * for it before the connection of a rejected request is closed, beside `dropBody`: closing a socket
 * with unread bytes resets it, and the reset can overtake the answer.
 */
export function whenSent(request: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    if (request.complete || request.destroyed) return resolve();
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, lingerMs);
    request.once("end", end).once("close", end);
  });
}

/** The request with the tags of its header beside its own. Throws `invalid_request`. */
export function withHeaderTags(
  request: GenerateRequest,
  headers: IncomingHttpHeaders,
): GenerateRequest {
  const header = headers[tagsHeader];
  if (header === undefined) return request;
  return { ...request, tags: { ...addHeaderTags(request.tags, header) } };
}
