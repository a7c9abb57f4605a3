// Payments that the gateway reads from chains by itself, at addresses of public keys of the
// operator's wallet. Each account has one permanent address for each pool and kind of chain, so
// that late, doubled and odd payments reach it too.

import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { FamilyName } from "../base/families.ts";
import type { Outbound } from "../base/outbound.ts";
import { btc, eth, type OnchainSettings, rpcOf } from "../config/catalog.ts";
import { bitcoinAddress, checksummed, evmAddress, keyIdOf } from "./addresses.ts";
import { createBitcoin } from "./bitcoin.ts";
import type { Chain, ChainParts } from "./chain.ts";
import { withAtoms } from "./chain-tables.ts";
import { isStablecoin } from "./decide.ts";
import { createEvm } from "./evm.ts";
import type { DepositAddresses } from "./parts.ts";
import {
  type Asset,
  atomsFor,
  type Method,
  type NewOrder,
  type Processor,
  usualOf,
} from "./processor.ts";
import { createRpc } from "./rpc.ts";

const microDollars = 1_000_000n;
const minute = 60_000;
const quotedForMs = 15 * minute;
const watchedForMs = 7 * 24 * 60 * minute;

/** The name of a method of this processor. */
export function methodOf(name: string, asset: string, chain: string): string {
  return `${name}:${asset.toLowerCase()}-${chain}`;
}

/** One account key, and the networks that pay to its addresses. */
type Keyring = {
  readonly keyId: string;
  readonly networks: readonly string[];
  readonly gapLimit: number;
  address(index: number): string;
  /** As wallets show it. */
  show(address: string): string;
};

