// What operators decide about orders that wait for a person.

import { create } from "@bufbuild/protobuf";
import type { Approval } from "../../gen/gateway/approvals/v1/approval_pb.ts";
import {
  type DecideOrderRequest,
  DecideOrderResponseSchema,
  type Decision as DecisionMessage,
  type Grant,
  GrantRate,
  type ListAttentionRequest,
  ListAttentionResponseSchema,
  PaymentDeskService,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { credits, microCreditsPerMicroDollar, usdMicroOf } from "../base/money.ts";
import { readPage } from "../base/paging.ts";
import { reopenedMinutes } from "../base/shown-figures.ts";
import {
  askForApproval,
  type CarryOut,
  findWaiting,
  mayGive,
  memberOf,
} from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { onceFor } from "../contract/replays.ts";
import { postGrants, redecide } from "./crediting.ts";
import { capUsdMicro, type Decision, isSameAsset } from "./decide.ts";
import { toDecision } from "./messages.ts";
import { describe, describeAll } from "./orders.ts";
import { findVisible, noSuchOrder, type Parts, wrongState } from "./parts.ts";
import { isCounted } from "./refunds.ts";
import {
  type PaymentsTables,
  readOrders,
  type StoredDecision,
  type StoredDeposit,
  type StoredOrder,
  tablesOn,
} from "./store.ts";

const reopenedForMs = reopenedMinutes * 60_000;
const amountUsdMicroMax = 1_000_000_000_000n;

export async function listAttention(
  parts: Parts,
  request: ListAttentionRequest,
  call: AuthenticatedCall,
) {
  const { store } = parts;
  const { entries, nextPageToken } = await readPage(
    PaymentDeskService.method.listAttention,
    request,
    call,
    {
      read: (after, rows) => store.run(sql.listUndecided, { after: after ?? null, rows }),
      cursorOf: ({ orderId }) => orderId,
    },
  );
  const found = await readOrders(
    store,
    entries.map(({ orderId }) => orderId),
  );
  const orders = await describeAll(parts, found);
  return create(ListAttentionResponseSchema, { orders, nextPageToken });
}

export async function decideOrder(
  parts: Parts,
  request: DecideOrderRequest,
  call: AuthenticatedCall,
) {
  const { orderId, choice } = request;
  const reason = readReason(request.reason, call);
  if (choice.case === undefined) throw invalidField("choice", "is required");
  const { accountId } = await findVisible(parts, orderId, call);
  call.note?.({ accountId, choice: choice.case });
  // Before the transaction, because the market is asked over the network.
  const marketRates =
    choice.case === "grant"
      ? await readMarketRates(parts, orderId, choice.value)
      : new Map<string, bigint>();
  const once = onceFor(PaymentDeskService.method.decideOrder, request, { ...call, accountId });
  const decideNow = async (tables: PaymentsTables, order: StoredOrder, decisionId: string) => {
    if (choice.case === "reopen") return reopen(tables, order);
    const now = await redecide(tables, order);
    if (now.facts.length === 0) throw wrongState("Nothing in this order waits for a decision.");
    const deposits = await tables.listDeposits([orderId]);
    const decided = await tables.run(sql.listDecided, { orderId });
    const theirs = new Set(decided.map(({ depositId }) => depositId));
    const waiting = deposits.filter(
      (one) =>
        one.state === "settled" && !now.valued.has(one.externalId) && !theirs.has(one.externalId),
    );
    const granted =
      choice.case === "close"
        ? waiting.map(({ externalId }) => ({ depositId: externalId, micro: 0n }))
        : await grantFor(tables, choice.value, { order, now, waiting, marketRates });
    const { facts } = now;
    const decidedBy = actorOf(call.caller);
    const made = { decisionId, orderId, reason, granted, kind: choice.case, facts, decidedBy };
    return decide(parts, tables, order, made, call);
  };
  const decided = await parts.store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (!order) throw noSuchOrder();
    let outcome: Decided = {};
    const made = { id: timeOrderedId("dec_"), secret: "" };
    let isNew = false;
    const { id } = await once(tables, made, async (nameIt) => {
      isNew = true;
      outcome = await decideNow(tables, order, made.id);
      if (outcome.approval) await nameIt(outcome.approval.approvalId);
    });
    return isNew ? outcome : findDecided(tables, order, id);
  });
  await finish(parts, orderId);
  return create(DecideOrderResponseSchema, {
    ...decided,
    order: await describe(parts, await findVisible(parts, orderId, call)),
  });
}

/** Empty: it was reopened. */
type Decided = { decision?: DecisionMessage; approval?: Approval };

