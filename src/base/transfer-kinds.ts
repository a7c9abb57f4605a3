// Why credits were added or taken: the values of the API, and the names that the database has.

import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";

/** In the order of the values. */
export const transferKindNames = [
  ...(["purchase", "bonus", "refund"] as const),
  ...(["chargeback", "adjustment", "deposit"] as const),
];

export type TransferKindName = (typeof transferKindNames)[number];

const kinds: Readonly<Record<TransferKindName, TransferKind>> = {
  purchase: TransferKind.PURCHASE,
  bonus: TransferKind.BONUS,
  refund: TransferKind.REFUND,
  chargeback: TransferKind.CHARGEBACK,
  adjustment: TransferKind.ADJUSTMENT,
  deposit: TransferKind.DEPOSIT,
};

export function transferKindOf(name: TransferKindName): TransferKind {
  return kinds[name];
}

/** The name of a value. Throws if it is none. */
export function transferKindName(kind: TransferKind): TransferKindName {
  for (const name of transferKindNames) if (kinds[name] === kind) return name;
  throw new Error(`no such kind of transfer: ${kind}`);
}
