// Admission: which requests may start, and how much each one holds. Pure functions over the rows
// that the batch has locked.

import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { LockPoolsRow, ReadKeysRow, ReadUsedRequestsRow } from "../../gen/sql/billing.ts";
import { ApiError, type ErrorReason, expiredSecret } from "../base/errors.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import { credits } from "../base/money.ts";
import type { Tags } from "../base/tags.ts";
import { isHoldOf, maxInputCostMicro, sizeHold, type UsageBounds } from "./hold-size.ts";

/** The key that pays for a request, and its pool. */
export type Payer = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly keyId: string;
  /**
   * The secret that the caller presented; admission checks it again. Absent when an internal
   * service acts for a key.
   */
  readonly secretId?: string;
};

/** Names a request. Two accounts may use the same request id. */
export type RequestKey = { readonly accountId: string; readonly requestId: string };

/** A request in keys of maps: `<account_id>/<request_id>`. */
export function keyOf({ accountId, requestId }: RequestKey): string {
  return `${accountId}/${requestId}`;
}

export function requestKeyOf({
  payer,
  requestId,
}: {
  readonly payer: Payer;
  readonly requestId: string;
}): RequestKey {
  return { accountId: payer.accountId, requestId };
}

/** The admission of a new request. */
export type HoldRequest = {
  readonly kind: "place";
  readonly requestId: string;
  /**
   * True: this process made the id for this request, and no hold with it can have been placed
   * before. So no request has it, and nobody looks for one.
   */
  readonly hasNewId?: boolean | undefined;
  /**
   * Who settles the hold. When the owning process dies, other processes settle it. A hold of a
   * calling service outlives every process, until its deadline.
   */
  readonly owner: "process" | "caller";
  /** Distinguishes a repeat of this admission from another request with the same id. */
  readonly nonce: string;
  readonly payer: Payer;
  readonly model: string;
  readonly price: Price;
  readonly bounds: UsageBounds;
  /** Absent: none. */
  readonly tags?: Tags | undefined;
  /** Who asked for the hold, as `actorOf` names callers. Absent: the gateway itself. */
  readonly madeBy?: string | undefined;
  /** Time from admission until any process may settle the hold. */
  readonly deadlineMs: number;
  /**
   * True: rather than a reduced grant, the answer is `reduced`, so that closer bounds may grant
   * more.
   */
  readonly mayRefine?: boolean;
};

/** A larger hold for a running request, because its input has more tokens than expected. */
type GrowRequest = {
  readonly kind: "grow";
  readonly hold: Hold;
  readonly amountMicro: bigint;
};

export type AdmissionRequest = HoldRequest | GrowRequest;

/** The hold of a running request, as the ledger stores it. */
export type PlacedHold = {
  readonly requestId: string;
  readonly payer: Payer;
  readonly model: string;
  readonly price: Price;
  readonly amountMicro: bigint;
  /** Output tokens that are granted, thinking included. No more are charged. */
  readonly grantedOutput: number;
  /** UTC month of admission, `YYYY-MM-01`. */
  readonly month: string;
  readonly admittedAt: Date;
  /** Absent: none. */
  readonly tags?: Tags | undefined;
  /** Absent: the gateway itself. */
  readonly madeBy?: string | undefined;
};

/** A hold, as the process that placed it knows it. */
export type Hold = PlacedHold & {
  /** Free credits of the pool after admission. Zero when an earlier attempt placed the hold. */
  readonly freeMicro: bigint;
  /** What the monthly cap of the key left free after admission. Undefined: the key has none. */
  readonly monthFreeMicro: bigint | undefined;
  /** The highest cost of the input that admission expected. Such input never fails the request. */
  readonly expectedInputMicro: bigint;
};

/**
 * The rows of one batch, locked or read in its transaction. `admit` updates pools, keys, months and
 * requests, so that each decision of the batch sees the ones before it.
 */
