// What orders are called: their pack, coin and state.

import type { JSX } from "preact";
import { Attention, type Order, OrderState } from "../../../../gen/gateway/payments/v1/order_pb.ts";
import { count, credits } from "../format.ts";
import { words } from "../words.ts";
import { textOf } from "./enum-names.ts";
import { Tag, type Tone } from "./small.tsx";

/** "1,000.00 credits" */
export function packText({ packMicrocredits: microcredits }: Order): string {
  return words.purchase.packOf(credits(microcredits));
}

/** "USDT on tron" */
export function paidWith({ asset, network }: Order): string {
  return words.purchase.methodName(asset, networkName(network));
}

/** Networks as their users write them. Others are written as the gateway names them. */
export function networkName(network: string): string {
  const known: Readonly<Record<string, string>> = words.purchase.networks;
  return known[network] ?? network;
}

/** Cents as "5" or "7.50". */
export function usdText(cents: number): string {
  return cents % 100 === 0 ? count(cents / 100) : (cents / 100).toFixed(2);
}

export function OrderTag({ order }: { readonly order: Order }): JSX.Element {
  const tone = toneOf(order);
  const state = (
    <Tag {...(tone && { tone })}>{textOf(OrderState, words.purchase.states, order.state)}</Tag>
  );
  if (order.attention === Attention.NONE) return state;
  return (
    <span class="tags">
      {state} <Tag tone="warn">{words.purchase.waits}</Tag>
    </span>
  );
}

function toneOf({ state, attention }: Order): Tone | undefined {
  if (attention !== Attention.NONE) return "warn";
  switch (state) {
    case OrderState.PAID:
      return "good";
    case OrderState.SEEN:
    case OrderState.OPEN:
      return "accent";
    case OrderState.PARTLY_PAID:
      return "warn";
    default:
      return undefined;
  }
}
