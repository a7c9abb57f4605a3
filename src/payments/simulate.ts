// A tester's hand on the simulated processor: what arrives, and what becomes of it.

import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import {
  type SimulateDepositRequest,
  SimulateDepositResponseSchema,
  type SimulatedChange,
  type SimulatedDeposit,
  SimulatedEvent,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { invalidField } from "../base/errors.ts";
import { randomId } from "../base/ids.ts";
import { checkText } from "../base/names.ts";
import { coins } from "../config/catalog.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { parseCoins } from "./coins.ts";
import { describe } from "./orders.ts";
import { findVisible, type Parts } from "./parts.ts";
import { type Asset, usualOf } from "./processor.ts";
import type { PaymentsStore, SimulatedPayment, StoredOrder } from "./store.ts";

export async function simulateDeposit(
  parts: Parts,
  { orderId, event, withoutHook }: SimulateDepositRequest,
  call: AuthenticatedCall,
) {
  const { store, processors, wake } = parts;
  const order = await findVisible(parts, orderId, call);
  call.note?.({ accountId: order.accountId });
  if (!processors().get(order.processor)?.isSimulated)
    throw invalidField("order_id", "is no order of a simulated processor");
  const depositId = await happen(store, order, event);
  const { processor, externalId } = order;
  if (!withoutHook && externalId !== null) {
    await store.run(sql.hookOrder, { processor, externalId });
    wake();
  }
  return create(SimulateDepositResponseSchema, {
    depositId,
    order: await describe(parts, order),
  });
}

/** Stores what happens. Returns the id of the deposit that it is about, or an empty one. */
async function happen(
  store: PaymentsStore,
  order: StoredOrder,
  event: SimulateDepositRequest["event"],
): Promise<string> {
  const { orderId } = order;
  switch (event.case) {
    case "deposit": {
      const payment = newPayment(order, event.value);
      await store.run(sql.putSimulated, { ...payment, orderId });
      return payment.depositId;
    }
    case "change": {
      const payment = await changed(store, order, event.value);
      await store.run(sql.putSimulated, { ...payment, orderId });
      return payment.depositId;
    }
    case "orderEvent":
      await happenToOrder(store, orderId, event.value);
      return "";
    default:
      throw invalidField("event", "is required");
  }
}

async function happenToOrder(
  store: PaymentsStore,
  orderId: string,
  event: SimulatedEvent,
): Promise<void> {
  switch (event) {
    case SimulatedEvent.UNSPECIFIED:
      throw invalidField("order_event", "is required");
    case SimulatedEvent.MARKED:
      await store.run(sql.putSimulatedFault, { orderId, fault: "marked" });
      break;
    case SimulatedEvent.FAILED:
      await store.run(sql.putSimulatedFault, { orderId, fault: "failed" });
      break;
    default: {
      const withWatching = event === SimulatedEvent.WATCHING_OVER;
      await store.run(sql.endSimulated, { orderId, withWatching });
    }
  }
}

/** A deposit of the order, with what became of it. */
async function changed(
  store: PaymentsStore,
  { orderId }: StoredOrder,
  { depositId, confirmations, lost }: SimulatedChange,
): Promise<SimulatedPayment> {
  checkText("change.deposit_id", depositId);
  const known = await store.listSimulated(orderId);
  const earlier = known.find((one) => one.depositId === depositId);
  if (!earlier) throw invalidField("change.deposit_id", "is no deposit of this order");
  return {
    ...earlier,
    confirmations: Math.max(earlier.confirmations, confirmations),
    isLost: lost,
  };
}

function newPayment(order: StoredOrder, deposit: SimulatedDeposit): SimulatedPayment {
  const asset = assetOf(order, deposit);
  const { coins: amount, confirmations, firstSeenAt, lost } = deposit;
  const seenAt = firstSeenAt ? timestampDate(firstSeenAt) : new Date();
  const year = seenAt.getUTCFullYear();
  if (!(year >= 2009 && year < 2100))
    throw invalidField("deposit.first_seen_at", "is no time of a payment");
  return {
    ...asset,
    depositId: randomId("sim_"),
    atoms: parseCoins("deposit.coins", amount, asset.decimals),
    confirmations,
    isLost: lost,
    firstSeenAt: seenAt,
  };
}

function assetOf(order: StoredOrder, deposit: SimulatedDeposit): Asset {
  const name = deposit.asset === "" ? order.asset : deposit.asset;
  const coin = coins.find(({ asset }) => asset === name);
  if (!coin)
    throw invalidField(
      "deposit.asset",
      "is no asset of the simulated processor",
      coins.map(({ asset }) => asset),
    );
  const usual = usualOf(coin);
  checkText("deposit.network", deposit.network);
  const { decimals } = usual;
  if (deposit.network !== "") return { asset: name, network: deposit.network, decimals };
  return name === order.asset ? { asset: name, network: order.network, decimals } : usual;
}
