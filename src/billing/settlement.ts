// What settlement takes and makes: the end of a request, and its charge. `sql/settle-holds.sql` turns one into the other.

import type { Attempt, Basis, Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { PlacedHold } from "./admission.ts";

/** How a request ended and what it used. */
export type Ending = {
  readonly usage: Usage;
  readonly outcome: Outcome;
  readonly basis: Basis;
  readonly attempts: readonly Attempt[];
};

export type SettleAsk =
  | { readonly kind: "settle"; readonly hold: PlacedHold; readonly ending: Ending }
  /** Gives back what a hold turned out not to need. */
  | { readonly kind: "shrink"; readonly hold: PlacedHold; readonly amountMicro: bigint };

/** A finished request. */
export type Charge = Ending & {
  readonly hold: PlacedHold;
  /** What was held at the end. */
  readonly holdMicro: bigint;
  readonly amountMicro: bigint;
  /** Price of the use beyond the hold. Not owed: the hold is the worst case that we computed. */
  readonly overrunMicro: bigint;
  readonly settledAt: Date;
};

export type Settled =
  | { readonly kind: "charged"; readonly charge: Charge }
  | { readonly kind: "resized" }
  /** No such hold: settled before, or never placed. */
  | { readonly kind: "missing" };
