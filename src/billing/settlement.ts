// What settlement takes and makes: the end of a request, and its charge. `sql/settle-holds.sql`
// turns one into the other.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Attempt,
  type Basis,
  type Outcome,
  type Receipt,
  ReceiptSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { familyOf } from "../base/families.ts";
import type { PlacedHold } from "./admission.ts";
import type { StoredHold } from "./rows.ts";

/** How a request ended and what it used. */
export type Ending = {
  readonly usage: Usage;
  readonly outcome: Outcome;
  readonly basis: Basis;
  readonly attempts: readonly Attempt[];
};

export type SettleRequest =
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

// Receipts of requests that the ledger was not asked about.

/** The receipt of a request that still runs: metered use, no amount, no outcome. */
export function runningReceipt({ hold, used }: StoredHold): Receipt {
  return create(ReceiptSchema, {
    ...receiptHead(hold),
    usage: used,
    holdMicrocredits: hold.amountMicro,
  });
}

/** The receipt of a charge just made. */
export function receiptOf(charge: Charge): Receipt {
  return create(ReceiptSchema, {
    ...receiptHead(charge.hold),
    usage: charge.usage,
    holdMicrocredits: charge.holdMicro,
    amountMicrocredits: charge.amountMicro,
    overrunMicrocredits: charge.overrunMicro,
    outcome: charge.outcome,
    basis: charge.basis,
    attempts: [...charge.attempts],
    settledAt: timestampFromDate(charge.settledAt),
  });
}

function receiptHead(hold: PlacedHold) {
  const { accountId, keyId, family } = hold.payer;
  return {
    requestId: hold.requestId,
    accountId,
    keyId,
    family: familyOf(family),
    model: hold.model,
    price: hold.price,
    admittedAt: timestampFromDate(hold.admittedAt),
  };
}
