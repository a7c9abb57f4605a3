// Admission decided: who may start, and how much each start holds. A pure function over the rows
// that the batch has locked.

import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import { ApiError } from "../base/errors.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import { credits } from "../base/money.ts";
import { grantedBy, sizeHold, type UsageBounds } from "./hold-size.ts";

/** Who pays: a key and its pool. */
export type Payer = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly keyId: string;
  /**
   * The secret that was shown, checked again here. Absent when an internal service asks for a key.
   */
  readonly secretId?: string;
};

/** A request that wants to start. */
export type HoldRequest = {
  readonly kind: "place";
  readonly requestId: string;
  /**
   * Whose request it is. One of this process is settled by others when the process dies; a caller's
   * waits for its deadline.
   */
  readonly owner: "process" | "caller";
  readonly nonce: string;
  readonly payer: Payer;
  readonly model: string;
  readonly price: Price;
  readonly bounds: UsageBounds;
  /** From admission to the moment when anybody may settle it. */
  readonly deadlineMs: number;
};

/** A running request whose input turned out larger than its hold foresaw. */
export type GrowRequest = {
  readonly kind: "grow";
  readonly hold: Hold;
  readonly amountMicro: bigint;
};

/** A request that runs. */
export type PlacedHold = {
  readonly requestId: string;
  readonly payer: Payer;
  readonly model: string;
  readonly price: Price;
  readonly amountMicro: bigint;
  /** UTC month of admission, `YYYY-MM-01`. */
  readonly month: string;
  readonly admittedAt: Date;
};

/** A request that runs, as whoever placed it knows it. */
export type Hold = PlacedHold & {
  readonly grantedOutput: number;
  /** What the pool had left after admission. Zero where it was placed by an earlier try. */
  readonly freeMicro: bigint;
};

/**
 * The rows of one batch, locked or read in its transaction. The decision keeps the pools and keys
 * up to date as it goes.
 */
export type Ledger = {
  readonly at: Date;
  readonly month: string;
  readonly nodeId: string;
  readonly pools: Map<string, { posted: bigint; held: bigint; readonly inDebt: boolean }>;
  readonly keys: Map<string, KeyRow>;
  /** Secrets that are no longer good, and whether they were revoked. */
  readonly deadSecrets: ReadonlyMap<string, boolean>;
  /** Request ids in use, or charged. */
  readonly usedRequests: Map<string, UsedRow>;
  /** Amounts of holds that want to grow. */
  readonly amounts: Map<string, bigint>;
  /** Months in which holds that want to grow were admitted, by `<key_id>/<month>`. */
  readonly pastMonths: ReadonlyMap<string, { readonly spent: bigint; held: bigint }>;
};

export type KeyRow = {
  readonly status: string;
  readonly allowedModels: readonly string[];
  readonly cap: bigint | null;
  readonly spent: bigint;
  held: bigint;
};

export type UsedRow = {
  /** Null: no process's. */
  readonly nodeId: string | null;
  readonly nonce: string;
  readonly keyId: string;
  readonly model: string;
  readonly price: Price;
  readonly amount: bigint;
  readonly admittedAt: Date;
  readonly month: string;
};

export type Admitted =
  /** `addedMicro` is undefined when it was held before. */
  | { readonly kind: "held"; readonly hold: Hold; readonly addedMicro: bigint | undefined }
  | { readonly kind: "refused"; readonly apiError: ApiError }
  /** The funds are there, but running requests hold them: worth a wait. */
  | { readonly kind: "waits"; readonly apiError: ApiError };

/** The name of a pool in `Ledger.pools`. */
export function poolOf({ accountId, family }: Payer): string {
  return `${accountId}/${family}`;
}

/** Who pays for what is asked. */
export function payerOf(ask: HoldRequest | GrowRequest): Payer {
  return ask.kind === "place" ? ask.payer : ask.hold.payer;
}

/** The process that `ask` belongs to. */
export function nodeOf({ owner }: HoldRequest, nodeId: string): string | null {
  return owner === "process" ? nodeId : null;
}

/** Decides one ask and books it in `ledger`. */
export function admit(ledger: Ledger, ask: HoldRequest | GrowRequest): Admitted {
  return ask.kind === "place" ? place(ledger, ask) : grow(ledger, ask);
}