export type Ledger = {
  readonly at: Date;
  readonly month: string;
  readonly nodeId: string;
  readonly pools: Map<string, LedgerPool>;
  readonly keys: Map<string, KeyRow>;
  /** Secrets that were revoked (true) or have expired (false), by id. */
  readonly deadSecrets: ReadonlyMap<string, boolean>;
  /** Requests that run or were charged, by `keyOf`. */
  readonly usedRequests: Map<string, UsedRow>;
  /** Amounts of the growing holds, by `keyOf`. */
  readonly amounts: Map<string, bigint>;
  /** Months in which the growing holds were admitted, by `<key_id>/<month>`. */
  readonly pastMonths: ReadonlyMap<string, { readonly spent: bigint; held: bigint }>;
};

/** A pool of one batch. */
type LedgerPool = Pick<LockPoolsRow, "posted" | "held" | "inDebt" | "accountStatus">;

/** How the database names the status of an account. */
export type AccountStatusName = LockPoolsRow["accountStatus"];

type KeyRow = Omit<ReadKeysRow, "keyId">;

/** Why a key that is not active is refused. */
const reasonOf: Readonly<Record<Exclude<KeyRow["status"], "active">, ErrorReason>> = {
  paused: "key_paused",
  expired: "key_expired",
  revoked: "revoked_key",
};

/** Without a node, the hold belongs to a calling service. */
type UsedRow = Pick<
  ReadUsedRequestsRow,
  "nodeId" | "nonce" | "keyId" | "model" | "amount" | "grantedOutput" | "admittedAt" | "month"
> & { readonly price: Price };

export type Admitted =
  /** `addedMicro` is undefined when the credits were held before. */
  | { readonly kind: "held"; readonly hold: Hold; readonly addedMicro: bigint | undefined }
  /** `freeMicro`: the free credits, where they are too few for a new request. */
  | { readonly kind: "rejected"; readonly error: ApiError; readonly freeMicro?: bigint }
  /** Not held: the credits cover only a reduced grant, by these bounds. */
  | { readonly kind: "reduced"; readonly freeMicro: bigint }
  /** Other running requests hold the credits: a repeat may succeed when one of them ends. */
  | { readonly kind: "short"; readonly error: ApiError; readonly freeMicro?: bigint };

/** The key of a pool in `Ledger.pools`. */
export function poolOf({ accountId, family }: Pick<Payer, "accountId" | "family">): string {
  return `${accountId}/${family}`;
}

export function payerOf(request: AdmissionRequest): Payer {
  return request.kind === "place" ? request.payer : request.hold.payer;
}

/** The node that owns the hold of a request. Null: none. */
export function nodeOf({ owner }: HoldRequest, nodeId: string): string | null {
  return owner === "process" ? nodeId : null;
}

/**
 * Decides one request. If it is admitted, adds its hold to the rows in `ledger`, where later
 * decisions of the batch see it.
 */
export function admit(ledger: Ledger, request: AdmissionRequest): Admitted {
  return request.kind === "place" ? place(ledger, request) : grow(ledger, request);
}

