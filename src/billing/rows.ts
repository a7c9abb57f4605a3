// The rows that statements return, and their conversion to messages and values.

import { create, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Account,
  AccountSchema,
  AccountStatus,
  AttemptSchema,
  Basis,
  Outcome,
  type Receipt,
  ReceiptSchema,
  type Transfer,
  TransferKind,
  TransferSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Price,
  PriceSchema,
  type Usage,
  UsageSchema,
} from "../../gen/gateway/common/v1/usage_pb.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import type { Tags } from "../base/tags.ts";
import { byCategory, categoryColumns, type TokenCategory } from "../base/token-categories.ts";
import type { AccountStatusName, PlacedHold } from "./admission.ts";

/** A stored hold, with the usage that was metered so far. */
export type StoredHold = {
  readonly hold: PlacedHold;
  readonly nonce: string;
  readonly used: Usage;
};

export type AccountRow = {
  account_id: string;
  name: string;
  created_at: Date;
  status: AccountStatusName;
  status_reason: string;
  status_changed_at: Date | null;
  billing_name: string;
  billing_address: string;
  billing_tax_id: string;
};
export type PoolRow = { family: FamilyName; posted: bigint; held: bigint };
export type TransferRow = {
  transfer_id: string;
  account_id: string;
  family: FamilyName;
  kind: string;
  amount: bigint;
  posted_after: bigint;
  idempotency_key: string;
  reason: string;
  actor: string;
  created_at: Date;
};
type Columns = typeof categoryColumns;
type CategoriesRow = { [C in TokenCategory as Columns[C]]: bigint };
type MeteredRow = { [C in TokenCategory as `used_${Columns[C]}`]: number };
export type PriceRow = CategoriesRow & { price_version: string };
type RequestRow = MeteredRow &
  PriceRow & {
    request_id: string;
    account_id: string;
    family: FamilyName;
    key_id: string;
    model: string;
    amount: bigint;
    granted_output: number;
    admitted_at: Date;
    /** Null: none. */
    tags: Tags | null;
  };
export type HoldRow = RequestRow & { secret_id: string | null; month: string; nonce: string };
export type ChargeRow = RequestRow & {
  hold: bigint;
  overrun: bigint;
  output_over: number;
  thinking_over: number;
  outcome: string;
  basis: string;
  attempts: JsonValue[];
  settled_at: Date;
};
/** A charge as an export shows it. Times are ISO 8601 in UTC. */
export type ExportedRow = { [C in TokenCategory as Columns[C]]: number } & {
  request_id: string;
  admitted_at: string;
  settled_at: string;
  key_id: string;
  /** Null: the key is unknown. */
  key_name: string | null;
  family: FamilyName;
  model: string;
  outcome: string;
  basis: string;
  granted_output: number;
  hold: bigint;
  amount: bigint;
  overrun: bigint;
  price_version: string;
  tags: Tags | null;
};

export function toAccount(row: AccountRow): Account {
  const details = {
    name: row.billing_name,
    address: row.billing_address,
    taxId: row.billing_tax_id,
  };
  return create(AccountSchema, {
    accountId: row.account_id,
    name: row.name,
    createdAt: timestampFromDate(row.created_at),
    status: accountStatusOf[row.status],
    statusReason: row.status_reason,
    ...(row.status_changed_at && { statusChangedAt: timestampFromDate(row.status_changed_at) }),
    ...(Object.values(details).some((text) => text !== "") && { billingDetails: details }),
  });
}

const accountStatusOf = {
  active: AccountStatus.ACTIVE,
  suspended: AccountStatus.SUSPENDED,
  closed: AccountStatus.CLOSED,
} as const satisfies Record<AccountStatusName, AccountStatus>;

export function toTransfer(row: TransferRow): Transfer {
  const kind = transferKindOf(row.kind);
  // Stored with the sign of its effect on the pool, reported as requested: only adjustments have a
  // sign.
  const amount = kind === TransferKind.ADJUSTMENT || row.amount > 0n ? row.amount : -row.amount;
  return create(TransferSchema, {
    transferId: row.transfer_id,
    accountId: row.account_id,
    family: familyOf(row.family),
    kind,
    amountMicrocredits: amount,
    postedAfterMicrocredits: row.posted_after,
    idempotencyKey: row.idempotency_key,
    reason: row.reason,
    actor: row.actor,
    createdAt: timestampFromDate(row.created_at),
  });
}

export function toPrice(row: PriceRow): Price {
  return create(PriceSchema, { priceVersion: row.price_version, ...categoriesOf(row) });
}

function categoriesOf(row: CategoriesRow): Record<TokenCategory, bigint> {
  return byCategory((category) => row[categoryColumns[category]]);
}

function toUsage(row: MeteredRow): Usage {
  return create(
    UsageSchema,
    byCategory((category) => row[`used_${categoryColumns[category]}` as const]),
  );
}

export function toStoredHold(row: HoldRow): StoredHold {
  const payer = {
    accountId: row.account_id,
    family: row.family,
    keyId: row.key_id,
    ...(row.secret_id !== null && { secretId: row.secret_id }),
  };
  return {
    used: toUsage(row),
    nonce: row.nonce,
    hold: {
      requestId: row.request_id,
      payer,
      model: row.model,
      price: toPrice(row),
      amountMicro: row.amount,
      grantedOutput: row.granted_output,
      month: row.month,
      admittedAt: row.admitted_at,
      ...(row.tags && { tags: row.tags }),
    },
  };
}

export function toReceipt(row: ChargeRow): Receipt {
  const usage = toUsage(row);
  const reported = {
    ...usage,
    output: usage.output + row.output_over,
    thinking: usage.thinking + row.thinking_over,
  };
  return create(ReceiptSchema, {
    requestId: row.request_id,
    accountId: row.account_id,
    keyId: row.key_id,
    family: familyOf(row.family),
    model: row.model,
    usage,
    ...(row.output_over + row.thinking_over > 0 && { reportedUsage: reported }),
    grantedOutput: row.granted_output,
    price: toPrice(row),
    holdMicrocredits: row.hold,
    amountMicrocredits: row.amount,
    overrunMicrocredits: row.overrun,
    outcome: outcomeOf(row.outcome),
    basis: basisOf(row.basis),
    attempts: row.attempts.map((attempt) => fromJson(AttemptSchema, attempt)),
    admittedAt: timestampFromDate(row.admitted_at),
    settledAt: timestampFromDate(row.settled_at),
    ...(row.tags && { tags: row.tags }),
  });
}

// The database stores enums of the API by their names in lower case.

export const [outcomeName, outcomeOf] = naming(Outcome);
export const [basisName, basisOf] = naming(Basis);
export const [transferKindName, transferKindOf] = naming(TransferKind);

/** Converts an enum to its names and back. An unknown number or name is a bug, not an input. */
function naming<E extends Record<string, number>>(
  names: E,
): [(value: number) => string, (name: string) => E[keyof E]] {
  const nameOf = new Map<number, string>();
  const memberOf = new Map<string, E[keyof E]>();
  for (const key in names) {
    const value = names[key];
    if (value === undefined) continue;
    nameOf.set(value, key.toLowerCase());
    memberOf.set(key.toLowerCase(), value);
  }
  return [(value) => found(nameOf.get(value), value), (name) => found(memberOf.get(name), name)];
}

function found<T>(entry: T | undefined, of: number | string): T {
  if (entry === undefined) throw new Error(`no such enum member: ${of}`);
  return entry;
}
