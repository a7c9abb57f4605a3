// The two transactions of the ledger. An admission batch locks and reads in one round trip,
// decides, and writes in a second one. A settlement batch needs one round trip: its writes do not
// depend on rows that it reads.

import { durationMs } from "@bufbuild/protobuf/wkt";
import type { Attempt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { startsOf } from "../base/budgets.ts";
import {
  cacheSavedNano,
  costMicro,
  costsUpTo,
  type Metered,
  promptOf,
  stepOf,
} from "../base/cost.ts";
import { ApiError } from "../base/errors.ts";
import { mayBeOld } from "../base/ids.ts";
import { firstEventBoundsMs } from "../base/shown-figures.ts";
import { byCategory } from "../base/token-categories.ts";
import { type Query, when } from "../postgres/statement.ts";
import {
  type AdmissionRequest,
  type Admitted,
  admit,
  budgetOf,
  type Hold,
  type HoldRequest,
  keyOf,
  type Ledger,
  nodeOf,
  type Payer,
  type PlacedHold,
  payerOf,
  poolOf,
  type RunningBudget,
  requestKeyOf,
  runningBudget,
} from "./admission.ts";
import { type Decided, type Decision, decision, type Sequence, sequence } from "./batch-queue.ts";
import type { KnownRows } from "./known-rows.ts";
import { chargedUsage } from "./price.ts";
import { basisName, outcomeName, storedTags, toPrice, writeAttempt, writeLeftOut } from "./rows.ts";
import type { Charge, Settled, SettleRequest } from "./settlement.ts";

/** A request with its ending. */
type EndedRequest = SettleRequest & { readonly kind: "settle" };

/** What a request is charged for, and by which version. */
type Billed = EndedRequest & {
  readonly charged: Usage;
  /** The usage beyond the output that it was granted. */
  readonly over: Metered;
  readonly price: Price;
};

/**
 * Admits or rejects each request. When the row of the node no longer exists, rejects all of them
 * and calls `onLost`. `known` learns the rows.
 */
export function admissionBatch(
  requests: readonly AdmissionRequest[],
  nodeId: string,
  onLost: () => void,
  known?: KnownRows,
): Decision<readonly Admitted[]> {
  const payers = requests.map(payerOf);
  const named = requests.flatMap((request) =>
    request.kind === "place" && mayBeUsed(request) ? [request] : [],
  );
  // Only a caller proposes an id that may have been used long ago.
  const proposed = named.filter(({ requestId }) => mayBeOld(requestId));
  const grown = requests.flatMap((request) => (request.kind === "grow" ? [request.hold] : []));
  return decision(
    [
      sql.nodeClock.with({ nodeId }),
      sql.lockPools.with(poolIds(payers)),
      when(named.length > 0, () => sql.readUsedRequests.with(requestIds(named))),
      when(proposed.length > 0, () => sql.readOldRequests.with(requestIds(proposed))),
      when(grown.length > 0, () => sql.lockHolds.with(requestIds(grown))),
      sql.readKeys.with({ keyIds: distinct(payers.map(({ keyId }) => keyId)) }),
      sql.readDeadSecrets.with({
        secretIds: distinct(payers.flatMap(({ secretId }) => secretId ?? [])),
      }),
    ],
    ([[now], pools, used, old, growing, keys, dead]): Decided<readonly Admitted[]> => {
      if (!now) {
        onLost();
        const error = new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
        return { writes: [], outcome: requests.map(() => ({ kind: "rejected", error })) };
      }
      const ledger: Ledger = {
        ...now,
        nodeId,
        pools: new Map(pools.map((row) => [poolOf(row), row])),
        keys: new Map(keys.map((row) => [row.keyId, row])),
        budgets: budgetsOf(now.at, pools, keys),
        deadSecrets: new Map(dead.map(({ secretId, revoked }) => [secretId, revoked])),
        // Of a request that runs and was charged, the charge is the first row.
        usedRequests: new Map(
          [...old, ...used].map((row) => [keyOf(row), { ...row, price: toPrice(row) }]),
        ),
        growing: new Map(growing.map((row) => [keyOf(row), row])),
      };
      const learn = known?.see(pools, keys);
      const outcome = requests.map((request) => admit(ledger, request));
      learn?.();
      return { outcome, writes: admissionWrites(requests, outcome, ledger) };
    },
  );
}

function mayBeUsed({ hasNewId }: HoldRequest): boolean {
  return hasNewId !== true;
}

/** The budgets with a limit. Those of one manager, which several keys name, are one. */
function budgetsOf(
  at: Date,
  pools: readonly sql.LockPoolsRow[],
  keys: readonly sql.ReadKeysRow[],
): Map<string, RunningBudget> {
  const budgets = new Map<string, RunningBudget>();
  for (const row of pools)
    if (row.budget) budgets.set(poolOf(row), runningBudget("pool", row.budget, at));
  for (const row of keys) {
    const { keyId, budget, manager, managerBudget } = row;
    if (budget) budgets.set(budgetOf(row, keyId), runningBudget("key", budget, at));
    if (manager !== null && managerBudget)
      budgets.set(budgetOf(row, manager), runningBudget("manager", managerBudget, at));
  }
  return budgets;
}

function admissionWrites(
  requests: readonly AdmissionRequest[],
  outcomes: readonly Admitted[],
  { nodeId, budgets }: Ledger,
): Query[] {
  const placed: PlacedRequest[] = [];
  const grown = new Map<string, Resized>();
  requests.forEach((request, index) => {
    const outcome = outcomes[index];
    if (outcome?.kind !== "held" || outcome.addedMicro === undefined) return;
    const { hold } = outcome;
    if (request.kind === "place") placed.push({ request, hold });
    else grown.set(keyOf(requestKeyOf(hold)), hold);
  });
  const unsure = placed.flatMap(({ request }) => (mayBeUsed(request) ? [request] : []));
  return [
    when(placed.length > 0, () => placeHolds(placed, nodeId)),
    addToBudgets(placed, budgets),
    when(unsure.length > 0, () => sql.refuseCharged.with(requestIds(unsure))),
    when(grown.size > 0, () => resizeHolds([...grown.values()], true)),
  ];
}

/** A request that was admitted, and its hold. */
type PlacedRequest = { readonly request: HoldRequest; readonly hold: Hold };

function placeHolds(placed: readonly PlacedRequest[], nodeId: string): Query<never> {
  const requests = placed.map(({ request }) => request);
  const holds = placed.map(({ hold }) => hold);
  return sql.placeHolds.with({
    ...requestIds(requests),
    families: requests.map(({ payer }) => payer.family),
    keyIds: requests.map(({ payer }) => payer.keyId),
    secretIds: requests.map(({ payer }) => payer.secretId ?? null),
    models: requests.map(({ model }) => model),
    amounts: holds.map(({ amountMicro }) => amountMicro),
    priceVersions: requests.map(({ price }) => price.priceVersion),
    nonces: requests.map(({ nonce }) => nonce),
    deadlinesMs: requests.map(({ deadlineMs }) => deadlineMs),
    nodeIds: requests.map((request) => nodeOf(request, nodeId)),
    grantedOutputs: holds.map(({ grantedOutput }) => grantedOutput),
    tags: holds.map(storedTags),
    madeBy: holds.map(({ madeBy }) => madeBy ?? null),
    managers: holds.map(({ manager }) => manager ?? null),
    ...windowsAt(holds[0]?.admittedAt ?? new Date(0)),
  });
}

/** Adds what was placed to the budgets with a limit that count it. */
function addToBudgets(placed: readonly PlacedRequest[], budgets: Ledger["budgets"]): Query<never> {
  const counted = placed.flatMap(({ hold }) =>
    [hold.payer.keyId, hold.manager ?? ""].flatMap((payer) =>
      budgets.has(budgetOf(hold.payer, payer)) ? [{ payer, hold }] : [],
    ),
  );
  return when(counted.length > 0, () =>
    sql.addToBudgets.with({
      accountIds: counted.map(({ hold }) => hold.payer.accountId),
      families: counted.map(({ hold }) => hold.payer.family),
      payers: counted.map(({ payer }) => payer),
      amounts: counted.map(({ hold }) => hold.amountMicro),
      ...windowsAt(counted[0]?.hold.admittedAt ?? new Date(0)),
    }),
  );
}

/** When the day, the week and the month of a time began. */
function windowsAt(at: Date) {
  const { day, week, month } = startsOf(at);
  const dateOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);
  return { today: dateOf(day), monday: dateOf(week), first: dateOf(month) };
}

