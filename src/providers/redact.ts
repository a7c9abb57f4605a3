// Removes secrets from a provider's error before a caller sees it: those that the gateway sends,
// and what has the form of one.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

// Keys of providers, tokens of their proxies, and our own keys. A run of characters is found first
// and classified afterwards: a single expression would look ahead through the rest of the run at
// each of its positions.
const keyRun = /\b(?:(?:sk|pk|rk|key|xai|gsk|hf)[-_]|AIza)[A-Za-z0-9_-]{12,}/g;
const tokenRun = /\bBearer\s+([A-Za-z0-9._~+/=-]{8,})/g;
// A tool name may begin like a key, but rarely has a digit or twenty letters in a row. `ant-` marks
// the keys of one vendor.
const keySign = /^AIza|^[a-z]+[-_]ant-|\d|[A-Za-z]{20}/;
// In a sentence, "Bearer" is mostly followed by one of these.
const ordinaryWord = /^(?:authentication|authorization|credentials?|challenge)\.?$/;

// What stands before the host of a URL, and parameters that hold credentials. The lengths are
// bounded, so that a long text without an `@` costs no more than its length.
const urlCredentials = /\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/?#@]{1,400}@/gi;
const urlParameters = /([?&](?:api[-_]?key|key|token|sig|signature|secret|password)=)[^\s&#"']+/gi;

/** As `redactSecrets`, in a text. */
export function redactText(text: string, secrets: readonly string[]): string {
  // The longest first: one may begin like another.
  return secrets
    .filter((secret) => secret !== "")
    .sort((one, other) => other.length - one.length)
    .reduce((rest, secret) => rest.replaceAll(secret, "[redacted]"), text)
    .replace(urlCredentials, "$1[redacted]@")
    .replace(urlParameters, "$1[redacted]")
    .replace(keyRun, (run) => (keySign.test(run) ? "[redacted]" : run))
    .replace(tokenRun, (run, token) => (ordinaryWord.test(token) ? run : "[redacted]"));
}

/** Replaces the given secrets, and everything with the form of a secret, by `[redacted]`. */
export function redactSecrets(body: JsonObject, secrets: readonly string[]): JsonObject {
  const redact = (value: JsonValue): JsonValue => {
    if (typeof value === "string") return redactText(value, secrets);
    if (Array.isArray(value)) return value.map(redact);
    return typeof value === "object" && value !== null ? redactMembers(value) : value;
  };
  const redactMembers = (object: JsonObject): JsonObject =>
    Object.fromEntries(
      Object.entries(object).map(([name, value]) => [redactText(name, secrets), redact(value)]),
    );
  return redactMembers(body);
}
