// Which header holds the key, by endpoint. Pure: who the key belongs to is asked of the keys service.

import type { IncomingMessage } from "node:http";
import type { CatalogFile } from "../catalog-file/catalog-file.ts";
import { Refusal } from "../errors.ts";
import { isBearerVersion, readVersion } from "./version.ts";

/**
 * Native endpoints read the native key header, and Bearer from those clients that cannot send anything else; chat completions reads
 * Bearer; shared endpoints read either.
 */
export type CredentialForm = "native" | "chat" | "either";

/** Whether native endpoints take a Bearer key: from clients of the versions that send nothing else, from all, or from none. */
export type NativeBearer = CatalogFile["nativeBearer"];

type HeaderSource = Pick<IncomingMessage, "headers" | "rawHeaders">;

// The native header is not named: the coding assistant replaces any message that holds its name by one of its own.
const nativeHelp =
  "This endpoint takes the gateway key from ANTHROPIC_API_KEY. ANTHROPIC_AUTH_TOKEN is only for the vendor's own login and is not " +
  "accepted here: unset it and set ANTHROPIC_API_KEY to your sk-gw2- key. Other clients: send the key in the native API-key header " +
  "instead of Authorization.";
const bearerHelp = "Send the gateway key as `Authorization: Bearer <key>`.";

/** The key that a request sends. Throws `missing_key`, `invalid_key` or `wrong_credential_header`. */
export function readCredential(form: CredentialForm, request: HeaderSource, nativeBearer: NativeBearer): string {
  // A request with a native key is judged by that key alone, so that a stray login token beside it does no harm.
  const native = request.headers["x-api-key"];
  const nativeKey = typeof native === "string" ? native.trim() : "";
  if (nativeKey !== "" && form !== "chat") return soundKey(nativeKey);

  const authorization = (request.headers.authorization ?? "").trim();
  if (authorization === "") {
    if (nativeKey !== "") throw new Refusal("wrong_credential_header", { message: bearerHelp });
    throw new Refusal("missing_key");
  }
  if (form === "native" && !takesBearer(nativeBearer, request))
    throw new Refusal("wrong_credential_header", { message: nativeHelp });

  const bearer = /^bearer(?:[ \t]+(.*))?$/i.exec(authorization);
  if (!bearer) {
    throw new Refusal("wrong_credential_header", { message: form === "native" ? nativeHelp : bearerHelp });
  }
  const token = (bearer[1] ?? "").trim();
  if (token === "") throw new Refusal("missing_key");
  // Of two such headers Node keeps the first and says nothing.
  if (countAuthorization(request.rawHeaders) > 1) throw new Refusal("invalid_key");
  if (form === "native" && nativeBearer === "auto" && !token.startsWith("sk-gw2-")) throw new Refusal("invalid_key");
  return soundKey(token);
}

function takesBearer(nativeBearer: NativeBearer, request: HeaderSource): boolean {
  if (nativeBearer === "auto") return isBearerVersion(readVersion(request.headers));
  return nativeBearer === "always";
}

/** Visible ASCII without commas: anything else is several values, or nothing that was ever issued. */
function soundKey(key: string): string {
  if (!/^[\x21-\x2b\x2d-\x7e]{1,512}$/.test(key)) throw new Refusal("invalid_key");
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
