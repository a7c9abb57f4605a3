// The two batches of the ledger as transactions: lock and read in one round trip, decide, write and commit in the next.

import { toJson } from "@bufbuild/protobuf";
import { DatabaseError } from "pg";
import { AttemptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Refusal } from "../errors.ts";
import { type Connection, isConflict, isUnreachable, type Postgres, type Statement, statement } from "../postgres/postgres.ts";
import type { Query } from "../postgres/round-trip.ts";
import {
  type Admitted,
  admit,
  type GrowAsk,
  type Hold,
  type HoldAsk,
  type Ledger,
  nodeOf,
  type Payer,
  poolOf,
} from "./admission.ts";
import { basisName, outcomeName } from "./names.ts";
import { categories } from "./price.ts";
import { type Charge, type Holdings, type SettleAsk, type Settled, settle } from "./settlement.ts";

const statements = {
  clock: statement(import.meta.url, "clock"),
  nodeClock: statement(import.meta.url, "node-clock"),
  lockPools: statement(import.meta.url, "lock-pools"),
  readKeys: statement(import.meta.url, "read-keys"),
  readDeadSecrets: statement(import.meta.url, "read-dead-secrets"),
  readUsedRequests: statement(import.meta.url, "read-used-requests"),
  readPastMonths: statement(import.meta.url, "read-past-months"),
  lockHolds: statement(import.meta.url, "lock-holds"),
  insertHolds: statement(import.meta.url, "insert-holds"),
  resizeHolds: statement(import.meta.url, "resize-holds"),
  chargeHolds: statement(import.meta.url, "charge-holds"),
  addToPools: statement(import.meta.url, "add-to-pools"),
  holdInMonths: statement(import.meta.url, "hold-in-months"),
  addToMonths: statement(import.meta.url, "add-to-months"),
};
const begin: Statement = { name: "billing/begin", text: "begin" };
const commit: Statement = { name: "billing/commit", text: "commit" };
const rollback: Statement = { name: "billing/rollback", text: "rollback" };

/** A transaction in two round trips. `decide` sees the rows of the first queries and names the writes. */
export type Batch<Outcome> = {
  readonly reads: readonly Query[];
  readonly decide: (rows: readonly unknown[][]) => { readonly writes: readonly Query[]; readonly outcome: Outcome };
};

// Several times what the server's own limits leave to the statements of a batch.
const answerMsMax = 5_000;

/** A database connection that one lane has for itself, opened again when it broke or fell silent. */
export class BatchConnection {
  readonly #postgres: Postgres;
  readonly #answerMs: number;
  #connection: Connection | undefined;

  constructor(postgres: Postgres, answerMs = answerMsMax) {
    this.#postgres = postgres;
    this.#answerMs = answerMs;
  }

