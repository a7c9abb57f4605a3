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

test("removes a credential of any form wherever it stands, and one that begins like another", () => {
  const secrets = fc.array(fc.string({ minLength: 8 }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(secrets, fc.string(), fc.nat(3), (given, around, at) => {
      const secret = given[at % given.length] ?? "";
      const { message } = redactSecrets({ message: `${around}${secret}${around}` }, [
        ...given,
        secret.slice(0, 4),
      ]);
      expect(message).not.toContain(secret);
    }),
  );
  expect(redactSecrets({ message: "<ab-12, ab-12-cd>" }, ["ab-12", "ab-12-cd"]).message).toBe(
    "<[redacted], [redacted]>",
  );
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
