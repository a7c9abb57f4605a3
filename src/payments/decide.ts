// Every rule about the money of an order, as one pure function: what its deposits are worth, what
// is granted for them, its state, and why a person has to look. README.md has the rules by number.

import { max, microCreditsPerMicroDollar, min } from "../base/money.ts";
import { coins } from "../config/catalog.ts";
import type { Asset, DepositState } from "./processor.ts";

const microDollars = 1_000_000n;
/** How long after its end a quote holds for a block with a payment that was seen in time. */
export const quoteHoldsMs = 2 * 3_600_000;
/** How much earlier the time of a block may be than that of the payments in it. */
const blockTimeOffMs = 15_000;

export type OrderState =
  | "open"
  | "seen"
  | "partly_paid"
  | "paid"
  | "expired"
  | "cancelled"
  | "closed";

/** The reasons for which a person has to look at an order, the most pressing first. */
export const attentionNames = [
  "lost",
  "account_closed",
  "failed",
  "marked",
  "swept",
  "flooded",
  "wrong_asset",
  "late",
  "depeg",
  "unconfirmed",
  "overpaid",
] as const;
export type AttentionName = (typeof attentionNames)[number];

/** What an order is, as far as the rules ask for it. */
export type RuledOrder = Asset & {
  /** What the pack costs, in micro-dollars. */
  readonly usdMicro: bigint;
  /** Micro-dollars of one coin. */
  readonly rate: bigint;
  readonly state: OrderState;
  readonly cancelledAt: Date | null;
  readonly createdAt: Date;
  readonly quotedUntil: Date;
  readonly watchedUntil: Date;
  /** The start of the last look that the processor answered. Null: it answered none. */
  readonly lookedAt: Date | null;
  /**
   * What the processor reported besides deposits: `marked`, `failed`. And `account_closed:<n>` for
   * each grant that went to a closed account.
   */
  readonly faults: readonly string[];
  /** The facts that a person has dealt with. */
  readonly handled: readonly string[];
  /** Micro-credits that the rules granted up to now. */
  readonly ruleMicro: bigint;
  /** Micro-credits that refunds took back. */
  readonly takenBackMicro: bigint;
  /**
   * What persons granted: micro-credits by deposit. An empty id stands for no single deposit. A
   * deposit that is named here is theirs alone, also with 0.
   */
  readonly decided: readonly { readonly depositId: string; readonly micro: bigint }[];
};

/** `lowest`: the quote, or a rate of the market that is lower and counts as well. */
export type ValuedBy = "quote" | "market" | "lowest" | "processor";

export type RuledDeposit = Asset & {
  readonly externalId: string;
  readonly atoms: bigint;
  readonly state: DepositState;
  readonly firstSeenAt: Date;
  /** Null: it never settled. */
  readonly settledAt: Date | null;
  /** Micro-dollars, where the processor's own valuation counts. */
  readonly processorUsdMicro: bigint | null;
  /** Micro-dollars of one coin at the first sight. Null: unknown. */
  readonly marketRate: bigint | null;
  /** The time of its block, and the rate then. Null: it is in none, unknown, or not needed. */
  readonly blockAt: Date | null;
  readonly blockRate: bigint | null;
  /** How it was valued when it settled. Null: it was not. */
  readonly valuedBy: ValuedBy | null;
  /** Reported again after it was lost. */
  readonly isReturned: boolean;
};

export type Decision = {
  readonly state: OrderState;
  /** The most pressing fact that nobody has dealt with. */
  readonly attention: AttentionName | undefined;
  /** Every fact that needs a person and that nobody has dealt with, as `kind:details`. */
  readonly facts: readonly string[];
  /** By external id: how each deposit is valued that counts. */
  readonly valued: ReadonlyMap<string, ValuedBy>;
  /** What the settled deposits are worth together, in micro-dollars. */
  readonly receivedUsdMicro: bigint;
  /** What the rules grant, and what is granted in all, in micro-credits. */
  readonly ruleMicro: bigint;
  readonly targetMicro: bigint;
  /** The quote is over, and what arrived counts as less than the pack. Below 1 USD it does not. */
  readonly isShort: boolean;
};

