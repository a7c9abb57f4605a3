// The rows of the ledger that are read or written one at a time; the batches have `batches.ts`.

import { create, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Account,
  AccountSchema,
  AttemptSchema,
  type Pool,
  PoolSchema,
  type Receipt,
  ReceiptSchema,
  type Transfer,
  TransferKind,
  TransferSchema,
  type UsageRow,
  UsageRowSchema,
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema, type Usage, UsageSchema, UsageTotalSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { Refusal } from "../errors.ts";
import { timeOrderedId } from "../ids.ts";
import { isUniqueViolation, isUnreachable, type Postgres, statement } from "../postgres/postgres.ts";
import type { FamilyName, Hold, Payer } from "./admission.ts";
import { basisOf, familyOf, outcomeOf, transferKindName, transferKindOf } from "./names.ts";
import type { Charge } from "./settlement.ts";

const statements = {
  insertAccount: statement(import.meta.url, "insert-account"),
  findAccount: statement(import.meta.url, "find-account"),
  listAccounts: statement(import.meta.url, "list-accounts"),
  readPools: statement(import.meta.url, "read-pools"),
  lockPool: statement(import.meta.url, "lock-pool"),
  postToPool: statement(import.meta.url, "post-to-pool"),
  findTransfer: statement(import.meta.url, "find-transfer"),
  insertTransfer: statement(import.meta.url, "insert-transfer"),
  listTransfers: statement(import.meta.url, "list-transfers"),
  findHolds: statement(import.meta.url, "find-holds"),
  findOrphans: statement(import.meta.url, "find-orphans"),
  releaseHold: statement(import.meta.url, "release-hold"),
  checkpointHolds: statement(import.meta.url, "checkpoint-holds"),
  findCharge: statement(import.meta.url, "find-charge"),
  listCharges: statement(import.meta.url, "list-charges"),
  readUsage: statement(import.meta.url, "read-usage"),
  registerPrice: statement(import.meta.url, "register-price"),
  findPayer: statement(import.meta.url, "find-payer"),
  enterNode: statement(import.meta.url, "enter-node"),
  beat: statement(import.meta.url, "beat"),
  readNodes: statement(import.meta.url, "read-nodes"),
  deleteNode: statement(import.meta.url, "delete-node"),
  audit: statement(import.meta.url, "audit"),
};

// It reads the whole ledger.
const auditMsMax = 3_600_000;

/** A hold as it is stored, with what was metered so far. */
export type StoredHold = { readonly hold: Hold; readonly nonce: string; readonly used: Usage };

/** Where a page of a list begins. */
export type Place = { readonly at: Date; readonly id: string };

export type UsageQuery = {
  accountId: string;
  from: Date;
  to: Date;
  period: "hour" | "day" | "all";
  keyId: string;
  model: string;
};

export type NewTransfer = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly kind: TransferKind;
  /** What it adds to the pool. */
  readonly amountMicro: bigint;
  readonly idempotencyKey: string;
  readonly reason: string;
};

export type LedgerStore = ReturnType<typeof createLedgerStore>;

type Database = Pick<Postgres, "query" | "transaction" | "runLong">;