/** A hold and its new amount. */
type Resized = Pick<PlacedHold, "payer" | "requestId" | "amountMicro">;

function resizeHolds(holds: readonly Resized[], mayGrow: boolean): Query<never> {
  const amounts = holds.map(({ amountMicro }) => amountMicro);
  return sql.resizeHolds.with({ ...requestIds(holds), amounts, mayGrow });
}

/**
 * Turns holds into charges, and shrinks holds. When a request has several endings, the first one
 * counts.
 */
export function settlementBatch(requests: readonly SettleRequest[]): Sequence<readonly Settled[]> {
  const endings = new Map<string, Billed>();
  const shrunk = new Map<string, Resized>();
  for (const request of requests) {
    const requestKey = keyOf(requestKeyOf(request.hold));
    if (request.kind === "shrink")
      shrunk.set(requestKey, { ...request.hold, amountMicro: request.amountMicro });
    else if (!endings.has(requestKey)) endings.set(requestKey, billed(request));
  }
  const changed = [...shrunk.values(), ...[...endings.values()].map(({ hold }) => hold)];
  const holds = [...new Map(changed.map((one) => [keyOf(requestKeyOf(one)), one])).values()];
  const [alone, second] = endings.values();
  const lone = second === undefined && shrunk.size === 0 ? alone : undefined;
  return sequence(
    [
      sql.lockPools.with(poolIds(holds.map(({ payer }) => payer))),
      // In the order of their ids, as checkpoints do. The statements after it would lock them in
      // the order in which the requests ended.
      when(lone === undefined, () => sql.lockHolds.with(requestIds(holds))),
      when(shrunk.size > 0, () => resizeHolds([...shrunk.values()], false)),
      lone
        ? sql.settleHold.with(settleParameters(lone))
        : when(endings.size > 0, () => settleHolds([...endings.values()])),
    ],
    ([, , , charged]): readonly Settled[] => {
      const charges = new Map(charged.map((row) => [keyOf(row), row]));
      return requests.map((request) => {
        if (request.kind === "shrink") return { kind: "resized" };
        const requestKey = keyOf(requestKeyOf(request.hold));
        const row = charges.get(requestKey);
        const first = endings.get(requestKey);
        return row && first
          ? { kind: "charged", charge: chargeOf(first, row) }
          : { kind: "missing" };
      });
    },
  );
}

