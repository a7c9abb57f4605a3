// Orders and deposits as the service shows them.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Attention,
  type Deposit,
  DepositSchema,
  DepositState,
  type Order,
  type OrderEvent,
  OrderEventKind,
  OrderEventSchema,
  OrderSchema,
  OrderState,
  type Refund,
  RefundSchema,
  RefundState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { type Decision, DecisionSchema } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import type * as sql from "../../gen/sql/payments.ts";
import { toActor } from "../base/actors.ts";
import { familyOf } from "../base/families.ts";
import { decimal, microCreditsPerMicroDollar } from "../base/money.ts";
import { coins } from "./coins.ts";
import { type AttentionName, attentionNames, isSameAsset } from "./decide.ts";
import type { EventFacts, EventKind } from "./events.ts";
import type { StoredDecision, StoredDeposit, StoredOrder, StoredRefund } from "./store.ts";

const states = {
  open: OrderState.OPEN,
  seen: OrderState.SEEN,
  partly_paid: OrderState.PARTLY_PAID,
  paid: OrderState.PAID,
  expired: OrderState.EXPIRED,
  cancelled: OrderState.CANCELLED,
  closed: OrderState.CLOSED,
} as const;

/** The stored names of states. */
export const stateNames: ReadonlyMap<OrderState, string> = new Map(
  Object.entries(states).map(([name, state]) => [state, name]),
);

const attentions = {
  overpaid: Attention.OVERPAID,
  late: Attention.LATE,
  wrong_asset: Attention.WRONG_ASSET,
  lost: Attention.LOST,
  account_closed: Attention.ACCOUNT_CLOSED,
  marked: Attention.MARKED,
  unconfirmed: Attention.UNCONFIRMED,
  failed: Attention.FAILED,
  depeg: Attention.DEPEG,
  swept: Attention.SWEPT,
  flooded: Attention.FLOODED,
} as const;

const depositStates = {
  seen: DepositState.SEEN,
  settled: DepositState.SETTLED,
  lost: DepositState.LOST,
} as const;

/** A stored state of a deposit. */
export function depositStateOf(state: StoredDeposit["state"]): DepositState {
  return depositStates[state];
}

const refundStates = {
  asked: RefundState.ASKED,
  refused: RefundState.REFUSED,
  refunding: RefundState.REFUNDING,
  completed: RefundState.COMPLETED,
  cancelling: RefundState.CANCELLING,
  cancelled: RefundState.CANCELLED,
} as const;

/** What waits, in words for the customer. */
const notices: Readonly<Record<AttentionName, string>> = {
  overpaid: "More arrived than is credited without asking. The operator decides about the rest.",
  late: "Money arrived late, and the operator decides what it is worth.",
  wrong_asset: "Another coin or network arrived than was ordered. The operator decides about it.",
  lost: "A payment that had arrived is gone again. The operator looks at it.",
  account_closed: "Money arrived after the account was closed. The operator returns it.",
  marked: "The payment processor calls this order paid. The operator checks that.",
  unconfirmed: "A payment was seen and never confirmed. The operator looks at it.",
  failed: "The payment processor could not receive the payment. The operator looks at it.",
  flooded: "So many payments wait that it takes longer. You need do nothing.",
  swept: "Something may have arrived unseen. The operator looks at the address.",
  depeg: "The coin is not worth one dollar now. The operator decides what it is worth.",
};