/** The decision or the approval with this id. Empty: it was approved or denied, or reopened. */
async function findDecided(
  tables: PaymentsTables,
  { accountId, orderId }: StoredOrder,
  id: string,
): Promise<Decided> {
  const decision = await tables.findDecision(id);
  if (decision) return { decision: toDecision(decision) };
  const approval = await findWaiting(tables, { kind: "decision", accountId, subject: orderId }, id);
  return approval ? { approval } : {};
}

async function reopen(tables: PaymentsTables, order: StoredOrder): Promise<Decided> {
  if (order.state !== "expired" && order.state !== "cancelled")
    throw wrongState("Only an order that has expired or was cancelled can be reopened.");
  const { orderId } = order;
  await tables.run(sql.reopenOrder, { orderId, quotedForMs: reopenedForMs });
  const reopened = await tables.findOrder(orderId);
  if (!reopened) throw noSuchOrder();
  await redecide(tables, reopened);
  return {};
}

type Waiting = {
  readonly order: StoredOrder;
  readonly now: Decision;
  /** Settled deposits that the rules do not value. */
  readonly waiting: readonly StoredDeposit[];
  readonly marketRates: ReadonlyMap<string, bigint>;
};

/** Micro-credits by deposit. Every deposit that waits is named, so that no rule counts it later. */
async function grantFor(
  tables: PaymentsTables,
  { what }: Grant,
  { order, now, waiting, marketRates }: Waiting,
): Promise<StoredDecision["granted"]> {
  if (what.case === "grantedMicrodollars") {
    const amountMicrodollars = what.value;
    if (amountMicrodollars <= 0n || amountMicrodollars > amountUsdMicroMax)
      throw invalidField("grant.granted_microdollars", "must be above 0");
    const micro = amountMicrodollars * microCreditsPerMicroDollar;
    const [first, ...others] = waiting;
    if (!first) return [{ depositId: "", micro }];
    return [
      { depositId: first.externalId, micro },
      ...others.map(({ externalId }) => ({ depositId: externalId, micro: 0n })),
    ];
  }
  const rate = what.value;
  if (!rate) throw invalidField("grant", "must name a rate or an amount");
  const byDeposit = waiting.map((deposit) => ({
    depositId: deposit.externalId,
    micro:
      ((deposit.atoms * rateFor(rate, order, deposit, marketRates)) /
        10n ** BigInt(deposit.decimals)) *
      microCreditsPerMicroDollar,
  }));
  const rest = await restMicro(tables, order, now);
  const granted = rest > 0n ? [...byDeposit, { depositId: "", micro: rest }] : byDeposit;
  if (granted.length === 0)
    throw invalidField("grant.rate", "nothing that waits has an amount of coins: name an amount");
  // Billing would book no more, and the grant would wait for ever.
  const sum = granted.reduce((all, { micro }) => all + micro, 0n);
  if (sum > amountUsdMicroMax * microCreditsPerMicroDollar)
    throw invalidField("grant.rate", "would grant more than 1,000,000 USD: name an amount");
  return granted;
}

function rateFor(
  rate: GrantRate,
  order: StoredOrder,
  deposit: StoredDeposit,
  marketRates: ReadonlyMap<string, bigint>,
): bigint {
  if (rate === GrantRate.MARKET) {
    const market = marketRates.get(deposit.externalId);
    if (market === undefined)
      throw invalidField("grant.rate", "no rate of the market is known now: name an amount");
    return market;
  }
  if (!isSameAsset(order, deposit) || order.rate === null)
    throw invalidField("grant.rate", "the order has no rate for what arrived: name an amount");
  return order.rate;
}

/** What arrived in dollars and was not granted: above the cap, or too little. In micro-credits. */
async function restMicro(
  tables: PaymentsTables,
  order: StoredOrder,
  { receivedUsdMicro, ruleMicro }: Decision,
): Promise<bigint> {
  const received = receivedUsdMicro * microCreditsPerMicroDollar;
  const isOver = receivedUsdMicro > capUsdMicro(order.usdMicro);
  if (!isOver && ruleMicro > 0n) return 0n;
  const { orderId } = order;
  const decided = (await tables.run(sql.listDecided, { orderId }))
    .filter(({ depositId }) => depositId === "")
    .reduce((sum, { micro }) => sum + micro, 0n);
  // Of what was refunded, only this had not been granted.
  const refunded = (await tables.run(sql.listRefunds, { orderIds: [orderId] }))
    .filter(({ externalId, state }) => externalId === null && isCounted(state))
    .reduce((sum, one) => sum + one.usdMicro * microCreditsPerMicroDollar - one.micro, 0n);
  const rest = received - ruleMicro - decided - refunded;
  return rest > 0n ? rest : 0n;
}

