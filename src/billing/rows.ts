// What the rows of statements stand for: messages and values.

import { create, fromJson, type JsonValue, toJson, toJsonString } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Account,
  AccountSchema,
  AccountState,
} from "../../gen/gateway/billing/v1/account_pb.ts";
import {
  type Pool,
  PoolSchema,
  type Transfer,
  TransferKind,
  TransferSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Attempt,
  AttemptSchema,
  Basis,
  Outcome,
  type Receipt,
  ReceiptSchema,
} from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type LeftOut, LeftOutSchema } from "../../gen/gateway/common/v1/left_out_pb.ts";
import {
  type Price,
  PriceSchema,
  type Usage,
  UsageSchema,
} from "../../gen/gateway/common/v1/usage_pb.ts";
import type * as sql from "../../gen/sql/billing.ts";
import { toActor } from "../base/actors.ts";
import { attemptOutcomeName, attemptOutcomeOf } from "../base/attempt-outcomes.ts";
import type { Metered } from "../base/cost.ts";
import { familyOf } from "../base/families.ts";
import { leftOutReasonName, leftOutReasonOf } from "../base/left-out.ts";
import { shownName } from "../base/names.ts";
import type { Tags } from "../base/tags.ts";
import { byCategory, type TokenCategory, type UsageCount } from "../base/token-categories.ts";
import { transferKindOf } from "../base/transfer-kinds.ts";
import type { Json } from "../postgres/statement.ts";
import type { AccountStatusName, PlacedHold } from "./admission.ts";

type PriceRow = Pick<
  sql.FindHoldsRow,
  | TokenCategory
  | "priceVersion"
  | "webSearch"
  | "promptOver"
  | "promptAbove"
  | "abovePrice"
  | "note"
>;

/** The price of a row. */
export function toPrice(row: PriceRow): Price {
  const { promptOver, promptAbove, abovePrice, priceVersion, webSearch, note } = row;
  return create(PriceSchema, {
    ...byCategory((category) => row[category]),
    ...{ priceVersion, webSearch, note },
    ...(promptOver !== null && { promptOver }),
    ...(promptAbove !== null && { promptAbove }),
    ...(abovePrice !== null && { abovePrice: fromJson(PriceSchema, Object(abovePrice)) }),
  });
}

/** How a version is stored. */
export function priceRow(price: Price) {
  const { abovePrice, promptOver = null, promptAbove = null } = price;
  return {
    ...byCategory((category) => price[category]),
    ...{ priceVersion: price.priceVersion, webSearch: price.webSearch, note: price.note },
    ...{ promptOver, promptAbove },
    abovePrice: abovePrice ? toJsonString(PriceSchema, abovePrice) : null,
  };
}

/** A stored hold, with the usage that was metered so far. */
export type StoredHold = {
  readonly hold: PlacedHold;
  readonly nonce: string;
  readonly used: Usage;
};

export function toAccount({
  statusChangedAt,
  priceListId,
  priceListAt,
  ...row
}: sql.FindAccountRow): Account {
  const details = { name: row.billingName, address: row.billingAddress, taxId: row.billingTaxId };
  return create(AccountSchema, {
    ...row,
    name: shownName(row.name),
    createdAt: timestampFromDate(row.createdAt),
    state: accountStatusOf[row.status],
    stateReason: row.statusReason,
    ...(priceListId !== null && { priceListId }),
    ...(priceListAt && { priceListAt: timestampFromDate(priceListAt) }),
    ...(statusChangedAt && { stateChangedAt: timestampFromDate(statusChangedAt) }),
    ...(Object.values(details).some((text) => text !== "") && { billingDetails: details }),
  });
}

const accountStatusOf: Readonly<Record<AccountStatusName, AccountState>> = {
  active: AccountState.ACTIVE,
  suspended: AccountState.SUSPENDED,
  closed: AccountState.CLOSED,
};

export function toPool({ family, posted, held }: sql.ReadPoolsRow): Pool {
  return create(PoolSchema, {
    family: familyOf(family),
    postedMicrocredits: posted,
    heldMicrocredits: held,
    freeMicrocredits: posted - held,
  });
}

export function toTransfer({ amount, ...row }: sql.InsertTransferRow): Transfer {
  const kind = transferKindOf(row.kind);
  return create(TransferSchema, {
    ...row,
    family: familyOf(row.family),
    kind,
    // Stored with the sign of its effect on the pool, reported as requested: only adjustments have
    // a sign.
    amountMicrocredits: kind === TransferKind.ADJUSTMENT || amount > 0n ? amount : -amount,
    postedAfterMicrocredits: row.postedAfter,
    createdBy: toActor(row.actor),
    createdAt: timestampFromDate(row.createdAt),
  });
}