/** `deposits`: all of the order. */
export function toOrder(
  order: StoredOrder,
  deposits: readonly StoredDeposit[],
  also: {
    isSimulated: boolean;
    refunds: readonly StoredRefund[];
    events: readonly StoredEvent[];
  },
): Order {
  const { decimals } = order;
  const quotedAtoms = BigInt(order.quotedAtoms ?? 0);
  const attention = attentionNames.find((name) => name === order.attention);
  const arrived = (state: StoredDeposit["state"]) =>
    deposits
      .filter((one) => one.state === state && isSameAsset(one, order))
      .reduce((sum, { atoms }) => sum + atoms, 0n);
  const [seen, settled] = [arrived("seen"), arrived("settled")];
  const missing = quotedAtoms - seen - settled;
  return create(OrderSchema, {
    orderId: order.orderId,
    accountId: order.accountId,
    family: familyOf(order.family),
    packMicrodollars: order.usdMicro,
    packMicrocredits: order.usdMicro * microCreditsPerMicroDollar,
    processor: order.processor,
    method: order.method,
    asset: order.asset,
    network: order.network,
    quotedCoins: coins(quotedAtoms, decimals),
    usdPerCoin: decimal(order.rate ?? 0n, 6, 2),
    payTo: order.payTo,
    memo: order.memo,
    checkoutUrl: order.checkoutUrl,
    simulated: also.isSimulated,
    state: states[order.state],
    attention: attention ? attentions[attention] : Attention.NONE,
    notice: attention ? notices[attention] : "",
    seenCoins: coins(seen, decimals),
    settledCoins: coins(settled, decimals),
    missingCoins: coins(missing > 0n ? missing : 0n, decimals),
    grantedMicrocredits: order.grantedMicro - order.takenBackMicro,
    refundedMicrodollars: order.refundedUsdMicro,
    receiptNumber: order.receiptNumber ?? "",
    createdBy: toActor(order.createdBy),
    createdAt: timestampFromDate(order.createdAt),
    quotedUntil: timestampFromDate(order.quotedUntil),
    watchedUntil: timestampFromDate(order.watchedUntil),
    ...(order.lookedAt && { lookedAt: timestampFromDate(order.lookedAt) }),
    deposits: deposits.map(toDeposit),
    refunds: also.refunds.map(toRefund),
    events: also.events.map(toEvent),
  });
}

export function toDeposit(deposit: StoredDeposit): Deposit {
  const { usdMicro, settledAt } = deposit;
  return create(DepositSchema, {
    depositId: deposit.externalId,
    asset: deposit.asset,
    network: deposit.network,
    coins: coins(deposit.atoms, deposit.decimals),
    state: depositStates[deposit.state],
    ...(usdMicro !== null && { valueMicrodollars: usdMicro }),
    confirmations: deposit.confirmations,
    confirmationsNeeded: deposit.confirmationsNeeded,
    firstSeenAt: timestampFromDate(deposit.firstSeenAt),
    ...(settledAt && { settledAt: timestampFromDate(settledAt) }),
  });
}

const eventKinds: Readonly<Record<EventKind, OrderEventKind>> = {
  payment_seen: OrderEventKind.SEEN,
  payment_credited: OrderEventKind.CREDITED,
  payment_short: OrderEventKind.SHORT,
  payment_late: OrderEventKind.LATE,
  payment_lost: OrderEventKind.LOST,
  payment_refunded: OrderEventKind.REFUNDED,
  payment_decided: OrderEventKind.DECIDED,
};

type StoredEvent = Pick<sql.ListEventsRow, "kind" | "at" | "facts" | "decimals">;

function toEvent(event: StoredEvent): OrderEvent {
  return create(OrderEventSchema, {
    kind: eventKinds[event.kind],
    occurredAt: timestampFromDate(event.at),
    facts: factsOf(event),
  });
}

/** The facts of a stored event. What the database summed in atoms is in coins. */
export function factsOf({ facts, decimals }: Pick<StoredEvent, "facts" | "decimals">): EventFacts {
  const { atoms, ...others } = Object(facts);
  const amount = typeof atoms === "string" && { amount: coins(BigInt(atoms), decimals) };
  return Object.fromEntries(
    Object.entries({ ...others, ...amount }).map(([name, fact]) => [name, String(fact)]),
  );
}

export function toDecision(decision: StoredDecision): Decision {
  return create(DecisionSchema, {
    decisionId: decision.decisionId,
    orderId: decision.orderId,
    grantedMicrocredits: decision.granted.reduce((sum, { micro }) => sum + micro, 0n),
    reason: decision.reason,
    decidedBy: toActor(decision.decidedBy),
    approvedBy: toActor(decision.approvedBy),
    createdAt: timestampFromDate(decision.createdAt),
  });
}

function toRefund(refund: StoredRefund): Refund {
  return create(RefundSchema, {
    number: refund.n,
    state: refundStates[refund.state],
    refundedMicrodollars: refund.usdMicro,
    depositId: refund.externalId ?? "",
    refundedMicrocredits: refund.micro,
    transaction: refund.transaction,
    reason: refund.reason,
    createdBy: toActor(refund.madeBy),
    createdAt: timestampFromDate(refund.createdAt),
    ...(refund.endedAt && { endedAt: timestampFromDate(refund.endedAt) }),
  });
}