function place(ledger: Ledger, request: HoldRequest): Admitted {
  const { payer, price, bounds } = request;
  const requestKey = keyOf(requestKeyOf(request));
  const used = ledger.usedRequests.get(requestKey);
  if (used) return repeat(ledger, request, used);

  const key = ledger.keys.get(payer.keyId);
  const pool = ledger.pools.get(poolOf(payer));
  if (!key || !pool) return rejected(new ApiError("not_found", { message: "No such key." }));
  if (pool.accountStatus === "suspended") return rejected(new ApiError("account_suspended"));
  // A key that was made at the moment of the closing is not marked as revoked yet.
  if (pool.accountStatus === "closed") return rejected(new ApiError("revoked_key"));
  if (key.status !== "active") return rejected(new ApiError(reasonOf[key.status]));
  const revoked = payer.secretId === undefined ? undefined : ledger.deadSecrets.get(payer.secretId);
  if (revoked !== undefined)
    return rejected(revoked ? new ApiError("revoked_key") : expiredSecret());
  if (key.allowedModels.length > 0 && !key.allowedModels.includes(request.model)) {
    return rejected(
      new ApiError("model_not_allowed", { allowed: key.allowedModels, field: "model" }),
    );
  }
  if (pool.inDebt) return rejected(creditsExhausted(payer, pool, "in debt"));

  const grant = sizeHold(price, bounds, {
    posted: pool.posted,
    poolHeld: pool.held,
    ...(key.cap !== null && { cap: { limit: key.cap, spent: key.spent, held: key.held } }),
  });
  if (grant.kind === "short")
    return { ...shortOf(ledger.month, payer, pool, key, grant), freeMicro: grant.freeMicro };
  if (grant.reduced && request.mayRefine === true)
    return { kind: "reduced", freeMicro: grant.freeMicro };
  pool.held += grant.amountMicro;
  key.held += grant.amountMicro;
  ledger.usedRequests.set(requestKey, {
    nodeId: nodeOf(request, ledger.nodeId),
    nonce: request.nonce,
    keyId: payer.keyId,
    model: request.model,
    price,
    amount: grant.amountMicro,
    grantedOutput: grant.output,
    admittedAt: ledger.at,
    month: ledger.month,
  });
  return {
    kind: "held",
    addedMicro: grant.amountMicro,
    hold: {
      ...holdOf(request, grant.output, grant.amountMicro),
      freeMicro: pool.posted - pool.held,
      monthFreeMicro: key.cap === null ? undefined : key.cap - key.spent - key.held,
      admittedAt: ledger.at,
      month: ledger.month,
    },
  };
}

/**
 * Answers the repeat of an admission whose commit the caller did not see with the hold of the first
 * attempt. Any other request with a used id is rejected.
 */
function repeat(ledger: Ledger, request: HoldRequest, used: UsedRow): Admitted {
  const isRepeat = used.nodeId === nodeOf(request, ledger.nodeId) && used.nonce === request.nonce;
  const isSame = used.keyId === request.payer.keyId && used.model === request.model;
  // The price of the model may have changed since. The hold keeps the price of its admission.
  const { grantedOutput } = used;
  const before = { amountMicro: used.amount, grantedOutput };
  if (!isRepeat || !isSame || !isHoldOf(used.price, request.bounds, before))
    return rejected(new ApiError("request_id_used"));
  return {
    kind: "held",
    addedMicro: undefined,
    hold: {
      ...holdOf(request, grantedOutput, used.amount),
      price: used.price,
      freeMicro: 0n,
      monthFreeMicro: undefined,
      admittedAt: used.admittedAt,
      month: used.month,
    },
  };
}

function grow(ledger: Ledger, { hold, amountMicro }: GrowRequest): Admitted {
  const requestKey = keyOf(requestKeyOf(hold));
  const before = ledger.amounts.get(requestKey);
  const key = ledger.keys.get(hold.payer.keyId);
  const pool = ledger.pools.get(poolOf(hold.payer));
  if (before === undefined || !key || !pool) {
    const message = "The hold of this request no longer exists.";
    return rejected(new ApiError("gateway_unavailable", { message }));
  }
  // What the account has given up pays for nothing.
  if (pool.accountStatus === "closed") return rejected(new ApiError("revoked_key"));
  const addedMicro = amountMicro - before;
  if (addedMicro <= 0n)
    return { kind: "held", addedMicro: undefined, hold: { ...hold, amountMicro: before } };
  // What is left for a growing request includes its own hold, so an error states the whole amounts.
  const without = <Row extends { held: bigint }>(row: Row) => ({ ...row, held: row.held - before });
  if (pool.posted - pool.held < addedMicro)
    return shortOf(hold.month, hold.payer, without(pool), key, {
      of: "pool",
      held: pool.posted >= amountMicro,
      neededMicro: amountMicro,
    });
  const month =
    hold.month === ledger.month ? key : ledger.pastMonths.get(`${hold.payer.keyId}/${hold.month}`);
  if (!month) {
    const message = "The month in which this request was admitted no longer exists.";
    return rejected(new ApiError("gateway_unavailable", { message }));
  }
  if (key.cap !== null && key.cap - month.spent - month.held < addedMicro) {
    const spending = without({ ...month, cap: key.cap });
    return shortOf(hold.month, hold.payer, pool, spending, {
      of: "cap",
      held: key.cap - month.spent >= amountMicro,
      neededMicro: amountMicro,
    });
  }
  pool.held += addedMicro;
  month.held += addedMicro;
  ledger.amounts.set(requestKey, amountMicro);
  return { kind: "held", addedMicro, hold: { ...hold, amountMicro } };
}

