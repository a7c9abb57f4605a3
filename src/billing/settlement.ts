// Settlement decided: a hold becomes a charge. A pure function over the rows that the batch has locked.

import type { Attempt, Basis, Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Hold } from "./admission.ts";
import { costMicro } from "./price.ts";

/** How a request ended and what it used. */
export type Ending = {
  readonly usage: Usage;
  readonly outcome: Outcome;
  readonly basis: Basis;
  readonly attempts: readonly Attempt[];
};

export type SettleAsk =
  | { readonly kind: "settle"; readonly hold: Hold; readonly ending: Ending }
  /** Gives back what a hold turned out not to need. */
  | { readonly kind: "shrink"; readonly hold: Hold; readonly amountMicro: bigint };

/** A finished request. */
export type Charge = Ending & {
  readonly hold: Hold;
  /** What was held at the end. */
  readonly holdMicro: bigint;
  readonly amountMicro: bigint;
  /** Price of the use beyond the hold. Not owed: the hold is the worst case that we computed. */
  readonly overrunMicro: bigint;
  readonly settledAt: Date;
};

export type Settled =
  | { readonly kind: "charged"; readonly charge: Charge }
  | { readonly kind: "resized"; readonly freedMicro: bigint }
  /** No such hold: settled before, or never placed. */
  | { readonly kind: "missing" };

/** The rows of one batch: amounts of the holds that are locked. The decision takes out what it settles. */
export type Holdings = {
  readonly at: Date;
  readonly amounts: Map<string, bigint>;
  /** Charges that this batch has made. */
  readonly charges: Map<string, Charge>;
};

/** Decides one ask and books it in `holdings`. */
export function settle(holdings: Holdings, ask: SettleAsk): Settled {
  const { requestId } = ask.hold;
  const holdMicro = holdings.amounts.get(requestId);
  if (holdMicro === undefined) {
    const charge = holdings.charges.get(requestId);
    return charge ? { kind: "charged", charge } : { kind: "missing" };
  }
  if (ask.kind === "shrink") {
    const freedMicro = holdMicro - ask.amountMicro;
    if (freedMicro <= 0n) return { kind: "resized", freedMicro: 0n };
    holdings.amounts.set(requestId, ask.amountMicro);
    return { kind: "resized", freedMicro };
  }
  const charge = { ...ask.ending, hold: ask.hold, holdMicro, settledAt: holdings.at, ...split(ask, holdMicro) };
  holdings.amounts.delete(requestId);
  holdings.charges.set(requestId, charge);
  return { kind: "charged", charge };
}

function split(ask: { hold: Hold; ending: Ending }, holdMicro: bigint): { amountMicro: bigint; overrunMicro: bigint } {
  const usedMicro = costMicro(ask.hold.price, ask.ending.usage);
  if (usedMicro > holdMicro) return { amountMicro: holdMicro, overrunMicro: usedMicro - holdMicro };
  return { amountMicro: usedMicro, overrunMicro: 0n };
}