/** Decides about an order. `deposits`: all that was ever reported. `now`: the database's clock. */
export function decide(order: RuledOrder, deposits: readonly RuledDeposit[], now: Date): Decision {
  // Only a look after the end of watching closes an order: the processor may have been away.
  const isClosing =
    order.state !== "closed" &&
    order.lookedAt !== null &&
    order.lookedAt.getTime() > order.watchedUntil.getTime();
  const isQuoteOver = order.cancelledAt !== null || now.getTime() > order.quotedUntil.getTime();
  const theirs = new Set(order.decided.map(({ depositId }) => depositId));
  const live = deposits.filter(({ state }) => state !== "lost");
  const settled = live.filter(({ state }) => state === "settled");
  const isUnsettled = live.length > settled.length && !isClosing && order.state !== "closed";

  const valued = new Map<string, ValuedBy>();
  for (const deposit of settled) {
    const by = theirs.has(deposit.externalId) ? null : valuationOf(order, deposit);
    if (by) valued.set(deposit.externalId, by);
  }
  const received = receivedUsdMicro(order, settled, valued);
  const atMost = grantOf(order.usdMicro, received, { isOver: true });
  const rule = grantOf(order.usdMicro, received, { isOver: isQuoteOver && !isUnsettled });
  // Rule 8. Only a lost deposit makes `atMost` fall below what was granted. What a refund took back
  // is not charged back once more.
  const kept = min(order.ruleMicro, atMost + order.takenBackMicro);
  const ruleMicro = max(rule, kept);
  const decidedMicro = order.decided
    .filter(({ depositId }) => depositId === "" || isThere(deposits, depositId))
    .reduce((sum, { micro }) => sum + micro, 0n);
  const targetMicro = ruleMicro + decidedMicro;

  const full = order.usdMicro * microCreditsPerMicroDollar;
  const state = ((): OrderState => {
    if (isClosing || order.state === "closed") return "closed";
    if (settled.length > 0) return targetMicro >= full ? "paid" : "partly_paid";
    if (live.length > 0) return "seen";
    if (order.cancelledAt) return "cancelled";
    return isQuoteOver ? "expired" : "open";
  })();
  const facts = factsOf({ order, deposits, valued, theirs, received, state }).filter(
    (fact) => !order.handled.includes(fact),
  );
  const kinds = facts.map((fact) => fact.split(":")[0]);
  return {
    state,
    attention: attentionNames.find((name) => kinds.includes(name)),
    facts,
    valued,
    receivedUsdMicro: received,
    ruleMicro,
    targetMicro,
    isShort:
      isQuoteOver &&
      !isUnsettled &&
      received >= microDollars &&
      max(received, targetMicro / microCreditsPerMicroDollar) <
        order.usdMicro - toleranceUsdMicro(order.usdMicro) &&
      // What arrived and has no value yet waits for a person, and is not missing.
      settled.every(({ externalId }) => valued.has(externalId) || theirs.has(externalId)) &&
      // Lost payments have a notice of their own.
      deposits.every((one) => one.state !== "lost" || one.settledAt === null),
  };
}

/** How far below its price a pack counts as paid: 1 %, at most 1 USD. */
export function toleranceUsdMicro(usdMicro: bigint): bigint {
  return min(usdMicro / 100n, microDollars);
}

/** What an order is credited with at most without asking, in micro-dollars. */
export function capUsdMicro(usdMicro: bigint): bigint {
  return max(2n * usdMicro, usdMicro + 50n * microDollars);
}

/** Rules 1 to 4: micro-credits for `received` micro-dollars. `isOver`: nothing more is expected. */
function grantOf(due: bigint, received: bigint, { isOver }: { isOver: boolean }): bigint {
  if (received > due) return min(received, capUsdMicro(due)) * microCreditsPerMicroDollar;
  if (received >= due - toleranceUsdMicro(due)) return due * microCreditsPerMicroDollar;
  return isOver && received >= microDollars ? received * microCreditsPerMicroDollar : 0n;
}

/** Rules 5 to 7: how a settled deposit is valued. Null: a person has to. */
function valuationOf(order: RuledOrder, deposit: RuledDeposit): ValuedBy | null {
  // A value stays what it was when the deposit counted for the first time.
  if (deposit.valuedBy || order.state === "closed") return deposit.valuedBy;
  if (deposit.processorUsdMicro !== null) return "processor";
  if (!isSameAsset(order, deposit) || isDepegged(deposit)) return null;
  if (isStablecoin(deposit)) return "quote";
  if (deposit.firstSeenAt.getTime() > order.quotedUntil.getTime())
    return deposit.marketRate === null ? null : "market";
  const rates = ratesBesides(order, deposit);
  if (rates.includes(null)) return null;
  return rates.length === 0 ? "quote" : "lowest";
}

/**
 * The rates that count besides the quote: nobody sees the market first and chooses afterwards. That
 * of its first sight, if it is older than the order; that of its block, if this came too late.
 */
function ratesBesides(order: RuledOrder, deposit: RuledDeposit): (bigint | null)[] {
  const { firstSeenAt, blockAt, marketRate, blockRate } = deposit;
  // Only an address that is older than the order can be paid before it.
  if (!blockAt) return [];
  const olderMs = order.createdAt.getTime() - firstSeenAt.getTime();
  const atFirst = marketRate ?? (olderMs <= blockTimeOffMs ? order.rate : null);
  return [...(olderMs > 0 ? [atFirst] : []), ...(isLateBlock(order, deposit) ? [blockRate] : [])];
}

