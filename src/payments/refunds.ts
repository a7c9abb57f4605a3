// Refunds: credits are taken back first, then a person sends the coins.

import { create, fromJson, toJson } from "@bufbuild/protobuf";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type BeginRefundRequest,
  BeginRefundRequestSchema,
  BeginRefundResponseSchema,
  type CancelRefundRequest,
  CancelRefundResponseSchema,
  type CompleteRefundRequest,
  CompleteRefundResponseSchema,
  PaymentDeskService,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField, toApiError } from "../base/errors.ts";
import { familyOf } from "../base/families.ts";
import { microCreditsPerMicroDollar, usd } from "../base/money.ts";
import { checkText } from "../base/names.ts";
import {
  askForApproval,
  type CarryOut,
  findWaiting,
  mayGive,
  needsApproval,
} from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import { type AuthenticatedCall, asService } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { onceFor } from "../contract/replays.ts";
import { redecide } from "./crediting.ts";
import type { Decision } from "./decide.ts";
import { documentRefund } from "./documents.ts";
import type { NewEvent } from "./events.ts";
import { describe } from "./orders.ts";
import { findVisible, noSuchOrder, type Parts, wrongState } from "./parts.ts";
import {
  type PaymentsTables,
  type RefundState,
  type StoredOrder,
  type StoredRefund,
  tablesOn,
} from "./store.ts";

export async function beginRefund(
  parts: Parts,
  request: BeginRefundRequest,
  call: AuthenticatedCall,
) {
  const { orderId, what } = request;
  const reason = readReason(request.reason, call);
  if (what.case === undefined)
    throw invalidField("amount_microdollars", "is required, or a deposit_id");
  const { accountId } = await findVisible(parts, orderId, call);
  const { caller } = call;
  call.note?.({ accountId });
  const once = onceFor(PaymentDeskService.method.beginRefund, request, { ...call, accountId });
  const beginNow = async (tables: PaymentsTables, locked: StoredOrder): Promise<Begun> => {
    const { order, now } = await checkRefundable(tables, locked);
    const amount = await amountOf(tables, order, now, request);
    const limit = parts.offer().secondApprovalAboveUsdMicro;
    // Nobody knows what a deposit without a value is worth.
    const isUnknown = amount.usdMicro === 0n && needsApproval(caller, limit);
    if (!isUnknown && (await mayGive(tables, caller, amount.usdMicro, limit)))
      return { n: await insertRefund(tables, order, now, { amount, reason, by: actorOf(caller) }) };
    const approval = await askForApproval(tables, caller, {
      kind: "refund",
      subject: orderId,
      accountId,
      what: isUnknown
        ? "Returns a deposit of unknown value."
        : `Returns ${usd(amount.usdMicro * microCreditsPerMicroDollar)} of an order.`,
      reason,
      usdMicro: amount.usdMicro,
      request: toJson(BeginRefundRequestSchema, request),
    });
    return { approval };
  };
  const { n, approval } = await parts.store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (!order) throw noSuchOrder();
    const earlier = await tables.run(sql.listRefunds, { orderIds: [orderId] });
    const made = { id: `${orderId}#${earlier.length + 1}`, secret: "" };
    let outcome: Begun | undefined;
    const { id } = await once(tables, made, async (nameIt) => {
      outcome = await beginNow(tables, order);
      if (outcome.approval) await nameIt(outcome.approval.approvalId);
    });
    if (outcome) return outcome;
    const [, n] = id.split("#");
    if (n !== undefined) return { n: Number(n) };
    const about = { kind: "refund", accountId, subject: orderId } as const;
    return { approval: await findWaiting(tables, about, id) };
  });
  if (n !== undefined) {
    await postRefunds(parts, orderId);
    parts.changed(orderId);
    const refunds = await parts.store.run(sql.listRefunds, { orderIds: [orderId] });
    if (refunds.some((one) => one.n === n && one.state === "refused"))
      throw new ApiError("insufficient_funds", {
        message: "The pool has too few free credits: those of this order were spent.",
      });
  }
  return create(BeginRefundResponseSchema, {
    order: await describe(parts, await findVisible(parts, orderId, call)),
    ...(approval && { approval }),
  });
}

/** The number of a refund, or the approval that it waits for. Empty: it waits no more. */
type Begun = { readonly n?: number; readonly approval?: Approval | undefined };

/** Begins an approved refund. Throws `wrong_state` and `invalid_request` as BeginRefund does. */
export function carryOutRefund(parts: Parts): CarryOut {
  return async (tx, approved) => {
    const tables = tablesOn(tx);
    const request = fromJson(BeginRefundRequestSchema, approved.request);
    const { orderId } = request;
    const locked = await tables.lockOrder(orderId);
    if (!locked) throw noSuchOrder();
    const { order, now } = await checkRefundable(tables, locked);
    const amount = await amountOf(tables, order, now, request);
    const { reason, requestedBy: by } = approved;
    await insertRefund(tables, order, now, { amount, reason, by });
    return () => {
      parts.changed(orderId);
      // The sweep repeats a failure.
      postRefunds(parts, orderId).catch((err: unknown) =>
        parts.log.warn(
          { code: "grant_not_posted", orderId, err },
          "a refund waits for its credits",
        ),
      );
    };
  };
}