/** The statements of the ledger. Every function throws `billing_unavailable` while the database is not reachable. */
export function createLedgerStore(postgres: Database) {
  const db: Database = {
    query: (one, values) => postgres.query<never>(one, values).catch(refuseUnreachable),
    transaction: (work) => postgres.transaction(work).catch(refuseUnreachable),
    runLong: (one, limits) => postgres.runLong<never>(one, limits).catch(refuseUnreachable),
  };
  return {
    insertAccount: async (name: string): Promise<Account> =>
      toAccount(only(await db.query<AccountRow>(statements.insertAccount, [timeOrderedId("acc_"), name]))),
    findAccount: async (accountId: string): Promise<Account | undefined> => {
      const [row] = await db.query<AccountRow>(statements.findAccount, [accountId]);
      return row && toAccount(row);
    },
    listAccounts: async (after: string, most: number): Promise<Account[]> =>
      (await db.query<AccountRow>(statements.listAccounts, [after, most])).map(toAccount),
    readPools: async (accountId: string): Promise<Pool[]> =>
      (await db.query<PoolRow>(statements.readPools, [accountId])).map(({ family, posted, held }) =>
        create(PoolSchema, { family: familyOf(family), postedMicrocredits: posted, heldMicrocredits: held }),
      ),
    createTransfer: (ask: NewTransfer) => createTransfer(db, ask),
    listTransfers: async (accountId: string, before: string | null, most: number): Promise<Transfer[]> =>
      (await db.query<TransferRow>(statements.listTransfers, [accountId, before, most])).map(toTransfer),

    findPayer: async (keyId: string): Promise<Payer | undefined> => {
      const [row] = await db.query<{ account_id: string; family: FamilyName }>(statements.findPayer, [keyId]);
      return row && { accountId: row.account_id, family: row.family, keyId };
    },
    registerPrice: async (model: string, price: Price): Promise<void> => {
      const { input, output, cacheWrite5m, cacheWrite1h, cacheRead, thinking } = price;
      await db.query(statements.registerPrice, [
        price.priceVersion,
        model,
        input,
        output,
        cacheWrite5m,
        cacheWrite1h,
        cacheRead,
        thinking,
      ]);
    },

    findHold: async (requestId: string): Promise<StoredHold | undefined> => {
      const [row] = await db.query<HoldRow>(statements.findHolds, [[requestId]]);
      return row && toStoredHold(row);
    },
    findHolds: async (requestIds: readonly string[]): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findHolds, [requestIds])).map(toStoredHold),
    /** Holds that nobody will settle, in the order of their ids, after the given one. */
    findOrphans: async (deadNodes: readonly string[], after: string, most: number): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findOrphans, [deadNodes, after, most])).map(toStoredHold),
    /** Gives back a hold whose request has a charge. */
    releaseHold: ({ requestId, payer }: Hold): Promise<void> =>
      db.transaction(async (tx) => {
        await tx.query(statements.lockPool, [payer.accountId, payer.family]);
        await tx.query(statements.releaseHold, [requestId]);
      }),
    /** Stores what running requests used so far, and answers which of them still run. */
    checkpoint: async (meters: ReadonlyMap<string, Usage>): Promise<string[]> => {
      const used = [...meters.values()];
      const rows = await db.query<{ request_id: string }>(statements.checkpointHolds, [
        [...meters.keys()],
        used.map(({ input }) => input),
        used.map(({ output }) => output),
        used.map(({ cacheWrite5m }) => cacheWrite5m),
        used.map(({ cacheWrite1h }) => cacheWrite1h),
        used.map(({ cacheRead }) => cacheRead),
        used.map(({ thinking }) => thinking),
      ]);
      return rows.map((row) => row.request_id);
    },

    findCharge: async (requestId: string): Promise<Receipt | undefined> => {
      const [row] = await db.query<ChargeRow>(statements.findCharge, [requestId]);
      return row && toReceipt(row);
    },
    listCharges: async (accountId: string, after: Place | undefined, most: number): Promise<Receipt[]> =>
      (await db.query<ChargeRow>(statements.listCharges, [accountId, after?.at ?? null, after?.id ?? null, most])).map(
        toReceipt,
      ),
    readUsage: async ({ accountId, from, to, period, keyId, model }: UsageQuery): Promise<UsageRow[]> =>
      (await db.query<UsageSumRow>(statements.readUsage, [accountId, from, to, period, keyId, model])).map(toUsageRow),

    enterNode: async (nodeId: string): Promise<void> => void (await db.query(statements.enterNode, [nodeId])),
    /** False when the node was declared dead. */
    beat: async (nodeId: string): Promise<boolean> => (await db.query(statements.beat, [nodeId])).length > 0,
    readNodes: async (): Promise<ReadonlyMap<string, bigint>> =>
      new Map(
        (await db.query<{ node_id: string; heartbeat: bigint }>(statements.readNodes, [])).map((row) => [
          row.node_id,
          row.heartbeat,
        ]),
      ),
    deleteNode: async (nodeId: string): Promise<void> => void (await db.query(statements.deleteNode, [nodeId])),

    audit: async (signal = new AbortController().signal): Promise<Violation[]> => {
      const limits = { timeoutMs: auditMsMax, signal };
      const rows = await db.runLong<{ invariant: string; subject: string; detail: string | null }>(statements.audit, limits);
      return rows.map(({ invariant, subject, detail }) =>
        create(ViolationSchema, { invariant, subject, detail: detail ?? "" }),
      );
    },
  };
}

