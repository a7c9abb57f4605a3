// The port to those who receive coins for us. A processor says what arrived; it never decides what
// that is worth in credits.

/** Where an amount of coins counts: the same coin on another network is another asset. */
export type Asset = {
  /** `BTC`, `ETH`, `USDT` or `USDC`. */
  readonly asset: string;
  readonly network: string;
  /** Atoms of one coin are `10 ** decimals`. */
  readonly decimals: number;
};

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
  /** The processor's time, or the block's: never that of our look, which may come late. */
  readonly firstSeenAt: Date;
  /** Micro-dollars, where the processor's own valuation counts. */
  readonly usdMicro?: bigint | undefined;
  readonly confirmations: number;
  readonly confirmationsNeeded: number;
};

/**
 * What a processor reports besides deposits. `marked`: somebody called the order paid there.
 * `failed`: it could not receive what was sent.
 */
export type Fault = "marked" | "failed";

/** What a processor says about one order, whoever asked for it. */
export type Look = { readonly deposits: readonly SeenDeposit[]; readonly faults: readonly Fault[] };

export type NewOrder = {
  readonly orderId: string;
  readonly accountId: string;
  readonly method: string;
  readonly usdMicro: bigint;
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

export interface Processor {
  readonly name: string;
  /** True: no real money. */
  readonly isSimulated: boolean;
  methods(): readonly Method[];
  /** Repeats with the same order id give the same quote, where the processor allows it. */
  open(order: NewOrder, signal: AbortSignal): Promise<Quote>;
  /** Asks the processor or the chain. */
  look(order: { orderId: string; externalId: string }, signal: AbortSignal): Promise<Look>;
  /**
   * What a webhook is about. Throws `invalid_signature`. Never reads an amount from it. Absent: the
   * processor has no secret, and so no webhooks. Both texts may be empty.
   */
  readHook?(
    headers: Readonly<Record<string, string>>,
    raw: Buffer,
  ): { readonly deliveryKey: string; readonly externalId: string };
  /**
   * Micro-dollars of one coin at this time, from sources that agree. Undefined: unknown. Absent:
   * the processor has no rates of its own.
   */
  marketRate?(asset: Asset, at: Date): Promise<bigint | undefined>;
}

/** The atoms that are worth `usdMicro` at least. */
export function atomsFor(usdMicro: bigint, rate: bigint, decimals: number): bigint {
  return (usdMicro * 10n ** BigInt(decimals) + rate - 1n) / rate;
}
