// Takes secrets out of what a provider said before a caller sees it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

// Keys of providers, tokens of their proxies, and our own keys. Names of tools may begin as keys do, but have neither a digit nor a
// word of twenty letters (`ant-` is a vendor's own mark), and what follows Bearer in a sentence is mostly one of these words.
const keyForm = /\b(?:(?:sk|pk|rk|key|xai|gsk|hf)[-_]|AIza)(?=ant-|[A-Za-z_-]*(?:\d|[A-Za-z]{20}))[A-Za-z0-9_-]{12,}/;
const tokenForm =
  /\bBearer\s+(?!(?:authentication|authorization|credentials?|challenge)\b(?![._~+/=-]*\w))[A-Za-z0-9._~+/=-]{8,}/;
const secretForms = new RegExp(`${keyForm.source}|${tokenForm.source}`, "g");

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
