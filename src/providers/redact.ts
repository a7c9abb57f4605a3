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

// What stands before the host of a URL, and parameters that hold credentials. The lengths are
// bounded, so that a long text without an `@` costs no more than its length.
const urlCredentials = /\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/?#@]{1,400}@/gi;
const urlParameters = /([?&](?:api[-_]?key|key|token|sig|signature|secret|password)=)[^\s&#"']+/gi;

function redactForms(text: string): string {
  return text
    .replace(urlCredentials, "$1[redacted]@")
    .replace(urlParameters, "$1[redacted]")
    .replace(keyRun, (run) => (keySign.test(run) ? "[redacted]" : run))
    .replace(tokenRun, (run, token) => (ordinaryWord.test(token) ? run : "[redacted]"));
}

// The part of a key that all keys of its vendor share. It is public, and a message may name it.
const vendorPrefix =
  /^(?:sk-ant-[a-z]+\d\d-|sk-(?:proj|svcacct|admin|or-v\d|gw\d)-|AIzaSy|(?:sk|pk|rk|key|xai|gsk|hf)[-_])/;

/** Characters of a secret that identify it. Shorter pieces occur in ordinary texts. */
const pieceLength = 12;
/** Shorter secrets match whole only. */
const piecesFromLength = 16;
/** Characters of base64 that hold `pieceLength` bytes. */
const encodedLength = (pieceLength / 3) * 4;

/** A folded text that a match must share `least` consecutive characters with, after `prefix`. */
type Pattern = { readonly text: string; readonly prefix: number; readonly least: number };

function patternsOf(secret: string): Pattern[] {
  const prefix = vendorPrefix.exec(secret)?.[0].length ?? 0;
  const inPieces = secret.length >= piecesFromLength && secret.length - prefix >= pieceLength;
  const plain = inPieces ? { prefix, least: pieceLength } : { prefix: 0, least: secret.length };
  const encoded = encodingsOf(inPieces ? secret.slice(prefix) : secret).map((text) => ({
    text: fold(text).text,
    prefix: 0,
    least: inPieces ? encodedLength : text.length,
  }));
  return [{ text: fold(secret).text, ...plain }, ...encoded];
}

// The base64 of a text depends on its offset in the encoded bytes, modulo 3. The first and the last
// characters also depend on the bytes around the text and are left out.
function encodingsOf(text: string): string[] {
  return [0, 1, 2].map((offset) => {
    const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(text)]);
    const first = Math.ceil((offset * 8) / 6);
    return bytes.toString("base64").slice(first, Math.floor((bytes.length * 8) / 6));
  });
}

/**
 * The text without white space, in lower case and with the characters of standard base64 for those
 * of base64url. `offsets` has the offset in the original text of each character.
 */
function fold(original: string): { text: string; offsets: number[] } {
  const offsets: number[] = [];
  let text = "";
  for (const { 0: run, index } of original.matchAll(/\S+/g)) {
    for (let at = 0; at < run.length; at++) offsets.push(index + at);
    text += run;
  }
  // Letters of ASCII only: others may change their length.
  text = text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
  return { text: text.replaceAll("-", "+").replaceAll("_", "/"), offsets };
}

/** Finds pieces of secrets in a text. */
class Finder {
  /** Where each `#seedLength` characters occur in the patterns. */
  readonly #seeds = new Map<string, { pattern: Pattern; at: number }[]>();
  readonly #seedLength: number;
  /** Every match has a seed at a multiple of this offset, so that few offsets are looked up. */
  readonly #step: number;

  constructor(secrets: readonly string[]) {
    const patterns = secrets.flatMap(patternsOf).filter(({ text }) => text !== "");
    const least = Math.min(...patterns.map((pattern) => pattern.least), pieceLength);
    this.#seedLength = Math.min(4, least);
    this.#step = least - this.#seedLength + 1;
    for (const pattern of patterns) {
      for (let at = 0; at + this.#seedLength <= pattern.text.length; at++) {
        const seed = pattern.text.slice(at, at + this.#seedLength);
        const places = this.#seeds.get(seed) ?? [];
        places.push({ pattern, at });
        this.#seeds.set(seed, places);
      }
    }
  }

  /** The ranges of folded `text` to remove, in the order of their starts. They may overlap. */
  find(text: string): { start: number; end: number }[] {
    const found: { start: number; end: number }[] = [];
    for (let at = 0; at + this.#seedLength <= text.length; at += this.#step) {
      for (const place of this.#seeds.get(text.slice(at, at + this.#seedLength)) ?? []) {
        const { pattern } = place;
        let start = 0;
        while (start < place.at && pattern.text[place.at - start - 1] === text[at - start - 1])
          start++;
        let end = this.#seedLength;
        while (
          place.at + end < pattern.text.length &&
          pattern.text[place.at + end] === text[at + end]
        )
          end++;
        const counted = place.at + end - Math.max(place.at - start, pattern.prefix);
        if (counted >= pattern.least) found.push({ start: at - start, end: at + end });
      }
    }
    return found.sort((one, other) => one.start - other.start);
  }
}

function redactPieces(original: string, finder: Finder): string {
  const { text, offsets } = fold(original);
  let redacted = "";
  /** End of the last range, in `text` and in the original. */
  let last = -1;
  let written = 0;
  for (const { start, end } of finder.find(text)) {
    if (end <= last) continue;
    if (start > last) redacted += `${original.slice(written, offsets[start])}[redacted]`;
    last = end;
    written = (offsets[end - 1] ?? 0) + 1;
  }
  return redacted + original.slice(written);
}

/** One for each list of secrets, which lives as long as its provider. */
const finders = new WeakMap<readonly string[], Finder>();

function finderOf(secrets: readonly string[]): Finder {
  const finder = finders.get(secrets) ?? new Finder(secrets);
  finders.set(secrets, finder);
  return finder;
}

/** As `redactSecrets`, in a text. */
export function redactText(text: string, secrets: readonly string[]): string {
  return redactForms(redactPieces(text, finderOf(secrets)));
}

/**
 * Replaces the given secrets, and everything with the form of a secret, by `[redacted]`. A secret
 * is found in any case, with white space in it, and in base64. Of a secret with at least
 * `piecesFromLength` characters, any `pieceLength` after the vendor's prefix are found.
 */
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
