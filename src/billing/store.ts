// The statements of the ledger that do not run in batches (those are in `ledger-batches.ts`).

import type { Account } from "../../gen/gateway/billing/v1/account_pb.ts";
import { type Pool, type Transfer, TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Price, Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Violation } from "../../gen/gateway/verification/v1/verification_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { ApiError } from "../base/errors.ts";
import type { FamilyName } from "../base/families.ts";
import { timeOf, timeOrderedId } from "../base/ids.ts";
import { parseTimeCursor, type TimeCursor } from "../base/paging.ts";
import type { Tags } from "../base/tags.ts";
import { byCategory } from "../base/token-categories.ts";
import { transferKindName } from "../base/transfer-kinds.ts";
import { isUniqueViolation, type Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import type { Payer, PlacedHold, RequestKey } from "./admission.ts";
import { stepsOf } from "./price.ts";
import {
  priceRow,
  type StoredHold,
  toAccount,
  toPool,
  toReceipt,
  toStoredHold,
  toTransfer,
} from "./rows.ts";
import { findViolations } from "./verifier.ts";

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
  /** Empty: whoever asked. */
  readonly madeBy: string;
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

/** A request that has a charge. */
export type SettledRequest = RequestKey & {
  /** Of its admission, `YYYY-MM-DD`. */
  readonly month: string;
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

/** A registered node. `process`: as `identifyProcess` returned it in that process. */
export type NodeState = sql.PollNodesRow;

/** The usage of a running request up to now. */
export type Metered = RequestKey & { readonly usage: Usage };

type FoundPayer = { readonly payer: Payer; readonly priceListId: string | undefined };

export type LedgerStore = ReturnType<typeof createLedgerStore>;

/** The longest month. */
const monthMs = 31 * 86_400_000;
/** An id that tells a later time is not taken. */
const aheadMsMax = 86_400_000;

type Database = Pick<Postgres, "run" | "transaction" | "runSlices" | "heartbeats">;

/** Every function throws `database_unavailable` while the database is unreachable. */
export function createLedgerStore({ run, transaction, runSlices, heartbeats }: Database) {
  return {
    /** Runs `work` in one transaction. */
    transaction,
    run,
    insertAccount: async (name: string, accountId = timeOrderedId("acc_")): Promise<Account> =>
      toAccount(await run(sql.insertAccount, { accountId, name })),
    findAccount: async (accountId: string): Promise<Account | undefined> => {
      const row = await run(sql.findAccount, { accountId });
      return row && toAccount(row);
    },
    listAccounts: async (
      query: { name: string; accountIds: readonly string[] },
      after: string,
      rows: number,
    ): Promise<Account[]> =>
      (await run(sql.listAccounts, { ...query, after, rows })).map(toAccount),
    readPools: async (accountId: string): Promise<Pool[]> =>
      (await run(sql.readPools, { accountId })).map(toPool),
    createTransfer: (transfer: NewTransfer): Promise<Transfer> => {
      const book = () => transaction((tx) => bookTransfer(tx, transfer));
      return book().catch((error: unknown) => {
        // A transfer of the account's other pool took the same idempotency key at the same time.
        // The second attempt reads it.
        if (isUniqueViolation(error)) return book();
        throw error;
      });
    },
    listTransfers: async (
      accountId: string,
      before: string | null,
      rows: number,
    ): Promise<Transfer[]> =>
      (await run(sql.listTransfers, { accountId, before, rows })).map(toTransfer),

    /** The pool that pays for a key, and the price list of its account. */
    findPayer: async (keyId: string): Promise<FoundPayer | undefined> => {
      const row = await run(sql.findPayer, { keyId });
      if (!row) return undefined;
      const { priceListId, ...pool } = row;
      return { payer: { ...pool, keyId }, priceListId: priceListId ?? undefined };
    },
    /** Stores a price and those of longer prompts, which it names. */
    registerPrice: async (model: string, price: Price): Promise<void> => {
      for (const step of stepsOf(price)) await run(sql.registerPrice, { ...priceRow(step), model });
    },

    findHold: async (request: RequestKey): Promise<StoredHold | undefined> => {
      const [row] = await run(sql.findHolds, idsOf([request]));
      return row && toStoredHold(row);
    },
    findHolds: async (requests: readonly RequestKey[]): Promise<StoredHold[]> =>
      (await run(sql.findHolds, idsOf(requests))).map(toStoredHold),
    /** The running requests with this id in all accounts, oldest first. */
    findRunning: async (requestId: string): Promise<StoredHold[]> =>
      (await run(sql.findRunning, { requestId })).map(toStoredHold),
    /** The running requests of an account after a `TimeCursor`, oldest first, at most `rows`. */
    listRunning: async (
      accountId: string,
      after: string | undefined,
      rows: number,
    ): Promise<StoredHold[]> => {
      const { at: afterAt = null, id: afterId = "" } = after ? parseTimeCursor(after) : {};
      return (await run(sql.listRunningOf, { accountId, afterAt, afterId, rows })).map(
        toStoredHold,
      );
    },
    /** Asks the node of a request to end it. Undefined: it does not run. False: no node runs it. */
    askToEnd: async (request: RequestKey): Promise<boolean | undefined> =>
      (await run(sql.askToEnd, request))?.isAsked,
    /** Takes the requests of a node that it was asked to end. */
    takeEnded: (nodeId: string): Promise<RequestKey[]> => heartbeats.run(sql.takeEnded, { nodeId }),
    /** One page of the holds that no process will settle, in the order of their requests. */
    findOrphans: async (
      nodeIds: readonly string[],
      after: RequestKey | undefined,
      rows: number,
    ): Promise<StoredHold[]> => {
      const { accountId: afterAccountId = "", requestId: afterRequestId = "" } = after ?? {};
      const page = { nodeIds, afterAccountId, afterRequestId, rows };
      return (await run(sql.findOrphans, page)).map(toStoredHold);
    },
    /** Releases a hold whose request has a charge. */
    releaseHold: ({ requestId, payer: { accountId, family } }: PlacedHold): Promise<number> =>
      transaction(async (tx) => {
        await tx.run(sql.lockPool, { accountId, family });
        return tx.run(sql.releaseHold, { accountId, requestId });
      }),
    /** Stores the metered usage of requests, each once. Returns how many of them still run. */
    checkpoint: (metered: readonly Metered[]): Promise<number> => {
      const tokens = byCategory((category) => metered.map(({ usage }) => usage[category]));
      const webSearches = metered.map(({ usage }) => usage.webSearches);
      return run(sql.checkpointHolds, { ...idsOf(metered), ...tokens, webSearches });
    },

    findCharge: async ({ accountId, requestId }: RequestKey): Promise<Receipt | undefined> => {
      const row = await run(sql.findCharge, { accountId, requestId });
      return row && toReceipt(row);
    },
    /** The amounts of the charges that these requests have. One without a charge is left out. */
    findAmounts: (requests: readonly RequestKey[]) => run(sql.findAmounts, idsOf(requests)),
    /**
     * The charges of requests with this id in all accounts, oldest first. An id that tells its time
     * is looked for in the months since: a client may have made it long before, or a day ahead.
     */
    findCharges: async (requestId: string): Promise<Receipt[]> => {
      const madeAtMs = timeOf(requestId);
      const months = madeAtMs === undefined ? null : monthsSince(madeAtMs - aheadMsMax);
      return (await run(sql.findCharges, { requestId, months })).map(toReceipt);
    },
    /** The charges that match, newest first, among at most `looks` charges. */
    listCharges: async (
      {
        keyId,
        before,
        model,
        outcomes,
        minAmountMicro: least,
        tags,
        madeBy,
        ...query
      }: ChargeQuery,
      page: { looks: number; rows: number },
    ): Promise<FoundCharge[]> => {
      const asked = {
        ...query,
        ...page,
        before: before.at,
        beforeId: before.id,
        least,
        model: model || null,
        outcomes: outcomes.length > 0 ? outcomes : null,
        tags: Object.keys(tags).length > 0 ? JSON.stringify(tags) : null,
        madeBy: madeBy || null,
      };
      const found =
        keyId === undefined
          ? await run(sql.listCharges, asked)
          : await run(sql.listKeyCharges, { ...asked, keyId });
      return found.map(({ isMatch, isLast, ...row }) => ({
        charge: toReceipt(row),
        isMatch,
        isLast,
      }));
    },
    /** The charges after `after`, oldest first. `at` is ISO 8601. */
    exportCharges: (
      { accountId, keyId, to }: ExportQuery,
      after: { at: string; id: string },
      rows: number,
    ): Promise<sql.ExportChargesRow[]> => {
      const page = { accountId, after: after.at, afterId: after.id, to, rows };
      return keyId === undefined
        ? run(sql.exportCharges, page)
        : run(sql.exportKeyCharges, { ...page, keyId });
    },
    /** The requests that were settled since shortly before `since`, newest first, and the time. */
    readSettled: async (
      accountIds: readonly string[],
      since: Date | undefined,
      limit: number,
    ): Promise<{ at: Date; requests: SettledRequest[] }> => {
      const asked = { accountIds, since: since ?? null, rows: limit };
      const rows = await run(sql.readSettled, asked);
      const requests = rows.flatMap(({ accountId, requestId, month }) =>
        // Without a charge, a row has the time alone.
        accountId === null || requestId === null || month === null
          ? []
          : [{ accountId, requestId, month }],
      );
      return { at: rows[0]?.readAt ?? new Date(0), requests };
    },
    /** The charges of these requests, in the order of their settlement. */
    findSettled: async (requests: readonly SettledRequest[]): Promise<Receipt[]> => {
      const months = requests.map(({ month }) => month);
      return (await run(sql.findSettled, { ...idsOf(requests), months })).map(toReceipt);
    },

    /** The months of removed charges, as their first days, oldest first. Undefined: of any. */
    readArchivedMonths: async ({
      accountId,
      keyId,
    }: {
      accountId: string | undefined;
      keyId: string | undefined;
    }): Promise<string[]> => {
      const scope = { accountId: accountId ?? null, keyId: keyId ?? null };
      return (await run(sql.readArchivedMonths, scope)).map(({ month }) => month);
    },

    registerNode: (nodeId: string, process: string) =>
      heartbeats.run(sql.registerNode, { nodeId, process }),
    /** Returns false when the node was declared dead. */
    recordHeartbeat: async (nodeId: string): Promise<boolean> =>
      (await heartbeats.run(sql.recordHeartbeat, { nodeId })) > 0,
    /** All nodes, by id. Counts a poll of each other one, at most one per `intervalMs`. */
    pollNodes: (nodeId: string, intervalMs: number): Promise<NodeState[]> =>
      heartbeats.run(sql.pollNodes, { nodeId, intervalMs }),
    deleteNode: (nodeId: string) => run(sql.deleteNode, { nodeId }),
    /** Stores how a node describes itself. `report`: JSON. */
    reportNode: (nodeId: string, report: string) => run(sql.reportNode, { nodeId, report }),

    verifyLedger: (signal = new AbortController().signal): Promise<Violation[]> =>
      runSlices((db) => findViolations(db, signal), signal),
  };
}

/**
 * The months in which a request with this id may have been charged: three at most. Those since the
 * time that the id tells, else the newest ones.
 */
export function searchedMonths(requestId: string): string[] {
  const newest = new Date();
  newest.setUTCMonth(newest.getUTCMonth() - 2, 1);
  const madeAtMs = timeOf(requestId);
  const sinceMs = madeAtMs === undefined ? newest.getTime() : madeAtMs - aheadMsMax;
  return monthsSince(sinceMs).slice(0, 3);
}

/**
 * The months since that of a time, `YYYY-MM-01`, up to the next one: the clock of the database may
 * be ahead.
 */
function monthsSince(ms: number): string[] {
  const first = new Date(`${new Date(ms).toISOString().slice(0, 7)}-01`);
  const months: string[] = [];
  for (const at = first; at.getTime() <= Date.now() + monthMs; ) {
    months.push(at.toISOString().slice(0, 10));
    at.setUTCMonth(at.getUTCMonth() + 1);
  }
  return months;
}

function idsOf(requests: readonly RequestKey[]) {
  return {
    accountIds: requests.map(({ accountId }) => accountId),
    requestIds: requests.map(({ requestId }) => requestId),
  };
}

/**
 * Books a transfer in a transaction of the caller, unless its idempotency key has one. Throws as
 * `CreateTransfer` does, and the error of the database if a transfer of the account's other pool
 * took the key at the same time.
 */
export async function bookTransfer(tx: Runner, transfer: NewTransfer): Promise<Transfer> {
  const pool = await lockPool(tx, transfer);
  // A simultaneous repeat waits for the lock of the pool, so it reads the first transfer here.
  const earlier = await findSame(tx, transfer);
  if (earlier) return earlier;
  checkBookable(pool, transfer);
  const { accountId, family, kind, amountMicro: amount } = transfer;
  const free = pool.posted - pool.held;
  if (amount < 0n && kind !== TransferKind.CHARGEBACK && free + amount < 0n) {
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
  await tx.run(sql.postToPool, { accountId, family, amount });
  const row = await tx.run(sql.insertTransfer, {
    ...transfer,
    transferId: timeOrderedId("tra_"),
    kind: transferKindName(kind),
    amount,
    postedAfter: pool.posted + amount,
  });
  return toTransfer(row);
}

/** What people may still book in a closed account. */
const correctingKinds: ReadonlySet<TransferKind> = new Set([
  TransferKind.REFUND,
  TransferKind.CHARGEBACK,
  TransferKind.ADJUSTMENT,
]);

/** Finds the transfer that an idempotency key has. Throws if it is another one than `transfer`. */
export async function findSame(tx: Runner, transfer: NewTransfer): Promise<Transfer | undefined> {
  const { accountId, idempotencyKey } = transfer;
  const earlier = await tx.run(sql.findTransfer, { accountId, idempotencyKey });
  if (!earlier) return undefined;
  if (!isSameTransfer(earlier, transfer))
    throw new ApiError("idempotency_key_reused", { field: "idempotency_key" });
  return toTransfer(earlier);
}

/** Locks the pool of a transfer, and so its idempotency key in this pool. Throws `not_found`. */
export async function lockPool(
  tx: Runner,
  { accountId, family }: Pick<NewTransfer, "accountId" | "family">,
): Promise<sql.LockPoolRow> {
  const pool = await tx.run(sql.lockPool, { accountId, family });
  if (!pool) throw new ApiError("not_found", { message: "No such account.", field: "account_id" });
  return pool;
}

/** Throws `account_closed` for what a closed account does not get. */
export function checkBookable(
  { accountStatus }: sql.LockPoolRow,
  { kind, isOwed = false }: Pick<NewTransfer, "kind" | "isOwed">,
): void {
  if (accountStatus === "closed" && !isOwed && !correctingKinds.has(kind))
    throw new ApiError("account_closed");
}

/** True if a stored transfer, or one that waits, is this one. */
function isSameTransfer(
  row: Pick<sql.FindTransferRow, "family" | "kind" | "amount" | "reason">,
  transfer: NewTransfer,
): boolean {
  return (
    row.family === transfer.family &&
    row.kind === transferKindName(transfer.kind) &&
    row.amount === transfer.amountMicro &&
    row.reason === transfer.reason
  );
}
