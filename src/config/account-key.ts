// Public keys of wallet accounts, from which addresses are derived. Private ones are refused.

import { HDKey } from "@scure/bip32";

export type KeyKind = "bitcoin" | "testnet" | "evm";

/** Version bytes of the two forms of each kind. `zpub` and `vpub` are of BIP-84 accounts. */
const forms: Readonly<Record<string, { public: number; private: number }>> = {
  xpub: { public: 0x0488b21e, private: 0x0488ade4 },
  zpub: { public: 0x04b24746, private: 0x04b2430c },
  tpub: { public: 0x043587cf, private: 0x04358394 },
  vpub: { public: 0x045f1cf6, private: 0x045f18bc },
};

const allowed: Readonly<Record<KeyKind, readonly string[]>> = {
  bitcoin: ["zpub", "xpub"],
  testnet: ["vpub", "tpub"],
  evm: ["xpub"],
};

/** The depth of an account in BIP-44 and BIP-84: purpose, coin, account. */
const accountDepth = 3;

/** What is wrong with a key, without repeating it. Undefined: nothing. */
export function problemOfKey(text: string, kind: KeyKind): string | undefined {
  const wanted = `must be the public key of an account (${allowed[kind].join(" or ")})`;
  if (/^[a-zA-Z]prv/.test(text))
    return (
      "is a private key, and whoever reads this file can spend what it holds. Move the coins to " +
      `a new wallet; here it ${wanted}`
    );
  if (!allowed[kind].some((form) => text.startsWith(form))) return wanted;
  try {
    const { depth } = readAccountKey(text);
    return depth === accountDepth
      ? undefined
      : `${wanted}, at depth ${accountDepth} and not ${depth}`;
  } catch {
    return `${wanted}, and this one has a mistake`;
  }
}

/** The key of a text without a problem. Throws for any other. */
export function readAccountKey(text: string): HDKey {
  const key = HDKey.fromExtendedKey(text, forms[text.slice(0, 4)]);
  if (key.privateKey) throw new Error("a key is private");
  return key;
}
