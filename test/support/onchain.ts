// The processor `onchain` on chains of tests: rates that agree, and an address in front of each
// node that can be behind, lie, or be away.

import { pbkdf2Sync } from "node:crypto";
import { HDKey } from "@scure/bip32";
import type { OnchainSettings, PaymentSettings } from "../../src/config/catalog.ts";
import { simulatedPayments } from "../../src/config/catalog.ts";
import { type JsonServer, startJsonServer } from "./json-server.ts";

const mnemonic = `${"abandon ".repeat(11)}about`;
const seed = pbkdf2Sync(mnemonic, "mnemonic", 2048, 64, "sha512");
const forms = {
  xpub: { public: 0x0488b21e, private: 0x0488ade4 },
  zpub: { public: 0x04b24746, private: 0x04b2430c },
  tpub: { public: 0x043587cf, private: 0x04358394 },
};

/** A key of the mnemonic "abandon … about". */
export function testKey(path: string, form: keyof typeof forms): HDKey {
  return HDKey.fromMasterSeed(seed, forms[form]).derive(path);
}

export const evmAccountKey = testKey("m/44'/60'/0'", "xpub").publicExtendedKey;
export const bitcoinAccountKey = testKey("m/84'/0'/0'", "zpub").publicExtendedKey;
export const regtestAccountKey = testKey("m/84'/1'/0'", "tpub").publicExtendedKey;

/** Two sources of rates, in dollars. */
export async function startRates(prices: Record<string, number>) {
  const server = await startJsonServer(({ path }) => {
    const [, coin = "", source = ""] = path.split("/");
    const price = prices[coin] ?? 0;
    return { body: source === "a" ? { data: { amount: String(price) } } : { price: [price] } };
  });
  const of = (coin: string) => [
    { url: `${server.url}/${coin}/a`, path: "data.amount" },
    { url: `${server.url}/${coin}/b`, path: "price.0" },
  ];
  return { ...server, prices, sources: { BTC: of("BTC"), ETH: of("ETH") } };
}

export function onchainSettings(
  chains: Omit<OnchainSettings, "type" | "name">,
  rates: PaymentSettings["rates"],
): PaymentSettings {
  return {
    ...simulatedPayments,
    processors: [{ type: "onchain", name: "onchain", ...chains }],
    ...(rates && { rates }),
  };
}

type RpcBody = { id: unknown; method: string; params: unknown[] };
/** What a node answers to a call instead. Undefined: what it would have said. */
export type Bend = (method: string, params: readonly unknown[], result: unknown) => unknown;

/** Passes calls on to a node. `bend` changes what it says; `isAway`: it says nothing. */
export async function startFront(node: string) {
  const target = new URL(node);
  const { username, password } = target;
  target.username = "";
  target.password = "";
  const state: { bend: Bend | undefined; isAway: boolean } = { bend: undefined, isAway: false };
  const server: JsonServer = await startJsonServer(async ({ body }) => {
    if (state.isAway) return { status: 503, body: "away" };
    const response = await fetch(target, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(username !== "" && {
          authorization: `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`,
        }),
      },
      body: JSON.stringify(body),
    });
    const answered: unknown = await response.json();
    const { bend } = state;
    if (!bend) return { body: answered };
    const calls: RpcBody[] = Array.isArray(body) ? body : [Object(body)];
    const answers: { id: unknown; result: unknown }[] = Array.isArray(answered)
      ? answered
      : [Object(answered)];
    const bent = answers.map((answer) => {
      const call = calls.find(({ id }) => id === answer.id);
      const other = call && bend(call.method, call.params, answer.result);
      return other === undefined ? answer : { ...answer, result: other };
    });
    return { body: Array.isArray(answered) ? bent : bent[0] };
  });
  return { ...server, state };
}
