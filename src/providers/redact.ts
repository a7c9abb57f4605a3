// Takes secrets out of what a provider said before a caller sees it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

// Keys of providers, tokens of their proxies, and our own keys. A run is found first and judged
// then: one expression for both would look ahead through the rest of a run at each of its places.
const keyRun = /\b(?:(?:sk|pk|rk|key|xai|gsk|hf)[-_]|AIza)[A-Za-z0-9_-]{12,}/g;
const tokenRun = /\bBearer\s+([A-Za-z0-9._~+/=-]{8,})/g;
// Names of tools may begin as keys do, but have neither a digit nor a word of twenty letters
// (`ant-` is a vendor's own mark).
const keySign = /^AIza|^[a-z]+[-_]ant-|\d|[A-Za-z]{20}/;
// What follows Bearer in a sentence is mostly one of these.
const ordinaryWord = /^(?:authentication|authorization|credentials?|challenge)\.?$/;

function redactForms(text: string): string {
  return text
    .replace(keyRun, (run) => (keySign.test(run) ? "[redacted]" : run))
    .replace(tokenRun, (run, token) => (ordinaryWord.test(token) ? run : "[redacted]"));
}

/** `body` without the given secrets and without anything that looks like one. */
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
