import fc from "fast-check";
import { expect, test } from "vitest";
import { redactSecrets } from "../../src/providers/redact.ts";

const shown = (message: string) => redactSecrets({ message }, []).message;

test("keeps tool names and ordinary words that begin like keys", () => {
  for (const message of [
    "tools.0: key_value_store_lookup is not defined",
    "tools.1: sk-learn_pipeline_builder is not defined",
    "Bearer authentication is required",
    "Bearer authorization. Then",
    "messages.3: pk-by-customer-and-order",
  ]) {
    expect(shown(message)).toBe(message);
  }
});

const letters = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"];
const all = [...letters, ..."0123456789"];
const text = (of: string[], length: number) =>
  fc.string({ unit: fc.constantFrom(...of), minLength: length, maxLength: length });
const keys = fc.oneof(
  text(all, 43).map((random) => `sk-gw2-1${random}123456`),
  text([...all, "-", "_"], 93).map((random) => `sk-ant-api03-${random}AA`),
  text(all, 48).map((random) => `sk-${random}`),
  text(letters, 48).map((random) => `sk-proj-${random}`),
  text(all, 52).map((random) => `gsk_${random}`),
  text(letters, 34).map((random) => `hf_${random}`),
  text([...all, "-", "_"], 33).map((random) => `AIzaSy${random}`),
  text([...all, ".", "~", "+", "/"], 24).map((random) => `Bearer ${random}`),
);

test("removes every key from the error of a provider", () => {
  fc.assert(
    fc.property(
      keys,
      fc.constantFrom("", "key: ", "tool key_value_store_lookup with "),
      (key, before) => {
        expect(shown(`${before}${key} is not valid`)).toBe(`${before}[redacted] is not valid`);
      },
    ),
  );
});

const body = (random: string) => `sk-ant-api03-${random}`;
const credentials = text([...all, "-", "_"], 40).map(body);
const redacted = (message: string, ...secrets: string[]) =>
  String(redactSecrets({ message }, secrets).message);

test("removes a credential in another case and with white space in it", () => {
  const spaces = fc.constantFrom(" ", "\n", "\t  ");
  fc.assert(
    fc.property(credentials, fc.integer({ min: 1, max: 51 }), spaces, (credential, at, space) => {
      const spaced = `${credential.slice(0, at)}${space}${credential.slice(at)}`;
      for (const shape of [spaced, spaced.toUpperCase(), spaced.toLowerCase()])
        expect(redacted(`(${shape})`, credential)).toBe("([redacted])");
    }),
  );
});

test("removes any twelve characters of a credential after the vendor's prefix", () => {
  fc.assert(
    fc.property(credentials, fc.nat(28), (credential, at) => {
      const piece = credential.slice(13 + at, 13 + at + 12);
      expect(redacted(`<${piece}>`, credential)).toBe("<[redacted]>");
      expect(redacted(`<${piece.slice(1)}>`, credential)).toBe(`<${piece.slice(1)}>`);
    }),
  );
});

test("removes a credential in base64, whatever is encoded before and after it", () => {
  const around = fc.string({ unit: "binary-ascii", maxLength: 5 });
  const encoding = fc.constantFrom<("base64" | "base64url")[]>("base64", "base64url");
  fc.assert(
    fc.property(credentials, around, around, encoding, (credential, before, after, name) => {
      const encoded = Buffer.from(`${before}${credential}${after}`).toString(name);
      const shown = redacted(`<${encoded}>`, credential);
      expect(shown).toContain("[redacted]");
      for (let at = 0; at + 16 <= encoded.length - 8; at++) {
        const bytes = Buffer.from(encoded.slice(at, at + 16), "base64").toString("latin1");
        if (credential.slice(13).includes(bytes)) expect(shown).not.toContain(bytes);
      }
      const longest = Math.max(...shown.split("[redacted]").map(({ length }) => length));
      // What is left encodes the vendor's prefix and the text around the credential.
      expect(longest).toBeLessThanOrEqual(32);
    }),
  );
});

test("removes a credential of fewer than sixteen characters only where it is whole", () => {
  const credential = "local-secret-1";
  expect(redacted("key local-secret-1.", credential)).toBe("key [redacted].");
  expect(redacted("key LOCAL-secret -1.", credential)).toBe("key [redacted].");
  expect(redacted("the local-secret is wrong", credential)).toBe("the local-secret is wrong");
  for (const before of ["", "a", "ab"]) {
    const encoded = Buffer.from(`${before}${credential}`).toString("base64");
    expect(redacted(encoded, credential)).toContain("[redacted]");
  }
});

test("keeps a text that names the vendor's prefix", () => {
  const message = "keys begin with sk-ant-api03-, see sk-ant-";
  expect(redacted(message, `sk-ant-api03-${"x1Y2".repeat(10)}`)).toBe(message);
});

test("keeps pieces of eleven characters of a credential, in a text of any length", () => {
  const message = "ab3ab3ab3ab.".repeat(20_000);
  expect(redacted(message, body("aB3".repeat(12)))).toBe(message);
});

test("takes linear time for a text of beginnings of keys", () => {
  // A search through the rest at each of them would take minutes.
  for (const beginning of ["sk-", "sk-ab_", "Bearer "]) {
    const message = beginning.repeat(300_000);
    expect(shown(message)).toBe(message);
  }
}, 10_000);

test("removes a token that begins like a word", () => {
  expect(shown("Bearer authentication.abc.def")).toBe("[redacted]");
  expect(shown("Bearer credentials12345")).toBe("[redacted]");
});
