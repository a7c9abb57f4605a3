// Addresses of our own, derived from the public key of an account. The gateway holds no key that
// could spend.

import { createHash } from "node:crypto";
import { secp256k1 } from "@noble/curves/secp256k1.js";
import { keccak_256 } from "@noble/hashes/sha3.js";
import { bech32 } from "@scure/base";
import { readAccountKey } from "../config/catalog.ts";

/** Of addresses that receive, in BIP-44 and BIP-84. */
const receiving = 0;

/** Names an account key where it is used, without repeating it. */
export function keyIdOf(accountKey: string): string {
  return createHash("sha256").update(accountKey).digest("hex").slice(0, 16);
}

export type BitcoinNetwork = "bitcoin" | "testnet" | "regtest";

const prefixes = { bitcoin: "bc", testnet: "tb", regtest: "bcrt" } as const;

/** Pay to witness public key hash, as BIP-84 says. */
export function bitcoinAddress(
  accountKey: string,
  index: number,
  network: BitcoinNetwork = "bitcoin",
): string {
  const { identifier } = childOf(accountKey, index);
  if (!identifier) throw new Error("a key has no hash");
  return bech32.encode(prefixes[network], [0, ...bech32.toWords(identifier)]);
}

/** In lower case. */
export function evmAddress(accountKey: string, index: number): string {
  const { publicKey } = childOf(accountKey, index);
  if (!publicKey) throw new Error("a key has no point");
  const point = secp256k1.Point.fromBytes(publicKey).toBytes(false);
  return `0x${Buffer.from(keccak_256(point.subarray(1)).subarray(12)).toString("hex")}`;
}

/** With the checksum of EIP-55 in its capitals, as wallets show it. */
export function checksummed(address: string): string {
  const digits = address.slice(2).toLowerCase();
  const hash = Buffer.from(keccak_256(Buffer.from(digits))).toString("hex");
  const letters = [...digits].map((digit, index) =>
    Number.parseInt(hash.charAt(index), 16) >= 8 ? digit.toUpperCase() : digit,
  );
  return `0x${letters.join("")}`;
}

function childOf(accountKey: string, index: number) {
  return readAccountKey(accountKey).deriveChild(receiving).deriveChild(index);
}
