// Authentication of HTTP callers, REST and Connect, before a body is read, and the headers that a
// route requires: the key, and the version of the native format. The keys service decides whether a
// credential is good. A client address that sent too many wrong credentials is rejected without a
// look at the credential, unless that credential was good before.

import { hash } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { CallOptions } from "@connectrpc/connect";
import type { AuthenticateResponse } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { networkOf } from "../base/client-address.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { CatalogFile } from "../config/catalog.ts";
import { type Core, callerMsMax } from "../contract/contract.ts";
import { windowMs } from "../rate-limits/rate-limits.ts";
import type { OnPayerChange } from "./key-load.ts";

/** A request to be authenticated. */
export type LoginAttempt = {
  /** The `Authorization` header of the call to the services. Empty if the client sent no key. */
  readonly authorization: string;
  /** IP address of the client, which the headers of the call name too. */
  readonly address: string;
  /** True to read the spending of the key this month, which costs a database query. */
  readonly monthUsage: boolean;
};

/**
 * A caller, when the keys service identified it, by `performance.now()`, and the address of its
 * call then.
 */
export type IdentifiedCaller = {
  readonly caller: AuthenticateResponse;
  readonly atMs: number;
  readonly address: string;
};

/**
 * Finds the caller, without a promise where it is known. Throws the errors of
 * `KeysService.Authenticate`, and `auth_rate_limited`.
 */
export type IdentifyCaller = (
  attempt: LoginAttempt,
  call: CallOptions,
) => IdentifiedCaller | Promise<IdentifiedCaller>;

// All keys that are in use at one time, in a few megabytes.
const knownCredentialsMax = 10_000;
// A revocation reaches free calls within a second: the change feed takes up to half of it, this
// reuse at most the rest.
const reuseMs = callerMsMax;

/** One instance per listener, shared by REST and Connect. */
export function createIdentifyCaller(
  core: Core,
  failedCredentials: FailedCredentials,
  onPayerChange: OnPayerChange = () => {},
): IdentifyCaller {
  // By digest of the credential. A good credential is served even from an address that is blocked,
  // which many clients may share.
  const known = new BoundedMap<string, IdentifiedCaller>(knownCredentialsMax);

  // After a change of any key or budget, each key is read again.
  let keysChangedAtMs = Number.NEGATIVE_INFINITY;
  onPayerChange(({ kind }) => {
    if (kind === "key" || kind === "budget") keysChangedAtMs = performance.now();
  });
  const isReusable = (earlier: IdentifiedCaller, address: string) =>
    performance.now() - earlier.atMs < reuseMs &&
    earlier.atMs > keysChangedAtMs &&
    // A list of addresses is checked anew for each of them.
    (earlier.address === address || earlier.caller.key?.allowedAddresses.length === 0);

  async function identify(
    digest: string,
    { address, monthUsage }: LoginAttempt,
    call: CallOptions,
  ) {
    if (!known.get(digest)) failedCredentials.check(address);
    try {
      const atMs = performance.now();
      const caller = await core.keys.authenticate({ includeUsage: monthUsage }, call);
      const identified = { caller, atMs, address };
      known.set(digest, identified);
      return identified;
    } catch (error) {
      const { reason } = toApiError(error);
      // The credential is good, elsewhere.
      if (reason !== "address_not_allowed") known.delete(digest);
      if (reason === "invalid_key" || reason === "invalid_session")
        failedCredentials.record(address);
      throw error;
    }
  }

  return (attempt, call) => {
    const digest = hash("sha256", attempt.authorization, "base64");
    const earlier = known.get(digest);
    if (earlier && !attempt.monthUsage && isReusable(earlier, attempt.address)) return earlier;
    return identify(digest, attempt, call);
  };
}

/** The same, but admin tokens fail with `not_permitted`. */
export function refuseAdminTokens(identify: IdentifyCaller): IdentifyCaller {
  const refuse = (identified: IdentifiedCaller) => {
    if (identified.caller.admin)
      throw new ApiError("not_permitted", { message: "Admin tokens are not accepted here." });
    return identified;
  };
  return (attempt, call) => {
    const identified = identify(attempt, call);
    return identified instanceof Promise ? identified.then(refuse) : refuse(identified);
  };
}

/** Counts wrong credentials per client address. */
export type FailedCredentials = {
  /** Throws `auth_rate_limited` for an address that failed too often in the last minute. */
  check(address: string): void;
  record(address: string): void;
};

/** Failures of one client in any 60 seconds after which its new credentials are rejected unread. */
const failuresMax = 100;
// Each holds at most 100 times: 10 MB if all of them are full.
const clientsMax = 10_000;

/**
 * Counts in this process only: the limit protects the process, and a guess at 256 random bits is
 * hopeless anyhow. `nowMs` must never go back.
 */
export function createFailedCredentials(
  nowMs: () => number = () => performance.now(),
): FailedCredentials {
  const failures = new BoundedMap<string, number[]>(clientsMax);

  function recentFailures(client: string): number[] {
    const oldestMs = nowMs() - windowMs;
    return (failures.get(client) ?? []).filter((atMs) => atMs > oldestMs);
  }

  return {
    check(address) {
      const first = recentFailures(networkOf(address)).at(-failuresMax);
      if (first !== undefined)
        throw new ApiError("auth_rate_limited", {
          retryAfterMs: Math.ceil(first + windowMs - nowMs()),
        });
    },
    record(address) {
      const client = networkOf(address);
      failures.set(client, [...recentFailures(client).slice(1 - failuresMax), nowMs()]);
    },
  };
}

/**
 * Where a route reads the key. `native`: the native key header, and Bearer as `NativeBearer`
 * allows. `chat`: Bearer. `either`: either of them.
 */
export type CredentialForm = "native" | "chat" | "either";

