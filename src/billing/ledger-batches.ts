// The two batches of the ledger as transactions. Admission locks and reads in one round trip,
// decides, and writes in the next; settlement takes one, since nothing that it reads changes what
// is written.

import { toJson } from "@bufbuild/protobuf";
import { AttemptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { ApiError } from "../base/errors.ts";
import { tokenCategories } from "../base/token-categories.ts";
import type { Query } from "../postgres/pipeline.ts";
import { statement } from "../postgres/postgres.ts";
import {
  type Admitted,
  admit,
  type GrowRequest,
  type Hold,
  type HoldRequest,
  type Ledger,
  nodeOf,
  type Payer,
  payerOf,
  poolOf,
} from "./admission.ts";
import type { Decision, Sequence } from "./batch-connection.ts";
import { costMicro } from "./price.ts";
import { basisName, outcomeName, type PriceRow, toPrice } from "./rows.ts";
import type { Charge, Settled, SettleRequest } from "./settlement.ts";

const statements = {
  nodeClock: statement(import.meta.url, "node-clock"),
  lockPools: statement(import.meta.url, "lock-pools"),
  readKeys: statement(import.meta.url, "read-keys"),
  readDeadSecrets: statement(import.meta.url, "read-dead-secrets"),
  readUsedRequests: statement(import.meta.url, "read-used-requests"),
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
  status: string;
  allowed_models: string[];
  monthly_cap: bigint | null;
  spent: bigint;
  held: bigint;
};
type UsedRow = PriceRow & {
  request_id: string;
  node_id: string | null;
  nonce: string;
  key_id: string;
  model: string;
  amount: bigint;
  admitted_at: Date;
  month: string;
};
type HoldRow = { request_id: string; amount: bigint };
type ChargedRow = {
  request_id: string;
  hold: bigint;
  amount: bigint;
  overrun: bigint;
  settled_at_ms: bigint;
};
type MonthRow = { key_id: string; month: string; spent: bigint; held: bigint };

/**
 * Admits or refuses each ask. Nothing is admitted for a node whose row is gone; `onLost` hears of
 * it.
 */
export function admissionBatch(
  asks: readonly (HoldRequest | GrowRequest)[],
  nodeId: string,
  onLost: () => void,
): Decision<readonly Admitted[]> {
  const payers = asks.map(payerOf);
  const keyIds = distinct(payers.map(({ keyId }) => keyId));
  const requestIds = asks.flatMap((ask) => (ask.kind === "place" ? [ask.requestId] : []));
  const growing = asks.flatMap((ask) => (ask.kind === "grow" ? [ask.hold] : []));
  return {
    reads: [
      [statements.nodeClock, [nodeId]],
      [statements.lockPools, poolIds(payers)],
      [statements.readKeys, [keyIds]],
      [
        statements.readDeadSecrets,
        [distinct(payers.flatMap(({ secretId }) => (secretId === undefined ? [] : [secretId])))],
      ],
      [statements.readUsedRequests, [requestIds]],
      ...(growing.length > 0 ? readsOfGrowing(growing) : []),
    ],
    decide: ([clock, pools, keys, dead, used, growingHolds = [], pastMonths = []]) => {
      const [now] = clock as { at: Date; month: string }[];
      if (!now) {
        onLost();
        const apiError = new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
        return { writes: [], outcome: asks.map(() => ({ kind: "refused", apiError })) };
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
          (used as UsedRow[]).map((row) => [
            row.request_id,
            {
              ...row,
              nodeId: row.node_id,
              keyId: row.key_id,
              price: toPrice(row),
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
      const outcome = asks.map((ask) => admit(ledger, ask));
      return { outcome, writes: admissionWrites(asks, outcome, nodeId) };
    },
  };
}

function readsOfGrowing(holds: readonly Hold[]): Query[] {
  return [
    [statements.lockHolds, [holds.map(({ requestId }) => requestId)]],
    [
      statements.readPastMonths,
      [holds.map(({ payer }) => payer.keyId), holds.map(({ month }) => month)],
    ],
  ];
}

function admissionWrites(
  asks: readonly (HoldRequest | GrowRequest)[],
  outcomes: readonly Admitted[],
  nodeId: string,
): Query[] {
  const placed: { ask: HoldRequest; hold: Hold }[] = [];
  const grown = new Map<string, bigint>();
  asks.forEach((ask, index) => {
    const outcome = outcomes[index];
    if (outcome?.kind !== "held" || outcome.addedMicro === undefined) return;
    const { hold } = outcome;
    if (ask.kind === "place") placed.push({ ask, hold });
    else grown.set(hold.requestId, hold.amountMicro);
  });
  const writes: Query[] = [];
  if (placed.length > 0) {
    writes.push(placeHolds(placed, nodeId), [
      statements.refuseCharged,
      [placed.map(({ ask }) => ask.requestId)],
    ]);
  }
  if (grown.size > 0) writes.push(resizeHolds(grown, true));
  return writes;
}

function placeHolds(placed: readonly { ask: HoldRequest; hold: Hold }[], nodeId: string): Query {
  return [
    statements.placeHolds,
    [
      placed.map(({ ask }) => ask.requestId),
      placed.map(({ ask }) => ask.payer.accountId),
      placed.map(({ ask }) => ask.payer.family),
      placed.map(({ ask }) => ask.payer.keyId),
      placed.map(({ ask }) => ask.payer.secretId ?? null),
      placed.map(({ ask }) => ask.model),
      placed.map(({ hold }) => hold.amountMicro),
      placed.map(({ ask }) => ask.price.priceVersion),
      placed.map(({ ask }) => ask.nonce),
      placed.map(({ ask }) => ask.deadlineMs),
      placed.map(({ ask }) => nodeOf(ask, nodeId)),
    ],
  ];
}

function resizeHolds(amounts: ReadonlyMap<string, bigint>, mayGrow: boolean): Query {
  return [statements.resizeHolds, [[...amounts.keys()], [...amounts.values()], mayGrow]];
}

/**
 * Turns holds into charges and gives back what shrinking holds do not need. A request's first
 * ending counts.
 */
export function settlementBatch(asks: readonly SettleRequest[]): Sequence<readonly Settled[]> {
  const endings = new Map<string, SettleRequest & { kind: "settle" }>();
  const shrunk = new Map<string, bigint>();
  for (const ask of asks) {
    const { requestId } = ask.hold;
    if (ask.kind === "shrink") shrunk.set(requestId, ask.amountMicro);
    else if (!endings.has(requestId)) endings.set(requestId, ask);
  }
  const queries: Query[] = [
    [statements.lockPools, poolIds(asks.map(({ hold }) => hold.payer))],
    // What follows would lock them in the order in which the requests ended, and checkpoints lock
    // them in the order of their ids.
    [statements.lockHolds, [distinct(asks.map(({ hold }) => hold.requestId))]],
  ];
  if (shrunk.size > 0) queries.push(resizeHolds(shrunk, false));
  if (endings.size > 0) queries.push(settleHolds([...endings.values()]));
  return {
    queries,
    outcome: (rows) => {
      const charged = endings.size > 0 ? (rows.at(-1) as ChargedRow[]) : [];
      const charges = new Map(charged.map((row) => [row.request_id, row]));
      return asks.map((ask) => {
        if (ask.kind === "shrink") return { kind: "resized" };
        const { requestId } = ask.hold;
        const row = charges.get(requestId);
        const first = endings.get(requestId);
        return row && first
          ? { kind: "charged", charge: chargeOf(first, row) }
          : { kind: "missing" };
      });
    },
  };
}

function settleHolds(asks: readonly (SettleRequest & { kind: "settle" })[]): Query {
  const endings = asks.map(({ ending }) => ending);
  return [
    statements.settleHolds,
    [
      asks.map(({ hold }) => hold.requestId),
      asks.map(({ hold, ending }) => costMicro(hold.price, ending.usage)),
      endings.map(({ outcome }) => outcomeName(outcome)),
      endings.map(({ basis }) => basisName(basis)),
      endings.map(({ attempts }) =>
        JSON.stringify(attempts.map((attempt) => toJson(AttemptSchema, attempt))),
      ),
      ...tokenCategories.map((category) => endings.map(({ usage }) => usage[category])),
    ],
  ];
}

function chargeOf({ hold, ending }: SettleRequest & { kind: "settle" }, row: ChargedRow): Charge {
  const { hold: holdMicro, amount: amountMicro, overrun: overrunMicro } = row;
  return {
    ...ending,
    hold,
    holdMicro,
    amountMicro,
    overrunMicro,
    settledAt: new Date(Number(row.settled_at_ms)),
  };
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
  return new Map(rows.map(({ request_id, amount }) => [request_id, amount]));
}

function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