type AccountRow = { account_id: string; name: string; created_at: Date };
type PoolRow = { family: string; posted: bigint; held: bigint };
type TransferRow = {
  transfer_id: string;
  account_id: string;
  family: FamilyName;
  kind: string;
  amount: bigint;
  idempotency_key: string;
  reason: string;
  actor: string;
  created_at: Date;
};
type UsedRow = {
  used_input: number;
  used_output: number;
  used_cache_write_5m: number;
  used_cache_write_1h: number;
  used_cache_read: number;
  used_thinking: number;
};
type PriceRow = {
  price_version: string;
  input: bigint;
  output: bigint;
  cache_write_5m: bigint;
  cache_write_1h: bigint;
  cache_read: bigint;
  thinking: bigint;
};
type RequestRow = UsedRow &
  PriceRow & {
    request_id: string;
    account_id: string;
    family: FamilyName;
    key_id: string;
    model: string;
    amount: bigint;
    admitted_at: Date;
  };
type HoldRow = RequestRow & { secret_id: string | null; month: string; nonce: string };
type ChargeRow = RequestRow & {
  hold: bigint;
  overrun: bigint;
  outcome: string;
  basis: string;
  attempts: JsonValue[];
  settled_at: Date;
};
type UsageSumRow = Omit<PriceRow, "price_version"> & {
  key_id: string;
  model: string;
  period_start: Date;
  amount: bigint;
  requests: bigint;
};

function refuseUnreachable(cause: unknown): never {
  throw isUnreachable(cause) ? new Refusal("billing_unavailable", { retryAfterMs: 1000, cause }) : cause;
}

async function createTransfer(db: Database, ask: NewTransfer): Promise<Transfer> {
  return createTransferOnce(db, ask).catch((error: unknown) => {
    // Another transfer took the same idempotency key under the lock of the other pool: the repeat sees it.
    if (isUniqueViolation(error)) return createTransferOnce(db, ask);
    throw error;
  });
}

function createTransferOnce(db: Database, ask: NewTransfer): Promise<Transfer> {
  return db.transaction(async (tx) => {
    const [pool] = await tx.query<PoolRow & { in_debt: boolean }>(statements.lockPool, [ask.accountId, ask.family]);
    if (!pool) throw new Refusal("not_found", { message: "There is no such account.", field: "account_id" });

    // The pool's lock makes a simultaneous repeat wait until it can see the first.
    const [earlier] = await tx.query<TransferRow>(statements.findTransfer, [ask.accountId, ask.idempotencyKey]);
    if (earlier) {
      if (!isSameTransfer(earlier, ask)) throw new Refusal("idempotency_key_reused", { field: "idempotency_key" });
      return toTransfer(earlier);
    }
    const free = pool.posted - pool.held;
    if (ask.amountMicro < 0n && ask.kind !== TransferKind.CHARGEBACK && free + ask.amountMicro < 0n) {
      throw new Refusal("insufficient_funds", {
        field: "amount_microcredits",
        limit: { name: "pool_microcredits", limit: pool.posted, used: pool.held, remaining: free > 0n ? free : 0n },
      });
    }
    await tx.query(statements.postToPool, [ask.accountId, ask.family, ask.amountMicro]);
    const { accountId, family, kind, amountMicro, idempotencyKey, reason } = ask;
    const values = [
      timeOrderedId("tra_"),
      accountId,
      family,
      transferKindName(kind),
      amountMicro,
      idempotencyKey,
      reason,
      "admin",
    ];
    return toTransfer(only(await tx.query<TransferRow>(statements.insertTransfer, values)));
  });
}

function isSameTransfer(row: TransferRow, ask: NewTransfer): boolean {
  return (
    row.family === ask.family &&
    row.kind === transferKindName(ask.kind) &&
    row.amount === ask.amountMicro &&
    row.reason === ask.reason
  );
}

function only<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new Error("a statement that always answers a row answered none");
  return row;
}