function place(ledger: Ledger, ask: HoldRequest): Admitted {
  const { payer, price, bounds } = ask;
  const used = ledger.usedRequests.get(ask.requestId);
  if (used) {
    // An earlier try of the same process or caller, whose commit it did not hear of. Whoever asks
    // for something else under the same id gets nothing.
    const isRepeat = used.nodeId === nodeOf(ask, ledger.nodeId) && used.nonce === ask.nonce;
    const isSame = used.keyId === payer.keyId && used.model === ask.model;
    // The model may have another price by now. What was admitted keeps its own.
    const grantedOutput =
      isRepeat && isSame ? grantedBy(used.price, bounds, used.amount) : undefined;
    if (grantedOutput === undefined) return refused(new ApiError("request_id_used"));
    const { price: ownPrice, amount: amountMicro, admittedAt, month } = used;
    return {
      kind: "held",
      addedMicro: undefined,
      hold: {
        ...holdOf(ask, grantedOutput, amountMicro),
        price: ownPrice,
        freeMicro: 0n,
        admittedAt,
        month,
      },
    };
  }

  const key = ledger.keys.get(payer.keyId);
  const pool = ledger.pools.get(poolOf(payer));
  if (!key || !pool)
    return refused(new ApiError("not_found", { message: "There is no such key." }));
  if (key.status !== "active") return refused(new ApiError("revoked_key"));
  const revoked = payer.secretId === undefined ? undefined : ledger.deadSecrets.get(payer.secretId);
  if (revoked !== undefined) return refused(new ApiError(revoked ? "revoked_key" : "invalid_key"));
  if (key.allowedModels.length > 0 && !key.allowedModels.includes(ask.model)) {
    return refused(
      new ApiError("model_not_allowed", { allowed: key.allowedModels, field: "model" }),
    );
  }
  if (pool.inDebt) return refused(creditsExhausted(payer, pool, "in debt"));

  const grant = sizeHold(price, bounds, {
    posted: pool.posted,
    poolHeld: pool.held,
    ...(key.cap !== null && { cap: { limit: key.cap, spent: key.spent, held: key.held } }),
  });
  if (grant.kind === "short") return shortOf(ledger, payer, pool, key, grant);
  pool.held += grant.amountMicro;
  key.held += grant.amountMicro;
  ledger.usedRequests.set(ask.requestId, {
    nodeId: nodeOf(ask, ledger.nodeId),
    nonce: ask.nonce,
    keyId: payer.keyId,
    model: ask.model,
    price,
    amount: grant.amountMicro,
    admittedAt: ledger.at,
    month: ledger.month,
  });
  return {
    kind: "held",
    addedMicro: grant.amountMicro,
    hold: {
      ...holdOf(ask, grant.output, grant.amountMicro),
      freeMicro: pool.posted - pool.held,
      admittedAt: ledger.at,
      month: ledger.month,
    },
  };
}

function grow(ledger: Ledger, ask: GrowRequest): Admitted {
  const { hold } = ask;
  const before = ledger.amounts.get(hold.requestId);
  const key = ledger.keys.get(hold.payer.keyId);
  const pool = ledger.pools.get(poolOf(hold.payer));
  if (before === undefined || !key || !pool)
    return refused(new ApiError("gateway_unavailable", { message: "The hold is gone." }));
  const addedMicro = ask.amountMicro - before;
  if (addedMicro <= 0n)
    return { kind: "held", addedMicro: undefined, hold: { ...hold, amountMicro: before } };
  if (pool.posted - pool.held < addedMicro)
    return shortOf(ledger, hold.payer, pool, key, {
      of: "pool",
      held: pool.posted >= ask.amountMicro,
      neededMicro: addedMicro,
    });
  const month =
    hold.month === ledger.month ? key : ledger.pastMonths.get(`${hold.payer.keyId}/${hold.month}`);
  if (!month)
    return refused(
      new ApiError("gateway_unavailable", { message: "The month of the hold is gone." }),
    );
  if (key.cap !== null && key.cap - month.spent - month.held < addedMicro) {
    return shortOf(ledger, hold.payer, pool, key, {
      of: "cap",
      held: key.cap - month.spent >= ask.amountMicro,
      neededMicro: addedMicro,
    });
  }
  pool.held += addedMicro;
  month.held += addedMicro;
  ledger.amounts.set(hold.requestId, ask.amountMicro);
  return { kind: "held", addedMicro, hold: { ...hold, amountMicro: ask.amountMicro } };
}

function holdOf(
  { requestId, payer, model, price }: HoldRequest,
  grantedOutput: number,
  amountMicro: bigint,
) {
  return { requestId, payer, model, price, grantedOutput, amountMicro };
}

function refused(apiError: ApiError): Admitted {
  return { kind: "refused", apiError };
}

function shortOf(
  ledger: Ledger,
  payer: Payer,
  pool: { posted: bigint; held: bigint },
  key: KeyRow,
  short: { of: "pool" | "cap"; held: boolean; neededMicro: bigint },
): Admitted {
  if (short.held)
    return { kind: "waits", apiError: new ApiError("credits_held", { retryAfterMs: 2000 }) };
  return refused(
    short.of === "pool" ? creditsExhausted(payer, pool, short) : capReached(ledger, key, short),
  );
}

function creditsExhausted(
  payer: Payer,
  pool: { posted: bigint; held: bigint },
  why: "in debt" | { neededMicro: bigint },
): ApiError {
  const remaining = atLeastZero(pool.posted - pool.held);
  const says =
    why === "in debt"
      ? "is in debt"
      : `has ${credits(remaining)} credits free, and this request needs ${credits(why.neededMicro)} set aside`;
  return new ApiError("credits_exhausted", {
    message: `The ${payer.family} pool of this account ${says}. Add credits to go on.`,
    limit: {
      name: "pool_microcredits",
      limit: pool.posted,
      used: pool.held,
      remaining,
      family: familyOf(payer.family),
    },
  });
}

function capReached(
  ledger: Ledger,
  key: KeyRow,
  { neededMicro }: { neededMicro: bigint },
): ApiError {
  const limit = key.cap ?? 0n;
  const remaining = atLeastZero(limit - key.spent - key.held);
  const resetsAt = monthAfter(ledger.month);
  return new ApiError("monthly_cap_reached", {
    message:
      `The monthly credit cap of this key is reached: ${credits(remaining)} credits of it are left, ` +
      `and this request needs ${credits(neededMicro)} set aside. It resets at ${resetsAt.toISOString()}.`,
    limit: {
      name: "monthly_cap_microcredits",
      limit,
      used: key.spent + key.held,
      remaining,
      resetsAt: { seconds: BigInt(resetsAt.getTime() / 1000) },
    },
  });
}

function atLeastZero(micro: bigint): bigint {
  return micro > 0n ? micro : 0n;
}

/** First instant of the UTC month after `month` (`YYYY-MM-01`). */
export function monthAfter(month: string): Date {
  const start = new Date(`${month}T00:00:00Z`);
  return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1));
}
