import { crc32 } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { digestBytes, digestSecret, hintOf, isSecret, mintSecret } from "../../src/keys/secret.ts";

const families = fc.constantFrom(Family.V1, Family.V2);
// Written out: the test must not share a mistake of the code.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

test("a minted secret has the documented form, and its checksum is the CRC-32 of the rest", () => {
  fc.assert(
    fc.property(families, (family) => {
      const secret = mintSecret(family);
      expect(secret).toMatch(/^sk-gw2-[12]00[0-9A-Za-z]{41}[0-9A-Za-z]{6}$/);
      expect(mintSecret(family, "07").slice(8, 10)).toBe("07");
      expect(secret.at(7)).toBe(family === Family.V1 ? "1" : "2");
      const value = [...secret.slice(-6)].reduce((sum, one) => sum * 62 + alphabet.indexOf(one), 0);
      expect(value).toBe(crc32(secret.slice(0, -6)));
      expect.assert(isSecret(secret));
    }),
  );
});

test("secrets do not repeat and use every character of the alphabet about equally", () => {
  const secrets = Array.from({ length: 5_000 }, () => mintSecret(Family.V1));
  expect(new Set(secrets).size).toBe(secrets.length);
  const counts = new Map<string, number>();
  for (const one of secrets)
    for (const character of one.slice(10, 51))
      counts.set(character, (counts.get(character) ?? 0) + 1);
  const expected = (5_000 * 41) / 62;
  expect(counts.size).toBe(62);
  // Eight standard deviations: a fair draw fails this once in 10^13 runs.
  for (const count of counts.values())
    expect.assert(Math.abs(count - expected) < 8 * Math.sqrt(expected));
});

test("a wrong, swapped, lost or added character is rejected without a look-up", () => {
  fc.assert(
    fc.property(families, fc.nat(55), fc.nat(61), (family, index, other) => {
      const secret = mintSecret(family);
      const replaced = secret.slice(0, index) + alphabet.charAt(other) + secret.slice(index + 1);
      if (replaced !== secret) expect(isSecret(replaced)).toBe(false);
      const swapped =
        secret.slice(0, index) +
        secret.charAt(index + 1) +
        secret.charAt(index) +
        secret.slice(index + 2);
      if (swapped !== secret) expect(isSecret(swapped)).toBe(false);
      const [before, after] = [secret.slice(0, index), secret.slice(index)];
      expect(isSecret(before + after.slice(1))).toBe(false);
      expect(isSecret(before + alphabet.charAt(other) + after)).toBe(false);
    }),
  );
});

test("look-alikes, other cases, blanks and sizes are not secrets", () => {
  const secret = mintSecret(Family.V2);
  const wrong = [
    "",
    "sk-gw2-",
    ` ${secret}`,
    `${secret}\n`,
    secret.replace("sk-", "SK-"),
    secret.toUpperCase(),
    secret.replace("s", "ѕ"),
    secret.replace("-", "‐"),
    secret.replace("2-2", "2-3"),
    secret.normalize("NFKD").replace("k", "ｋ"),
    "x".repeat(10_240),
    secret + secret,
  ];
  // Of families that there are none of, each with its checksum.
  for (const digit of ["0", "3", "9", "a"]) {
    const body = `sk-gw2-${digit}${secret.slice(8, -6)}`;
    let rest = crc32(body);
    let sum = "";
    for (let at = 0; at < 6; at++, rest = Math.floor(rest / 62))
      sum = alphabet.charAt(rest % 62) + sum;
    wrong.push(body + sum);
  }
  expect(wrong.filter(isSecret)).toEqual([]);
});

test("arbitrary text is not a secret", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(isSecret(text)).toBe(false);
    }),
  );
});

test("the hint and the digest do not reveal the secret", () => {
  const secret = mintSecret(Family.V1);
  expect(hintOf(secret)).toMatch(/^sk-gw2-100[0-9A-Za-z]{4}…[0-9A-Za-z]{4}$/);
  expect(digestBytes(digestSecret("abc")).toString("hex").slice(0, 16)).toBe("ba7816bf8f01cfea");
  expect(digestBytes(digestSecret(secret)).length).toBe(32);
});