/**
 * The clients from which native endpoints accept a Bearer key. `auto`: those of the versions that
 * can send nothing else.
 */
export type NativeBearer = CatalogFile["nativeBearer"];

type HeaderSource = Pick<IncomingMessage, "headers" | "rawHeaders">;

// Does not name the native key header: a coding assistant of the native format replaces any message
// that contains that name by its own "log in again".
const nativeHelp =
  "This endpoint takes the gateway key from ANTHROPIC_API_KEY. ANTHROPIC_AUTH_TOKEN is only for the vendor's own login and is not " +
  "accepted here: unset it and set ANTHROPIC_API_KEY to your sk-gw2- key. Other clients: send the key in the native API-key header " +
  "instead of Authorization.";
// A shell of Windows, and files of variables, keep the quotes of `KEY="sk-…"` in the value.
const quotedHelp =
  "Incorrect API key provided: it was sent with the quotes around it. Write it without them.";
const bearerHelp = "Send the gateway key as `Authorization: Bearer <key>`.";
const notInNativeHeader = `This endpoint does not read x-api-key. ${bearerHelp}`;

/** The key of a request. Throws `missing_key`, `invalid_key` or `wrong_credential_header`. */
export function readCredential(
  form: CredentialForm,
  request: HeaderSource,
  nativeBearer: NativeBearer,
): string {
  // Only the native key counts, so a stray login token beside it does no harm.
  const native = request.headers["x-api-key"];
  const nativeKey = typeof native === "string" ? native.trim() : "";
  if (nativeKey !== "" && form !== "chat") return checkKeyShape(nativeKey);

  const authorization = (request.headers.authorization ?? "").trim();
  if (authorization === "") {
    if (nativeKey !== "")
      throw new ApiError("wrong_credential_header", { message: notInNativeHeader });
    throw new ApiError("missing_key");
  }
  if (form === "native" && !acceptsBearer(nativeBearer, request))
    throw new ApiError("wrong_credential_header", { message: nativeHelp });

  const bearer = /^bearer(?:[ \t]+(.*))?$/i.exec(authorization);
  if (!bearer) {
    throw new ApiError("wrong_credential_header", {
      message: form === "native" ? nativeHelp : bearerHelp,
    });
  }
  const token = (bearer[1] ?? "").trim();
  if (token === "") throw new ApiError("missing_key");
  // Node keeps the first of several such headers and drops the others silently.
  if (countAuthorizationHeaders(request.rawHeaders) > 1) throw new ApiError("invalid_key");
  if (form === "native" && nativeBearer === "auto" && !/^[sm]k-gw2-/.test(token))
    throw new ApiError("invalid_key");
  return checkKeyShape(token);
}

function acceptsBearer(nativeBearer: NativeBearer, request: HeaderSource): boolean {
  if (nativeBearer === "auto") return isBearerVersion(readVersion(request.headers));
  return nativeBearer === "always";
}

/**
 * Requires visible ASCII without commas: a comma joins several values, and no key has other bytes.
 */
function checkKeyShape(key: string): string {
  if (/^(["'`]).*\1$/.test(key)) throw new ApiError("invalid_key", { message: quotedHelp });
  if (!/^[\x21-\x2b\x2d-\x7e]{1,512}$/.test(key)) throw new ApiError("invalid_key");
  return key;
}

function countAuthorizationHeaders(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === "authorization".length && name.toLowerCase() === "authorization") count++;
  }
  return count;
}

// The version and beta headers of the native format each have two spellings with the same meaning.

export const supportedVersions: readonly string[] = ["2023-06-01", "2026-10-21"];
const acceptedVersions = supportedVersions.join(", ");

/** From this version on, the official SDKs send the key of a native endpoint only as Bearer. */
const bearerSince = "2026-10-21";

/** The version header; undefined if it is missing, or present in two spellings that differ. */
function readVersion(headers: IncomingHttpHeaders): string | undefined {
  const vendor = headers["vendor-version"];
  const common = headers["anthropic-version"];
  const version = vendor ?? common;
  if (typeof version !== "string" || (common !== undefined && common !== version)) return undefined;
  return version.trim();
}

/** True for versions whose clients send the key of a native endpoint as Bearer. */
function isBearerVersion(version: string | undefined): boolean {
  return version !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(version) && version >= bearerSince;
}

/**
 * Version and beta flags of a native request. Throws `version_required` or `version_unsupported`.
 */
export function requireVersion(headers: IncomingHttpHeaders): { version: string; beta: string } {
  const version = readVersion(headers);
  // As the client spells it: the SDKs send one, the vendor's own documents name both.
  const header = headers["vendor-version"] === undefined ? "anthropic-version" : "vendor-version";
  if (version === undefined || version === "") {
    if (headers["vendor-version"] !== undefined && headers["anthropic-version"] !== undefined) {
      throw new ApiError("version_unsupported", {
        message: `anthropic-version and vendor-version have different values. Accepted: ${acceptedVersions}.`,
        allowed: supportedVersions,
      });
    }
    throw new ApiError("version_required", {
      message: `anthropic-version (or vendor-version): header is required. Accepted: ${acceptedVersions}.`,
    });
  }
  if (!supportedVersions.includes(version)) {
    throw new ApiError("version_unsupported", {
      message: `${header}: this version is not supported. Accepted: ${acceptedVersions}.`,
      allowed: supportedVersions,
    });
  }
  return { version, beta: readBeta(headers) };
}

// The flags are an open list, so they are passed on unchanged.
function readBeta(headers: IncomingHttpHeaders): string {
  const common = headers["anthropic-beta"];
  const vendor = headers["vendor-beta"];
  if (vendor === undefined || vendor === common) return String(common ?? "");
  return common === undefined ? String(vendor) : `${common},${vendor}`;
}
