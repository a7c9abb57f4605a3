// The body of a POST: read whole, decompressed and parsed, within one size limit at every step.

import type { IncomingMessage } from "node:http";
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate, inflateRaw } from "node:zlib";
import type { JsonValue } from "@bufbuild/protobuf";
import type { FastifyRequest } from "fastify";
import { ApiError } from "../base/errors.ts";
import { parseBody } from "./parse-body.ts";

/**
 * Largest body, before and after decompression. A prompt of a coding assistant has 100 KB, one with
 * images tens of megabytes.
 */
export const bodyBytesMax = 32 * 1024 * 1024;

/**
 * Reads the body as a JSON value. Throws `request_too_large`, `invalid_request`,
 * `request_body_encoding_unsupported`, `request_body_encoding_invalid` or
 * `request_body_too_large_after_decoding`, and `cancelled` if the client hung up while sending.
 * Sets `context.bodyBytes`.
 */
export async function readJson({
  raw,
  context,
}: Pick<FastifyRequest, "raw" | "context">): Promise<JsonValue> {
  const { headers } = raw;
  if (Number(headers["content-length"]) > bodyBytesMax) throw tooLarge();
  requireJson(headers["content-type"]);
  const decompress = decompressorFor(headers["content-encoding"]);
  const received = await readBytes(raw);
  context.bodyBytes = received.length;
  const bytes = decompress ? await decompress(received) : received;
  context.bodyBytes = bytes.length;
  return parseBody(bytes);
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
    // The client hung up, or its body broke off, while it was authenticated.
    if (request.destroyed) {
      reject(new ApiError("cancelled"));
      return;
    }
    let chunks: Buffer[] = [];
    let length = 0;
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= bodyBytesMax) {
        chunks.push(chunk);
        return;
      }
      // The rest is read and dropped until the error is sent.
      chunks = [];
      reject(tooLarge());
    });
    request.once("end", () => {
      resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, length));
      // These callbacks live until the answer ends; the body must not.
      chunks = [];
    });
    const onHangUp = () => {
      if (!request.complete) reject(new ApiError("cancelled"));
    };
    request.once("error", onHangUp);
    request.once("close", onHangUp);
  });
}

type Decompress = (bytes: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>;

// "deflate" means the zlib format in HTTP, but some clients send raw deflate. The zlib format has
// its method, 8, in the low four bits of the first byte.
const decompressDeflate: Decompress = (bytes, options) =>
  ((bytes[0] ?? 0) & 0x0f) === 8
    ? promisify<Buffer, object, Buffer>(inflate)(bytes, options)
    : promisify<Buffer, object, Buffer>(inflateRaw)(bytes, options);

const decompressors: Record<string, Decompress> = {
  gzip: promisify<Buffer, object, Buffer>(gunzip),
  "x-gzip": promisify<Buffer, object, Buffer>(gunzip),
  deflate: decompressDeflate,
  br: promisify<Buffer, object, Buffer>(brotliDecompress),
};

function decompressorFor(
  contentEncoding: string | undefined,
): ((bytes: Buffer) => Promise<Buffer>) | undefined {
  const encoding = contentEncoding?.trim().toLowerCase() ?? "";
  if (encoding === "" || encoding === "identity") return undefined;
  const decompress = Object.hasOwn(decompressors, encoding) ? decompressors[encoding] : undefined;
  if (!decompress)
    throw new ApiError("request_body_encoding_unsupported", {
      allowed: ["gzip", "deflate", "br", "identity"],
    });
  // Decompression stops at the limit, so a small body that expands to gigabytes does no harm.
  return (bytes) =>
    decompress(bytes, { maxOutputLength: bodyBytesMax }).catch((error: unknown) => {
      const isTooLarge =
        error instanceof RangeError && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE";
      throw new ApiError(
        isTooLarge ? "request_body_too_large_after_decoding" : "request_body_encoding_invalid",
        { cause: error },
      );
    });
}
