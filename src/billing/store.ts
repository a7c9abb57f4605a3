// The rows of the ledger that are read or written one at a time; the batches have `batches.ts`.

import { create } from "@bufbuild/protobuf";
import {
  type Account,
  type Pool,
  PoolSchema,
  type Receipt,
  type Transfer,
  TransferKind,
  type UsageRow,
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { ApiError } from "../base/errors.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { TimeCursor } from "../base/paging.ts";
import { tokenCategories } from "../base/token-categories.ts";
import {
  isUniqueViolation,
  isUnreachable,
  type Postgres,
  statement,
} from "../postgres/postgres.ts";
import type { Payer, PlacedHold } from "./admission.ts";
import {
  type AccountRow,
  type ChargeRow,
  type HoldRow,
  type PoolRow,
  type StoredHold,
  type TransferRow,
  toAccount,
  toReceipt,
  toStoredHold,
  toTransfer,
  toUsageRow,
  transferKindName,
  type UsageSumRow,
} from "./rows.ts";

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
  registerNode: statement(import.meta.url, "register-node"),
  recordHeartbeat: statement(import.meta.url, "record-heartbeat"),
  readNodes: statement(import.meta.url, "read-nodes"),
  deleteNode: statement(import.meta.url, "delete-node"),
  verifyLedger: statement(import.meta.url, "verify-ledger"),
};

// It reads the whole ledger.
const verifyMsMax = 3_600_000;

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

/**
 * The statements of the ledger. Every function throws `billing_unavailable` while the database is
 * not reachable.
 */
export function createLedgerStore(postgres: Database) {
  const db: Database = {
    query: (one, values) => postgres.query<never>(one, values).catch(refuseUnreachable),
    transaction: (work) => postgres.transaction(work).catch(refuseUnreachable),
    runLong: (one, limits) => postgres.runLong<never>(one, limits).catch(refuseUnreachable),
  };
  return {
    insertAccount: async (name: string): Promise<Account> =>
      toAccount(
        only(await db.query<AccountRow>(statements.insertAccount, [timeOrderedId("acc_"), name])),
      ),
    findAccount: async (accountId: string): Promise<Account | undefined> => {
      const [row] = await db.query<AccountRow>(statements.findAccount, [accountId]);
      return row && toAccount(row);
    },
    listAccounts: async (after: string, most: number): Promise<Account[]> =>
      (await db.query<AccountRow>(statements.listAccounts, [after, most])).map(toAccount),
    readPools: async (accountId: string): Promise<Pool[]> =>
      (await db.query<PoolRow>(statements.readPools, [accountId])).map(({ family, posted, held }) =>
        create(PoolSchema, {
          family: familyOf(family),
          postedMicrocredits: posted,
          heldMicrocredits: held,
        }),
      ),
    createTransfer: (ask: NewTransfer) => createTransfer(db, ask),
    listTransfers: async (
      accountId: string,
      before: string | null,
      most: number,
    ): Promise<Transfer[]> =>
      (await db.query<TransferRow>(statements.listTransfers, [accountId, before, most])).map(
        toTransfer,
      ),

    findPayer: async (keyId: string): Promise<Payer | undefined> => {
      const [row] = await db.query<{ account_id: string; family: FamilyName }>(
        statements.findPayer,
        [keyId],
      );
      return row && { accountId: row.account_id, family: row.family, keyId };
    },
    registerPrice: async (model: string, price: Price): Promise<void> => {
      await db.query(statements.registerPrice, [
        price.priceVersion,
        model,
        ...tokenCategories.map((category) => price[category]),
      ]);
    },

    findHold: async (requestId: string): Promise<StoredHold | undefined> => {
      const [row] = await db.query<HoldRow>(statements.findHolds, [[requestId]]);
      return row && toStoredHold(row);
    },
    findHolds: async (requestIds: readonly string[]): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findHolds, [requestIds])).map(toStoredHold),
    /** Holds that nobody will settle, in the order of their ids, after the given one. */
    findOrphans: async (
      deadNodes: readonly string[],
      after: string,
      most: number,
    ): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findOrphans, [deadNodes, after, most])).map(toStoredHold),
    /** Gives back a hold whose request has a charge. */
    releaseHold: ({ requestId, payer }: PlacedHold): Promise<void> =>
      db.transaction(async (tx) => {
        await tx.query(statements.lockPool, [payer.accountId, payer.family]);
        await tx.query(statements.releaseHold, [requestId]);
      }),
    /** Stores what running requests used so far, and answers which of them still run. */
    checkpoint: async (meters: ReadonlyMap<string, Usage>): Promise<string[]> => {
      const used = [...meters.values()];
      const rows = await db.query<{ request_id: string }>(statements.checkpointHolds, [
        [...meters.keys()],
        ...tokenCategories.map((category) => used.map((usage) => usage[category])),
      ]);
      return rows.map((row) => row.request_id);
    },

    findCharge: async (requestId: string): Promise<Receipt | undefined> => {
      const [row] = await db.query<ChargeRow>(statements.findCharge, [requestId]);
      return row && toReceipt(row);
    },
    listCharges: async (
      accountId: string,
      after: TimeCursor | undefined,
      most: number,
    ): Promise<Receipt[]> =>
      (
        await db.query<ChargeRow>(statements.listCharges, [
          accountId,
          after?.at ?? null,
          after?.id ?? null,
          most,
        ])
      ).map(toReceipt),
    readUsage: async ({
      accountId,
      from,
      to,
      period,
      keyId,
      model,
    }: UsageQuery): Promise<UsageRow[]> =>
      (
        await db.query<UsageSumRow>(statements.readUsage, [
          accountId,
          from,
          to,
          period,
          keyId,
          model,
        ])
      ).map(toUsageRow),

    registerNode: async (nodeId: string): Promise<void> =>
      void (await db.query(statements.registerNode, [nodeId])),
    /** False when the node was declared dead. */
    recordHeartbeat: async (nodeId: string): Promise<boolean> =>
      (await db.query(statements.recordHeartbeat, [nodeId])).length > 0,
    readNodes: async (): Promise<ReadonlyMap<string, bigint>> =>
      new Map(
        (await db.query<{ node_id: string; heartbeat: bigint }>(statements.readNodes, [])).map(
          (row) => [row.node_id, row.heartbeat],
        ),
      ),
    deleteNode: async (nodeId: string): Promise<void> =>
      void (await db.query(statements.deleteNode, [nodeId])),

    verifyLedger: async (signal = new AbortController().signal): Promise<Violation[]> => {
      const limits = { timeoutMs: verifyMsMax, signal };
      const rows = await db.runLong<{ invariant: string; subject: string; detail: string | null }>(
        statements.verifyLedger,
        limits,
      );
      return rows.map(({ invariant, subject, detail }) =>
        create(ViolationSchema, { invariant, subject, detail: detail ?? "" }),
      );
    },
  };
}