/** What a locked order is now, if it can be refunded. Throws `wrong_state`. */
async function checkRefundable(
  tables: PaymentsTables,
  order: StoredOrder,
): Promise<{ order: StoredOrder; now: Decision }> {
  const { orderId } = order;
  const now = await redecide(tables, order);
  if (now.state !== "paid" && now.state !== "closed" && now.attention === undefined)
    throw wrongState("Only an order that is paid, closed or waits for a person can be refunded.");
  if (await findOpen(tables, orderId))
    throw wrongState("Another refund of this order is under way.");
  return { order, now };
}

function amountOf(
  tables: PaymentsTables,
  order: StoredOrder,
  now: Decision,
  { what }: BeginRefundRequest,
): Promise<Amount> {
  return what.case === "depositId"
    ? ofDeposit(tables, order, now, what.value)
    : ofAmount(tables, order, now, what.value ?? 0n);
}

/** Returns the number of the refund. */
async function insertRefund(
  tables: PaymentsTables,
  { orderId }: StoredOrder,
  { facts }: Decision,
  { amount, reason, by: madeBy }: { amount: Amount; reason: string; by: string },
): Promise<number> {
  const state = amount.micro > 0n ? "asked" : "refunding";
  // A bonus that needed this purchase goes first. What was never granted takes no credits.
  const readBonus = async () => (await tables.run(sql.readBonus, { orderId })).micro;
  const bonusMicro = amount.micro > 0n ? await readBonus() : 0n;
  const refund = { ...amount, orderId, bonusMicro, state, reason, madeBy } as const;
  const { n } = await tables.run(sql.insertRefund, refund);
  if (bonusMicro > 0n) await tables.run(sql.takeBonus, { orderId, refundN: n });
  if (state === "refunding") await tables.run(sql.handleFacts, { orderId, facts });
  const changed = await tables.findOrder(orderId);
  if (changed) await redecide(tables, changed);
  return n;
}

type Amount = Pick<StoredRefund, "usdMicro" | "externalId" | "micro">;

/** Money that was never granted goes back first, and takes no credits. */
async function ofAmount(
  tables: PaymentsTables,
  order: StoredOrder,
  now: Decision,
  usdMicro: bigint,
): Promise<Amount> {
  const left = now.receivedUsdMicro - order.refundedUsdMicro;
  if (left <= 0n) throw wrongState("Nothing of this order is left to refund.");
  if (usdMicro <= 0n || usdMicro > left)
    throw invalidField("amount_microdollars", `is from 1 to ${left}, what is left of this order`);
  // What persons granted for a deposit of unknown value goes back with that deposit.
  const { orderId } = order;
  const decided = (await tables.run(sql.listDecided, { orderId }))
    .filter(({ depositId }) => depositId === "")
    .reduce((sum, { micro }) => sum + micro, 0n);
  const takenBack = (await tables.run(sql.listRefunds, { orderIds: [orderId] }))
    .filter(({ externalId, state }) => externalId === null && isCounted(state))
    .reduce((sum, { micro }) => sum + micro, 0n);
  const granted = now.ruleMicro + decided - takenBack;
  // All that is left takes all credits, also those that the tolerance gave.
  const ungranted = left * microCreditsPerMicroDollar - granted;
  const asked = usdMicro * microCreditsPerMicroDollar - (ungranted > 0n ? ungranted : 0n);
  const micro = usdMicro === left || asked > granted ? granted : asked;
  return { usdMicro, externalId: null, micro: micro > 0n ? micro : 0n };
}

async function ofDeposit(
  tables: PaymentsTables,
  { orderId }: StoredOrder,
  now: Decision,
  depositId: string,
): Promise<Amount> {
  const deposits = await tables.listDeposits([orderId]);
  const deposit = deposits.find(({ externalId }) => externalId === depositId);
  if (!deposit) throw invalidField("deposit_id", "is no deposit of this order");
  if (deposit.state !== "settled" || now.valued.has(depositId))
    throw invalidField("deposit_id", "is not settled, or has a value: name an amount");
  const decided = (await tables.run(sql.listDecided, { orderId })).filter(
    (one) => one.depositId === depositId,
  );
  const refunds = await tables.run(sql.listRefunds, { orderIds: [orderId] });
  const isRefunded = refunds.some(
    ({ externalId, state }) => externalId === depositId && isCounted(state),
  );
  if (isRefunded) throw wrongState("This deposit was refunded before.");
  const micro = decided.reduce((sum, one) => sum + one.micro, 0n);
  return { usdMicro: 0n, externalId: depositId, micro };
}

/** True unless the refund ended without money. */
export function isCounted(state: RefundState): boolean {
  return state !== "refused" && state !== "cancelled";
}

