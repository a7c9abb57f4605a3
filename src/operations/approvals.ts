// What waits for another person, and its decision.

import { create } from "@bufbuild/protobuf";
import {
  ApprovalsService,
  type ApproveRequest,
  ApproveResponseSchema,
  type ListApprovalsRequest,
  ListApprovalsResponseSchema,
  type RejectRequest,
  RejectResponseSchema,
} from "../../gen/gateway/approvals/v1/approvals_pb.ts";
import { ApiError } from "../base/errors.ts";
import { readPage } from "../base/paging.ts";
import {
  type ApprovalKindName,
  type CarryOut,
  endApproval,
  findApproval,
  listWaiting,
} from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";

export type ApprovalsParts = {
  readonly postgres: Pick<Postgres, "run" | "transaction">;
  /** The services, each for what it asked. */
  readonly carryOut: Readonly<Record<ApprovalKindName, CarryOut>>;
  /** Throws `not_permitted` unless the person may approve it, and who requested it still do so. */
  readonly checkApproval: (
    tx: Runner,
    of: { readonly approverId: string; readonly requestedBy: string; readonly personId: string },
  ) => Promise<void>;
};

export async function listApprovals(
  { postgres }: ApprovalsParts,
  request: ListApprovalsRequest,
  call: AuthenticatedCall,
) {
  const { listApprovals } = ApprovalsService.method;
  const { entries: approvals, nextPageToken } = await readPage(listApprovals, request, call, {
    read: (after, rows) => listWaiting(postgres, after, rows),
    cursorOf: ({ approvalId }) => approvalId,
  });
  return create(ListApprovalsResponseSchema, { approvals, nextPageToken });
}

export async function approve(
  parts: ApprovalsParts,
  { approvalId }: ApproveRequest,
  { caller, note }: AuthenticatedCall,
) {
  // The option of the method admits persons only.
  if (caller.kind !== "person") throw new ApiError("not_permitted");
  const { personId } = caller;
  const approvedBy = actorOf(caller);
  const found = await find(parts.postgres, approvalId);
  const { kind, accountId, requestedBy } = found;
  note?.({ requestedBy, approved: kind, ...(accountId !== "" && { accountId }) });
  if (found.state === "approved" && found.decidedBy === approvedBy)
    return create(ApproveResponseSchema);
  checkWaits(found);
  if (found.personId === personId)
    throw new ApiError("not_permitted", { message: "Another person has to approve this." });
  const approved = { ...found, approvalId, approvedBy };
  const work = parts.postgres.transaction(async (tx) => {
    const afterwards = await parts.carryOut[kind](tx, approved);
    // After what is carried out, because everybody locks members before persons.
    const { personId: requesterId } = found;
    await parts.checkApproval(tx, { approverId: personId, requestedBy, personId: requesterId });
    // It may be decided at this moment: then nothing is carried out.
    const decided = { approvalId, state: "approved", decidedBy: approvedBy } as const;
    if ((await tx.run(endApproval, decided)) === 0) throw doesNotWait();
    return afterwards;
  });
  const afterwards = await work.catch(async (error: unknown) => {
    // Somebody else was faster, and it cannot be carried out twice.
    const now = await find(parts.postgres, approvalId);
    if (now.state === "approved" && now.decidedBy === approvedBy) return () => {};
    checkWaits(now);
    throw error;
  });
  afterwards();
  return create(ApproveResponseSchema);
}

export async function reject(
  { postgres }: ApprovalsParts,
  { approvalId }: RejectRequest,
  { caller, note }: AuthenticatedCall,
) {
  const { kind, accountId, requestedBy } = await find(postgres, approvalId);
  note?.({ requestedBy, rejected: kind, ...(accountId !== "" && { accountId }) });
  const decided = { approvalId, state: "rejected", decidedBy: actorOf(caller) } as const;
  if ((await postgres.run(endApproval, decided)) === 0) throw doesNotWait();
  return create(RejectResponseSchema);
}

async function find(db: Runner, approvalId: string) {
  const row = await db.run(findApproval, { approvalId });
  if (!row) throw new ApiError("not_found", { field: "approval_id", message: "No such approval." });
  return { ...row, request: Object(row.request) };
}

function checkWaits({ state, isOver }: { state: string; isOver: boolean }): void {
  if (state !== "pending" || isOver) throw doesNotWait();
}

function doesNotWait(): ApiError {
  return new ApiError("wrong_state", {
    message:
      "This does not wait: it was approved, rejected or replaced by another request, or its " +
      "seven days are over.",
  });
}
