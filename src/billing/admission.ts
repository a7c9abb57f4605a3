// Admission: which requests may start, and how much each one holds. Pure functions over the rows
// that the batch has locked.

import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { LockPoolsRow, ReadKeysRow, ReadUsedRequestsRow } from "../../gen/sql/billing.ts";
import { type BudgetWindow, readBudget, type WindowName } from "../base/budgets.ts";
import { ApiError, type ErrorReason, expiredSecret, type LimitName } from "../base/errors.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import { credits } from "../base/money.ts";
import type { Tags } from "../base/tags.ts";
import { isHoldOf, type Limit, least, sizeHold, type UsageBounds } from "./hold-size.ts";

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

/**
 * A larger hold for a running request, because its input has more tokens than expected. It grows
 * as far as the pool has free credits.
 */
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
  /**
   * What the limits of the pool, those of the key and its manager, and those of the manager left
   * free after it.
   */
  readonly left: { readonly ofPool: Left; readonly ofKey: Left; readonly ofManager: Left };
  /** The person or management key whose budget counts the request too. Undefined: none. */
  readonly manager: string | undefined;
};

/** Micro-credits; 0 where the requests at once are limited. Undefined: there is no limit. */
type Left = bigint | undefined;

/**
 * The rows of one batch, locked or read in its transaction. `admit` updates pools, budgets and
 * requests, so that each decision of the batch sees the ones before it.
 */
export type Ledger = {
  readonly at: Date;
  readonly month: string;
  readonly nodeId: string;
  readonly pools: Map<string, LedgerPool>;
  readonly keys: Map<string, KeyRow>;
  /** The budgets with a limit: of pools by `poolOf`, of keys and managers by `budgetOf`. */
  readonly budgets: Map<string, RunningBudget>;
  /** Secrets that were revoked (true) or have expired (false), by id. */
  readonly deadSecrets: ReadonlyMap<string, boolean>;
  /** Requests that run or were charged, by `keyOf`. */
  readonly usedRequests: Map<string, UsedRow>;
  /** The growing holds, by `keyOf`. */
  readonly growing: Map<string, { amount: bigint; readonly manager: string | null }>;
};

/** A budget with a limit, and what the requests of the batch add to it. */
export type RunningBudget = {
  readonly of: "pool" | "key" | "manager";
  running: number;
  readonly requestsAtOnce: number | null;
  readonly limits: readonly WindowLimit[];
};

/** A window of a budget that has a limit, and what running requests hold of it. */
type WindowLimit = Limit & {
  held: bigint;
  readonly of: RunningBudget["of"];
  readonly window: BudgetWindow;
};

/** The budget of the numbers of a row, as `readBudget` has them. */
export function runningBudget(
  of: RunningBudget["of"],
  numbers: readonly bigint[],
  at: Date,
): RunningBudget {
  const { held, running, requestsAtOnce, windows } = readBudget(numbers, at);
  const limits: WindowLimit[] = [];
  for (const window of windows) {
    const { limit, spent } = window;
    if (limit !== null) limits.push({ of, held, left: limit - spent, window });
  }
  return { of, running, requestsAtOnce, limits };
}

/** Adds to what running requests hold of a budget. */
function addHeld({ limits }: RunningBudget, micro: bigint): void {
  for (const limit of limits) limit.held += micro;
}

/** A pool of one batch. */
type LedgerPool = Pick<LockPoolsRow, "posted" | "held" | "inDebt" | "accountStatus">;

/** How the database names the status of an account. */
export type AccountStatusName = LockPoolsRow["accountStatus"];

type KeyRow = Pick<ReadKeysRow, "status" | "allowedModels" | "manager">;

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

/** The key of the budget of a key or a manager in `Ledger.budgets`. */
export function budgetOf(pool: Pick<Payer, "accountId" | "family">, payer: string): string {
  return `${poolOf(pool)}/${payer}`;
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
  const refusal = refusalOf(ledger, request, key, pool);
  if (refusal) return rejected(refusal);

  const ofKey = ledger.budgets.get(budgetOf(payer, payer.keyId));
  const ofManager =
    key.manager === null ? undefined : ledger.budgets.get(budgetOf(payer, key.manager));
  const ofPool = ledger.budgets.get(poolOf(payer));
  const budgets = [ofKey, ofManager, ofPool].filter((budget) => budget !== undefined);
  const limits = budgets.flatMap((budget) => budget.limits);
  const grant = sizeHold(price, bounds, { posted: pool.posted, poolHeld: pool.held, limits });
  if (grant.kind === "short" && grant.by !== "requests") {
    const { by, neededMicro, freeMicro } = grant;
    const error = by === "pool" ? creditsExhausted(payer, pool, grant) : reached(by, neededMicro);
    return { kind: "rejected", error, freeMicro };
  }
  // Credits that do not suffice come back for no request that ends, those of others do.
  const full = budgets.find(
    ({ running, requestsAtOnce }) => requestsAtOnce !== null && running >= requestsAtOnce,
  );
  if (full) return tooManyRunning(full);
  if (grant.kind === "short") {
    const error = new ApiError("credits_held", { retryAfterMs: 2000 });
    return { kind: "short", error, freeMicro: grant.freeMicro };
  }
  if (grant.reduced && request.mayRefine === true)
    return { kind: "reduced", freeMicro: grant.freeMicro };
  pool.held += grant.amountMicro;
  for (const budget of budgets) {
    addHeld(budget, grant.amountMicro);
    budget.running += 1;
  }
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
      left: {
        ofPool: leftOf(ofPool),
        ofKey: leftOf(ofKey, ofManager),
        ofManager: leftOf(ofManager),
      },
      manager: key.manager ?? undefined,
      admittedAt: ledger.at,
      month: ledger.month,
    },
  };
}