  /** Runs a batch. A commit that the server answered with a rollback fails like any other statement. */
  async run<Outcome>({ reads, decide }: Batch<Outcome>): Promise<Outcome> {
    if (this.#connection === undefined || this.#connection.lost) this.#connection = await this.#postgres.connect();
    const connection = this.#connection;
    const timer = setTimeout(() => connection.cut(), this.#answerMs);
    try {
      const [, ...read] = await connection.send([[begin, []], ...reads]);
      const { writes, outcome } = decide(read.map(({ rows }) => rows));
      const written = await connection.send([...writes, [commit, []]]);
      if (written.at(-1)?.command !== "COMMIT") throw new RolledBack();
      return outcome;
    } catch (error) {
      await connection.send([[rollback, []]]).catch(() => undefined);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async close(): Promise<void> {
    await this.#connection?.end().catch(() => undefined);
    this.#connection = undefined;
  }
}

class RolledBack extends Error {}

// lock_not_available; query_canceled by its time limit; in_failed_sql_transaction; idle_in_transaction_session_timeout;
// read_only_sql_transaction, of a server that has just become or is about to become the primary one; feature_not_supported and
// invalid_sql_statement_name, of a prepared statement whose columns a migration changed or that a proxy's other server never saw, and
// which is prepared anew at the repeat; and the classes of a server that lacks something, is told to stop, or fails itself.
const passingStates = /^(55P03|25P02|25P03|25006|0A000|26000|53...|57...|58...)$/;

/** True when the same batch, sent again, may pass. */
export function isPassing(error: unknown): boolean {
  if (error instanceof RolledBack || isConflict(error) || isUnreachable(error)) return true;
  return error instanceof DatabaseError && passingStates.test(error.code ?? "");
}

/** True for a batch that took a request id which a concurrent one took, too: the repeat sees that. */
export function isTaken(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23505";
}

type PoolRow = { account_id: string; family: string; posted: bigint; held: bigint; in_debt: boolean };
type KeyRow = {
  key_id: string;
  status: string;
  allowed_models: string[];
  monthly_cap: bigint | null;
  spent: bigint;
  held: bigint;
};
type UsedRow = {
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
type MonthRow = { key_id: string; month: string; spent: bigint; held: bigint };

/** Admits or refuses each ask. Nothing is admitted for a node whose row is gone; `onLost` hears of it. */
export function admissionBatch(
  asks: readonly (HoldAsk | GrowAsk)[],
  nodeId: string,
  onLost: () => void,
): Batch<readonly Admitted[]> {
  const payers = asks.map((ask) => (ask.kind === "place" ? ask.payer : ask.hold.payer));
  const keyIds = distinct(payers.map(({ keyId }) => keyId));
  const requestIds = asks.flatMap((ask) => (ask.kind === "place" ? [ask.requestId] : []));
  const growing = asks.flatMap((ask) => (ask.kind === "grow" ? [ask.hold] : []));
  return {
    reads: [
      [statements.nodeClock, [nodeId]],
      [statements.lockPools, poolIds(payers)],
      [statements.readKeys, [keyIds]],
      [statements.readDeadSecrets, [distinct(payers.flatMap(({ secretId }) => (secretId === undefined ? [] : [secretId])))]],
      [statements.readUsedRequests, [requestIds]],
      ...(growing.length > 0 ? readsOfGrowing(growing) : []),
    ],
    decide: ([clock, pools, keys, dead, used, growingHolds = [], pastMonths = []]) => {
      const [now] = clock as { at: Date; month: string }[];
      if (!now) {
        onLost();
        const refusal = new Refusal("gateway_unavailable", { retryAfterMs: 1000 });
        return { writes: [], outcome: asks.map(() => ({ kind: "refused", refusal })) };
      }
      const ledger: Ledger = {
        at: now.at,
        month: now.month,
        nodeId,
        pools: poolsOf(pools as PoolRow[]),
        keys: new Map(
          (keys as KeyRow[]).map((row) => [row.key_id, { ...row, allowedModels: row.allowed_models, cap: row.monthly_cap }]),
        ),
        deadSecrets: new Map((dead as { secret_id: string; revoked: boolean }[]).map((row) => [row.secret_id, row.revoked])),
        used: new Map(
          (used as UsedRow[]).map((row) => [
            row.request_id,
            { ...row, nodeId: row.node_id, keyId: row.key_id, admittedAt: row.admitted_at },
          ]),
        ),
        amounts: amountsOf(growingHolds as HoldRow[]),
        pastMonths: new Map(
          (pastMonths as MonthRow[]).map(({ key_id, month, spent, held }) => [`${key_id}/${month}`, { spent, held }]),
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
    [statements.readPastMonths, [holds.map(({ payer }) => payer.keyId), holds.map(({ month }) => month)]],
  ];
}

function admissionWrites(asks: readonly (HoldAsk | GrowAsk)[], outcomes: readonly Admitted[], nodeId: string): Query[] {
  const sums = new Sums();
  const placed: { ask: HoldAsk; hold: Hold }[] = [];
  const grown: Hold[] = [];
  asks.forEach((ask, index) => {
    const outcome = outcomes[index];
    if (outcome?.kind !== "held" || outcome.addedMicro === undefined) return;
    sums.add(outcome.hold, { heldMicro: outcome.addedMicro });
    if (ask.kind === "place") placed.push({ ask, hold: outcome.hold });
    else grown.push(outcome.hold);
  });
  const writes = sums.writesOfHolds();
  if (placed.length > 0) writes.push(insertHolds(placed, nodeId));
  if (grown.length > 0) writes.push(resizeHolds(new Map(grown.map(({ requestId, amountMicro }) => [requestId, amountMicro]))));
  return writes;
}

function insertHolds(placed: readonly { ask: HoldAsk; hold: Hold }[], nodeId: string): Query {
  return [
    statements.insertHolds,
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

function resizeHolds(amounts: ReadonlyMap<string, bigint>): Query {
  return [statements.resizeHolds, [[...amounts.keys()], [...amounts.values()]]];
}

/** Turns holds into charges and gives back what shrinking holds do not need. */
export function settlementBatch(asks: readonly SettleAsk[]): Batch<readonly Settled[]> {
  return {
    reads: [
      [statements.clock, []],
      [statements.lockPools, poolIds(asks.map(({ hold }) => hold.payer))],
      [statements.lockHolds, [distinct(asks.map(({ hold }) => hold.requestId))]],
    ],
    decide: ([clock, , holds]) => {
      const holdings: Holdings = {
        at: (clock as { at: Date }[])[0]?.at ?? new Date(),
        amounts: amountsOf(holds as HoldRow[]),
        charges: new Map(),
      };
      const before = new Map(holdings.amounts);
      const outcome = asks.map((ask) => settle(holdings, ask));
      return { outcome, writes: settlementWrites(asks, before, holdings) };
    },
  };
}

function settlementWrites(
  asks: readonly SettleAsk[],
  before: ReadonlyMap<string, bigint>,
  { amounts, charges }: Holdings,
): Query[] {
  const sums = new Sums();
  const resized = new Map<string, bigint>();
  const holds = new Map(asks.map(({ hold }) => [hold.requestId, hold]));
  for (const [requestId, heldBefore] of before) {
    const hold = holds.get(requestId);
    const charge = charges.get(requestId);
    if (!hold) continue;
    // A charge gives back all that was held before this batch, whatever shrank meanwhile.
    if (charge) sums.add(hold, { heldMicro: -heldBefore, spentMicro: charge.amountMicro, used: true });
    const left = amounts.get(requestId);
    if (left !== undefined && left !== heldBefore) {
      sums.add(hold, { heldMicro: left - heldBefore });
      resized.set(requestId, left);
    }
  }
  const writes = sums.writesOfSettlement();
  if (resized.size > 0) writes.push(resizeHolds(resized));
  if (charges.size > 0) writes.push(chargeHolds([...charges.values()]));
  return writes;
}

function chargeHolds(charges: readonly Charge[]): Query {
  return [
    statements.chargeHolds,
    [
      charges.map(({ hold }) => hold.requestId),
      ...categories.map((category) => charges.map(({ usage }) => usage[category])),
      charges.map(({ holdMicro }) => holdMicro),
      charges.map(({ amountMicro }) => amountMicro),
      charges.map(({ overrunMicro }) => overrunMicro),
      charges.map(({ outcome }) => outcomeName(outcome)),
      charges.map(({ basis }) => basisName(basis)),
      charges.map(({ attempts }) => JSON.stringify(attempts.map((attempt) => toJson(AttemptSchema, attempt)))),
    ],
  ];
}

/** What a batch adds to pools and months, summed per row: an UPDATE touches each row once. */
class Sums {
  readonly #pools = new Map<string, { payer: Payer; posted: bigint; held: bigint }>();
  readonly #months = new Map<string, { keyId: string; month: string; spent: bigint; held: bigint; used: boolean }>();

  add({ payer, month }: Hold, change: { heldMicro: bigint; spentMicro?: bigint; used?: boolean }): void {
    const { heldMicro, spentMicro = 0n, used = false } = change;
    const pool = entry(this.#pools, poolOf(payer), () => ({ payer, posted: 0n, held: 0n }));
    pool.posted -= spentMicro;
    pool.held += heldMicro;
    const keyMonth = entry(this.#months, `${payer.keyId}/${month}`, () => ({
      keyId: payer.keyId,
      month,
      spent: 0n,
      held: 0n,
      used,
    }));
    keyMonth.spent += spentMicro;
    keyMonth.held += heldMicro;
    keyMonth.used ||= used;
  }

  /** For holds placed or grown: a key may have no row for its month yet. */
  writesOfHolds(): Query[] {
    const { keyIds, months, held } = this.#monthColumns();
    return this.#withPools([statements.holdInMonths, [keyIds, months, held]]);
  }

  /** For holds settled or shrunk. */
  writesOfSettlement(): Query[] {
    const { keyIds, months, spent, held, used } = this.#monthColumns();
    return this.#withPools([statements.addToMonths, [keyIds, months, spent, held, used]]);
  }

  #monthColumns() {
    const rows = [...this.#months.values()];
    return {
      keyIds: rows.map(({ keyId }) => keyId),
      months: rows.map(({ month }) => month),
      spent: rows.map(({ spent }) => spent),
      held: rows.map(({ held }) => held),
      used: rows.map(({ used }) => used),
    };
  }

  #withPools(months: Query): Query[] {
    if (this.#pools.size === 0) return [];
    const pools = [...this.#pools.values()];
    const values = [
      pools.map(({ payer }) => payer.accountId),
      pools.map(({ payer }) => payer.family),
      pools.map(({ posted }) => posted),
      pools.map(({ held }) => held),
    ];
    return [[statements.addToPools, values], months];
  }
}

function entry<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

function poolIds(payers: readonly Payer[]): [string[], string[]] {
  const pools = new Map(payers.map((payer) => [poolOf(payer), payer]));
  return [[...pools.values()].map(({ accountId }) => accountId), [...pools.values()].map(({ family }) => family)];
}

function poolsOf(rows: readonly PoolRow[]): Ledger["pools"] {
  return new Map(
    rows.map((row) => [`${row.account_id}/${row.family}`, { posted: row.posted, held: row.held, inDebt: row.in_debt }]),
  );
}

function amountsOf(rows: readonly HoldRow[]): Map<string, bigint> {
  return new Map(rows.map(({ request_id, amount }) => [request_id, amount]));
}

function distinct<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}
