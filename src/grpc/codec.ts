// Encodes and decodes messages and metadata of gRPC calls with protobuf-es.

import {
  type DescMessage,
  type DescMethod,
  fromBinary,
  type Message,
  toBinary,
} from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { ApiError } from "../base/errors.ts";
import { recursionLimit } from "../contract/message-limits.ts";

/** The path of a method in a gRPC call. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Encodes a message without copying the bytes. */
export function encodeMessage(type: DescMessage, message: Message): Buffer {
  const bytes = toBinary(type, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Decodes a message from a trusted peer. */
export function decodeMessage(type: DescMessage, bytes: Uint8Array): Message {
  return fromBinary(type, bytes, { recursionLimit });
}

/**
 * The cell for which a facade means a call, and the id of its database where the facade knows it:
 * `07` or `07/ins_…`. Other facades send none.
 */
export const cellHeader = "x-cell";

/** The most bytes of all metadata names and values of one call. */
const metadataBytesMax = 16 * 1024;

// Authentication before reading and the call itself convert the same metadata.
const headersByMetadata = new WeakMap<Metadata, Headers>();

/**
 * The text metadata of a call as headers. Services use no binary metadata, so it is left out.
 * Throws `request_too_large`.
 */
export function headersOf(metadata: Metadata): Headers {
  const known = headersByMetadata.get(metadata);
  if (known) return known;
  const headers = new Headers();
  let bytes = 0;
  for (const [name, values] of Object.entries(metadata.toJSON())) {
    for (const value of values) {
      bytes += name.length + value.length;
      if (typeof value === "string") headers.append(name, value);
    }
  }
  if (bytes > metadataBytesMax)
    throw new ApiError("request_too_large", { message: "The metadata of this call is too large." });
  headersByMetadata.set(metadata, headers);
  return headers;
}

const legalName = /^[0-9a-z_.-]+(?<!-bin)$/;
// gRPC allows printable ASCII only. A credential with another character is invalid in any case, and
// it stays invalid with the replacement.
const unprintable = /[^\x20-\x7e]/g;

/** Headers as metadata of a call. Drops names that gRPC does not allow. */
export function metadataOf(headers: HeadersInit | undefined): Metadata {
  const metadata = new Metadata();
  if (headers === undefined) return metadata;
  for (const [name, value] of headers instanceof Headers ? headers : new Headers(headers)) {
    if (legalName.test(name)) metadata.set(name, value.replace(unprintable, "?"));
  }
  return metadata;
}