function settleHolds(requests: readonly Billed[]): Query<sql.SettleHoldsRow> {
  const all = requests.map(settleParameters);
  return sql.settleHolds.with({
    accountIds: all.map(({ accountId }) => accountId),
    requestIds: all.map(({ requestId }) => requestId),
    priceVersions: all.map(({ priceVersion }) => priceVersion),
    costsInput: all.map(({ costInput }) => costInput),
    costsCache: all.map(({ costCache }) => costCache),
    costsThinking: all.map(({ costThinking }) => costThinking),
    costs: all.map(({ cost }) => cost),
    costsOver: all.map(({ costOver }) => costOver),
    cachesSaved: all.map(({ cacheSaved }) => cacheSaved),
    outputsOver: all.map(({ outputOver }) => outputOver),
    thinkingsOver: all.map(({ thinkingOver }) => thinkingOver),
    outcomes: all.map(({ outcome }) => outcome),
    bases: all.map(({ basis }) => basis),
    attempts: all.map(({ attempts }) => attempts),
    facts: all.map(({ facts }) => facts),
    firstEvents: all.map(({ firstEvent }) => firstEvent),
    ...byCategory((category) => all.map((one) => one[category])),
    webSearches: all.map(({ webSearches }) => webSearches),
  });
}

/** The parameters of `settleHold`, which `settleHolds` has as lists. */
function settleParameters({ hold, ending, charged, over, price }: Billed) {
  const { inputMicro, withCacheMicro, withThinkingMicro, allMicro } = costsUpTo(price, charged);
  return {
    accountId: hold.payer.accountId,
    requestId: hold.requestId,
    priceVersion: price.priceVersion,
    costInput: inputMicro,
    costCache: withCacheMicro,
    costThinking: withThinkingMicro,
    cost: allMicro,
    costOver: costMicro(price, over),
    cacheSaved: cacheSavedNano(price, charged),
    outputOver: over.output,
    thinkingOver: over.thinking,
    outcome: outcomeName(ending.outcome),
    basis: basisName(ending.basis),
    attempts: JSON.stringify(ending.attempts.map(writeAttempt)),
    facts: factsOf(ending.leftOut ?? []),
    firstEvent: firstEventOf(ending.attempts),
    ...byCategory((category) => charged[category]),
    webSearches: charged.webSearches,
  };
}

