// Transfers: what people and parts of the gateway add to pools or take out.

import { create, fromJson, toJson } from "@bufbuild/protobuf";
import {
  type CreateTransferRequest,
  CreateTransferRequestSchema,
  CreateTransferResponseSchema,
  type ExportTransfersRequest,
  type ExportTransfersResponse,
  ExportTransfersResponseSchema,
  type MoveCreditsRequest,
  MoveCreditsResponseSchema,
  TransferKind,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { type FindTransfersRow, findTransfers, lockAccountPools } from "../../gen/sql/billing.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { namedFamily } from "../base/families.ts";
import { idsBetween } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { credits, usd, usdMicroOf } from "../base/money.ts";
import { checkText } from "../base/names.ts";
import { readTimeRange } from "../base/paging.ts";
import { microcreditsPerUsdCent, packStepUsdCents } from "../base/shown-figures.ts";
import { transferKindName } from "../base/transfer-kinds.ts";
import {
  type Act,
  type ApprovalLimit,
  askForApproval,
  type CarryOut,
  mayGive,
  noteBypass,
  personBehind,
} from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import { readOptionalReason, readReason } from "../contract/reason.ts";
import { isUniqueViolation } from "../postgres/postgres.ts";
import {
  bookTransfer,
  checkBookable,
  findSame,
  type LedgerStore,
  lockPool,
  type NewTransfer,
} from "./store.ts";

export type TransferParts = {
  readonly store: Pick<LedgerStore, "createTransfer" | "transaction">;
  readonly approvalLimit: ApprovalLimit;
  readonly log: Log;
  /** Called after credits of an account changed. */
  readonly onTransfer: (accountId: string) => void;
};

const smallestPackMicro = BigInt(packStepUsdCents) * microcreditsPerUsdCent;

/**
 * Which part of the gateway makes the transfers whose idempotency key begins so. Nobody else may
 * take such a key: its transfer would count as made.
 */
const reservedKeys: readonly { readonly prefix: string; readonly service: string }[] = [
  { prefix: "pay:", service: "payments" },
  { prefix: "refund:", service: "payments" },
  { prefix: "promo:", service: "payments" },
  { prefix: "move:", service: "billing" },
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
  { store, approvalLimit, log, onTransfer }: TransferParts,
  given: CreateTransferRequest,
  call: AuthenticatedCall,
) {
  const { caller } = call;
  checkReserved(given, caller);
  // A program sells; a person explains.
  const read = caller.kind === "person" ? readReason : readOptionalReason;
  const request = { ...given, reason: read(given.reason, call) };
  const isOwed = caller.kind === "internal";
  const transfer = { ...toNewTransfer(request, actorOf(caller)), isOwed };
  const { accountId, amountMicro } = transfer;
  const limit = approvalLimit();
  const usdMicro = usdMicroOf(amountMicro);
  const isOverLimit = limit !== undefined && usdMicro > limit;
  const isPerson = personBehind(caller) !== undefined;
  const isBypass = caller.kind === "admin" && !isPerson && isOverLimit;
  // Only what adds credits can need another person.
  if (!isBypass && (amountMicro < 0n || !isPerson || limit === undefined)) {
    const booked = await store.createTransfer(transfer);
    onTransfer(accountId);
    return create(CreateTransferResponseSchema, { transfer: booked });
  }
  const outcome = await repeatedOnce(() =>
    store.transaction(async (tx) => {
      const pool = await lockPool(tx, transfer);
      const booked = await findSame(tx, transfer);
      if (booked) return { transfer: booked };
      checkBookable(pool, transfer);
      const act = toAct(request, transfer, usdMicro);
      if (!(await mayGive(tx, caller, usdMicro, limit)))
        return { approval: await askForApproval(tx, caller, act) };
      const made = await bookTransfer(tx, transfer);
      if (isBypass) await noteBypass(tx, caller, act);
      return { transfer: made };
    }),
  );
  onTransfer(accountId);
  if (isBypass)
    log.warn(
      {
        code: "approval_bypassed",
        accountId,
        transferId: outcome.transfer?.transferId,
        actor: transfer.actor,
      },
      "a token of the machine gave away what a person could not alone",
    );
  return create(CreateTransferResponseSchema, outcome);
}

function toAct(request: CreateTransferRequest, transfer: NewTransfer, usdMicro: bigint): Act {
  const { accountId, family, amountMicro, idempotencyKey, reason } = transfer;
  const kind = transferKindName(transfer.kind);
  return {
    kind: "transfer",
    subject: idempotencyKey,
    accountId,
    what: `Adds ${credits(amountMicro)} credits to the pool ${family}, as ${kind}.`,
    reason,
    usdMicro,
    request: toJson(CreateTransferRequestSchema, request),
  };
}

/** Books an approved transfer, with the person who requested it as its actor. */
export function carryOutTransfer(onTransfer: TransferParts["onTransfer"]): CarryOut {
  return async (tx, { request, requestedBy }) => {
    const transfer = toNewTransfer(fromJson(CreateTransferRequestSchema, request), requestedBy);
    await bookTransfer(tx, transfer);
    return () => onTransfer(transfer.accountId);
  };
}

/** Throws `invalid_request`. */
function toNewTransfer(request: CreateTransferRequest, actor: string): NewTransfer {
  const { accountId, kind, amountMicrocredits: amount, idempotencyKey, reason } = request;
  const family = namedFamily(request.family);
  checkText("idempotency_key", idempotencyKey);
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
    actor,
  };
}

