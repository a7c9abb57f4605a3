// What arrived for an order and what was sent back, for customers and operators alike.

import type { JSX } from "preact";
import {
  DepositState,
  type Order,
  type Refund,
  RefundState,
} from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { words } from "../words.ts";
import { Copy } from "./button.tsx";
import { exact } from "./decimals.ts";
import { textOf } from "./enum-names.ts";
import { networkName } from "./orders.tsx";
import { Card } from "./page.tsx";
import { Time } from "./small.tsx";
import { Table } from "./table.tsx";

/** What arrived for an order. Null: nothing yet. */
export function Deposits({ order }: { readonly order: Order }): JSX.Element | null {
  const { depositsHead: head, depositStates, seen } = words.purchase;
  if (order.deposits.length === 0) return null;
  return (
    <Card title={words.purchase.deposits} flush>
      <div class="dense tight">
        <Table
          caption={words.purchase.deposits}
          columns={[
            {
              name: "at",
              head: head.at,
              cell: ({ firstSeenAt }) => <Time at={firstSeenAt} as="moment" />,
            },
            {
              name: "amount",
              head: head.amount,
              end: true,
              cell: ({ coins: amount, asset, network }) =>
                network === order.network
                  ? `${amount} ${asset}`
                  : `${amount} ${words.purchase.methodName(asset, networkName(network))}`,
            },
            {
              name: "state",
              head: head.state,
              cell: ({ state, confirmations, confirmationsNeeded }) =>
                state === DepositState.SEEN
                  ? seen.confirmations(confirmations, confirmationsNeeded)
                  : textOf(DepositState, depositStates, state),
            },
            {
              name: "value",
              head: head.value,
              end: true,
              cell: ({ valueMicrodollars: value }) =>
                value === undefined ? words.requests.none : `$${exact(value)}`,
            },
            {
              name: "id",
              head: head.id,
              cell: ({ depositId }) => (
                <span class="id">
                  <code class="clipped" title={depositId}>
                    {depositId}
                  </code>{" "}
                  <Copy text={depositId} isSmall />
                </span>
              ),
            },
          ]}
          rows={order.deposits}
          keyOf={({ depositId }) => depositId}
        />
      </div>
    </Card>
  );
}

/** What was sent back. Null: nothing. */
export function Refunds({ refunds }: { readonly refunds: readonly Refund[] }): JSX.Element | null {
  const { refundsHead: head, refundStates } = words.purchase;
  if (refunds.length === 0) return null;
  return (
    <Card title={words.purchase.refunds} flush>
      <div class="dense tight">
        <Table
          caption={words.purchase.refunds}
          columns={[
            {
              name: "at",
              head: head.at,
              cell: ({ createdAt }) => <Time at={createdAt} as="moment" />,
            },
            { name: "amount", head: head.amount, end: true, cell: refundText },
            {
              name: "state",
              head: head.state,
              cell: ({ state }) => textOf(RefundState, refundStates, state),
            },
            {
              name: "reason",
              head: head.reason,
              cell: ({ reason }) => (
                <span class="clipped" dir="auto" title={reason}>
                  {reason}
                </span>
              ),
            },
            {
              name: "transaction",
              head: head.transaction,
              cell: ({ transaction }) =>
                transaction === "" ? (
                  words.requests.none
                ) : (
                  <code class="clipped" title={transaction}>
                    {transaction}
                  </code>
                ),
            },
          ]}
          rows={refunds}
          keyOf={({ number }) => String(number)}
        />
      </div>
    </Card>
  );
}

/** "$5.00", or that a whole deposit goes back, which has no value in dollars. */
export function refundText({ refundedMicrodollars: amount }: Refund): string {
  return amount === 0n ? words.purchase.wholeDeposit : `$${exact(amount)}`;
}
