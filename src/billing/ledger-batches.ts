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
import { type Statement, statement } from "../postgres/postgres.ts";
import {
  type AccountStatusName,
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

export type PoolRow = {
  account_id: string;
  family: string;
  posted: bigint;
  held: bigint;
  in_debt: boolean;
  account_status: AccountStatusName;
};
type KeyRow = {
  key_id: string;
  status: KeyState;
  allowed_models: string[];
  monthly_cap: bigint | null;
  spent: bigint;
  held: bigint;
};
export type UsedRow = PriceRow & {
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
export type AmountRow = { account_id: string; request_id: string; amount: bigint };
export type ChargedRow = {
  account_id: string;
  request_id: string;
  hold: bigint;
  amount: bigint;
  overrun: bigint;
  settled_at_ms: bigint;
};
export type MonthRow = { key_id: string; month: string; spent: bigint; held: bigint };

/** A request with its ending. */
export type EndedRequest = SettleRequest & { readonly kind: "settle" };

/** What decides a batch of admissions. */
export type AdmissionReads = {
  readonly payers: readonly Payer[];
  readonly keyIds: readonly string[];
  /** New requests with an id that may have been used. */
  readonly named: readonly HoldRequest[];
  /** Those of them with an id that may have been used long ago. */
  readonly proposed: readonly HoldRequest[];
  readonly growing: readonly Hold[];
};

/** The rows of one batch. Of a request that runs and was charged, `used` has the charge first. */
export type LockedRows = {
  readonly pools: readonly PoolRow[];
  readonly used: readonly UsedRow[];
  /** The amounts of growing holds. */
  readonly amounts: readonly AmountRow[];
  /** The months of growing holds, and current ones that were read apart from their keys. */
  readonly months: readonly MonthRow[];
};

/** The queries of a batch: of all its accounts together, or one call per account. */
export type BatchStatements = {
  /** The first query locks the pools. `rowsOf` takes the results of the queries, in order. */
  read(reads: AdmissionReads): {
    readonly queries: readonly Query[];
    readonly rowsOf: (results: readonly unknown[][]) => LockedRows;
  };
  place(placed: readonly PlacedRequest[], nodeId: string): readonly Query[];
  /** Makes holds of admitted requests larger. The pools are locked. */
  grow(grown: readonly Resized[]): readonly Query[];
  /** Locks, shrinks holds, and settles requests. */
  settle(shrunk: readonly Resized[], ended: readonly EndedRequest[]): readonly Query[];
  /** The charges, from the results of all queries of `settle`. */
  chargedOf(results: readonly unknown[][]): readonly ChargedRow[];
};

/** One statement for all accounts. */
const jointStatements: BatchStatements = {
  read: ({ payers, named, proposed, growing }) => ({
    queries: [
      [statements.lockPools, poolIds(payers)],
      ...lookUp(statements.readUsedRequests, named),
      ...lookUp(statements.readOldRequests, proposed),
      ...(growing.length > 0 ? readsForGrowing(growing) : []),
    ],
    rowsOf: ([pools, ...more]) => {
      const used = named.length > 0 ? (more.shift() ?? []) : [];
      const old = proposed.length > 0 ? (more.shift() ?? []) : [];
      const [amounts = [], months = []] = growing.length > 0 ? more : [];
      return {
        pools: pools as PoolRow[],
        used: [...(old as UsedRow[]), ...(used as UsedRow[])],
        amounts: amounts as AmountRow[],
        months: months as MonthRow[],
      };
    },
  }),
  place: (placed, nodeId) => {
    const requests = placed.map(({ request }) => request);
    return [
      [statements.placeHolds, [...requestIds(requests), ...placedValues(placed, nodeId)]],
      ...lookUp(statements.refuseCharged, requests.filter(mayBeUsed)),
    ];
  },
  grow: (grown) => [resizeHolds(grown, true)],
  settle: (shrunk, ended) => {
    const changed = [...shrunk, ...ended.map(({ hold }) => hold)];
    const holds = [...new Map(changed.map((one) => [keyOf(requestKeyOf(one)), one])).values()];
    return [
      [statements.lockPools, poolIds(holds.map(({ payer }) => payer))],
      // In the order of their ids, as checkpoints do. The statements after it would lock them in
      // the order in which the requests ended.
      [statements.lockHolds, requestIds(holds)],
      ...(shrunk.length > 0 ? [resizeHolds(shrunk, false)] : []),
      ...(ended.length > 0 ? [settleHolds(ended)] : []),
    ];
  },
  // Only the last one returns charges, and without a settlement it returns no rows.
  chargedOf: (results) => (results.at(-1) ?? []) as ChargedRow[],
};

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
  by: BatchStatements = jointStatements,
): Decision<readonly Admitted[]> {
  const payers = requests.map(payerOf);
  const keyIds = distinct(payers.map(({ keyId }) => keyId));
  const named = requests.flatMap((request) =>
    request.kind === "place" && mayBeUsed(request) ? [request] : [],
  );
  // Only a caller proposes an id that may have been used long ago.
  const proposed = named.filter(({ requestId }) => mayBeOld(requestId));
  const growing = requests.flatMap((request) => (request.kind === "grow" ? [request.hold] : []));
  const { queries, rowsOf } = by.read({ payers, keyIds, named, proposed, growing });
  return {
    reads: [
      [statements.nodeClock, [nodeId]],
      ...queries,
      [statements.readKeys, [keyIds]],
      [
        statements.readDeadSecrets,
        [distinct(payers.flatMap(({ secretId }) => (secretId === undefined ? [] : [secretId])))],
      ],
    ],
    decide: ([clock, ...more]) => {
      const { pools, used, amounts, months } = rowsOf(more);
      const [keys, dead] = more.slice(queries.length);
      const [now] = clock as { at: Date; month: string }[];
      if (!now) {
        onLost();
        const error = new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
        return { writes: [], outcome: requests.map(() => ({ kind: "rejected", error })) };
      }
      const monthOf = new Map(months.map((row) => [`${row.key_id}/${row.month}`, row]));
      const ledger: Ledger = {
        at: now.at,
        month: now.month,
        nodeId,
        pools: poolsOf(pools),
        keys: new Map(
          (keys as KeyRow[]).map((row) => {
            const { spent, held } = monthOf.get(`${row.key_id}/${now.month}`) ?? row;
            const fields = { allowedModels: row.allowed_models, cap: row.monthly_cap };
            return [row.key_id, { ...row, ...fields, spent, held }];
          }),
        ),
        deadSecrets: new Map(
          (dead as { secret_id: string; revoked: boolean }[]).map((row) => [
            row.secret_id,
            row.revoked,
          ]),
        ),
        usedRequests: new Map(
          used.map((row) => [
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
        amounts: new Map(amounts.map((row) => [rowKeyOf(row), row.amount])),
        pastMonths: new Map([...monthOf].map(([key, { spent, held }]) => [key, { spent, held }])),
      };
      const outcome = requests.map((request) => admit(ledger, request));
      return { outcome, writes: admissionWrites(requests, outcome, nodeId, by) };
    },
  };
}

function mayBeUsed({ hasNewId }: HoldRequest): boolean {
  return hasNewId !== true;
}

/** No query where there is nothing to look up. */
function lookUp(inTables: Statement, requests: readonly HoldRequest[]): Query[] {
  return requests.length > 0 ? [[inTables, requestIds(requests)]] : [];
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
  by: BatchStatements,
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
  return [
    ...(placed.length > 0 ? by.place(placed, nodeId) : []),
    ...(grown.size > 0 ? by.grow([...grown.values()]) : []),
  ];
}

/** A request that was admitted, and its hold. */
export type PlacedRequest = { readonly request: HoldRequest; readonly hold: Hold };

/** What an admission writes of each request besides its account and id, one array per column. */
export function placedValues(placed: readonly PlacedRequest[], nodeId: string): unknown[][] {
  return [
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
    placed.map(({ hold }) => storedTags(hold)),
  ];
}

/** The tags of a hold as its row has them. */
function storedTags({ tags }: Hold): string | null {
  for (const _ in tags) return JSON.stringify(tags);
  return null;
}

/** A hold and its new amount. */
export type Resized = Pick<PlacedHold, "payer" | "requestId" | "amountMicro">;

function resizeHolds(holds: readonly Resized[], mayGrow: boolean): Query {
  const amounts = holds.map(({ amountMicro }) => amountMicro);
  return [statements.resizeHolds, [...requestIds(holds), amounts, mayGrow]];
}

/**
 * Turns holds into charges, and shrinks holds. When a request has several endings, the first one
 * counts.
 */
export function settlementBatch(
  requests: readonly SettleRequest[],
  by: BatchStatements = jointStatements,
): Sequence<readonly Settled[]> {
  const endings = new Map<string, EndedRequest>();
  const shrunk = new Map<string, Resized>();
  for (const request of requests) {
    const requestKey = keyOf(requestKeyOf(request.hold));
    if (request.kind === "shrink")
      shrunk.set(requestKey, { ...request.hold, amountMicro: request.amountMicro });
    else if (!endings.has(requestKey)) endings.set(requestKey, request);
  }
  return {
    queries: by.settle([...shrunk.values()], [...endings.values()]),
    outcome: (rows) => {
      const charges = new Map(by.chargedOf(rows).map((row) => [rowKeyOf(row), row]));
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

function settleHolds(requests: readonly EndedRequest[]): Query {
  const holds = requests.map(({ hold }) => hold);
  return [statements.settleHolds, [...requestIds(holds), ...endingValues(requests)]];
}

/** What a settlement writes of each request besides its id, one array per column. */
export function endingValues(requests: readonly EndedRequest[]): unknown[][] {
  const endings = requests.map(({ ending }) => ending);
  const charged = requests.map(chargedOf);
  const costs = requests.map((request) => costsUpTo(request.hold.price, chargedOf(request)));
  const over = requests.map(overOf);
  return [
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
  ];
}

/** The number of the count in which roll-ups have the first event. Null: there was none. */
function firstEventOf(attempts: readonly Attempt[]): number | null {
  const after = attempts.findLast(({ firstEventAfter }) => firstEventAfter)?.firstEventAfter;
  return after ? firstEventNumber(durationMs(after)) : null;
}

/** The charged part of the usage of a request. */
function chargedOf({ hold, ending }: EndedRequest): Usage {
  return chargedUsage(ending.usage, hold.grantedOutput);
}

const none = byCategory(() => 0);

/** The usage of a request beyond the output that it was granted. */
function overOf(request: EndedRequest): Record<TokenCategory, number> {
  const { usage } = request.ending;
  const charged = chargedOf(request);
  if (charged === usage) return none;
  const output = usage.output - charged.output;
  return { ...none, output, thinking: usage.thinking - charged.thinking };
}

function chargeOf(request: EndedRequest, row: ChargedRow): Charge {
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
      {
        posted: row.posted,
        held: row.held,
        inDebt: row.in_debt,
        accountStatus: row.account_status,
      },
    ]),
  );
}

export function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
