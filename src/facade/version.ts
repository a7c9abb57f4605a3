// The version and beta headers of the native format. Each has two spellings with one meaning.

import type { IncomingHttpHeaders } from "node:http";
import { Refusal } from "../errors.ts";

/** Values of the version header that are served. */
const servedVersions: readonly string[] = ["2023-06-01", "2026-10-21"];

/** From this version on the official SDKs send the key as Bearer on the native endpoints and cannot do otherwise. */
const bearerSince = "2026-10-21";

/** The version header as sent; undefined when it is missing, or sent twice with different values. */
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
      throw new Refusal("version_unsupported", {
        message: `The version was sent in both spellings of the header with different values. Accepted: ${accepted}.`,
        allowed: servedVersions,
      });
    }
    throw new Refusal("version_required", { message: `anthropic-version: header is required. Accepted: ${accepted}.` });
  }
  if (!servedVersions.includes(version)) {
    throw new Refusal("version_unsupported", {
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