/** By deposit: what a coin is worth now. Empty unless the grant asks for it. */
async function readMarketRates(
  { store, processors }: Parts,
  orderId: string,
  { what }: Grant,
): Promise<Map<string, bigint>> {
  const rates = new Map<string, bigint>();
  const order = await store.findOrder(orderId);
  if (what.value !== GrantRate.MARKET || !order) return rates;
  const processor = processors().get(order.processor);
  for (const deposit of await store.listDeposits([orderId])) {
    const found = await processor?.marketRate?.(deposit, "now");
    if (found !== undefined) rates.set(deposit.externalId, found);
  }
  return rates;
}

/** Carries a decision out, unless it needs another person. */
async function decide(
  { offer }: Parts,
  tables: PaymentsTables,
  { accountId }: StoredOrder,
  made: Made,
  { caller }: AuthenticatedCall,
): Promise<Decided> {
  const micro = made.granted.reduce((sum, one) => sum + one.micro, 0n);
  const usdMicro = usdMicroOf(micro);
  if (await mayGive(tables, caller, usdMicro, offer().secondApprovalAboveUsdMicro))
    return { decision: await carryOut(tables, { ...made, approvedBy: null }) };
  const { orderId, kind, facts, granted, reason } = made;
  const approval = await askForApproval(tables, caller, {
    kind: "decision",
    subject: orderId,
    accountId,
    what: `Grants ${credits(micro)} credits for an order.`,
    reason,
    usdMicro,
    request: {
      ...{ orderId, kind, facts: [...facts] },
      granted: granted.map((one) => ({ depositId: one.depositId, micro: String(one.micro) })),
    },
  });
  return { approval };
}

type Made = Omit<StoredDecision, "approvedBy" | "createdAt">;

/** Carries out an approved decision. Throws `wrong_state` if other facts wait by now. */
export function carryOutDecision(parts: Parts): CarryOut {
  return async (tx, approved) => {
    const tables = tablesOn(tx);
    const orderId = memberOf(approved, "orderId");
    const order = await tables.lockOrder(orderId);
    if (!order) throw noSuchOrder();
    const now = await redecide(tables, order);
    if (JSON.stringify(now.facts) !== JSON.stringify(approved.request.facts))
      throw wrongState("What waits in this order has changed. Decide about it anew.");
    const { granted } = approved.request;
    await carryOut(tables, {
      decisionId: timeOrderedId("dec_"),
      orderId,
      kind: memberOf(approved, "kind") === "close" ? "close" : "grant",
      facts: now.facts,
      reason: approved.reason,
      decidedBy: approved.requestedBy,
      approvedBy: approved.approvedBy,
      granted: (Array.isArray(granted) ? granted : []).map((one) => {
        const { depositId, micro } = Object(one);
        return { depositId: String(depositId), micro: BigInt(micro) };
      }),
    });
    return () => void finish(parts, orderId);
  };
}

async function carryOut(
  tables: PaymentsTables,
  made: Made & Pick<StoredDecision, "approvedBy">,
): Promise<DecisionMessage> {
  const { decisionId, orderId, facts } = made;
  await tables.insertDecision(made);
  const micro = made.granted.reduce((sum, one) => sum + one.micro, 0n);
  const eventFacts = { choice: made.kind, decision_id: decisionId, microcredits: String(micro) };
  await tables.insertEvents(orderId, [
    { kind: "payment_decided", subject: decisionId, facts: eventFacts, depositId: "" },
  ]);
  await tables.run(sql.handleFacts, { orderId, facts });
  const order = await tables.findOrder(orderId);
  if (order) await redecide(tables, order);
  const stored = await tables.findDecision(decisionId);
  if (!stored) throw new Error("a decision that was stored is gone");
  return toDecision(stored);
}

/** After the commit: shows the change, and posts what was granted. The sweep repeats a failure. */
async function finish(parts: Parts, orderId: string): Promise<void> {
  parts.changed(orderId);
  // What was approved is written by the transaction of the approval.
  parts.store.noticed();
  await postGrants(parts, orderId).catch((err: unknown) =>
    parts.log.warn({ code: "grant_not_posted", orderId, err }, "a grant could not be posted yet"),
  );
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * credits of a payment are posted late, and it is repeated; look at the database if it goes on
     */
    grant_not_posted: true;
  }
}
