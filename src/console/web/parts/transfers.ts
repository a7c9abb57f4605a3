// What transfers do to a pool.

import { type Transfer, TransferKind } from "../../../../gen/gateway/billing/v1/billing_pb.ts";

/** What a transfer changes: the kind gives the direction. */
export function changeOf({
  kind,
  amountMicrocredits,
}: Pick<Transfer, "kind" | "amountMicrocredits">): bigint {
  const takes = kind === TransferKind.REFUND || kind === TransferKind.CHARGEBACK;
  return takes ? -amountMicrocredits : amountMicrocredits;
}