export function createOnchain(
  { name, bitcoin, evm }: OnchainSettings,
  env: NodeJS.ProcessEnv,
  parts: ChainParts & { readonly outbound: Outbound },
): Processor & DepositAddresses & { readonly chains: readonly Chain[] } {
  const { store, marketRate } = parts;
  const methods: Method[] = [];
  const chains: Chain[] = [];
  const keyrings: Keyring[] = [];
  const add = (asset: Asset, leastUsd: number, feeNote: string) =>
    methods.push({
      ...asset,
      method: methodOf(name, asset.asset, asset.network),
      feeNote,
      leastUsdMicro: BigInt(leastUsd) * microDollars,
    });
  // The start refuses a configuration without the address of a node.
  const rpc = (chain: string, rpcEnv: string) =>
    createRpc(
      `the node of ${chain}`,
      rpcOf(rpcEnv, env) ?? new URL("http://127.0.0.1:1"),
      parts.outbound,
    );

  if (bitcoin) {
    const { chain, accountKey, gapLimit, leastUsd } = bitcoin;
    keyrings.push({
      keyId: keyIdOf(accountKey),
      networks: [chain],
      gapLimit,
      address: (index) => bitcoinAddress(accountKey, index, chain),
      show: (address) => address,
    });
    chains.push(createBitcoin(bitcoin, rpc(chain, bitcoin.rpcEnv), parts));
    const note = "The network's fee is the sender's. Some exchanges subtract it: send it in full.";
    add({ ...usualOf(btc), network: chain }, leastUsd, note);
  }
  if (evm) {
    const { accountKey, gapLimit } = evm;
    keyrings.push({
      keyId: keyIdOf(accountKey),
      networks: evm.chains.map((one) => one.name),
      gapLimit,
      address: (index) => evmAddress(accountKey, index),
      show: checksummed,
    });
    for (const chain of evm.chains) {
      chains.push(createEvm(chain, rpc(chain.name, chain.rpcEnv), parts));
      const { name: network, leastUsd, depth, takesEther } = chain;
      const when = depth === undefined ? "once its block is final" : `after ${depth} blocks`;
      const note = `Send on ${network} only. It counts ${when}.`;
      for (const { asset, decimals } of chain.tokens)
        add({ asset, network, decimals }, leastUsd, note);
      if (takesEther) add({ ...usualOf(eth), network }, leastUsd, note);
    }
  }

  function keyringOf(network: string): Keyring {
    const found = keyrings.find(({ networks }) => networks.includes(network));
    const allowed = keyrings.flatMap(({ networks }) => networks);
    if (!found) throw invalidField("network", "is not read here", allowed);
    return found;
  }

  async function findAddress(accountId: string, family: FamilyName, network: string) {
    const { keyId, show } = keyringOf(network);
    const known = await store.run(sql.findAddress, { keyId, accountId, family });
    return known && show(known.address);
  }

  async function addressOf(accountId: string, family: FamilyName, network: string) {
    const known = await findAddress(accountId, family, network);
    if (known !== undefined) return known;
    const keyring = keyringOf(network);
    const { keyId } = keyring;
    await store
      .transaction(async (tables) => {
        const { index } = await tables.run(sql.takeIndex, { keyId });
        const address = keyring.address(Number(index));
        const made = { keyId, index, address, accountId, family };
        if ((await tables.run(sql.insertAddress, made)) === 0) throw new TakenError();
      })
      .catch((error: unknown) => {
        // Another call has just made it. The index is free again.
        if (!(error instanceof TakenError)) throw error;
      });
    const made = await findAddress(accountId, family, network);
    if (made === undefined) throw new Error("an address that was stored is gone");
    return made;
  }

  return {
    name,
    isSimulated: false,
    chains,
    marketRate,
    findAddress,
    addressOf,
    networks: () => keyrings.flatMap(({ networks }) => networks),
    async listAddresses(network, after, rows) {
      const { keyId, gapLimit, show } = keyringOf(network);
      const given = await store.run(sql.countAddresses, { keyId });
      const found = await store.run(sql.listGiven, { keyId, after, rows });
      const addresses = found.map((one) => ({ ...one, address: show(one.address) }));
      return { given: given?.addresses ?? 0n, gapLimit, addresses };
    },
    methods: async () => methods,
    async open(order) {
      const method = methods.find((one) => one.method === order.method);
      if (!method) throw new Error(`${name} has no method ${order.method}`);
      const { network, decimals } = method;
      const rate = isStablecoin(method) ? microDollars : await marketRate?.(method, "now");
      if (rate === undefined)
        throw new ApiError("gateway_unavailable", {
          message: `No rate of ${method.asset} is known now. Try again shortly.`,
          retryAfterMs: minute / 2,
        });
      const payTo = await addressOf(order.accountId, order.family, network);
      return {
        payTo,
        rate,
        quotedForMs,
        watchedForMs,
        memo: "",
        checkoutUrl: "",
        // What arrives belongs to the order whose quote stood then, so it names its chain alone.
        externalId: `${network}:${order.orderId}`,
        atoms: atomsFor(order.usdMicro, rate, decimals),
      };
    },
    async findReplaced({ orderId, accountId, family, method }: NewOrder) {
      const network = methods.find((one) => one.method === method)?.network ?? "";
      const { networks } = keyringOf(network);
      const of = { processor: name, orderId, accountId, family, networks };
      return (await store.run(sql.listOpenOthers, of)).map((one) => one.orderId);
    },
    async look({ orderId, externalId }) {
      const [chain = ""] = externalId.split(":", 1);
      const read = await store.findReadChain({ processor: name, chain });
      if (!read) throw new Error(`${chain} was not read yet`);
      const payments = await store.run(sql.listChainPayments, { processor: name, orderId });
      return {
        faults: [],
        // What is true of a chain is true of the moment at which it was read to its end.
        asOf: read.readAt ?? new Date(0),
        deposits: payments.map(({ height, needed, marketRate, blockAt, ...payment }) => ({
          ...withAtoms(payment),
          blockAt: blockAt ?? undefined,
          marketRate: marketRate ?? undefined,
          mayReturn: true,
          // The newest block is stored last, after the payments in it.
          confirmations: height === null ? 0 : Math.max(1, read.tip - Number(height) + 1),
          confirmationsNeeded: needed,
        })),
      };
    },
  };
}

class TakenError extends Error {}
