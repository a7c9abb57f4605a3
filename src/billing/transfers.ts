// Transfers: what people and parts of the gateway add to pools or take out, and the approval of
// another person that large gifts of a person need.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type ApproveTransferRequest,
  ApproveTransferResponseSchema,
  type CreateTransferRequest,
  CreateTransferResponseSchema,
  type ListPendingTransfersRequest,
  ListPendingTransfersResponseSchema,
  type PendingTransfer,
  PendingTransferSchema,
  type RejectTransferRequest,
  RejectTransferResponseSchema,
  type Transfer,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { familyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { readPage } from "../base/paging.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import { isUniqueViolation } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";
import { checkText } from "./accounts.ts";
import { transferKindName, transferKindOf } from "./rows.ts";
import {
  bookTransfer,
  checkBookable,
  findSame,
  isSameTransfer,
  type LedgerStore,
  lockPool,
  type NewTransfer,
} from "./store.ts";

export type TransferParts = {
  readonly store: Pick<LedgerStore, "createTransfer" | "transaction">;
  /** Reads on connections that admissions do not use. */
  readonly reports: Pick<LedgerStore, "run">;
  /** A person who adds more than this needs the approval of another. Undefined: nobody does. */
  readonly approvalAboveMicro: () => bigint | undefined;
  /** Called after credits of an account changed. */
  readonly onTransfer: (accountId: string) => void;
};

// The largest integer that a double, and so any JSON client, represents exactly.
const amountMax = 2n ** 53n;
const smallestPackMicro = 1_000_000_000n;

/**
 * Which part of the gateway makes the transfers whose idempotency key begins so. Nobody else may
 * take such a key: its transfer would count as made.
 */
const reservedKeys: readonly { readonly prefix: string; readonly service: string }[] = [
  { prefix: "pay:", service: "payments" },
  { prefix: "refund:", service: "payments" },
  { prefix: "promo:", service: "payments" },
  { prefix: "first-start", service: "bootstrap" },
];

/** Throws `not_permitted` for what only parts of the gateway may book. */
function checkReserved({ kind, idempotencyKey }: CreateTransferRequest, caller: Caller): void {
  const service = caller.kind === "internal" ? caller.service : undefined;
  if (kind === TransferKind.DEPOSIT && service !== "payments")
    throw new ApiError("not_permitted", {
      message: "Only the payments service books deposits. Book a sale as a purchase.",
      field: "kind",
    });
  const reserved = reservedKeys.find(({ prefix }) => idempotencyKey.startsWith(prefix));
  if (reserved && reserved.service !== service)
    throw new ApiError("not_permitted", {
      message: `Idempotency keys that begin with ${reserved.prefix} are the gateway's own.`,
      field: "idempotency_key",
    });
}

export async function createTransfer(
  { store, approvalAboveMicro, onTransfer }: TransferParts,
  request: CreateTransferRequest,
  { caller }: AuthenticatedCall,
) {
  const transfer = toNewTransfer(request, caller);
  const limit = approvalAboveMicro();
  if (caller.kind === "person" && limit !== undefined && transfer.amountMicro > limit) {
    const { booked, pending } = await repeatedOnce(() =>
      store.transaction((tx) => askForApproval(tx, transfer)),
    );
    return create(CreateTransferResponseSchema, {
      ...(booked && { transfer: booked }),
      ...(pending && { pendingTransfer: pending }),
    });
  }
  const booked = await store.createTransfer(transfer);
  onTransfer(transfer.accountId);
  return create(CreateTransferResponseSchema, { transfer: booked });
}

/** Throws `not_permitted` and `invalid_request`. */
function toNewTransfer(request: CreateTransferRequest, caller: Caller): NewTransfer {
  const { accountId, kind, amountMicrocredits: amount, idempotencyKey, reason } = request;
  const family = familyName(request.family);
  if (!family) throw invalidField("family", "is not a family");
  checkReserved(request, caller);
  checkText("idempotency_key", idempotencyKey, 200);
  checkText("reason", reason, 1000);
  if (amount > amountMax || amount < -amountMax)
    throw invalidField("amount_microcredits", "is larger than 2^53");
  if (amount < 0n && kind !== TransferKind.ADJUSTMENT)
    throw invalidField("amount_microcredits", "must be positive: the kind gives the direction");
  if (kind === TransferKind.PURCHASE && amount < smallestPackMicro) {
    throw invalidField(
      "amount_microcredits",
      "a purchase is at least 1,000 credits (1000000000 micro-credits)",
    );
  }
  const isDebit = kind === TransferKind.REFUND || kind === TransferKind.CHARGEBACK;
  return {
    accountId,
    family,
    kind,
    amountMicro: isDebit ? -amount : amount,
    idempotencyKey,
    reason,
    actor: actorOf(caller),
    isOwed: caller.kind === "internal",
  };
}

/** A request for an idempotency key that another pool of the account takes at the same time. */
function repeatedOnce<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error: unknown) => {
    if (isUniqueViolation(error)) return work();
    throw error;
  });
}

