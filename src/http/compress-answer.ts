// Answers of the services, compressed for a browser on a slow line: lists repeat the same names in
// every row. Answers to changes stay as they are, and so do those that everybody gets: they can
// hold a secret, whose length would tell about it beside text that a caller chose.

import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { createAsyncIterable } from "@connectrpc/connect/protocol";
import { audited, callers } from "../../gen/gateway/common/v1/options_pb.ts";

type Handler = ConnectRouter["handlers"][number];

/** Below, a packet holds the answer as it is. */
const bytesMin = 1_024;

const encoders = {
  // Quality 4 is as quick as gzip, and a tenth smaller.
  br: (bytes: Uint8Array) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (bytes: Uint8Array) => promisify(gzip)(bytes),
} as const;
type Encoding = keyof typeof encoders;

/** True: no answer of the method holds a secret. */
export function isCompressible(method: DescMethod): boolean {
  const allowed = getOption(method, callers);
  return method.methodKind === "unary" && !getOption(method, audited) && !allowed.anyone;
}

/** The same handler, whose large answers are compressed for callers that take it. */
export function compressAnswers(handler: Handler): Handler {
  if (!isCompressible(handler.method)) return handler;
  const compressing = async (request: Parameters<Handler>[0]) => {
    const response = await handler(request);
    const { header, body } = response;
    const type = header?.get("content-type") ?? "";
    // Streams and gRPC-web have envelopes with a compression of their own.
    if (!header || !body || response.status !== 200 || !/^application\/(json|proto)$/.test(type))
      return response;
    header.append("vary", "accept-encoding");
    const encoding = acceptedOf(request.header.get("accept-encoding") ?? "");
    if (!encoding || header.has("content-encoding")) return response;
    const bytes = await readAll(body);
    if (bytes.length < bytesMin) return { ...response, body: createAsyncIterable([bytes]) };
    const packed = new Uint8Array(await encoders[encoding](bytes));
    header.set("content-encoding", encoding);
    header.set("content-length", String(packed.length));
    return { ...response, body: createAsyncIterable([packed]) };
  };
  return Object.assign(compressing, handler);
}

/** What `Accept-Encoding` names, the smaller first. One with `q=0` is refused. */
function acceptedOf(header: string): Encoding | undefined {
  const accepted = header
    .toLowerCase()
    .split(",")
    .map((one) => one.trim())
    .filter((one) => !/;\s*q=0(\.0*)?$/.test(one))
    .map((one) => one.split(";")[0]?.trim());
  return (["br", "gzip"] as const).find((encoding) => accepted.includes(encoding));
}

async function readAll(body: AsyncIterable<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return new Uint8Array(Buffer.concat(parts));
}
