// What one person may not do alone, where `second_approval_above_usd` is set. A request that needs
// another person waits, and approving it does what it asked for.
//
// What a person gave away and approvals are locked last of all (docs/internals.md, "Locks"). So a
// transaction counts and asks after it has locked what it changes.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Approval,
  ApprovalKind,
  ApprovalSchema,
} from "../../gen/gateway/approvals/v1/approval_pb.ts";
import * as sql from "../../gen/sql/contract.ts";
import { toActor } from "../base/actors.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Runner } from "../postgres/statement.ts";
import { actorOf } from "./callers.ts";
import type { Caller } from "./contract.ts";

export { countApprovals, endApproval, findApproval } from "../../gen/sql/contract.ts";

export type ApprovalKindName = sql.ListApprovalsRow["kind"];

/** Micro-dollars that a person gives away alone in a UTC day. Undefined: any amount. */
export type ApprovalLimit = () => bigint | undefined;

/** A request that needs another person. */
export type Act = {
  readonly kind: ApprovalKindName;
  /** Its later requests take the place of this one. */
  readonly subject: string;
  /** Empty: it concerns none. */
  readonly accountId: string;
  /** A sentence for the person who decides. */
  readonly what: string;
  readonly reason: string;
  readonly usdMicro: bigint;
  /** For the function that carries it out. */
  readonly request: JsonValue;
};

/** What was approved, for the function that carries it out. */
export type Approved = {
  readonly approvalId: string;
  readonly request: JsonObject;
  readonly reason: string;
  /** As `actorOf` names callers. */
  readonly requestedBy: string;
  readonly approvedBy: string;
  /** Of the person who requested it, or made the token that did. */
  readonly personId: string;
};

/**
 * Carries out what was approved, in the transaction that notes the approval. Returns what is to be
 * done after the commit.
 */
export type CarryOut = (tx: Runner, approved: Approved) => Promise<() => void>;

/**
 * The person for whom an act counts: the caller, or who made his token. Undefined: the machine, by
 * the token of the environment or one that this made, or a part of the gateway. It needs nobody.
 */
export function personBehind(caller: Caller): string | undefined {
  if (caller.kind === "person") return caller.personId;
  return caller.kind === "admin" ? caller.personId : undefined;
}

/**
 * Counts what a person gives away in this UTC day, in the transaction that books it. False: with
 * it he would give away more than the limit. Then nothing is counted, and he asks.
 */
export async function mayGive(
  tx: Runner,
  caller: Caller,
  usdMicro: bigint,
  limit: bigint | undefined,
): Promise<boolean> {
  const personId = personBehind(caller);
  if (limit === undefined || personId === undefined || usdMicro <= 0n) return true;
  const given = await tx.run(sql.lockGiven, { personId });
  if (given.usdMicro + usdMicro > limit) return false;
  await tx.run(sql.addGiven, { personId, usdMicro });
  return true;
}

/** True for what a person may not do alone, whatever it costs. */
export function needsApproval(caller: Caller, limit: bigint | undefined): boolean {
  return limit !== undefined && personBehind(caller) !== undefined;
}

/** Lets a request wait. A repeat returns the one that waits. */
export async function askForApproval(tx: Runner, caller: Caller, act: Act): Promise<Approval> {
  const personId = personBehind(caller);
  if (personId === undefined) throw new Error("the machine asks nobody");
  const request = JSON.stringify(act.request);
  const made = { ...act, request, personId, requestedBy: actorOf(caller) };
  await tx.run(sql.replaceApproval, made);
  await tx.run(sql.insertApproval, { ...made, approvalId: timeOrderedId("apv_") });
  const waiting = await findWaiting(tx, act);
  if (!waiting) throw new Error("a request that was stored is gone");
  return waiting;
}

/** What waits about a subject. Undefined: nothing does, or not the one with `approvalId`. */
export async function findWaiting(
  tx: Runner,
  about: Pick<Act, "kind" | "accountId" | "subject">,
  approvalId: string | null = null,
): Promise<Approval | undefined> {
  const { kind, accountId, subject } = about;
  const waiting = await tx.run(sql.findWaiting, { kind, accountId, subject, approvalId });
  return waiting && toApproval(waiting);
}

/** Notes, in the transaction that does it, that the machine does what a person could not alone. */
export async function noteBypass(tx: Runner, caller: Caller, act: Act): Promise<void> {
  const request = JSON.stringify(act.request);
  const approvalId = timeOrderedId("apv_");
  await tx.run(sql.insertBypass, { ...act, request, requestedBy: actorOf(caller), approvalId });
}

/** What the machine did alone since shortly before `since`, oldest first. */
export function listBypasses(
  db: Runner,
  since: Date,
  rows: number,
): Promise<sql.ListBypassesRow[]> {
  return db.run(sql.listBypasses, { since, rows });
}

/** A member of what was stored to be carried out. */
export function memberOf({ request }: Approved, name: string): string {
  return String(request[name] ?? "");
}

const kinds: Readonly<Record<ApprovalKindName, ApprovalKind>> = {
  transfer: ApprovalKind.TRANSFER,
  decision: ApprovalKind.DECISION,
  refund: ApprovalKind.REFUND,
  promotion: ApprovalKind.PROMOTION,
  admin_token: ApprovalKind.ADMIN_TOKEN,
  operator: ApprovalKind.OPERATOR,
  sign_in_link: ApprovalKind.SIGN_IN_LINK,
  sweep_payment: ApprovalKind.SWEEP_PAYMENT,
  price_list: ApprovalKind.PRICE_LIST,
  account_price_list: ApprovalKind.ACCOUNT_PRICE_LIST,
};

/** What waits, newest first. `before`: the last one of the page before. */
export async function listWaiting(
  db: Runner,
  before: string | undefined,
  rows: number,
): Promise<Approval[]> {
  return (await db.run(sql.listApprovals, { before: before ?? null, rows })).map(toApproval);
}

function toApproval(row: sql.ListApprovalsRow): Approval {
  return create(ApprovalSchema, {
    ...row,
    kind: kinds[row.kind],
    requestedBy: toActor(row.requestedBy),
    amountMicrodollars: row.usdMicro,
    givenMicrodollars: row.givenUsdMicro,
    requestedAt: timestampFromDate(row.requestedAt),
    expiresAt: timestampFromDate(row.endsAt),
  });
}