/** True of a payment whose block came when the quote held no more. */
export function isLateBlock(
  { quotedUntil }: Pick<RuledOrder, "quotedUntil">,
  { blockAt }: Pick<RuledDeposit, "blockAt">,
): boolean {
  return blockAt !== null && blockAt.getTime() > quotedUntil.getTime() + quoteHoldsMs;
}

/**
 * The value of the deposits that count. Rounded down once, on the sum: a payment in parts is worth
 * as much as one in one piece.
 */
function receivedUsdMicro(
  order: RuledOrder,
  settled: readonly RuledDeposit[],
  valued: ReadonlyMap<string, ValuedBy>,
): bigint {
  const one = 10n ** BigInt(order.decimals);
  const sum = settled.reduce((total, deposit) => {
    const by = valued.get(deposit.externalId);
    return by ? total + valueTimesOne(order, deposit, by, one) : total;
  }, 0n);
  return sum / one;
}

/** What one deposit is worth, rounded down, in micro-dollars. */
export function valueDeposit(order: RuledOrder, deposit: RuledDeposit, by: ValuedBy): bigint {
  const one = 10n ** BigInt(order.decimals);
  return valueTimesOne(order, deposit, by, one) / one;
}

function valueTimesOne(
  order: RuledOrder,
  deposit: RuledDeposit,
  by: ValuedBy,
  one: bigint,
): bigint {
  if (by === "processor") return (deposit.processorUsdMicro ?? 0n) * one;
  return deposit.atoms * rateOf(order, deposit, by);
}

/** The rate at which a deposit counts, in micro-dollars of one coin. */
export function rateOf(
  order: RuledOrder,
  deposit: RuledDeposit,
  by: Exclude<ValuedBy, "processor">,
): bigint {
  if (by === "market") return deposit.marketRate ?? 0n;
  const rates = by === "lowest" ? ratesBesides(order, deposit) : [];
  return rates.reduce<bigint>((least, rate) => min(least, rate ?? 0n), order.rate);
}

function factsOf(of: {
  order: RuledOrder;
  deposits: readonly RuledDeposit[];
  valued: ReadonlyMap<string, ValuedBy>;
  theirs: ReadonlySet<string>;
  received: bigint;
  state: OrderState;
}): string[] {
  const { order, deposits, valued, theirs, received, state } = of;
  const facts = deposits.flatMap((deposit): string[] => {
    const { externalId, settledAt, isReturned } = deposit;
    const lost = `lost:${externalId}`;
    if (deposit.state === "lost")
      return [...(settledAt ? [lost] : []), ...(isReturned ? [`${lost}:returned`] : [])];
    if (valued.has(externalId) || theirs.has(externalId)) return [];
    const kind = waitingKind(order, deposit, state);
    return kind ? [`${kind}:${externalId}`] : [];
  });
  const hasNone = deposits.every((one) => one.state === "lost");
  if (order.faults.includes("marked") && hasNone) facts.push("marked");
  if (order.faults.includes("failed")) facts.push("failed");
  if (order.faults.includes("swept")) facts.push("swept");
  if (order.faults.includes("flooded")) facts.push("flooded");
  facts.push(...order.faults.filter((fault) => fault.startsWith("account_closed:")));
  if (received > capUsdMicro(order.usdMicro)) facts.push(`overpaid:${received}`);
  return facts;
}

/** Why a deposit that does not count needs a person. Undefined: it only has not settled. */
function waitingKind(
  order: RuledOrder,
  deposit: RuledDeposit,
  state: OrderState,
): AttentionName | undefined {
  if (deposit.state === "seen") {
    if (state !== "closed") return undefined;
    const isNew = deposit.firstSeenAt.getTime() > order.watchedUntil.getTime();
    return isNew ? "late" : "unconfirmed";
  }
  if (!isSameAsset(order, deposit)) return "wrong_asset";
  return isDepegged(deposit) && order.state !== "closed" ? "depeg" : "late";
}

function isThere(deposits: readonly RuledDeposit[], depositId: string): boolean {
  return deposits.some(({ externalId, state }) => externalId === depositId && state !== "lost");
}

/** The same coin on another network is another asset. */
export function isSameAsset(
  one: { asset: string; network: string },
  other: { asset: string; network: string },
): boolean {
  return one.asset === other.asset && one.network === other.network;
}

export function isStablecoin({ asset }: { readonly asset: string }): boolean {
  return coins.some((one) => one.asset === asset && one.isStablecoin);
}

/** True if a source of rates calls a stablecoin worth 2 % more or less than its dollar. */
function isDepegged(deposit: RuledDeposit): boolean {
  const { marketRate } = deposit;
  if (marketRate === null || !isStablecoin(deposit)) return false;
  const off = marketRate > microDollars ? marketRate - microDollars : microDollars - marketRate;
  return off * 100n >= 2n * microDollars;
}