export async function completeRefund(
  parts: Parts,
  { orderId, transaction }: CompleteRefundRequest,
  call: AuthenticatedCall,
) {
  checkText("transaction", transaction);
  const { accountId } = await findVisible(parts, orderId, call);
  call.note?.({ accountId });
  await parts.store.transaction(async (tables) => {
    const { order, refund } = await lockOpen(tables, orderId);
    if (await tables.moveRefund(refund, "refunding", "completed", { transaction })) {
      const document = await documentRefund(tables, refund);
      await tables.insertEvents(orderId, [refundEvent(refund, { transaction, document })]);
    }
    await redecide(tables, order);
  });
  parts.changed(orderId);
  return create(CompleteRefundResponseSchema, {
    order: await describe(parts, await findVisible(parts, orderId, call)),
  });
}

function refundEvent(
  { n, usdMicro, micro, bonusMicro, externalId }: StoredRefund,
  { transaction: tx, document }: { readonly transaction: string; readonly document: string },
): NewEvent {
  const facts = {
    refund: String(n),
    document,
    microcredits: String(micro + bonusMicro),
    ...(usdMicro > 0n && { usd_micro: String(usdMicro) }),
    ...(externalId !== null && { deposit_id: externalId }),
    ...(tx !== "" && { tx }),
  };
  return { kind: "payment_refunded", subject: String(n), facts, depositId: "" };
}

export async function cancelRefund(
  parts: Parts,
  { orderId }: CancelRefundRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = await findVisible(parts, orderId, call);
  call.note?.({ accountId });
  await parts.store.transaction(async (tables) => {
    const { refund } = await lockOpen(tables, orderId);
    await tables.moveRefund(refund, "refunding", refund.micro > 0n ? "cancelling" : "cancelled");
    // What the refund was to deal with waits again.
    await tables.run(sql.restoreFacts, { orderId });
    const order = await tables.findOrder(orderId);
    if (order) await redecide(tables, order);
  });
  await postRefunds(parts, orderId);
  parts.changed(orderId);
  return create(CancelRefundResponseSchema, {
    order: await describe(parts, await findVisible(parts, orderId, call)),
  });
}

/** The refund for which a person has to send coins, with its order locked. */
async function lockOpen(tables: PaymentsTables, orderId: string) {
  const order = await tables.lockOrder(orderId);
  if (!order) throw noSuchOrder();
  const refund = await findOpen(tables, orderId);
  if (refund?.state !== "refunding") throw wrongState("No refund of this order is under way.");
  return { order, refund };
}

async function findOpen(
  tables: PaymentsTables,
  orderId: string,
): Promise<StoredRefund | undefined> {
  const refunds = await tables.run(sql.listRefunds, { orderIds: [orderId] });
  return refunds.find(({ state }) => ["asked", "refunding", "cancelling"].includes(state));
}

/**
 * Posts the transfer that the open refund of an order waits for. Its key makes a repeat the same
 * transfer. Throws if billing cannot be reached: the sweep repeats it.
 */
export async function postRefunds(parts: Parts, orderId: string): Promise<void> {
  const { store, billing } = parts;
  const order = await store.findOrder(orderId);
  const refund = await findOpen(store, orderId);
  if (!order || !refund || refund.state === "refunding") return;
  const isCancelled = refund.state === "cancelling";
  const key = `refund:${orderId}#${refund.n}`;
  const posted = await billing
    .createTransfer(
      {
        accountId: order.accountId,
        family: familyOf(order.family),
        kind: isCancelled ? TransferKind.ADJUSTMENT : TransferKind.REFUND,
        amountMicrocredits: refund.micro + refund.bonusMicro,
        idempotencyKey: isCancelled ? `${key}/cancel` : key,
        reason: isCancelled ? "refund cancelled" : "refund",
      },
      { contextValues: asService("payments") },
    )
    .catch((error: unknown) => {
      if (isCancelled || toApiError(error).reason !== "insufficient_funds") throw error;
      return undefined;
    });
  const transferId = posted?.transfer?.transferId;
  await store.transaction(async (tables) => {
    if (!(await tables.lockOrder(orderId))) return;
    if (isCancelled)
      await tables.moveRefund(refund, "cancelling", "cancelled", {
        ...(transferId !== undefined && { cancelTransferId: transferId }),
      });
    else if (transferId === undefined) await tables.moveRefund(refund, "asked", "refused");
    else await tables.moveRefund(refund, "asked", "refunding", { transferId });
    if (isCancelled || transferId === undefined)
      await tables.run(sql.returnBonus, { orderId, refundN: refund.n });
    const changed = await tables.findOrder(orderId);
    if (!changed) return;
    const now = await redecide(tables, changed);
    // What waited goes back: no person has to decide about it any more.
    if (!isCancelled && transferId !== undefined && now.facts.length > 0) {
      await tables.run(sql.handleFacts, { orderId, facts: now.facts });
      const settled = await tables.findOrder(orderId);
      if (settled) await redecide(tables, settled);
    }
  });
}
