// The body of a POST: read whole, unpacked and parsed, within one limit at every step.

import type { IncomingMessage } from "node:http";
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate, inflateRaw } from "node:zlib";
import type { JsonValue } from "@bufbuild/protobuf";
import { ApiError } from "../base/errors.ts";
import { hasMoreItems, jsonItemsMax, parseJson, tooManyItems } from "../formats/json.ts";

/**
 * Largest body, before and after unpacking. One prompt of a coding assistant is 100 KB, one with
 * images tens of megabytes.
 */
export const bodyBytesMax = 32 * 1024 * 1024;

/**
 * The JSON value of the body. Throws `request_too_large`, `invalid_request`,
 * `request_body_encoding_unsupported`, `request_body_encoding_invalid` or
 * `request_body_too_large_after_decoding`, and `cancelled` when the client left while sending.
 */
export async function readJson(request: IncomingMessage): Promise<JsonValue> {
  const { headers } = request;
  if (Number(headers["content-length"]) > bodyBytesMax) throw tooLarge();
  requireJson(headers["content-type"]);
  const unpack = unpackerOf(headers["content-encoding"]);
  const bytes = await readBytes(request);
  return parseBody(unpack ? await unpack(bytes) : bytes);
}

function parseBody(bytes: Buffer): JsonValue {
  if (hasMoreItems(bytes, jsonItemsMax)) throw tooManyItems(jsonItemsMax);
  return parseJson(bytes);
}

function tooLarge(): ApiError {
  return new ApiError("request_too_large", {
    message: `The request is larger than ${bodyBytesMax} bytes.`,
    limit: { name: "body_bytes", limit: BigInt(bodyBytesMax) },
  });
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

function readBytes(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let length = 0;
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= bodyBytesMax) {
        chunks.push(chunk);
        return;
      }
      // Whatever still comes is read and dropped, until the answer is out.
      chunks = [];
      reject(tooLarge());
    });
    request.once("end", () => {
      resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, length));
      // The listeners live as long as the answer, and must not keep the body that long.
      chunks = [];
    });
    const left = () => {
      if (!request.complete) reject(new ApiError("cancelled"));
    };
    request.once("error", left);
    request.once("close", left);
  });
}

type Unpack = (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>;

// HTTP's "deflate" means the zlib form, but some clients send the bare one; the zlib form names its
// method in the low four bits.
const unpackDeflate: Unpack = (bytes, options) =>
  ((bytes[0] ?? 0) & 0x0f) === 8
    ? promisify<Buffer, object, Buffer>(inflate)(bytes, options)
    : promisify<Buffer, object, Buffer>(inflateRaw)(bytes, options);

const unpackers: Record<string, Unpack> = {
  gzip: promisify<Buffer, object, Buffer>(gunzip),
  "x-gzip": promisify<Buffer, object, Buffer>(gunzip),
  deflate: unpackDeflate,
  br: promisify<Buffer, object, Buffer>(brotliDecompress),
};

function unpackerOf(
  contentEncoding: string | undefined,
): ((bytes: Buffer) => Promise<Buffer>) | undefined {
  const encoding = contentEncoding?.trim().toLowerCase() ?? "";
  if (encoding === "" || encoding === "identity") return undefined;
  const unpack = Object.hasOwn(unpackers, encoding) ? unpackers[encoding] : undefined;
  if (!unpack)
    throw new ApiError("request_body_encoding_unsupported", {
      allowed: ["gzip", "deflate", "br", "identity"],
    });
  // The limit counts while unpacking: a small body that unpacks to gigabytes stops at the limit.
  return (bytes) =>
    unpack(bytes, { maxOutputLength: bodyBytesMax }).catch((error: unknown) => {
      const isTooLarge =
        error instanceof RangeError && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE";
      throw new ApiError(
        isTooLarge ? "request_body_too_large_after_decoding" : "request_body_encoding_invalid",
        {
          cause: error,
        },
      );
    });
}
