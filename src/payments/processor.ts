// The port to those who receive coins for us. A processor says what arrived; it never decides what
// that is worth in credits.

import type { FamilyName } from "../base/families.ts";
import type { Coin } from "../config/catalog.ts";

/** Where an amount of coins counts: the same coin on another network is another asset. */
export type Asset = {
  /** That of one of `coins`. */
  readonly asset: string;
  readonly network: string;
  /** Atoms of one coin are `10 ** decimals`. */
  readonly decimals: number;
};

/** A coin on its usual network. */
export function usualOf({ asset, networks: [usual] }: Coin): Asset {
  return { asset, network: usual.network, decimals: usual.decimals };
}

export type Method = Asset & {
  /** Unique among the methods of all processors. */
  readonly method: string;
  readonly leastUsdMicro: bigint;
  readonly feeNote: string;
};

export type DepositState = "seen" | "settled" | "lost";

/** What arrived for an order. */
export type SeenDeposit = Asset & {
  /** Unique at its processor, and the same at every look. */
  readonly externalId: string;
  readonly atoms: bigint;
  readonly state: DepositState;
  /** Of its transaction, by which people look for it. Absent: the processor does not say. */
  readonly hash?: string | undefined;
  /** The processor's time, or the block's: never that of our look, which may come late. */
  readonly firstSeenAt: Date;
  /** Micro-dollars, where the processor's own valuation counts. */
  readonly usdMicro?: bigint | undefined;
  /** Micro-dollars of one coin at its first sight. Absent: the market is asked. */
  readonly marketRate?: bigint | undefined;
  /** The time of its block. Absent: it is in none, or the processor does not say. */
  readonly blockAt?: Date | undefined;
  /** True: lost before it settled, it may come back, since its chain can. Default: it may not. */
  readonly mayReturn?: boolean;
  readonly confirmations: number;
  readonly confirmationsNeeded: number;
};

/**
 * What a processor reports besides deposits. `marked`: somebody called the order paid there.
 * `failed`: it could not receive what was sent. `swept`: its address was emptied while something
 * may have arrived. `flooded`: more payments came to it than are asked for.
 */
export type Fault = "marked" | "failed" | "swept" | "flooded";

/** What a processor says about one order, whoever asked for it. */
export type Look = {
  readonly deposits: readonly SeenDeposit[];
  readonly faults: readonly Fault[];
  /** The moment of which it is true. Default: that of the question. */
  readonly asOf?: Date;
};

export type NewOrder = {
  readonly orderId: string;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly method: string;
  readonly usdMicro: bigint;
  readonly createdAt: Date;
  /** True: an earlier call may have opened it, and its answer may be lost. */
  readonly isRepeat: boolean;
};

/** What a customer has to pay, and where. */
export type Quote = {
  readonly externalId: string;
  readonly atoms: bigint;
  /** Micro-dollars of one coin. */
  readonly rate: bigint;
  readonly payTo: string;
  readonly memo: string;
  readonly checkoutUrl: string;
  /** How long the rate stands, and how long the processor watches the address. */
  readonly quotedForMs: number;
  readonly watchedForMs: number;
};

/** The order that is looked at. */
export type LookedAt = {
  readonly orderId: string;
  readonly externalId: string;
  /** Further payments of it that webhooks named. */
  readonly named: readonly string[];
};

/** A payment at a processor. `externalId`: of its order there. */
export type FoundPayment = { readonly externalId: string; readonly deposit: SeenDeposit };

/** What a webhook is about. A text is empty where it names nothing. */
export type Hook = {
  readonly deliveryKey: string;
  /** The order at the processor. */
  readonly externalId: string;
  /** A further payment of that order, which only webhooks name. */
  readonly depositId?: string;
};

export type Secrets = {
  readonly apiKey: string;
  /** Undefined: there are no webhooks. */
  readonly webhookSecret: string | undefined;
};

export interface Processor {
  readonly name: string;
  /** True: no real money. */
  readonly isSimulated: boolean;
  /** Empty while the processor is away. */
  methods(signal: AbortSignal): Promise<readonly Method[]>;
  /** Repeats with the same order id give the same quote, where the processor allows it. */
  open(order: NewOrder, signal: AbortSignal): Promise<Quote>;
  /** Asks the processor or the chain. */
  look(order: LookedAt, signal: AbortSignal): Promise<Look>;
  /**
   * What a webhook is about. Throws `invalid_signature`. Never reads an amount from it. Absent: the
   * processor has no secret, and so no webhooks.
   */
  readHook?(headers: Readonly<Record<string, string>>, raw: Buffer): Hook;
  /**
   * The payments that a transaction made, or the one with an id, each with its order at the
   * processor. Empty: it knows none. Absent: it cannot be asked.
   */
  findPayments?(hashOrId: string, signal: AbortSignal): Promise<readonly FoundPayment[]>;
  /** The open orders that an order replaces, because they have the same address. */
  findReplaced?(order: NewOrder): Promise<readonly string[]>;
  /** In micro-dollars of one coin. Absent: none is configured. */
  readonly marketRate?: MarketRate | undefined;
}

/** No payment is worth more, in micro-dollars: a column has to hold it. */
export const usdMicroMax = 2n ** 53n;

/**
 * The market's rate of an asset, from sources that agree: of a moment, which may be past; `now`, at
 * most a minute old; or the `last` that is known. Undefined: unknown.
 */
export type MarketRate = (
  asset: { asset: string },
  at: Date | "now" | "last",
) => Promise<bigint | undefined>;

/** The atoms that are worth `usdMicro` at least. */
export function atomsFor(usdMicro: bigint, rate: bigint, decimals: number): bigint {
  return (usdMicro * 10n ** BigInt(decimals) + rate - 1n) / rate;
}
