// GET /docs: the documents for everybody, without a credential, with their search: `/docs?q=`.

import { promisify } from "node:util";
import { brotliCompress, constants } from "node:zlib";
import type { FastifyReply, FastifyRequest } from "fastify";
import { described, text } from "../base/json-schema.ts";
import { createDocs, type DocsParts } from "../docs/docs.ts";
import type { AddressLoad } from "./connections.ts";
import type { Operation } from "./operation.ts";

export const docsOperation: Operation = {
  id: "getDocs",
  summary: "Shows the documents to people, or searches them",
  query: { q: described("Words to search for.", text) },
  answer: { "text/html": text },
};

/** A page has a folder at most. */
export const docsPaths = ["/docs", "/docs/:page", "/docs/:folder/:page"];

const policy = [
  ...["default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:"],
  ...["form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"],
  "require-trusted-types-for 'script'",
].join("; ");

/** Quick: a page is compressed once, while the first reader waits. */
const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };

export function getDocs(parts: DocsParts, addressLoad: AddressLoad) {
  const docs = createDocs(parts);
  const compressed = new WeakMap<Buffer, Promise<Buffer>>();
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    addressLoad.checkRequest(request);
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    const path = pathname.slice("/docs/".length).replace(/\/$/, "");
    const { status, type, content, etag } = await docs.answer(path, searchParams.get("q") ?? "");
    reply
      .code(status)
      .headers({
        "cache-control": etag === undefined ? "no-store" : "public, max-age=60",
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        vary: "accept-encoding",
        "x-content-type-options": "nosniff",
        "x-robots-tag": "noindex",
        ...(etag !== undefined && { etag: `W/"${etag}"` }),
      })
      .type(type);
    if (etag !== undefined && request.headers["if-none-match"]?.includes(`"${etag}"`))
      return reply.code(304).send();
    const isShrunk = etag !== undefined && type.startsWith("text/") && takesBrotli(request);
    if (!isShrunk) return reply.send(content);
    const packed = compressed.get(content) ?? promisify(brotliCompress)(content, quality);
    compressed.set(content, packed);
    return reply.header("content-encoding", "br").send(await packed);
  };
}

function takesBrotli({ headers }: FastifyRequest): boolean {
  return /(^|[\s,])br\s*(,|$)/.test(String(headers["accept-encoding"] ?? ""));
}
