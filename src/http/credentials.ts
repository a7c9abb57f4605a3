// Which header holds the key, by endpoint. Pure: who the key belongs to is asked of the keys
// service.

import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { ApiError } from "../base/errors.ts";
import type { CatalogFile } from "../config/catalog.ts";

/**
 * Native endpoints read the native key header, and Bearer from those clients that cannot send
 * anything else; chat completions reads Bearer; shared endpoints read either.
 */
export type CredentialForm = "native" | "chat" | "either";

/**
 * Whether native endpoints take a Bearer key: from clients of the versions that send nothing else,
 * from all, or from none.
 */
export type NativeBearer = CatalogFile["nativeBearer"];

type HeaderSource = Pick<IncomingMessage, "headers" | "rawHeaders">;

// The native header is not named: the coding assistant replaces any message that holds its name by
// one of its own.
const nativeHelp =
  "This endpoint takes the gateway key from ANTHROPIC_API_KEY. ANTHROPIC_AUTH_TOKEN is only for the vendor's own login and is not " +
  "accepted here: unset it and set ANTHROPIC_API_KEY to your sk-gw2- key. Other clients: send the key in the native API-key header " +
  "instead of Authorization.";
const bearerHelp = "Send the gateway key as `Authorization: Bearer <key>`.";

/**
 * The key that a request sends. Throws `missing_key`, `invalid_key` or `wrong_credential_header`.
 */
export function readCredential(
  form: CredentialForm,
  request: HeaderSource,
  nativeBearer: NativeBearer,
): string {
  // A request with a native key is judged by that key alone, so that a stray login token beside it
  // does no harm.
  const native = request.headers["x-api-key"];
  const nativeKey = typeof native === "string" ? native.trim() : "";
  if (nativeKey !== "" && form !== "chat") return soundKey(nativeKey);

  const authorization = (request.headers.authorization ?? "").trim();
  if (authorization === "") {
    if (nativeKey !== "") throw new ApiError("wrong_credential_header", { message: bearerHelp });
    throw new ApiError("missing_key");
  }
  if (form === "native" && !takesBearer(nativeBearer, request))
    throw new ApiError("wrong_credential_header", { message: nativeHelp });

  const bearer = /^bearer(?:[ \t]+(.*))?$/i.exec(authorization);
  if (!bearer) {
    throw new ApiError("wrong_credential_header", {
      message: form === "native" ? nativeHelp : bearerHelp,
    });
  }
  const token = (bearer[1] ?? "").trim();
  if (token === "") throw new ApiError("missing_key");
  // Of two such headers Node keeps the first and says nothing.
  if (countAuthorization(request.rawHeaders) > 1) throw new ApiError("invalid_key");
  if (form === "native" && nativeBearer === "auto" && !token.startsWith("sk-gw2-"))
    throw new ApiError("invalid_key");
  return soundKey(token);
}

function takesBearer(nativeBearer: NativeBearer, request: HeaderSource): boolean {
  if (nativeBearer === "auto") return isBearerVersion(readVersion(request.headers));
  return nativeBearer === "always";
}

/**
 * Visible ASCII without commas: anything else is several values, or nothing that was ever issued.
 */
function soundKey(key: string): string {
  if (!/^[\x21-\x2b\x2d-\x7e]{1,512}$/.test(key)) throw new ApiError("invalid_key");
  return key;
}

function countAuthorization(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === "authorization".length && name.toLowerCase() === "authorization") count++;
  }
  return count;
}

// The version and beta headers of the native format. Each has two spellings with one meaning.

/** Values of the version header that are served. */
const servedVersions: readonly string[] = ["2023-06-01", "2026-10-21"];

/**
 * From this version on the official SDKs send the key as Bearer on the native endpoints and cannot
 * do otherwise.
 */
const bearerSince = "2026-10-21";

/**
 * The version header as sent; undefined when it is missing, or sent twice with different values.
 */
export function readVersion(headers: IncomingHttpHeaders): string | undefined {
  const vendor = headers["vendor-version"];
  const common = headers["anthropic-version"];
  const version = vendor ?? common;
  if (typeof version !== "string" || (common !== undefined && common !== version)) return undefined;
  return version.trim();
}

/** True for versions whose clients send the key as Bearer on the native endpoints. */
export function isBearerVersion(version: string | undefined): boolean {
  return version !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(version) && version >= bearerSince;
}

/** Version and beta flags of a native call. Throws `version_required` or `version_unsupported`. */
export function requireVersion(headers: IncomingHttpHeaders): { version: string; beta: string } {
  const version = readVersion(headers);
  const accepted = servedVersions.join(", ");
  if (version === undefined || version === "") {
    if (headers["vendor-version"] !== undefined && headers["anthropic-version"] !== undefined) {
      throw new ApiError("version_unsupported", {
        message: `The version was sent in both spellings of the header with different values. Accepted: ${accepted}.`,
        allowed: servedVersions,
      });
    }
    throw new ApiError("version_required", {
      message: `anthropic-version: header is required. Accepted: ${accepted}.`,
    });
  }
  if (!servedVersions.includes(version)) {
    throw new ApiError("version_unsupported", {
      message: `anthropic-version: this version is not supported. Accepted: ${accepted}.`,
      allowed: servedVersions,
    });
  }
  return { version, beta: readBeta(headers) };
}

// Flags are an open list and go on byte for byte.
function readBeta(headers: IncomingHttpHeaders): string {
  const common = headers["anthropic-beta"];
  const vendor = headers["vendor-beta"];
  if (vendor === undefined || vendor === common) return String(common ?? "");
  return common === undefined ? String(vendor) : `${common},${vendor}`;
}