/** Of a request up to now, or of its charge. */
type UsedRow = Pick<sql.FindHoldsRow, `used${Capitalize<TokenCategory | UsageCount>}`>;

function usedOf(row: UsedRow): Usage {
  const used: Metered = {
    input: row.usedInput,
    output: row.usedOutput,
    thinking: row.usedThinking,
    cacheWrite5m: row.usedCacheWrite5m,
    cacheWrite1h: row.usedCacheWrite1h,
    cacheRead: row.usedCacheRead,
    webSearches: row.usedWebSearches,
  };
  return create(UsageSchema, used);
}

/** The tags of a request. Null: it has none. */
export function readTags(json: Json): Tags | undefined {
  if (json === null) return undefined;
  const tags = Object.entries(Object(json)).map(([key, value]) => [key, String(value)] as const);
  return Object.fromEntries(tags);
}

/** An attempt as charges hold it: JSON of the message, with the name of the outcome. */
export function writeAttempt(attempt: Attempt): object {
  const stored = Object(toJson(AttemptSchema, attempt));
  return { ...stored, outcome: attemptOutcomeName(attempt.outcome) };
}

/** The attempt of such JSON. Throws if it is none. */
export function readAttempt({ outcome, ...others }: { [name: string]: JsonValue }): Attempt {
  return { ...fromJson(AttemptSchema, others), outcome: attemptOutcomeOf(String(outcome)) };
}

function readAttempts(json: Json): Attempt[] {
  return Array.isArray(json) ? json.map((one) => shownAttempt(readAttempt(Object(one)))) : [];
}

/** As receipts show it: what the operator buys, and for how much, is not for customers. */
export function shownAttempt(attempt: Attempt): Attempt {
  return { ...attempt, model: "", costVersion: "" };
}

function readLeftOut(facts: Json): LeftOut[] {
  const { left_out: list } = Object(facts);
  return Array.isArray(list) ? list.map((one) => readLeftOutEntry(Object(one))) : [];
}

/** The tags of a hold as its row has them, as JSON. Null: none. */
export function storedTags({ tags }: Pick<PlacedHold, "tags">): string | null {
  for (const _ in tags) return JSON.stringify(tags);
  return null;
}

/** An entry as charges hold it: JSON of the message, with the name of the reason. */
export function writeLeftOut(entry: LeftOut): object {
  const stored = Object(toJson(LeftOutSchema, entry));
  return { ...stored, why: leftOutReasonName(entry.why) };
}

/** The entry of such JSON. Throws if it is none. */
export function readLeftOutEntry({ why, ...others }: { [name: string]: JsonValue }): LeftOut {
  return { ...fromJson(LeftOutSchema, others), why: leftOutReasonOf(String(why)) };
}

export function toStoredHold(row: sql.FindHoldsRow): StoredHold {
  const { accountId, family, keyId, secretId, requestId, model, grantedOutput, month } = row;
  const tags = readTags(row.tags);
  return {
    used: usedOf(row),
    nonce: row.nonce,
    hold: {
      requestId,
      payer: { accountId, family, keyId, ...(secretId !== null && { secretId }) },
      model,
      price: toPrice(row),
      amountMicro: row.amount,
      grantedOutput,
      month,
      admittedAt: row.admittedAt,
      ...(tags && { tags }),
      ...(row.madeBy !== null && { madeBy: row.madeBy }),
    },
  };
}

export function toReceipt(row: sql.FindChargeRow): Receipt {
  const usage = usedOf(row);
  const reported = {
    ...usage,
    output: usage.output + row.outputOver,
    thinking: usage.thinking + row.thinkingOver,
  };
  return create(ReceiptSchema, {
    ...row,
    family: familyOf(row.family),
    usage,
    ...(row.outputOver + row.thinkingOver > 0 && { reportedUsage: reported }),
    price: toPrice(row),
    holdMicrocredits: row.hold,
    chargedMicrocredits: row.amount,
    grantedOutputTokens: row.grantedOutput,
    overrunMicrocredits: row.overrun,
    outcome: outcomeOf(row.outcome),
    basis: basisOf(row.basis),
    attempts: readAttempts(row.attempts),
    leftOut: readLeftOut(row.facts),
    admittedAt: timestampFromDate(row.admittedAt),
    settledAt: timestampFromDate(row.settledAt),
    tags: readTags(row.tags) ?? {},
    madeBy: toActor(row.madeBy),
  });
}

// The database stores enums of the API by their names in lower case.

export const [outcomeName, outcomeOf] = naming(Outcome);
export const [basisName, basisOf] = naming(Basis);

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
