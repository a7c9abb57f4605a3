// The processor `onchain`: chains that the gateway reads by itself, with public keys alone.

import { problemOfKey } from "./account-key.ts";
import { type Coin, coins, eth } from "./coins.ts";
import type { Section } from "./section.ts";

/** Chains that are read with public keys of the operator's wallet. */
export type OnchainSettings = {
  readonly type: "onchain";
  readonly name: string;
  /** It has none. */
  readonly webhookSecretEnv?: string;
  readonly bitcoin?: BitcoinSettings;
  readonly evm?: EvmSettings;
};

export type BitcoinSettings = {
  /** As people know the network: `bitcoin`, or a test network whose coins are worth nothing. */
  readonly chain: "bitcoin" | "testnet" | "regtest";
  /** Variable with the address of a node, which may hold credentials. */
  readonly rpcEnv: string;
  readonly accountKey: string;
  readonly gapLimit: number;
  readonly leastUsd: number;
};

export type EvmSettings = {
  readonly accountKey: string;
  /** Unused addresses in a row behind which the operator's wallet still looks. */
  readonly gapLimit: number;
  readonly chains: readonly EvmChain[];
};

export type EvmChain = {
  /** As people know the network, such as `base`. */
  readonly name: string;
  readonly chainId: number;
  /** Variable with the address of a node, which may hold a key. */
  readonly rpcEnv: string;
  /** Blocks until a payment counts. Undefined: once the chain calls its block final. */
  readonly depth: number | undefined;
  /** True: its own coin is Ether, and is taken. */
  readonly takesEther: boolean;
  readonly tokens: readonly EvmToken[];
  readonly leastUsd: number;
};

export type EvmToken = {
  readonly asset: string;
  /** In lower case. */
  readonly contract: string;
  readonly decimals: number;
};

const stepUsd = 5;
const leastUsdMax = 1_000_000;
/** Each order of a new account can make an address that is never paid. */
const gapLimitDefault = 1_000;
/** On Ethereum's main chain the network's fee is too much of a small pack. */
const mainChainId = 1;
const mainChainLeastUsd = 50;

/** Reads the processor. `name` was read before. */
export function readOnchain(section: Section, name: string): OnchainSettings {
  const bitcoin = section.optionalSection("bitcoin");
  const evm = section.optionalSection("evm");
  if (!bitcoin && !evm) section.problem("bitcoin", "is required, or evm");
  return {
    type: "onchain",
    name,
    ...(bitcoin && { bitcoin: readBitcoin(bitcoin) }),
    ...(evm && { evm: readEvm(evm) }),
  };
}

function readBitcoin(section: Section): BitcoinSettings {
  const chain = section.choice("network", ["bitcoin", "testnet", "regtest"], "bitcoin");
  const settings = {
    chain,
    rpcEnv: readRpc(section),
    accountKey: readKey(section, chain === "bitcoin" ? "bitcoin" : "testnet"),
    gapLimit: readGapLimit(section),
    leastUsd: readLeast(section, stepUsd),
  };
  section.rejectUnknown();
  return settings;
}

function readEvm(section: Section): EvmSettings {
  const accountKey = readKey(section, "evm");
  const gapLimit = readGapLimit(section);
  const chains = section.sections("chains").map(readChain);
  for (const [index, { name, chainId }] of chains.entries()) {
    const earlier = chains.slice(0, index);
    if (earlier.some((one) => one.name === name))
      section.problem(`chains[${index}].name`, `there are two chains ${name}`);
    if (earlier.some((one) => one.chainId === chainId))
      section.problem(`chains[${index}].chain_id`, `there are two chains with the id ${chainId}`);
    if (["bitcoin", "testnet", "regtest"].includes(name))
      section.problem(`chains[${index}].name`, `${name} is a network of Bitcoin`);
  }
  section.rejectUnknown();
  return { accountKey, gapLimit, chains };
}

function readChain(section: Section): EvmChain {
  const name = section.text("name");
  if (name !== "" && !/^[a-z][a-z0-9-]{0,31}$/.test(name))
    section.problem("name", "must be 1 to 32 of a-z, 0-9 and -, and begin with a letter");
  const chainId = section.integer("chain_id", { min: 1, max: Number.MAX_SAFE_INTEGER });
  const depth = section.text("depth", "finalized");
  const takesEther = section.flag("ether", false);
  const tokens = section.has("tokens")
    ? section.sections("tokens").map((one) => readToken(one, name))
    : [];
  for (const [index, { asset }] of tokens.entries())
    if (tokens.findIndex((one) => one.asset === asset) < index)
      section.problem(`tokens[${index}].asset`, `there are two tokens ${asset}`);
  if (tokens.length === 0 && !takesEther) section.problem("tokens", "is required, or ether");
  const settings = {
    name,
    chainId,
    takesEther,
    tokens,
    rpcEnv: readRpc(section),
    depth: depth === "finalized" ? undefined : section.integer("depth", { min: 1, max: 10_000 }),
    leastUsd: readLeast(section, chainId === mainChainId ? mainChainLeastUsd : stepUsd),
  };
  section.rejectUnknown();
  return settings;
}

/** `network`: the name of the chain. */
function readToken(section: Section, network: string): EvmToken {
  const contract = section.text("contract");
  if (contract !== "" && !/^0x[0-9a-fA-F]{40}$/.test(contract))
    section.problem("contract", "must be an address: 0x and 40 hexadecimal digits");
  const tokens = coins.filter(({ isToken }) => isToken);
  const asset = readAsset(section, tokens);
  const networks = tokens.find((one) => one.asset === asset)?.networks;
  const known = networks?.find((one) => one.network === network) ?? networks?.[0];
  const token = {
    asset,
    contract: contract.toLowerCase(),
    decimals: section.integer("decimals", { min: 0, max: 18, fallback: known?.decimals ?? 0 }),
  };
  section.rejectUnknown();
  return token;
}

function readGapLimit(section: Section): number {
  return section.integer("gap_limit", { min: 1, max: 10_000_000, fallback: gapLimitDefault });
}

/** The asset of one of some coins. */
export function readAsset(section: Section, of: readonly Coin[], fallback?: string): string {
  const asset = section.text("asset", fallback);
  const assets = of.map((one) => one.asset);
  if (asset !== "" && !assets.includes(asset))
    section.problem("asset", `must be one of ${assets.join(", ")}, not ${asset}`);
  return asset;
}

/** The coins that a chain pays with. */
export function assetsOf({ takesEther, tokens }: Pick<EvmChain, "takesEther" | "tokens">) {
  return [...(takesEther ? [eth.asset] : []), ...tokens.map(({ asset }) => asset)];
}

function readRpc(section: Section): string {
  const name = section.variable("rpc");
  if (name === undefined)
    section.problem("rpc", "is required: the name of an environment variable");
  return name ?? "";
}

function readKey(section: Section, kind: "bitcoin" | "testnet" | "evm"): string {
  const text = section.text("account_key");
  const problem = text === "" ? undefined : problemOfKey(text, kind);
  if (problem !== undefined) section.problem("account_key", problem);
  return text;
}

function readLeast(section: Section, fallback: number): number {
  return section.integer("least_usd", { min: stepUsd, max: leastUsdMax, fallback });
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
  const text = (env[rpcEnv] ?? "").trim();
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && /^https?:$/.test(url.protocol) ? url : undefined;
}