/** A request for an idempotency key that another pool of the account takes at the same time. */
function repeatedOnce<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error: unknown) => {
    if (isUniqueViolation(error)) return work();
    throw error;
  });
}

export type MoveParts = {
  readonly transaction: LedgerStore["transaction"];
  /** True: owners may move credits by themselves. */
  readonly ownersMove: () => boolean;
  readonly onTransfer: TransferParts["onTransfer"];
};

export async function moveCredits(
  { transaction, ownersMove, onTransfer }: MoveParts,
  request: MoveCreditsRequest,
  call: AuthenticatedCall,
) {
  const { caller, accountId } = call;
  const isOwner = caller.kind === "person" && caller.operator < OperatorRole.ADMIN;
  if (isOwner && !ownersMove())
    throw new ApiError("not_permitted", { message: "Only operators move credits here." });
  const { amountMicrocredits: amount, idempotencyKey } = request;
  const [from, to] = [namedFamily(request.fromFamily), namedFamily(request.toFamily)];
  if (to === from) throw invalidField("to_family", "has to be the other family");
  checkText("idempotency_key", idempotencyKey);
  const reason = readReason(request.reason, call);
  const both = { accountId, kind: TransferKind.ADJUSTMENT, reason, actor: actorOf(caller) };
  const out = { family: from, amountMicro: -amount, idempotencyKey: `move:out:${idempotencyKey}` };
  const into = { family: to, amountMicro: amount, idempotencyKey: `move:in:${idempotencyKey}` };
  const transfers = await transaction(async (tx) => {
    // Both, in the order in which everybody locks them.
    await tx.run(lockAccountPools, { accountId });
    const earlier = [
      await findSame(tx, { ...both, ...out }),
      await findSame(tx, { ...both, ...into }),
    ];
    const known = earlier.flatMap((one) => one ?? []);
    if (known.length === earlier.length) return known;
    const { accountStatus } = await lockPool(tx, { accountId, family: from });
    if (accountStatus === "closed") throw new ApiError("account_closed");
    if (accountStatus === "suspended" && isOwner) throw new ApiError("account_suspended");
    return [
      await bookTransfer(tx, { ...both, ...out }),
      await bookTransfer(tx, { ...both, ...into }),
    ];
  });
  onTransfer(accountId);
  return create(MoveCreditsResponseSchema, { transfers });
}

const exportColumns = [
  ...["transfer_id", "created_at", "account_id", "family", "kind"],
  ...["credits", "usd", "credits_after", "actor", "reason"],
];
const exportedRows = 1_000;

/** The transfers of a range as CSV, newest first. Throws `invalid_request`. */
export async function* exportTransfers(
  reports: Pick<LedgerStore, "run">,
  { allAccounts, ...request }: ExportTransfersRequest,
  { accountId, signal }: AuthenticatedCall,
): AsyncGenerator<ExportTransfersResponse, void> {
  const range = readTimeRange(request, new Date());
  const query = {
    accountId: allAccounts ? null : accountId,
    from: range.from ?? new Date(0),
    to: range.to ?? null,
    ...idsBetween("tra_", range),
  };
  yield create(ExportTransfersResponseSchema, { csv: csvLine(exportColumns) });
  for (let after: string | null = null; ; ) {
    const rows: FindTransfersRow[] = await reports.run(findTransfers, {
      ...{ ...query, after, rows: exportedRows },
    });
    signal.throwIfAborted();
    if (rows.length > 0)
      yield create(ExportTransfersResponseSchema, { csv: rows.map(exportLine).join("") });
    if (rows.length < exportedRows) return;
    after = rows.at(-1)?.transferId ?? null;
  }
}

function exportLine(row: FindTransfersRow): string {
  return csvLine([
    ...[row.transferId, row.createdAt.toISOString(), row.accountId, row.family, row.kind],
    ...[credits(row.amount), usd(row.amount), credits(row.postedAfter)],
    ...[textCell(row.actor), textCell(row.reason)],
  ]);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a token of the machine gave away more than a person may alone; ask who used it */
    approval_bypassed: true;
  }
}
