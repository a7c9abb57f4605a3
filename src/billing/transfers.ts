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
import { ApiError, invalidField } from "../base/errors.ts";
import { type FamilyName, familyName, familyOf } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { readPage } from "../base/paging.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import { isUniqueViolation, statement, type Tx } from "../postgres/postgres.ts";
import { checkText } from "./accounts.ts";
import { transferKindName, transferKindOf } from "./rows.ts";
import {
  bookTransfer,
  checkBookable,
  findSame,
  type LedgerStore,
  lockPool,
  type NewTransfer,
} from "./store.ts";

const statements = {
  findPendingTransfer: statement(import.meta.url, "find-pending-transfer"),
  findPendingKey: statement(import.meta.url, "find-pending-key"),
  insertPendingTransfer: statement(import.meta.url, "insert-pending-transfer"),
  endPendingTransfer: statement(import.meta.url, "end-pending-transfer"),
  listPendingTransfers: statement(import.meta.url, "list-pending-transfers"),
};

export type TransferParts = {
  readonly store: Pick<LedgerStore, "createTransfer" | "transaction">;
  /** Reads on connections that admissions do not use. */
  readonly reports: Pick<LedgerStore, "query">;
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
  tx: Tx,
  transfer: NewTransfer,
): Promise<{ booked?: Transfer; pending?: PendingTransfer }> {
  const pool = await lockPool(tx, transfer);
  const booked = await findSame(tx, transfer);
  if (booked) return { booked };
  checkBookable(pool, transfer);
  const { accountId, family, kind, amountMicro, idempotencyKey, reason, actor } = transfer;
  const [waiting] = await tx.query<PendingRow>(statements.findPendingKey, [
    accountId,
    idempotencyKey,
  ]);
  if (waiting && isSame(waiting, transfer)) return { pending: toPending(waiting) };
  if (waiting) await end(tx, waiting, "replaced", actor);
  const values = [
    ...[timeOrderedId("ptr_"), accountId, family, transferKindName(kind), amountMicro],
    ...[idempotencyKey, reason, actor],
  ];
  const [made] = await tx.query<PendingRow>(statements.insertPendingTransfer, values);
  if (!made) throw new Error("a statement returned no row");
  return { pending: toPending(made) };
}

export async function approveTransfer(
  { store, onTransfer }: TransferParts,
  { pendingTransferId }: ApproveTransferRequest,
  { caller, note }: AuthenticatedCall,
) {
  const approver = actorOf(caller);
  const approve = async (tx: Tx) => {
    const asked = await find(tx, pendingTransferId);
    const booked = toBooked(asked);
    // Everybody locks the pool first. What this waited for, the next statement sees.
    await lockPool(tx, booked);
    const row = await find(tx, pendingTransferId);
    if (row.state === "approved" && row.decided_by === approver)
      return { transfer: await bookTransfer(tx, booked), accountId: row.account_id };
    checkWaiting(row);
    if (row.requested_by === approver)
      throw new ApiError("not_permitted", {
        message: "Another person has to approve this transfer.",
      });
    const transfer = await bookTransfer(tx, booked);
    // It may be rejected at this moment: then nothing is booked.
    if (!(await end(tx, row, "approved", approver, transfer.transferId))) throw doesNotWait();
    return { transfer, accountId: row.account_id };
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
    note?.({ accountId: row.account_id, requestedBy: row.requested_by });
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
    read: async (after, limit) =>
      (
        await reports.query<PendingRow>(statements.listPendingTransfers, [after ?? null, limit])
      ).map(toPending),
    cursorOf: ({ pendingTransferId }) => pendingTransferId,
  });
  return create(ListPendingTransfersResponseSchema, { pendingTransfers, nextPageToken });
}

type PendingRow = {
  pending_transfer_id: string;
  account_id: string;
  family: FamilyName;
  kind: string;
  amount: bigint;
  idempotency_key: string;
  reason: string;
  requested_by: string;
  requested_at: Date;
  state: "pending" | "approved" | "rejected" | "replaced";
  decided_by: string | null;
  transfer_id: string | null;
};

async function find(tx: Tx, pendingTransferId: string): Promise<PendingRow> {
  const [row] = await tx.query<PendingRow>(statements.findPendingTransfer, [pendingTransferId]);
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
  tx: Tx,
  { pending_transfer_id }: PendingRow,
  state: PendingRow["state"],
  by: string,
  transferId: string | null = null,
): Promise<boolean> {
  const values = [pending_transfer_id, state, by, transferId];
  return (await tx.query(statements.endPendingTransfer, values)).length > 0;
}

function isSame(row: PendingRow, transfer: NewTransfer): boolean {
  return (
    row.family === transfer.family &&
    row.kind === transferKindName(transfer.kind) &&
    row.amount === transfer.amountMicro &&
    row.reason === transfer.reason &&
    row.requested_by === transfer.actor
  );
}

function toBooked(row: PendingRow): NewTransfer {
  return {
    accountId: row.account_id,
    family: row.family,
    kind: transferKindOf(row.kind),
    amountMicro: row.amount,
    idempotencyKey: row.idempotency_key,
    reason: row.reason,
    actor: row.requested_by,
  };
}

function toPending(row: PendingRow): PendingTransfer {
  return create(PendingTransferSchema, {
    pendingTransferId: row.pending_transfer_id,
    accountId: row.account_id,
    family: familyOf(row.family),
    kind: transferKindOf(row.kind),
    amountMicrocredits: row.amount,
    idempotencyKey: row.idempotency_key,
    reason: row.reason,
    requestedBy: row.requested_by,
    requestedAt: timestampFromDate(row.requested_at),
  });
}
