// The timeline of an order: what became true of it, and when.

import type { JSX } from "preact";
import { type Order, OrderEventKind } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { paymentWords, timelineWords as text } from "../words-payments.ts";
import { textOf } from "./enum-names.ts";
import { Card } from "./page.tsx";
import { Time } from "./small.tsx";

/** Null: nothing yet. */
export function OrderEvents({ order }: { readonly order: Order }): JSX.Element | null {
  const { events } = order;
  if (events.length === 0) return null;
  const all = { ...paymentWords, UNSPECIFIED: () => text.newer };
  return (
    <Card title={text.title}>
      <ol class="events stack">
        <li>
          <span>{text.made}</span> <Time at={order.createdAt} as="moment" />
        </li>
        {events.map(({ kind, occurredAt: at, facts }, index) => (
          // Two of one kind may come at once.
          <li key={index}>
            <span dir="auto">{textOf(OrderEventKind, all, kind)(facts)}</span>{" "}
            <Time at={at} as="moment" />
          </li>
        ))}
      </ol>
    </Card>
  );
}
