// The processor `onchain`: chains that the gateway reads by itself, with public keys alone.

import * as v from "valibot";
import { type KeyKind, problemOfKey } from "./account-key.ts";
import { type Coin, coins, eth } from "./coins.ts";
import {
  anyList,
  checked,
  choice,
  distinct,
  flag,
  integer,
  list,
  section,
  text,
  variable,
} from "./schema.ts";

const stepUsd = 5;
/** On Ethereum's main chain the network's fee is too much of a small pack. */
const mainChainId = 1;
const mainChainLeastUsd = 50;
const bitcoinChains = ["bitcoin", "testnet", "regtest"] as const;

/** The name of a network or of a processor. */
export const shortName = checked((value) =>
  /^[a-z][a-z0-9-]{0,31}$/.test(value)
    ? undefined
    : "must be 1 to 32 of a-z, 0-9 and -, and begin with a letter",
);

/** The asset of one of some coins, which may become more. */
export function assetOf(of: () => readonly Coin[]) {
  return checked((value) => {
    const assets = of().map(({ asset }) => asset);
    return assets.includes(value) ? undefined : `must be one of ${assets.join(", ")}, not ${value}`;
  });
}

const wallet = {
  /** The public key of an account of the operator's wallet. */
  account_key: text,
  /**
   * Unused addresses in a row behind which that wallet still looks. Each order of a new account can
   * make an address that is never paid.
   */
  gap_limit: v.optional(integer(1, 10_000_000), "1000"),
};
const leastUsd = v.exactOptional(integer(stepUsd, 1_000_000));
const ofKey = (kind: KeyKind) => (key: string) => problemOfKey(key, kind);

const bitcoin = v.pipe(
  section(
    {
      /** As people know it: `bitcoin`, or a test network whose coins are worth nothing. */
      network: v.optional(choice(bitcoinChains), "bitcoin"),
      /** Variable with the address of a node, which may hold credentials. */
      rpc: variable,
      ...wallet,
      least_usd: leastUsd,
    },
    (rule) =>
      rule("account_key", ["network", "account_key"], ({ network, account_key }) =>
        problemOfKey(account_key, network === "bitcoin" ? "bitcoin" : "testnet"),
      ),
  ),
  v.transform(({ network: chain, rpc: rpcEnv, ...one }) => ({
    leastUsd: stepUsd,
    ...one,
    chain,
    rpcEnv,
  })),
);

export type BitcoinSettings = v.InferOutput<typeof bitcoin>;

const tokenCoins = () => coins.filter(({ isToken }) => isToken);

const token = section({
  asset: assetOf(tokenCoins),
  /** In lower case. */
  contract: v.pipe(
    checked((value) =>
      /^0x[0-9a-fA-F]{40}$/.test(value)
        ? undefined
        : "must be an address: 0x and 40 hexadecimal digits",
    ),
    v.toLowerCase(),
  ),
  /** Default: as the coin has on this network. */
  decimals: v.exactOptional(integer(0, 18)),
});

const chain = v.pipe(
  section(
    {
      /** As people know the network, such as `base`. */
      name: v.pipe(
        shortName,
        v.check(
          (name) => !bitcoinChains.some((one) => one === name),
          ({ input }) => `${input} is a network of Bitcoin`,
        ),
      ),
      chain_id: integer(1, Number.MAX_SAFE_INTEGER),
      /** Variable with the address of a node, which may hold a key. */
      rpc: variable,
      /** Blocks until a payment counts. `finalized`: once the chain calls its block final. */
      depth: v.optional(
        v.lazy((input) =>
          input === "finalized"
            ? v.pipe(
                text,
                v.transform(() => undefined),
              )
            : integer(1, 10_000, ", or finalized"),
        ),
        "finalized",
      ),
      /** True: its own coin is Ether, and is taken. */
      ether: v.optional(flag, "false"),
      tokens: v.pipe(
        v.optional(v.pipe(anyList(token), distinct("asset", "tokens"))),
        v.transform((tokens) => tokens ?? []),
      ),
      /** The smallest order, in dollars. */
      least_usd: leastUsd,
    },
    (rule) =>
      rule("tokens", ["tokens", "ether"], ({ tokens, ether }) =>
        tokens.length === 0 && !ether ? "is required, or ether" : undefined,
      ),
  ),
  v.transform(({ rpc: rpcEnv, ether: takesEther, tokens, ...one }) => ({
    leastUsd: one.chainId === mainChainId ? mainChainLeastUsd : stepUsd,
    ...one,
    rpcEnv,
    takesEther,
    tokens: tokens.map((token) => ({ decimals: decimalsOf(token.asset, one.name), ...token })),
  })),
);

export type EvmChain = v.InferOutput<typeof chain>;

/** Of a coin on a network, or on its usual one. */
function decimalsOf(asset: string, network: string): number {
  const networks = coins.find((one) => one.asset === asset)?.networks;
  return (networks?.find((one) => one.network === network) ?? networks?.[0])?.decimals ?? 0;
}

const evm = section({
  ...wallet,
  account_key: checked(ofKey("evm")),
  chains: v.pipe(
    list(chain),
    distinct("name", "chains"),
    distinct("chain_id", "chains with the id"),
  ),
});

/** Chains that are read with public keys of the operator's wallet. */
export const onchain = section(
  {
    name: shortName,
    type: v.literal("onchain"),
    bitcoin: v.exactOptional(bitcoin),
    evm: v.exactOptional(evm),
  },
  (rule) =>
    rule("bitcoin", ["bitcoin", "evm"], ({ bitcoin, evm }) =>
      bitcoin || evm ? undefined : "is required, or evm",
    ),
);

export type OnchainSettings = v.InferOutput<typeof onchain>;

/** The coins that a chain pays with. */
export function assetsOf({ takesEther, tokens }: Pick<EvmChain, "takesEther" | "tokens">) {
  return [...(takesEther ? [eth.asset] : []), ...tokens.map(({ asset }) => asset)];
}

/** The variables of a processor's nodes, with the members that name them. */
export function rpcsOf({ bitcoin, evm }: OnchainSettings): { member: string; name: string }[] {
  return [
    ...(bitcoin ? [{ member: "bitcoin.rpc", name: bitcoin.rpcEnv }] : []),
    ...(evm?.chains ?? []).map(({ rpcEnv }, index) => ({
      member: `evm.chains[${index}].rpc`,
      name: rpcEnv,
    })),
  ];
}

/** The address of a node, if the environment holds one. */
export function rpcOf(rpcEnv: string, env: NodeJS.ProcessEnv): URL | undefined {
  const url = URL.parse((env[rpcEnv] ?? "").trim());
  return url && /^https?:$/.test(url.protocol) ? url : undefined;
}
