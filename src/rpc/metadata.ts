// Metadata of a gRPC call as the headers that services read, and back.

import { Metadata } from "@grpc/grpc-js";
import { Refusal } from "../errors.ts";

/** Most bytes of names and values that one call may bring. */
const metadataBytesMax = 16 * 1024;

// The gate in front of a call and the call itself read the same metadata.
const headersByMetadata = new WeakMap<Metadata, Headers>();

/** The text headers of a call. Throws `request_too_large`. Binary metadata means nothing to our services and is left out. */
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
  if (bytes > metadataBytesMax) throw new Refusal("request_too_large", { message: "The metadata of this call is too large." });
  headersByMetadata.set(metadata, headers);
  return headers;
}

const legalName = /^[0-9a-z_.-]+(?<!-bin)$/;
// gRPC allows printable ASCII only. A credential with anything else in it is wrong in any case: it is sent as far as it can be,
// and refused over there as it would be here.
const unprintable = /[^\x20-\x7e]/g;

/** The metadata that carries these headers. */
export function metadataOf(headers: HeadersInit | undefined): Metadata {
  const metadata = new Metadata();
  if (headers === undefined) return metadata;
  for (const [name, value] of headers instanceof Headers ? headers : new Headers(headers)) {
    if (legalName.test(name)) metadata.set(name, value.replace(unprintable, "?"));
  }
  return metadata;
}
