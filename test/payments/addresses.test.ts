// Addresses of public account keys, and which keys are refused.

import { expect, test } from "vitest";
import { problemOfKey } from "../../src/config/account-key.ts";
import { bitcoinAddress, checksummed, evmAddress } from "../../src/payments/addresses.ts";
import { bitcoinAccountKey, evmAccountKey, testKey } from "../support/onchain.ts";

test("the vectors of BIP-84, and of the usual path of Ethereum", () => {
  expect(bitcoinAccountKey).toMatch(/^zpub6rFR7y4Q2AijBEqTUquhVz398htDFrtymD9xYYfG1m4wAcvPhXNfE3/);
  expect(bitcoinAddress(bitcoinAccountKey, 0)).toBe("bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu");
  expect(bitcoinAddress(bitcoinAccountKey, 1)).toBe("bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g");
  const address = evmAddress(evmAccountKey, 0);
  expect(checksummed(address)).toBe("0x9858EfFD232B4033E47d90003D41EC34EcaEda94");
  expect(address).toBe("0x9858effd232b4033e47d90003d41ec34ecaeda94");
});

test("the same account in the form xpub has the same addresses", () => {
  const { publicExtendedKey } = testKey("m/84'/0'/0'", "xpub");
  expect(bitcoinAddress(publicExtendedKey, 0)).toBe(bitcoinAddress(bitcoinAccountKey, 0));
});

test.each([
  ["a public key of its kind", evmAccountKey, "evm", undefined],
  ["a public key of BIP-84", bitcoinAccountKey, "bitcoin", undefined],
  ["a private key", testKey("m/44'/60'/0'", "xpub").privateExtendedKey, "evm", "is a private key"],
  ["a private zprv", testKey("m/84'/0'/0'", "zpub").privateExtendedKey, "bitcoin", "is a private"],
  [
    "a private key of a test network",
    testKey("m/0'", "tpub").privateExtendedKey,
    "testnet",
    "is a",
  ],
  ["a key of another network", bitcoinAccountKey, "evm", "must be the public key of an account"],
  [
    "the key of the whole wallet",
    testKey("m", "xpub").publicExtendedKey,
    "evm",
    "depth 3 and not 0",
  ],
  ["a mistake", evmAccountKey.replace(/.$/, "x"), "evm", "this one has a mistake"],
  ["an address", "0x9858EfFD232B4033E47d90003D41EC34EcaEda94", "evm", "must be the public key"],
  ["a mnemonic", "abandon abandon about", "evm", "must be the public key"],
] as const)("%s", (_, key, kind, problem) => {
  const found = problemOfKey(key, kind);
  if (problem === undefined) expect(found).toBeUndefined();
  else expect(found).toContain(problem);
  expect(found ?? "").not.toContain(key);
});
