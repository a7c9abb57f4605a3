// The ending of a request, the charge that `SettleHolds` makes of it, and receipts.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Attempt,
  type Basis,
  Outcome,
  type Receipt,
  ReceiptSchema,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { toActor } from "../base/actors.ts";
import { familyOf } from "../base/families.ts";
import type { PlacedHold } from "./admission.ts";
import { type StoredHold, shownAttempt } from "./rows.ts";

/** How a request ended, and its usage. */
export type Ending = {
  readonly usage: Usage;
  readonly outcome: Outcome;
  readonly basis: Basis;
  readonly attempts: readonly Attempt[];
  /** Parts of the request that the provider did not get. Absent: none. */
  readonly leftOut?: readonly LeftOut[];
  /**
   * The price of what the provider applied, where it was another than what was asked for. It counts
   * where it is the lower one. Absent: the price of the hold.
   */
  readonly appliedPrice?: Price | undefined;
};

export type SettleRequest =
  | { readonly kind: "settle"; readonly hold: PlacedHold; readonly ending: Ending }
  /** Releases the part of a hold that its request does not need. */
  | { readonly kind: "shrink"; readonly hold: PlacedHold; readonly amountMicro: bigint };

/** The charge of a finished request. */
export type Charge = Ending & {
  readonly hold: PlacedHold;
  /** The part of the usage that is charged. */
  readonly charged: Usage;
  /** The version by which it is charged. */
  readonly price: Price;
  /** Amount of the hold at the end. */
  readonly holdMicro: bigint;
  readonly amountMicro: bigint;
  /** Cost of the usage beyond the hold and the granted output. The gateway bears it. */
  readonly overrunMicro: bigint;
  readonly settledAt: Date;
};

export type Settled =
  | { readonly kind: "charged"; readonly charge: Charge }
  | { readonly kind: "resized" }
  /** No such hold: it was settled before, or never placed. */
  | { readonly kind: "missing" };

/** The receipt of a running request: its metered usage, without amount and outcome. */
export function runningReceipt({ hold, used }: StoredHold): Receipt {
  return create(ReceiptSchema, {
    ...receiptHead(hold),
    usage: used,
    holdMicrocredits: hold.amountMicro,
    outcome: Outcome.RUNNING,
  });
}

/** The receipt of a charge that was made just now, without reading it from the ledger. */
export function receiptOf(charge: Charge): Receipt {
  // A literal with every member: `create` and spreads take several times as long.
  const { hold } = charge;
  return {
    $typeName: "gateway.billing.v1.Receipt",
    requestId: hold.requestId,
    accountId: hold.payer.accountId,
    keyId: hold.payer.keyId,
    family: familyOf(hold.payer.family),
    model: hold.model,
    price: charge.price,
    grantedOutputTokens: hold.grantedOutput,
    admittedAt: timestampFromDate(hold.admittedAt),
    usage: charge.charged,
    reportedUsage: charge.charged === charge.usage ? undefined : charge.usage,
    holdMicrocredits: charge.holdMicro,
    chargedMicrocredits: charge.amountMicro,
    overrunMicrocredits: charge.overrunMicro,
    outcome: charge.outcome,
    basis: charge.basis,
    attempts: charge.attempts.map(shownAttempt),
    leftOut: [...(charge.leftOut ?? [])],
    settledAt: timestampFromDate(charge.settledAt),
    tags: hold.tags ? { ...hold.tags } : {},
    madeBy: toActor(hold.madeBy),
  };
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
    grantedOutputTokens: hold.grantedOutput,
    admittedAt: timestampFromDate(hold.admittedAt),
    ...(hold.tags && { tags: hold.tags }),
    madeBy: toActor(hold.madeBy),
  };
}
