// Removes secrets from a provider's error before a caller sees it.

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

function redactForms(text: string): string {
  return text
    .replace(keyRun, (run) => (keySign.test(run) ? "[redacted]" : run))
    .replace(tokenRun, (run, token) => (ordinaryWord.test(token) ? run : "[redacted]"));
}

/** Replaces the given secrets, and everything with the form of a secret, by `[redacted]`. */
export function redactSecrets(body: JsonObject, secrets: readonly string[]): JsonObject {
  const redactText = (text: string) =>
    redactForms(
      secrets.reduce((redacted, secret) => redacted.replaceAll(secret, "[redacted]"), text),
    );
  const redact = (value: JsonValue): JsonValue => {
    if (typeof value === "string") return redactText(value);
    if (Array.isArray(value)) return value.map(redact);
    return typeof value === "object" && value !== null ? redactMembers(value) : value;
  };
  const redactMembers = (object: JsonObject): JsonObject =>
    Object.fromEntries(
      Object.entries(object).map(([name, value]) => [redactText(name), redact(value)]),
    );
  return redactMembers(body);
}