/** Lets a transfer wait, unless it was booked before. It replaces another one with its key. */
async function askForApproval(
  tx: Runner,
  transfer: NewTransfer,
): Promise<{ booked?: Transfer; pending?: PendingTransfer }> {
  const pool = await lockPool(tx, transfer);
  const booked = await findSame(tx, transfer);
  if (booked) return { booked };
  checkBookable(pool, transfer);
  const { accountId, kind, amountMicro: amount, idempotencyKey, actor: requestedBy } = transfer;
  const waiting = await tx.run(sql.findPendingKey, { accountId, idempotencyKey });
  if (waiting && isSameTransfer(waiting, transfer) && waiting.requestedBy === requestedBy)
    return { pending: toPending(waiting) };
  if (waiting) await end(tx, waiting, "replaced", requestedBy);
  const pendingTransferId = timeOrderedId("ptr_");
  const made = {
    ...transfer,
    pendingTransferId,
    kind: transferKindName(kind),
    amount,
    requestedBy,
  };
  return { pending: toPending(await tx.run(sql.insertPendingTransfer, made)) };
}

export async function approveTransfer(
  { store, onTransfer }: TransferParts,
  { pendingTransferId }: ApproveTransferRequest,
  { caller, note }: AuthenticatedCall,
) {
  const approver = actorOf(caller);
  const approve = async (tx: Runner) => {
    const booked = toBooked(await find(tx, pendingTransferId));
    // Everybody locks the pool first. What this waited for, the next statement sees.
    await lockPool(tx, booked);
    const row = await find(tx, pendingTransferId);
    if (row.state === "approved" && row.decidedBy === approver)
      return { transfer: await bookTransfer(tx, booked), accountId: row.accountId };
    checkWaiting(row);
    if (row.requestedBy === approver)
      throw new ApiError("not_permitted", {
        message: "Another person has to approve this transfer.",
      });
    const transfer = await bookTransfer(tx, booked);
    // It may be rejected at this moment: then nothing is booked.
    if (!(await end(tx, row, "approved", approver, transfer.transferId))) throw doesNotWait();
    return { transfer, accountId: row.accountId };
  };
  const { transfer, accountId } = await repeatedOnce(() => store.transaction(approve));
  note?.({ requestedBy: transfer.actor });
  onTransfer(accountId);
  return create(ApproveTransferResponseSchema, { transfer });
}

export async function rejectTransfer(
  { store }: TransferParts,
  { pendingTransferId }: RejectTransferRequest,
  { caller, note }: AuthenticatedCall,
) {
  await store.transaction(async (tx) => {
    const row = await find(tx, pendingTransferId);
    note?.({ accountId: row.accountId, requestedBy: row.requestedBy });
    checkWaiting(row);
    if (!(await end(tx, row, "rejected", actorOf(caller)))) throw doesNotWait();
  });
  return create(RejectTransferResponseSchema);
}

export async function listPendingTransfers(
  { reports }: TransferParts,
  request: ListPendingTransfersRequest,
) {
  const { entries: pendingTransfers, nextPageToken } = await readPage(request, {
    read: async (after, rows) =>
      (await reports.run(sql.listPendingTransfers, { before: after ?? null, rows })).map(toPending),
    cursorOf: ({ pendingTransferId }) => pendingTransferId,
  });
  return create(ListPendingTransfersResponseSchema, { pendingTransfers, nextPageToken });
}

type PendingRow = sql.FindPendingTransferRow;

async function find(tx: Runner, pendingTransferId: string): Promise<PendingRow> {
  const row = await tx.run(sql.findPendingTransfer, { pendingTransferId });
  if (!row)
    throw new ApiError("not_found", {
      message: "No such pending transfer.",
      field: "pending_transfer_id",
    });
  return row;
}

function checkWaiting({ state }: PendingRow): void {
  if (state !== "pending") throw doesNotWait();
}

function doesNotWait(): ApiError {
  return new ApiError("wrong_state", {
    message: "This transfer does not wait: it was approved, rejected, or replaced by another one.",
  });
}

/** False: it does not wait. */
async function end(
  tx: Runner,
  { pendingTransferId }: PendingRow,
  state: PendingRow["state"],
  decidedBy: string,
  transferId: string | null = null,
): Promise<boolean> {
  const ended = { pendingTransferId, state, decidedBy, transferId };
  return (await tx.run(sql.endPendingTransfer, ended)) > 0;
}

function toBooked({ amount, requestedBy, ...row }: PendingRow): NewTransfer {
  return { ...row, kind: transferKindOf[row.kind], amountMicro: amount, actor: requestedBy };
}

function toPending({ amount, ...row }: PendingRow): PendingTransfer {
  return create(PendingTransferSchema, {
    ...row,
    family: familyOf(row.family),
    kind: transferKindOf[row.kind],
    amountMicrocredits: amount,
    requestedAt: timestampFromDate(row.requestedAt),
  });
}