/** Why a key and its account may not pay for a request, whatever it costs. */
function refusalOf(
  { deadSecrets }: Ledger,
  { payer, model }: HoldRequest,
  { status, allowedModels }: KeyRow,
  pool: LedgerPool,
): ApiError | undefined {
  if (pool.accountStatus === "suspended") return new ApiError("account_suspended");
  // A key that was made at the moment of the closing is not marked as revoked yet.
  if (pool.accountStatus === "closed") return new ApiError("revoked_key");
  if (status !== "active") return new ApiError(reasonOf[status]);
  const revoked = payer.secretId === undefined ? undefined : deadSecrets.get(payer.secretId);
  if (revoked !== undefined) return revoked ? new ApiError("revoked_key") : expiredSecret();
  if (allowedModels.length > 0 && !allowedModels.includes(model))
    return new ApiError("model_not_allowed", { allowed: allowedModels, field: "model" });
  return pool.inDebt ? creditsExhausted(payer, pool, "in debt") : undefined;
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
      left: { ofPool: undefined, ofKey: undefined, ofManager: undefined },
      manager: undefined,
      admittedAt: used.admittedAt,
      month: used.month,
    },
  };
}

function grow(ledger: Ledger, { hold, amountMicro }: GrowRequest): Admitted {
  const requestKey = keyOf(requestKeyOf(hold));
  const growing = ledger.growing.get(requestKey);
  const pool = ledger.pools.get(poolOf(hold.payer));
  if (!growing || !pool) {
    const message = "The hold of this request no longer exists.";
    return rejected(new ApiError("gateway_unavailable", { message }));
  }
  // What the account has given up pays for nothing.
  if (pool.accountStatus === "closed") return rejected(new ApiError("revoked_key"));
  // A limit bounds who starts, not what is charged.
  const before = growing.amount;
  const addedMicro = least(amountMicro - before, pool.posted - pool.held);
  if (addedMicro <= 0n)
    return { kind: "held", addedMicro: undefined, hold: { ...hold, amountMicro: before } };
  pool.held += addedMicro;
  const counting = [hold.payer.keyId, growing.manager ?? ""].map((one) =>
    budgetOf(hold.payer, one),
  );
  for (const name of [poolOf(hold.payer), ...counting]) {
    const budget = ledger.budgets.get(name);
    if (budget) addHeld(budget, addedMicro);
  }
  const grown = before + addedMicro;
  growing.amount = grown;
  return { kind: "held", addedMicro, hold: { ...hold, amountMicro: grown } };
}

function holdOf(
  { requestId, payer, model, price, tags, madeBy }: HoldRequest,
  grantedOutput: number,
  amountMicro: bigint,
) {
  return { requestId, payer, model, price, grantedOutput, amountMicro, tags, madeBy };
}

type NotHeld = Extract<Admitted, { kind: "rejected" | "short" }>;

function rejected(error: ApiError): NotHeld {
  return { kind: "rejected", error };
}

function leftOf(...budgets: readonly (RunningBudget | undefined)[]): Left {
  let left: Left;
  for (const budget of budgets) {
    if (!budget) continue;
    if (budget.requestsAtOnce !== null) left = 0n;
    for (const limit of budget.limits) left = least(limit.left - limit.held, left);
  }
  return left;
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
    ...(why !== "in debt" && why),
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

const whose: Readonly<Record<RunningBudget["of"], string>> = {
  key: "this key",
  manager: "the manager of this key",
  pool: "the pool of this key",
};
const adjectives = {
  day: "daily",
  week: "weekly",
  month: "monthly",
  total: "total",
} as const satisfies Record<WindowName, string>;

/** The limit of a window. That of a key's month is older than budgets. */
function metricOf(of: RunningBudget["of"], window: WindowName): LimitName {
  if (of !== "key") return `${of}_${adjectives[window]}_microcredits`;
  return window === "month"
    ? "monthly_cap_microcredits"
    : `${of}_${adjectives[window]}_microcredits`;
}

function reached({ of, held, left, window }: WindowLimit, neededMicro: bigint): ApiError {
  const { name, spent, resetsAt } = window;
  const remaining = atLeastZero(left - held);
  const isCap = of === "key" && name === "month";
  const reset = resetsAt
    ? ` It resets at ${resetsAt.toISOString()}.`
    : " It does not reset by itself.";
  const what = isCap
    ? "The monthly credit cap of this key"
    : `The ${adjectives[name]} budget of ${whose[of]}`;
  return new ApiError(isCap ? "monthly_cap_reached" : "budget_reached", {
    message:
      `${what} is reached: ${credits(remaining)} credits of it are left, and this request needs ` +
      `${credits(neededMicro)} set aside.${reset}`,
    neededMicro,
    limit: {
      name: metricOf(of, name),
      // Only what is free of what others spend, too: a key may not learn it.
      ...(of === "key" ? { limit: spent + left, used: spent + held } : { limit: remaining }),
      remaining,
      ...(left <= 0n && { exhausted: true }),
      ...(resetsAt && { resetsAt: { seconds: BigInt(resetsAt.getTime() / 1000) } }),
    },
  });
}

function tooManyRunning({ of, running, requestsAtOnce }: RunningBudget): NotHeld {
  const limit = BigInt(requestsAtOnce ?? 0);
  const error = new ApiError("too_many_running", {
    message: `The most requests at once of ${whose[of]} are running: ${limit}.`,
    limit: { name: `${of}_requests_at_once`, limit, used: BigInt(running) },
    ...(limit > 0n && { retryAfterMs: 2000 }),
  });
  // A limit of none never recovers.
  return { kind: limit === 0n ? "rejected" : "short", error };
}

function atLeastZero(micro: bigint): bigint {
  return micro > 0n ? micro : 0n;
}
