// A tester's hand on the simulated processor: what arrives, and what becomes of it.

import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import {
  type SimulateDepositRequest,
  SimulateDepositResponseSchema,
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
  request: SimulateDepositRequest,
  call: AuthenticatedCall,
) {
  const { store, processors, wake } = parts;
  const order = await findVisible(parts, request.orderId, call);
  call.note?.({ accountId: order.accountId });
  if (!processors().get(order.processor)?.isSimulated)
    throw invalidField("order_id", "is no order of a simulated processor");
  checkText("deposit_id", request.depositId);
  const isDeposit =
    request.simulatedEvent === SimulatedEvent.UNSPECIFIED ||
    request.simulatedEvent === SimulatedEvent.DEPOSIT;
  if (!isDeposit) await happen(parts, order, request);
  const depositId = isDeposit ? await deposit(store, order, request) : "";
  const { processor, externalId } = order;
  if (!request.withoutHook && externalId !== null) {
    await store.run(sql.hookOrder, { processor, externalId });
    wake();
  }
  return create(SimulateDepositResponseSchema, {
    depositId,
    order: await describe(parts, order),
  });
}

async function happen(
  { store }: Parts,
  { orderId }: StoredOrder,
  request: SimulateDepositRequest,
): Promise<void> {
  const { simulatedEvent: event } = request;
  for (const [field, isSet] of Object.entries({
    coins: request.coins !== "",
    confirmations: request.confirmations > 0,
    deposit_id: request.depositId !== "",
    lost: request.lost,
    asset: request.asset !== "",
    network: request.network !== "",
    first_seen_at: request.firstSeenAt !== undefined,
  }))
    if (isSet) throw invalidField(field, "is for a deposit: leave it out with an event");
  if (event === SimulatedEvent.MARKED)
    await store.run(sql.putSimulatedFault, { orderId, fault: "marked" });
  else if (event === SimulatedEvent.FAILED)
    await store.run(sql.putSimulatedFault, { orderId, fault: "failed" });
  else {
    const withWatching = event === SimulatedEvent.WATCHING_OVER;
    await store.run(sql.endSimulated, { orderId, withWatching });
  }
}

/** Stores what arrives, or what became of it. Returns the id of the deposit. */
async function deposit(
  store: PaymentsStore,
  order: StoredOrder,
  request: SimulateDepositRequest,
): Promise<string> {
  const { orderId } = order;
  const earlier = (await store.listSimulated(orderId)).find(
    ({ depositId }) => depositId === request.depositId,
  );
  const payment = earlier ? continued(earlier, request) : newPayment(order, request);
  if ((await store.run(sql.putSimulated, { ...payment, orderId })) === 0)
    throw invalidField("deposit_id", "is a deposit of another order");
  return payment.depositId;
}

function continued(earlier: SimulatedPayment, request: SimulateDepositRequest): SimulatedPayment {
  for (const field of ["coins", "asset", "network"] as const)
    if (request[field] !== "")
      throw invalidField(field, "must be empty: the deposit exists, and does not change");
  if (request.firstSeenAt)
    throw invalidField("first_seen_at", "must be absent: the deposit was seen before");
  return {
    ...earlier,
    confirmations: Math.max(earlier.confirmations, request.confirmations),
    isLost: request.lost,
  };
}

function newPayment(order: StoredOrder, request: SimulateDepositRequest): SimulatedPayment {
  const asset = assetOf(order, request);
  const { coins: amount, confirmations, firstSeenAt, lost } = request;
  const seenAt = firstSeenAt ? timestampDate(firstSeenAt) : new Date();
  const year = seenAt.getUTCFullYear();
  if (!(year >= 2009 && year < 2100))
    throw invalidField("first_seen_at", "is no time of a payment");
  return {
    ...asset,
    depositId: request.depositId === "" ? randomId("sim_") : request.depositId,
    atoms: parseCoins("amount", amount, asset.decimals),
    confirmations,
    isLost: lost,
    firstSeenAt: seenAt,
  };
}

function assetOf(order: StoredOrder, request: SimulateDepositRequest): Asset {
  const name = request.asset === "" ? order.asset : request.asset;
  const coin = coins.find(({ asset }) => asset === name);
  if (!coin)
    throw invalidField(
      "asset",
      "is no asset of the simulated processor",
      coins.map(({ asset }) => asset),
    );
  const usual = usualOf(coin);
  checkText("network", request.network);
  const { decimals } = usual;
  if (request.network !== "") return { asset: name, network: request.network, decimals };
  return name === order.asset ? { asset: name, network: order.network, decimals } : usual;
}