function billed(request: EndedRequest): Billed {
  const { hold, ending } = request;
  const charged = chargedUsage(ending.usage, hold.grantedOutput);
  const over = overOf(ending.usage, charged);
  return { ...request, charged, over, price: priceOf(request, charged) };
}

/**
 * The version by which a request is charged: of the hold's price, the step that its prompt demands.
 * Where the provider applied something else, the one that is lower.
 */
function priceOf({ hold, ending: { appliedPrice } }: EndedRequest, charged: Usage): Price {
  const prompt = promptOf(charged);
  const asked = stepOf(hold.price, prompt);
  if (appliedPrice === undefined) return asked;
  const applied = stepOf(appliedPrice, prompt);
  return costMicro(applied, charged) < costMicro(asked, charged) ? applied : asked;
}

/** Facts of a charge that no sum needs, as JSON. Null: there are none. */
function factsOf(leftOut: readonly LeftOut[]): string | null {
  if (leftOut.length === 0) return null;
  return JSON.stringify({ left_out: leftOut.map(writeLeftOut) });
}

/** The number of the count in which roll-ups have the first event. Null: there was none. */
function firstEventOf(attempts: readonly Attempt[]): number | null {
  const after = attempts.findLast(({ firstEventAfter }) => firstEventAfter)?.firstEventAfter;
  if (!after) return null;
  const index = firstEventBoundsMs.findIndex((bound) => durationMs(after) <= bound);
  return (index === -1 ? firstEventBoundsMs.length : index) + 1;
}

const none: Metered = { ...byCategory(() => 0), webSearches: 0 };

function overOf(usage: Usage, charged: Usage): Metered {
  if (charged === usage) return none;
  const output = usage.output - charged.output;
  return { ...none, output, thinking: usage.thinking - charged.thinking };
}

function chargeOf({ hold, ending, charged, price }: Billed, row: sql.SettleHoldsRow): Charge {
  return {
    ...ending,
    hold,
    charged,
    price,
    holdMicro: row.hold,
    amountMicro: row.amount,
    overrunMicro: row.overrun,
    settledAt: new Date(Number(row.settledAtMs)),
  };
}

/** The accounts and ids of requests. */
function requestIds(requests: readonly { readonly payer: Payer; readonly requestId: string }[]) {
  return {
    accountIds: requests.map(({ payer }) => payer.accountId),
    requestIds: requests.map(({ requestId }) => requestId),
  };
}

function poolIds(payers: readonly Payer[]) {
  const pools = [...new Map(payers.map((payer) => [poolOf(payer), payer])).values()];
  return {
    accountIds: pools.map(({ accountId }) => accountId),
    families: pools.map(({ family }) => family),
  };
}

function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