function holdOf(
  { requestId, payer, model, price, bounds, tags, madeBy }: HoldRequest,
  grantedOutput: number,
  amountMicro: bigint,
) {
  const expectedInputMicro = maxInputCostMicro(price, bounds);
  const amounts = { grantedOutput, amountMicro, expectedInputMicro };
  return { requestId, payer, model, price, ...amounts, tags, madeBy };
}

type NotHeld = Extract<Admitted, { kind: "rejected" | "short" }>;

function rejected(error: ApiError): NotHeld {
  return { kind: "rejected", error };
}

/** A key's spending in one month. */
type Spending = Pick<KeyRow, "cap" | "spent" | "held">;

function shortOf(
  month: string,
  payer: Payer,
  pool: { posted: bigint; held: bigint },
  key: Spending,
  short: { of: "pool" | "cap"; held: boolean; neededMicro: bigint },
): NotHeld {
  if (short.held)
    return { kind: "short", error: new ApiError("credits_held", { retryAfterMs: 2000 }) };
  return rejected(
    short.of === "pool" ? creditsExhausted(payer, pool, short) : capReached(month, key, short),
  );
}

function creditsExhausted(
  payer: Payer,
  pool: { posted: bigint; held: bigint },
  why: "in debt" | { neededMicro: bigint },
): ApiError {
  const remaining = atLeastZero(pool.posted - pool.held);
  const state =
    why === "in debt"
      ? "is in debt"
      : `has ${credits(remaining)} credits free, and this request needs ${credits(why.neededMicro)} set aside`;
  return new ApiError("credits_exhausted", {
    message: `The ${payer.family} pool of this account ${state}. Add credits to continue.`,
    limit: {
      name: "pool_microcredits",
      // Only what is free: a key may not learn what the account bought and what other keys hold.
      limit: remaining,
      remaining,
      family: familyOf(payer.family),
      ...((why === "in debt" || pool.posted <= 0n) && { exhausted: true }),
    },
  });
}

function capReached(
  month: string,
  key: Spending,
  { neededMicro }: { neededMicro: bigint },
): ApiError {
  const limit = key.cap ?? 0n;
  const remaining = atLeastZero(limit - key.spent - key.held);
  const resetsAt = monthAfter(month);
  return new ApiError("monthly_cap_reached", {
    message:
      `The monthly credit cap of this key is reached: ${credits(remaining)} credits of it are left, ` +
      `and this request needs ${credits(neededMicro)} set aside. It resets at ${resetsAt.toISOString()}.`,
    limit: {
      name: "monthly_cap_microcredits",
      limit,
      used: key.spent + key.held,
      remaining,
      ...(key.spent >= limit && { exhausted: true }),
      resetsAt: { seconds: BigInt(resetsAt.getTime() / 1000) },
    },
  });
}

function atLeastZero(micro: bigint): bigint {
  return micro > 0n ? micro : 0n;
}

/** The first instant of the UTC month after `month` (`YYYY-MM-01`). */
function monthAfter(month: string): Date {
  const start = new Date(`${month}T00:00:00Z`);
  return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1));
}