function refuseUnreachable(cause: unknown): never {
  throw isUnreachable(cause)
    ? new ApiError("billing_unavailable", { retryAfterMs: 1000, cause })
    : cause;
}

async function createTransfer(db: Database, ask: NewTransfer): Promise<Transfer> {
  return createTransferOnce(db, ask).catch((error: unknown) => {
    // Another transfer took the same idempotency key under the lock of the other pool: the repeat
    // sees it.
    if (isUniqueViolation(error)) return createTransferOnce(db, ask);
    throw error;
  });
}

function createTransferOnce(db: Database, ask: NewTransfer): Promise<Transfer> {
  return db.transaction(async (tx) => {
    const [pool] = await tx.query<PoolRow & { in_debt: boolean }>(statements.lockPool, [
      ask.accountId,
      ask.family,
    ]);
    if (!pool)
      throw new ApiError("not_found", {
        message: "There is no such account.",
        field: "account_id",
      });

    // The pool's lock makes a simultaneous repeat wait until it can see the first.
    const [earlier] = await tx.query<TransferRow>(statements.findTransfer, [
      ask.accountId,
      ask.idempotencyKey,
    ]);
    if (earlier) {
      if (!isSameTransfer(earlier, ask))
        throw new ApiError("idempotency_key_reused", { field: "idempotency_key" });
      return toTransfer(earlier);
    }
    const free = pool.posted - pool.held;
    if (
      ask.amountMicro < 0n &&
      ask.kind !== TransferKind.CHARGEBACK &&
      free + ask.amountMicro < 0n
    ) {
      throw new ApiError("insufficient_funds", {
        field: "amount_microcredits",
        limit: {
          name: "pool_microcredits",
          limit: pool.posted,
          used: pool.held,
          remaining: free > 0n ? free : 0n,
        },
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
