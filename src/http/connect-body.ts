// Checks the body of a Connect or gRPC-web request before the library parses it. The library
// reports malformed protobuf as an internal error, does not limit the number of fields, and ignores
// unlisted enum names in JSON.

import type { ConnectRouter } from "@connectrpc/connect";
import { decodeRequest } from "../contract/decode-request.ts";
import { requestBytesMax } from "../contract/message-limits.ts";
import { rejectUnlistedNames } from "./connect-enums.ts";
import { toConnectError } from "./connect-error.ts";

type Handler = ConnectRouter["handlers"][number];
type Request = Parameters<Handler>[0];
type Bytes = AsyncIterable<Uint8Array>;

// Flag and length before a message, except that of a Connect call without streams.
const prefixBytes = 5;

/** The same handler. It rejects malformed and oversized messages with the right code. */
export function checkBody(handler: Handler): Handler {
  const { method } = handler;
  const checkMessage = (message: Buffer, isJson: boolean) => {
    if (isJson) return rejectUnlistedNames(method.input, message);
    try {
      decodeRequest(method, message);
    } catch (error) {
      throw toConnectError(error);
    }
  };
  const checked = async (request: Request) => {
    const { body } = request;
    const type = request.header.get("content-type") ?? "";
    const [, framing, codec] =
      /^application\/(connect\+|grpc-web\+)?(json|proto)\b/i.exec(type) ??
      (/^application\/grpc-web\s*(?:;|$)/i.test(type) ? ["", "grpc-web+", "proto"] : []);
    if (codec === undefined || !isBytes(body)) return handler(request);
    const isJson = codec.toLowerCase() === "json";
    const prefix = framing === undefined ? 0 : prefixBytes;
    const bytesMax = prefix + requestBytesMax(method);
    const check = (whole: Buffer) => {
      if (prefix > 0 && !isOneMessage(whole)) return;
      checkMessage(whole.subarray(prefix), isJson);
    };
    return handler({ ...request, body: checkWhole(body, bytesMax, check) });
  };
  return Object.assign(checked, handler);
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
