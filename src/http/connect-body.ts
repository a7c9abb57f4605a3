// The body of a Connect or gRPC-web request: received within the memory budget of request bodies,
// and checked before the library parses it. The library reports malformed protobuf as an internal
// error, does not limit the number of fields, and ignores unknown names in JSON.

import {
  type ConnectRouter,
  type ContextValues,
  createContextKey,
  createContextValues,
} from "@connectrpc/connect";
import type { FastifyRequest } from "fastify";
import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { decodeRequest } from "../contract/decode-request.ts";
import { requestBytesMax } from "../contract/message-limits.ts";
import { dropBody, watchPace } from "./body.ts";
import { toConnectError } from "./connect-error.ts";
import { refuseUnknownNames } from "./connect-names.ts";
import type { KeyLoad, Turn } from "./key-load.ts";

type Handler = ConnectRouter["handlers"][number];
type Request = Parameters<Handler>[0];
type Bytes = AsyncIterable<Uint8Array>;

// Flag and length before a message, except that of a Connect call without streams.
const prefixBytes = 5;

/** Who sends a body, and with which request. */
export type Sender = {
  readonly request: FastifyRequest;
  /** Of the client. A request does not know it any more once its connection is closed. */
  readonly address: string;
  /** Known once the caller is authenticated. */
  keyId?: string;
  /** The service has the whole request: its memory may go. Absent until the body is received. */
  accepted?: () => void;
};

const sender = createContextKey<Sender | undefined>(undefined, {
  description: "the HTTP request of a call",
});

/** The context values of a call, with its sender. */
export function withSender(value: Sender): ContextValues {
  return createContextValues().set(sender, value);
}

export function senderOf(values: ContextValues): Sender | undefined {
  return values.get(sender);
}

/** What all bodies of a listener share. */
export type BodyParts = { readonly keyLoad: KeyLoad; readonly clock: Clock };

/** The same handler. It rejects malformed and oversized messages with the right code. */
export function checkBody(handler: Handler, parts: BodyParts): Handler {
  const { method } = handler;
  const checkMessage = (message: Buffer, isJson: boolean) => {
    if (isJson) return refuseUnknownNames(method, message);
    try {
      decodeRequest(method, message);
    } catch (error) {
      throw toConnectError(error);
    }
  };
  const checked = async (request: Request) => {
    const { body } = request;
    if (!isBytes(body)) return handler(request);
    const received = receive(request, body, parts);
    const type = request.header.get("content-type") ?? "";
    const [, framing, codec] =
      /^application\/(connect\+|grpc-web\+)?(json|proto)\b/i.exec(type) ??
      (/^application\/grpc-web\s*(?:;|$)/i.test(type) ? ["", "grpc-web+", "proto"] : []);
    if (codec === undefined) return handler({ ...request, body: received });
    const isJson = codec.toLowerCase() === "json";
    const prefix = framing === undefined ? 0 : prefixBytes;
    const bytesMax = prefix + requestBytesMax(method);
    const check = (whole: Buffer) => {
      if (prefix > 0 && !isOneMessage(whole)) return;
      checkMessage(whole.subarray(prefix), isJson);
    };
    return handler({ ...request, body: checkWhole(received, bytesMax, check) });
  };
  return Object.assign(checked, handler);
}

/**
 * The same bytes. The library reads them after the caller is authenticated. Their memory is counted
 * until a provider has taken the request or the call has ended.
 */
async function* receive(
  { contextValues, header, signal }: Request,
  body: Bytes,
  { keyLoad, clock }: BodyParts,
): Bytes {
  const from = contextValues && senderOf(contextValues);
  const { request, address = "", keyId } = from ?? {};
  const raw = request?.raw;
  const declared = header.get("content-length");
  const bytes = declared === null ? undefined : Number(declared);
  const turn = keyLoad.open({ keyId, address });
  // The signal fires when the response has ended, too.
  const end = () => turn.end(false);
  if (signal.aborted) end();
  signal.addEventListener("abort", end, { once: true });
  if (from) from.accepted = () => turn.accepted();
  try {
    await turn.take(bytes);
    turn.grow(bytes ?? 0);
    yield* receivePaced(body, turn, clock);
  } catch (error) {
    turn.free();
    const isSlow = error instanceof ApiError && error.reason === "body_too_slow";
    const endRead = () => (isSlow ? raw?.destroy() : raw && dropBody(raw));
    signal.addEventListener("abort", endRead, { once: true });
    throw error instanceof ApiError ? toConnectError(error) : error;
  }
}

async function* receivePaced(body: Bytes, turn: Turn, clock: Clock): Bytes {
  let length = 0;
  let stopPace = () => {};
  const slow = new Promise<never>((_, reject) => {
    stopPace = watchPace(
      clock,
      () => length,
      () => reject(new ApiError("body_too_slow")),
    );
  });
  slow.catch(() => {});
  try {
    const reader = body[Symbol.asyncIterator]();
    for (;;) {
      const read = await Promise.race([reader.next(), slow]);
      if (read.done) return;
      length += read.value.byteLength;
      turn.grow(length);
      turn.read(length);
      yield read.value;
    }
  } finally {
    stopPace();
  }
}

function isBytes(body: Request["body"]): body is Bytes {
  return typeof body === "object" && body !== null && Symbol.asyncIterator in body;
}

/** True for one uncompressed message of the declared length. The library reports other framings. */
function isOneMessage(whole: Buffer): boolean {
  return (
    whole.length >= prefixBytes &&
    whole[0] === 0 &&
    whole.readUInt32BE(1) === whole.length - prefixBytes
  );
}

/** Passes a complete body on after the check. The library rejects a body that is too large. */
async function* checkWhole(
  body: Bytes,
  bytesMax: number,
  check: (whole: Buffer) => void,
): AsyncGenerator<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.byteLength;
    if (length > bytesMax) yield* chunks.splice(0);
  }
  if (chunks.length < 1) return;
  const whole = Buffer.concat(chunks);
  if (length <= bytesMax) check(whole);
  yield whole;
}
