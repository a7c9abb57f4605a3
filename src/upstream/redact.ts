// Takes secrets out of what a provider said before a caller sees it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

// Keys of providers, tokens of their proxies, and our own keys.
const secretForms = /\b(?:sk|pk|rk|key|xai|gsk|hf|AIza)[-_][A-Za-z0-9_-]{12,}|\bBearer\s+[A-Za-z0-9._~+/=-]{8,}/g;

/** `body` without the given secrets and without anything that looks like one. */
export function redactSecrets(body: JsonObject, secrets: readonly string[]): JsonObject {
  const redactText = (text: string) =>
    secrets.reduce((redacted, secret) => redacted.replaceAll(secret, "[redacted]"), text).replace(secretForms, "[redacted]");
  const redact = (value: JsonValue): JsonValue => {
    if (typeof value === "string") return redactText(value);
    if (Array.isArray(value)) return value.map(redact);
    return typeof value === "object" && value !== null ? redactMembers(value) : value;
  };
  const redactMembers = (object: JsonObject): JsonObject =>
    Object.fromEntries(Object.entries(object).map(([name, value]) => [redactText(name), redact(value)]));
  return redactMembers(body);
}
