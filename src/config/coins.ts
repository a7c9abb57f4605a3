// The coins that can be paid with. Settings, rates, processors, readers of chains, the rules and
// the simulated processor all read this list: a coin that is added to it can be offered by each.

export type Coin = {
  /** As people write it, such as `BTC`. */
  readonly asset: string;
  /** True: it is a dollar, unless sources of rates say otherwise. False: it has a market. */
  readonly isStablecoin: boolean;
  /** True: on EVM chains, a contract logs its transfers. */
  readonly isToken: boolean;
  /** At least one. The first is the usual one. */
  readonly networks: readonly [CoinNetwork, ...CoinNetwork[]];
  /**
   * Blocks that a payment needs, where the gateway reads the chain by itself: the first step above
   * what its account was paid within a day. `chain`: as the settings of the chain say.
   */
  readonly depth: "chain" | readonly DepthStep[];
  /** Dollars of one coin of the simulated processor. */
  readonly simulatedUsd: number;
};

/** Without `belowUsd`, it is for all. */
export type DepthStep = { readonly belowUsd?: number; readonly blocks: number };

export type CoinNetwork = {
  readonly network: string;
  /** Atoms of one coin are `10 ** decimals`. */
  readonly decimals: number;
  /** The name of processors for it there. Absent: they do not take it, or each has its own. */
  readonly btcpay?: string;
  readonly nowpayments?: string;
};

export const btc: Coin = {
  asset: "BTC",
  isStablecoin: false,
  isToken: false,
  networks: [
    { network: "bitcoin", decimals: 8, btcpay: "BTC-CHAIN", nowpayments: "btc" },
    // Thousandths of a satoshi.
    { network: "lightning", decimals: 11, btcpay: "BTC-LN" },
  ],
  depth: [{ belowUsd: 100, blocks: 1 }, { belowUsd: 1_000, blocks: 3 }, { blocks: 6 }],
  simulatedUsd: 65_000,
};

/** The own coin of EVM chains that take it. */
export const eth: Coin = {
  asset: "ETH",
  isStablecoin: false,
  isToken: false,
  networks: [
    { network: "ethereum", decimals: 18, nowpayments: "eth" },
    { network: "arbitrum", decimals: 18, nowpayments: "etharb" },
    { network: "base", decimals: 18, nowpayments: "ethbase" },
  ],
  depth: "chain",
  simulatedUsd: 2_500,
};

const usdt: Coin = {
  asset: "USDT",
  isStablecoin: true,
  isToken: true,
  networks: [
    { network: "tron", decimals: 6, btcpay: "USDT-TRON", nowpayments: "usdttrc20" },
    { network: "ethereum", decimals: 6, btcpay: "USDT-ETHEREUM", nowpayments: "usdterc20" },
    { network: "bsc", decimals: 18, nowpayments: "usdtbsc" },
    { network: "polygon", decimals: 6, nowpayments: "usdtmatic" },
    { network: "arbitrum", decimals: 6, nowpayments: "usdtarb" },
    { network: "solana", decimals: 6, nowpayments: "usdtsol" },
    { network: "ton", decimals: 6, nowpayments: "usdtton" },
  ],
  depth: "chain",
  simulatedUsd: 1,
};

const usdc: Coin = {
  asset: "USDC",
  isStablecoin: true,
  isToken: true,
  networks: [
    { network: "base", decimals: 6, nowpayments: "usdcbase" },
    { network: "ethereum", decimals: 6, nowpayments: "usdc" },
    { network: "arbitrum", decimals: 6, nowpayments: "usdcarb" },
    { network: "polygon", decimals: 6, nowpayments: "usdcmatic" },
    { network: "solana", decimals: 6, nowpayments: "usdcsol" },
  ],
  depth: "chain",
  simulatedUsd: 1,
};

/** A test adds another one. */
export const coins: Coin[] = [btc, eth, usdt, usdc];
