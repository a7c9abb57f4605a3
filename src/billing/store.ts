// The statements of the ledger that do not run in batches (those are in `ledger-batches.ts`).

import { create } from "@bufbuild/protobuf";
import {
  type Account,
  type Pool,
  PoolSchema,
  type Receipt,
  type Transfer,
  TransferKind,
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { ApiError } from "../base/errors.ts";
import { type FamilyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { TimeCursor } from "../base/paging.ts";
import type { Tags } from "../base/tags.ts";
import { tokenCategories } from "../base/token-categories.ts";
import {
  isTimedOut,
  isUniqueViolation,
  isUnreachable,
  type Postgres,
  statement,
  type Tx,
} from "../postgres/postgres.ts";
import type { Payer, PlacedHold, RequestKey } from "./admission.ts";
import { registerPrice } from "./ledger-batches.ts";
import {
  type AccountRow,
  type ChargeRow,
  type ExportedRow,
  type HoldRow,
  type PoolRow,
  type StoredHold,
  type TransferRow,
  toAccount,
  toReceipt,
  toStoredHold,
  toTransfer,
  transferKindName,
} from "./rows.ts";

// Shorter than the silence after which a node is dead: a heartbeat that a lost network swallowed is
// sent again on another connection.
const heartbeatMsMax = 2_000;

const statements = {
  insertAccount: statement(import.meta.url, "insert-account"),
  findAccount: statement(import.meta.url, "find-account"),
  listAccounts: statement(import.meta.url, "list-accounts"),
  findHint: statement(import.meta.url, "find-hint"),
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
  findAmounts: statement(import.meta.url, "find-amounts"),
  findCharges: statement(import.meta.url, "find-charges"),
  findRunning: statement(import.meta.url, "find-running"),
  listCharges: statement(import.meta.url, "list-charges"),
  listKeyCharges: statement(import.meta.url, "list-key-charges"),
  exportCharges: statement(import.meta.url, "export-charges"),
  exportKeyCharges: statement(import.meta.url, "export-key-charges"),
  readSettled: statement(import.meta.url, "read-settled"),
  findSettled: statement(import.meta.url, "find-settled"),
  readArchivedMonths: statement(import.meta.url, "read-archived-months"),
  findPayer: statement(import.meta.url, "find-payer"),
  registerNode: statement(import.meta.url, "register-node"),
  recordHeartbeat: { ...statement(import.meta.url, "record-heartbeat"), timeoutMs: heartbeatMsMax },
  pollNodes: { ...statement(import.meta.url, "poll-nodes"), timeoutMs: heartbeatMsMax },
  deleteNode: statement(import.meta.url, "delete-node"),
  reportNode: statement(import.meta.url, "report-node"),
  verifyLedger: statement(import.meta.url, "verify-ledger"),
};

// The verification reads the whole ledger.
const verifyMsMax = 3_600_000;

/** Which charges of an account. */
export type ChargeQuery = {
  readonly accountId: string;
  /** Undefined: of all keys. */
  readonly keyId: string | undefined;
  /** Time of admission of the first charge. */
  readonly from: Date;
  /** Only charges before this one. */
  readonly before: TimeCursor;
  /** Empty: of all models. */
  readonly model: string;
  /** Names of outcomes. Empty: all. */
  readonly outcomes: readonly string[];
  readonly minAmountMicro: bigint;
  /** All of them. Empty: whatever the tags. */
  readonly tags: Tags;
};

/** Which charges are exported. */
export type ExportQuery = {
  readonly accountId: string;
  /** Undefined: of all keys. */
  readonly keyId: string | undefined;
  /** Exclusive. */
  readonly to: Date;
};

/** A charge that `listCharges` has looked at. */
type FoundCharge = {
  readonly charge: Receipt;
  readonly isMatch: boolean;
  /** True for the last charge that it may look at. */
  readonly isLast: boolean;
};
type FoundChargeRow = ChargeRow & { is_match: boolean; is_last: boolean };

/** A request that has a charge. */
export type SettledRequest = RequestKey & {
  /** Of its admission, `YYYY-MM-DD`. */
  readonly month: string;
};
/** Without a charge, a row has the time alone. */
type SettledRow = {
  read_at: Date;
  account_id: string | null;
  request_id: string | null;
  month: string | null;
};

export type NewTransfer = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly kind: TransferKind;
  /** What the transfer adds to the pool. */
  readonly amountMicro: bigint;
  readonly idempotencyKey: string;
  readonly reason: string;
  /** As `actorOf` names the caller. */
  readonly actor: string;
  /** The gateway itself books it, for what happened outside: a closed account gets it, too. */
  readonly isOwed?: boolean;
};

/** A registered node. */
export type NodeState = {
  readonly nodeId: string;
  /** As `identifyProcess` returned it in that process. */
  readonly process: string;
  /** Polls by other nodes since its last heartbeat. */
  readonly silentPolls: number;
};

/** The usage of a running request up to now. */
export type Metered = RequestKey & { readonly usage: Usage };

export type LedgerStore = ReturnType<typeof createLedgerStore>;

type Database = Pick<Postgres, "query" | "run" | "transaction" | "runLong" | "heartbeats">;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createLedgerStore(postgres: Database) {
  const db: Database = {
    query: (one, values) => postgres.query<never>(one, values).catch(throwUnavailable),
    run: (one, ...values) => postgres.run(one, ...values).catch(throwUnavailable),
    transaction: (work) => postgres.transaction(work).catch(throwUnavailable),
    runLong: (one, limits) => postgres.runLong<never>(one, limits).catch(throwUnavailable),
    heartbeats: {
      query: (one, values) => postgres.heartbeats.query<never>(one, values).catch(throwUnavailable),
      run: (one, ...values) => postgres.heartbeats.run(one, ...values).catch(throwUnavailable),
    },
  };
  /** As `db`. A statement that the database ends throws `report_too_large`. */
  const query: Database["query"] = (one, values) =>
    postgres.query<never>(one, values).catch(throwTooLarge).catch(throwUnavailable);
  return {
    /** Runs `work` in one transaction; its statements fail as all of this store do. */
    transaction: db.transaction,
    /** Runs a statement of another file of this folder, in the same way. */
    query: db.query,
    insertAccount: async (name: string, accountId = timeOrderedId("acc_")): Promise<Account> =>
      toAccount(only(await db.query<AccountRow>(statements.insertAccount, [accountId, name]))),
    findAccount: async (accountId: string): Promise<Account | undefined> => {
      const [row] = await db.query<AccountRow>(statements.findAccount, [accountId]);
      return row && toAccount(row);
    },
    listAccounts: async (
      { name, accountIds }: { name: string; accountIds: readonly string[] },
      after: string,
      limit: number,
    ): Promise<Account[]> => {
      const values = [after, limit, name, accountIds];
      return (await db.query<AccountRow>(statements.listAccounts, values)).map(toAccount);
    },
    /** The accounts that have a secret whose hint begins and ends like this. */
    findHint: async ({ first, last }: { first: string; last: string }): Promise<string[]> => {
      const rows = await db.query<{ account_id: string }>(statements.findHint, [first, last]);
      return rows.map((row) => row.account_id);
    },
    readPools: async (accountId: string): Promise<Pool[]> =>
      (await db.query<PoolRow>(statements.readPools, [accountId])).map(({ family, posted, held }) =>
        create(PoolSchema, {
          family: familyOf(family),
          postedMicrocredits: posted,
          heldMicrocredits: held,
          freeMicrocredits: posted - held,
        }),
      ),
    createTransfer: (transfer: NewTransfer) => createTransfer(db, transfer),
    listTransfers: async (
      accountId: string,
      before: string | null,
      limit: number,
    ): Promise<Transfer[]> =>
      (await db.query<TransferRow>(statements.listTransfers, [accountId, before, limit])).map(
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
      await db.query(...registerPrice(model, price)).catch((error: unknown) => {
        if (!isUniqueViolation(error)) throw error;
      });
    },

    findHold: async (request: RequestKey): Promise<StoredHold | undefined> => {
      const [row] = await db.query<HoldRow>(statements.findHolds, idsOf([request]));
      return row && toStoredHold(row);
    },
    findHolds: async (requests: readonly RequestKey[]): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findHolds, idsOf(requests))).map(toStoredHold),
    /** The running requests with this id in all accounts, oldest first. */
    findRunning: async (requestId: string): Promise<StoredHold[]> =>
      (await db.query<HoldRow>(statements.findRunning, [requestId])).map(toStoredHold),
    /** One page of the holds that no process will settle, in the order of their requests. */
    findOrphans: async (
      deadNodes: readonly string[],
      after: RequestKey | undefined,
      limit: number,
    ): Promise<StoredHold[]> =>
      (
        await db.query<HoldRow>(statements.findOrphans, [
          deadNodes,
          after?.accountId ?? "",
          after?.requestId ?? "",
          limit,
        ])
      ).map(toStoredHold),
    /** Releases a hold whose request has a charge. */
    releaseHold: ({ requestId, payer }: PlacedHold): Promise<void> =>
      db.transaction(async (tx) => {
        await tx.query(statements.lockPool, [payer.accountId, payer.family]);
        await tx.query(statements.releaseHold, [payer.accountId, requestId]);
      }),
    /** Stores the metered usage of requests, each once. Returns how many of them still run. */
    checkpoint: async (metered: readonly Metered[]): Promise<number> => {
      const rows = await db.query(statements.checkpointHolds, [
        ...idsOf(metered),
        ...tokenCategories.map((category) => metered.map(({ usage }) => usage[category])),
      ]);
      return rows.length;
    },

    findCharge: async ({ accountId, requestId }: RequestKey): Promise<Receipt | undefined> => {
      const [row] = await db.query<ChargeRow>(statements.findCharge, [accountId, requestId]);
      return row && toReceipt(row);
    },
    /** The amounts of the charges that these requests have. One without a charge is left out. */
    findAmounts: async (
      requests: readonly { readonly accountId: string; readonly requestId: string }[],
    ): Promise<{ accountId: string; requestId: string; amountMicro: bigint }[]> => {
      const rows = await db.query<{ account_id: string; request_id: string; amount: bigint }>(
        statements.findAmounts,
        [requests.map(({ accountId }) => accountId), requests.map(({ requestId }) => requestId)],
      );
      return rows.map((row) => ({
        accountId: row.account_id,
        requestId: row.request_id,
        amountMicro: row.amount,
      }));
    },
    /** The charges of requests with this id in all accounts, oldest first. */
    findCharges: async (requestId: string): Promise<Receipt[]> =>
      (await db.query<ChargeRow>(statements.findCharges, [requestId])).map(toReceipt),
    /** The charges that match, newest first, among at most `looks` charges. */
    listCharges: async (
      { accountId, keyId, from, before, model, outcomes, minAmountMicro, tags }: ChargeQuery,
      { looks, limit }: { looks: number; limit: number },
    ): Promise<FoundCharge[]> => {
      const filter = [model || null, outcomes.length > 0 ? outcomes : null, minAmountMicro];
      const isTagged = Object.keys(tags).length > 0;
      const page = [looks, limit, isTagged ? JSON.stringify(tags) : null];
      const more = [before.at, before.id, from, ...filter, ...page];
      const rows =
        keyId === undefined
          ? query<FoundChargeRow>(statements.listCharges, [accountId, ...more])
          : query<FoundChargeRow>(statements.listKeyCharges, [accountId, keyId, ...more]);
      return (await rows).map((row) => ({
        charge: toReceipt(row),
        isMatch: row.is_match,
        isLast: row.is_last,
      }));
    },
    /** The charges after `after`, oldest first. `at` is ISO 8601. */
    exportCharges: (
      { accountId, keyId, to }: ExportQuery,
      after: { at: string; id: string },
      limit: number,
    ): Promise<ExportedRow[]> => {
      const page = [after.at, after.id, to, limit];
      return keyId === undefined
        ? query<ExportedRow>(statements.exportCharges, [accountId, ...page])
        : query<ExportedRow>(statements.exportKeyCharges, [accountId, keyId, ...page]);
    },
    /** The requests that were settled since shortly before `since`, newest first, and the time. */
    readSettled: async (
      accountIds: readonly string[],
      since: Date | undefined,
      limit: number,
    ): Promise<{ at: Date; requests: SettledRequest[] }> => {
      const rows = await db.query<SettledRow>(statements.readSettled, [
        accountIds,
        since ?? null,
        limit,
      ]);
      const requests = rows.flatMap(({ account_id, request_id, month }) =>
        account_id === null
          ? []
          : [{ accountId: account_id, requestId: request_id ?? "", month: month ?? "" }],
      );
      return { at: rows[0]?.read_at ?? new Date(0), requests };
    },
    /** The charges of these requests, in the order of their settlement. */
    findSettled: async (requests: readonly SettledRequest[]): Promise<Receipt[]> => {
      const months = requests.map(({ month }) => month);
      const values = [...idsOf(requests), months];
      return (await db.query<ChargeRow>(statements.findSettled, values)).map(toReceipt);
    },

    /** The months of removed charges, as their first days, oldest first. Undefined: of any. */
    readArchivedMonths: async ({
      accountId,
      keyId,
    }: {
      accountId: string | undefined;
      keyId: string | undefined;
    }): Promise<string[]> => {
      const values = [accountId ?? null, keyId ?? null];
      const rows = await db.query<{ month: string }>(statements.readArchivedMonths, values);
      return rows.map(({ month }) => month);
    },

    registerNode: async (nodeId: string, process: string): Promise<void> =>
      void (await db.heartbeats.query(statements.registerNode, [nodeId, process])),
    /** Returns false when the node was declared dead. */
    recordHeartbeat: async (nodeId: string): Promise<boolean> =>
      (await db.heartbeats.query(statements.recordHeartbeat, [nodeId])).length > 0,
    /** All nodes, by id. Counts a poll of each other one, at most one per `intervalMs`. */
    pollNodes: async (nodeId: string, intervalMs: number): Promise<NodeState[]> =>
      (
        await db.heartbeats.query<{ node_id: string; process: string; silent_polls: number }>(
          statements.pollNodes,
          [nodeId, intervalMs],
        )
      ).map((row) => ({
        nodeId: row.node_id,
        process: row.process,
        silentPolls: row.silent_polls,
      })),
    deleteNode: async (nodeId: string): Promise<void> =>
      void (await db.query(statements.deleteNode, [nodeId])),
    /** Stores how a node describes itself. `report`: JSON. */
    reportNode: async (nodeId: string, report: string): Promise<void> =>
      void (await db.query(statements.reportNode, [nodeId, report])),

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

function idsOf(requests: readonly RequestKey[]): [string[], string[]] {
  return [requests.map(({ accountId }) => accountId), requests.map(({ requestId }) => requestId)];
}

export function throwUnavailable(cause: unknown): never {
  throw isUnreachable(cause)
    ? new ApiError("database_unavailable", { retryAfterMs: 1000, cause })
    : cause;
}

/** For reports, which the database ends when they take too long. */
export function throwTooLarge(cause: unknown): never {
  throw isTimedOut(cause) ? new ApiError("report_too_large", { cause }) : cause;
}

async function createTransfer(db: Database, transfer: NewTransfer): Promise<Transfer> {
  return createTransferOnce(db, transfer).catch((error: unknown) => {
    // A transfer of the account's other pool took the same idempotency key at the same time. The
    // second attempt reads it.
    if (isUniqueViolation(error)) return createTransferOnce(db, transfer);
    throw error;
  });
}

function createTransferOnce(db: Database, transfer: NewTransfer): Promise<Transfer> {
  return db.transaction((tx) => bookTransfer(tx, transfer));
}

/**
 * Books a transfer in a transaction of the caller, unless its idempotency key has one. Throws as
 * `CreateTransfer` does, and the error of the database if a transfer of the account's other pool
 * took the key at the same time.
 */
export async function bookTransfer(tx: Tx, transfer: NewTransfer): Promise<Transfer> {
  const pool = await lockPool(tx, transfer);
  // A simultaneous repeat waits for the lock of the pool, so it reads the first transfer here.
  const earlier = await findSame(tx, transfer);
  if (earlier) return earlier;
  checkBookable(pool, transfer);
  const free = pool.posted - pool.held;
  if (
    transfer.amountMicro < 0n &&
    transfer.kind !== TransferKind.CHARGEBACK &&
    free + transfer.amountMicro < 0n
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
  await tx.query(statements.postToPool, [
    transfer.accountId,
    transfer.family,
    transfer.amountMicro,
  ]);
  const { accountId, family, kind, amountMicro, idempotencyKey, reason, actor } = transfer;
  const values = [
    timeOrderedId("tra_"),
    accountId,
    family,
    transferKindName(kind),
    amountMicro,
    idempotencyKey,
    reason,
    actor,
    pool.posted + amountMicro,
  ];
  return toTransfer(only(await tx.query<TransferRow>(statements.insertTransfer, values)));
}

/** What people may still book in a closed account. */
const correctingKinds: ReadonlySet<TransferKind> = new Set([
  TransferKind.REFUND,
  TransferKind.CHARGEBACK,
  TransferKind.ADJUSTMENT,
]);

/** Finds the transfer that an idempotency key has. Throws if it is another one than `transfer`. */
export async function findSame(tx: Tx, transfer: NewTransfer): Promise<Transfer | undefined> {
  const [earlier] = await tx.query<TransferRow>(statements.findTransfer, [
    transfer.accountId,
    transfer.idempotencyKey,
  ]);
  if (!earlier) return undefined;
  if (!isSameTransfer(earlier, transfer))
    throw new ApiError("idempotency_key_reused", { field: "idempotency_key" });
  return toTransfer(earlier);
}

type LockedPool = PoolRow & { readonly account_status: string };

/** Locks the pool of a transfer, and so its idempotency key in this pool. Throws `not_found`. */
export async function lockPool(
  tx: Tx,
  { accountId, family }: Pick<NewTransfer, "accountId" | "family">,
): Promise<LockedPool> {
  const [pool] = await tx.query<LockedPool>(statements.lockPool, [accountId, family]);
  if (!pool) throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
  return pool;
}

/** Throws `account_closed` for what a closed account does not get. */
export function checkBookable(
  { account_status }: LockedPool,
  { kind, isOwed = false }: Pick<NewTransfer, "kind" | "isOwed">,
): void {
  if (account_status === "closed" && !isOwed && !correctingKinds.has(kind))
    throw new ApiError("account_closed");
}

function isSameTransfer(row: TransferRow, transfer: NewTransfer): boolean {
  return (
    row.family === transfer.family &&
    row.kind === transferKindName(transfer.kind) &&
    row.amount === transfer.amountMicro &&
    row.reason === transfer.reason
  );
}

function only<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new Error("a statement returned no row");
  return row;
}
