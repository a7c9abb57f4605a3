// What operators pretend of a simulated order, so that a purchase can be tried from end to end.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import type { Order } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import {
  PaymentDeskService,
  type SimulatedDepositSchema,
} from "../../../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { PaymentsService } from "../../../../gen/gateway/payments/v1/payments_pb.ts";
import { call, invalidate } from "../api.ts";
import { toDate } from "../format.ts";
import { isOperatorAdmin } from "../session.ts";
import { words } from "../words.ts";
import { Button } from "./button.tsx";
import { addDecimals, halfOf, isZero } from "./decimals.ts";
import { Card } from "./page.tsx";
import { poolsChanged } from "./pools.ts";

type Case = keyof typeof words.purchase.play.cases;
const cases: readonly Case[] = ["exact", "tooLittle", "tooMuch", "late", "wrongCoin", "lost"];

/** Null: the money is real, or somebody else is here. */
export function PlayPayment({ order }: { readonly order: Order }): JSX.Element | null {
  if (!order.simulated || !isOperatorAdmin()) return null;
  const { title, about, cases: labels } = words.purchase.play;
  const play = (one: Case) => async () => {
    await call(PaymentDeskService.method.simulateDeposit, {
      orderId: order.orderId,
      event: { case: "deposit", value: depositOf(one, order) },
    });
    invalidate(PaymentsService.method.getOrder, PaymentsService.method.listOrders);
    poolsChanged();
  };
  return (
    <Card title={title} about={about}>
      <div class="row">
        {cases.map((one) => (
          <Button key={one} onClick={play(one)}>
            {labels[one]}
          </Button>
        ))}
      </div>
    </Card>
  );
}

function depositOf(
  one: Case,
  { asset, quotedCoins, missingCoins, quotedUntil }: Order,
): MessageInitShape<typeof SimulatedDepositSchema> {
  const coins = isZero(missingCoins) ? quotedCoins : missingCoins;
  const whole = { coins, confirmations: 1 };
  switch (one) {
    case "exact":
      return whole;
    case "tooLittle":
      return { ...whole, coins: halfOf(coins) };
    case "tooMuch":
      return { ...whole, coins: addDecimals(coins, coins) };
    case "late":
      return {
        ...whole,
        ...(quotedUntil && {
          firstSeenAt: timestampFromDate(new Date(toDate(quotedUntil).getTime() + 1_000)),
        }),
      };
    case "wrongCoin":
      return { confirmations: 1, ...(asset === "BTC" ? anotherCoin : bitcoin) };
    case "lost":
      return { ...whole, confirmations: 0, lost: true };
  }
}

const bitcoin = { asset: "BTC", coins: "0.0001" };
const anotherCoin = { asset: "USDT", coins: "5" };
