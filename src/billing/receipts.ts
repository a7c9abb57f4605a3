// Receipts of requests that the ledger was not asked about.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Receipt, ReceiptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { familyOf } from "../families.ts";
import type { PlacedHold } from "./admission.ts";
import type { StoredHold } from "./rows.ts";
import type { Charge } from "./settlement.ts";

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
