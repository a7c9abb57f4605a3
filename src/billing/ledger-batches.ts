// The two transactions of the ledger. An admission batch locks and reads in one round trip,
// decides, and writes in a second one. A settlement batch needs one round trip: its writes do not
// depend on rows that it reads.

import { toJson } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { type Attempt, AttemptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { ApiError } from "../base/errors.ts";
import { mayBeOld } from "../base/ids.ts";
import { byCategory, type TokenCategory, tokenCategories } from "../base/token-categories.ts";
import { firstEventNumber } from "../base/usage-sums.ts";
import type { Query } from "../postgres/pipeline.ts";
import { statement } from "../postgres/postgres.ts";
import {
  type AdmissionRequest,
  type Admitted,
  admit,
  type Hold,
  type HoldRequest,
  type KeyState,
  keyOf,
  type Ledger,
  nodeOf,
  type Payer,
  type PlacedHold,
  payerOf,
  poolOf,
  requestKeyOf,
} from "./admission.ts";
import type { Decision, Sequence } from "./batch-connection.ts";
import { chargedUsage, costMicro, costsUpTo } from "./price.ts";
import { basisName, outcomeName, type PriceRow, toPrice } from "./rows.ts";
import type { Charge, Settled, SettleRequest } from "./settlement.ts";

const statements = {
  registerPrice: statement(import.meta.url, "register-price"),
  nodeClock: statement(import.meta.url, "node-clock"),
  lockPools: statement(import.meta.url, "lock-pools"),
  readKeys: statement(import.meta.url, "read-keys"),
  readDeadSecrets: statement(import.meta.url, "read-dead-secrets"),
  readUsedRequests: statement(import.meta.url, "read-used-requests"),
  readOldRequests: statement(import.meta.url, "read-old-requests"),
  readPastMonths: statement(import.meta.url, "read-past-months"),
  lockHolds: statement(import.meta.url, "lock-holds"),
  placeHolds: statement(import.meta.url, "place-holds"),
  refuseCharged: statement(import.meta.url, "refuse-charged"),
  resizeHolds: statement(import.meta.url, "resize-holds"),
  settleHolds: statement(import.meta.url, "settle-holds"),
};

type PoolRow = {
  account_id: string;
  family: string;
  posted: bigint;
  held: bigint;
  in_debt: boolean;
};
type KeyRow = {
  key_id: string;
  status: KeyState;
  allowed_models: string[];
  monthly_cap: bigint | null;
  spent: bigint;
  held: bigint;
};
type UsedRow = PriceRow & {
  account_id: string;
  request_id: string;
  node_id: string | null;
  nonce: string;
  key_id: string;
  model: string;
  amount: bigint;
  granted_output: number;
  admitted_at: Date;
  month: string;
};
type HoldRow = { account_id: string; request_id: string; amount: bigint };
type ChargedRow = {
  account_id: string;
  request_id: string;
  hold: bigint;
  amount: bigint;
  overrun: bigint;
  settled_at_ms: bigint;
};
type MonthRow = { key_id: string; month: string; spent: bigint; held: bigint };

/**
 * Stores a price, which must be durable before a hold references it. Where it is stored already, a
 * distributed engine throws a unique violation.
 */
export function registerPrice(model: string, price: Price): Query {
  const values = tokenCategories.map((category) => price[category]);
  return [statements.registerPrice, [price.priceVersion, model, ...values]];
}

/**
 * Admits or rejects each request. When the row of the node no longer exists, rejects all of them
 * and calls `onLost`.
 */
export function admissionBatch(
  requests: readonly AdmissionRequest[],
  nodeId: string,
  onLost: () => void,
): Decision<readonly Admitted[]> {
  const payers = requests.map(payerOf);
  const keyIds = distinct(payers.map(({ keyId }) => keyId));
  const placing = requests.flatMap((request) => (request.kind === "place" ? [request] : []));
  // Only a caller proposes an id that may have been used long ago.
  const proposed = placing.filter(({ requestId }) => mayBeOld(requestId));
  const growing = requests.flatMap((request) => (request.kind === "grow" ? [request.hold] : []));
  return {
    reads: [
      [statements.nodeClock, [nodeId]],
      [statements.lockPools, poolIds(payers)],
      [statements.readKeys, [distinct(payers.map(({ accountId }) => accountId)), keyIds]],
      [
        statements.readDeadSecrets,
        [distinct(payers.flatMap(({ secretId }) => (secretId === undefined ? [] : [secretId])))],
      ],
      [statements.readUsedRequests, requestIds(placing)],
      ...(proposed.length > 0
        ? [[statements.readOldRequests, requestIds(proposed)] satisfies Query]
        : []),
      ...(growing.length > 0 ? readsForGrowing(growing) : []),
    ],
    decide: ([clock, pools, keys, dead, used, ...more]) => {
      const old = proposed.length > 0 ? (more.shift() ?? []) : [];
      const [growingHolds = [], pastMonths = []] = more;
      const [now] = clock as { at: Date; month: string }[];
      if (!now) {
        onLost();
        const error = new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
        return { writes: [], outcome: requests.map(() => ({ kind: "rejected", error })) };
      }
      const ledger: Ledger = {
        at: now.at,
        month: now.month,
        nodeId,
        pools: poolsOf(pools as PoolRow[]),
        keys: new Map(
          (keys as KeyRow[]).map((row) => [
            row.key_id,
            { ...row, allowedModels: row.allowed_models, cap: row.monthly_cap },
          ]),
        ),
        deadSecrets: new Map(
          (dead as { secret_id: string; revoked: boolean }[]).map((row) => [
            row.secret_id,
            row.revoked,
          ]),
        ),
        usedRequests: new Map(
          [...(old as UsedRow[]), ...(used as UsedRow[])].map((row) => [
            rowKeyOf(row),
            {
              ...row,
              nodeId: row.node_id,
              keyId: row.key_id,
              price: toPrice(row),
              grantedOutput: row.granted_output,
              admittedAt: row.admitted_at,
            },
          ]),
        ),
        amounts: amountsOf(growingHolds as HoldRow[]),
        pastMonths: new Map(
          (pastMonths as MonthRow[]).map(({ key_id, month, spent, held }) => [
            `${key_id}/${month}`,
            { spent, held },
          ]),
        ),
      };
      const outcome = requests.map((request) => admit(ledger, request));
      return { outcome, writes: admissionWrites(requests, outcome, nodeId) };
    },
  };
}

function readsForGrowing(holds: readonly Hold[]): Query[] {
  return [
    [statements.lockHolds, requestIds(holds)],
    [
      statements.readPastMonths,
      [
        holds.map(({ payer }) => payer.accountId),
        holds.map(({ payer }) => payer.keyId),
        holds.map(({ month }) => month),
      ],
    ],
  ];
}

function admissionWrites(
  requests: readonly AdmissionRequest[],
  outcomes: readonly Admitted[],
  nodeId: string,
): Query[] {
  const placed: PlacedRequest[] = [];
  const grown = new Map<string, Resized>();
  requests.forEach((request, index) => {
    const outcome = outcomes[index];
    if (outcome?.kind !== "held" || outcome.addedMicro === undefined) return;
    const { hold } = outcome;
    if (request.kind === "place") placed.push({ request, hold });
    else grown.set(keyOf(requestKeyOf(hold)), { ...hold });
  });
  const writes: Query[] = [];
  if (placed.length > 0) {
    writes.push(placeHolds(placed, nodeId), [
      statements.refuseCharged,
      requestIds(placed.map(({ request }) => request)),
    ]);
  }
  if (grown.size > 0) writes.push(resizeHolds(grown, true));
  return writes;
}

type PlacedRequest = { readonly request: HoldRequest; readonly hold: Hold };

function placeHolds(placed: readonly PlacedRequest[], nodeId: string): Query {
  return [
    statements.placeHolds,
    [
      ...requestIds(placed.map(({ request }) => request)),
      placed.map(({ request }) => request.payer.family),
      placed.map(({ request }) => request.payer.keyId),
      placed.map(({ request }) => request.payer.secretId ?? null),
      placed.map(({ request }) => request.model),
      placed.map(({ hold }) => hold.amountMicro),
      placed.map(({ request }) => request.price.priceVersion),
      placed.map(({ request }) => request.nonce),
      placed.map(({ request }) => request.deadlineMs),
      placed.map(({ request }) => nodeOf(request, nodeId)),
      placed.map(({ hold }) => hold.grantedOutput),
    ],
  ];
}

/** A hold and its new amount. */
type Resized = Pick<PlacedHold, "payer" | "requestId" | "amountMicro">;

function resizeHolds(resized: ReadonlyMap<string, Resized>, mayGrow: boolean): Query {
  const holds = [...resized.values()];
  const amounts = holds.map(({ amountMicro }) => amountMicro);
  return [statements.resizeHolds, [...requestIds(holds), amounts, mayGrow]];
}

/**
 * Turns holds into charges, and shrinks holds. When a request has several endings, the first one
 * counts.
 */
export function settlementBatch(requests: readonly SettleRequest[]): Sequence<readonly Settled[]> {
  const endings = new Map<string, SettleRequest & { kind: "settle" }>();
  const shrunk = new Map<string, Resized>();
  const held = new Map<string, PlacedHold>();
  for (const request of requests) {
    const requestKey = keyOf(requestKeyOf(request.hold));
    held.set(requestKey, request.hold);
    if (request.kind === "shrink")
      shrunk.set(requestKey, { ...request.hold, amountMicro: request.amountMicro });
    else if (!endings.has(requestKey)) endings.set(requestKey, request);
  }
  const queries: Query[] = [
    [statements.lockPools, poolIds(requests.map(({ hold }) => hold.payer))],
    // In the order of their ids, as checkpoints do. The statements below would lock them in the
    // order in which the requests ended.
    [statements.lockHolds, requestIds([...held.values()])],
  ];
  if (shrunk.size > 0) queries.push(resizeHolds(shrunk, false));
  if (endings.size > 0) queries.push(settleHolds([...endings.values()]));
  return {
    queries,
    outcome: (rows) => {
      const charged = endings.size > 0 ? (rows.at(-1) as ChargedRow[]) : [];
      const charges = new Map(charged.map((row) => [rowKeyOf(row), row]));
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
  };
}

function settleHolds(requests: readonly (SettleRequest & { kind: "settle" })[]): Query {
  const endings = requests.map(({ ending }) => ending);
  const charged = requests.map(chargedOf);
  const costs = requests.map((request) => costsUpTo(request.hold.price, chargedOf(request)));
  const over = requests.map(overOf);
  return [
    statements.settleHolds,
    [
      ...requestIds(requests.map(({ hold }) => hold)),
      costs.map(({ inputMicro }) => inputMicro),
      costs.map(({ withCacheMicro }) => withCacheMicro),
      costs.map(({ withThinkingMicro }) => withThinkingMicro),
      costs.map(({ allMicro }) => allMicro),
      requests.map((request) => costMicro(request.hold.price, overOf(request))),
      over.map(({ output }) => output),
      over.map(({ thinking }) => thinking),
      endings.map(({ outcome }) => outcomeName(outcome)),
      endings.map(({ basis }) => basisName(basis)),
      endings.map(({ attempts }) =>
        JSON.stringify(attempts.map((attempt) => toJson(AttemptSchema, attempt))),
      ),
      endings.map(({ attempts }) => firstEventOf(attempts)),
      ...tokenCategories.map((category) => charged.map((usage) => usage[category])),
    ],
  ];
}

/** The number of the count in which roll-ups have the first event. Null: there was none. */
function firstEventOf(attempts: readonly Attempt[]): number | null {
  const after = attempts.findLast(({ firstEventAfter }) => firstEventAfter)?.firstEventAfter;
  return after ? firstEventNumber(durationMs(after)) : null;
}

/** The charged part of the usage of a request. */
function chargedOf({ hold, ending }: SettleRequest & { kind: "settle" }): Usage {
  return chargedUsage(ending.usage, hold.grantedOutput);
}

const none = byCategory(() => 0);

/** The usage of a request beyond the output that it was granted. */
function overOf(request: SettleRequest & { kind: "settle" }): Record<TokenCategory, number> {
  const { usage } = request.ending;
  const charged = chargedOf(request);
  if (charged === usage) return none;
  const output = usage.output - charged.output;
  return { ...none, output, thinking: usage.thinking - charged.thinking };
}

function chargeOf(request: SettleRequest & { kind: "settle" }, row: ChargedRow): Charge {
  const { hold: holdMicro, amount: amountMicro, overrun: overrunMicro } = row;
  return {
    ...request.ending,
    hold: request.hold,
    charged: chargedOf(request),
    holdMicro,
    amountMicro,
    overrunMicro,
    settledAt: new Date(Number(row.settled_at_ms)),
  };
}

/** The accounts and ids of requests. */
function requestIds(
  requests: readonly { readonly payer: Payer; readonly requestId: string }[],
): [string[], string[]] {
  return [requests.map(({ payer }) => payer.accountId), requests.map(({ requestId }) => requestId)];
}

function rowKeyOf(row: { account_id: string; request_id: string }): string {
  return keyOf({ accountId: row.account_id, requestId: row.request_id });
}

function poolIds(payers: readonly Payer[]): [string[], string[]] {
  const pools = new Map(payers.map((payer) => [poolOf(payer), payer]));
  return [
    [...pools.values()].map(({ accountId }) => accountId),
    [...pools.values()].map(({ family }) => family),
  ];
}

function poolsOf(rows: readonly PoolRow[]): Ledger["pools"] {
  return new Map(
    rows.map((row) => [
      `${row.account_id}/${row.family}`,
      { posted: row.posted, held: row.held, inDebt: row.in_debt },
    ]),
  );
}

function amountsOf(rows: readonly HoldRow[]): Map<string, bigint> {
  return new Map(rows.map((row) => [rowKeyOf(row), row.amount]));
}

function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