function toAccount({ account_id, name, created_at }: AccountRow): Account {
  return create(AccountSchema, { accountId: account_id, name, createdAt: timestampFromDate(created_at) });
}

function toTransfer(row: TransferRow): Transfer {
  const kind = transferKindOf(row.kind);
  // Stored as what it adds to the pool, shown as it was asked for: only an adjustment is signed.
  const amount = kind === TransferKind.ADJUSTMENT || row.amount > 0n ? row.amount : -row.amount;
  return create(TransferSchema, {
    transferId: row.transfer_id,
    accountId: row.account_id,
    family: familyOf(row.family),
    kind,
    amountMicrocredits: amount,
    idempotencyKey: row.idempotency_key,
    reason: row.reason,
    actor: row.actor,
    createdAt: timestampFromDate(row.created_at),
  });
}

function toPrice(row: PriceRow): Price {
  return create(PriceSchema, {
    priceVersion: row.price_version,
    input: row.input,
    output: row.output,
    cacheWrite5m: row.cache_write_5m,
    cacheWrite1h: row.cache_write_1h,
    cacheRead: row.cache_read,
    thinking: row.thinking,
  });
}

function toUsage(row: UsedRow): Usage {
  return create(UsageSchema, {
    input: row.used_input,
    output: row.used_output,
    cacheWrite5m: row.used_cache_write_5m,
    cacheWrite1h: row.used_cache_write_1h,
    cacheRead: row.used_cache_read,
    thinking: row.used_thinking,
  });
}

function toStoredHold(row: HoldRow): StoredHold {
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
      // Nobody who reads a stored hold grants output by it.
      grantedOutput: 0,
      freeMicro: 0n,
      amountMicro: row.amount,
      month: row.month,
      admittedAt: row.admitted_at,
    },
  };
}

function toReceipt(row: ChargeRow): Receipt {
  return create(ReceiptSchema, {
    requestId: row.request_id,
    accountId: row.account_id,
    keyId: row.key_id,
    family: familyOf(row.family),
    model: row.model,
    usage: toUsage(row),
    price: toPrice(row),
    holdMicrocredits: row.hold,
    amountMicrocredits: row.amount,
    overrunMicrocredits: row.overrun,
    outcome: outcomeOf(row.outcome),
    basis: basisOf(row.basis),
    attempts: row.attempts.map((attempt) => fromJson(AttemptSchema, attempt)),
    admittedAt: timestampFromDate(row.admitted_at),
    settledAt: timestampFromDate(row.settled_at),
  });
}

/** The receipt of a request that still runs: metered use, no amount, no outcome. */
export function runningReceipt({ hold, used }: StoredHold): Receipt {
  return create(ReceiptSchema, {
    ...receiptHead(hold),
    usage: used,
    holdMicrocredits: hold.amountMicro,
  });
}

/** The receipt of a charge just made. */
export function receiptOf(charge: Charge): Receipt {
  return create(ReceiptSchema, {
    ...receiptHead(charge.hold),
    usage: charge.usage,
    holdMicrocredits: charge.holdMicro,
    amountMicrocredits: charge.amountMicro,
    overrunMicrocredits: charge.overrunMicro,
    outcome: charge.outcome,
    basis: charge.basis,
    attempts: [...charge.attempts],
    settledAt: timestampFromDate(charge.settledAt),
  });
}

function receiptHead(hold: Hold) {
  const { accountId, keyId, family } = hold.payer;
  return {
    requestId: hold.requestId,
    accountId,
    keyId,
    family: familyOf(family),
    model: hold.model,
    price: hold.price,
    admittedAt: timestampFromDate(hold.admittedAt),
  };
}

function toUsageRow(row: UsageSumRow): UsageRow {
  const from: Timestamp = timestampFromDate(row.period_start);
  return create(UsageRowSchema, {
    keyId: row.key_id,
    model: row.model,
    from,
    usage: create(UsageTotalSchema, {
      input: row.input,
      output: row.output,
      cacheWrite5m: row.cache_write_5m,
      cacheWrite1h: row.cache_write_1h,
      cacheRead: row.cache_read,
      thinking: row.thinking,
    }),
    amountMicrocredits: row.amount,
    requests: row.requests,
  });
}
