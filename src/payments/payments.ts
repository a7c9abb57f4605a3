// Payments: orders of credits, what arrives for them, and the credits that follow, exactly once.

import type { Client } from "@connectrpc/connect";
import type { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import type { Log } from "../base/log.ts";
import { isLocalhost } from "../config/environment.ts";
import type { AuthenticatedCall, Implementation } from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { approveDecision, decideOrder, listAttention } from "./attention.ts";
import { postGrants } from "./crediting.ts";
import { cancelOrder, createOrder, getOrder, listOrders, listPaymentMethods } from "./orders.ts";
import type { Offer, Parts } from "./parts.ts";
import { createPoller } from "./poller.ts";
import type { Processor } from "./processor.ts";
import { beginRefund, cancelRefund, completeRefund, postRefunds } from "./refunds.ts";
import { simulateDeposit } from "./simulate.ts";
import { createSimulated } from "./simulated.ts";
import { createPaymentsStore } from "./store.ts";
import { watchOrder } from "./watch-order.ts";
import { createWatchers } from "./watchers.ts";

export type { Offer } from "./parts.ts";

export type Payments = {
  /** Without authentication: the interceptor has authenticated the caller. */
  readonly service: Implementation<typeof PaymentsService, AuthenticatedCall>;
  /** Begins to look at orders, and to post what earlier processes left. */
  start(): void;
  stop(): Promise<void>;
};

const defaultOffer: Offer = {
  packsUsdMicro: [5_000_000n, 20_000_000n, 50_000_000n, 200_000_000n],
  mostUsdMicro: 2_000_000_000n,
  secondApprovalAboveUsdMicro: undefined,
};

export function createPayments(parts: {
  postgres: Postgres;
  /** The billing service of this process. */
  billing: Client<typeof BillingService>;
  /** The address under which people reach the console. */
  publicUrl: () => URL;
  /** Default: packs of 5, 20, 50 and 200 USD, up to 2,000 USD. */
  offer?: (() => Offer) | undefined;
  log: Log;
}): Payments {
  const { billing, publicUrl, log, offer = () => defaultOffer } = parts;
  const store = createPaymentsStore(parts.postgres);
  const watchers = createWatchers(store, log);
  const simulated = createSimulated("simulated", store);
  const all: Parts = {
    ...{ store, billing, watchers, offer, log },
    // Nobody may take pretended money for real: elsewhere it has to be configured.
    processors: () =>
      new Map<string, Processor>(isLocalhost(publicUrl()) ? [[simulated.name, simulated]] : []),
    changed: watchers.changed,
    wake: () => poller.wake(),
  };
  const poller = createPoller(all, async (orderId) => {
    await postGrants(all, orderId);
    await postRefunds(all, orderId);
  });
  return {
    service: {
      listPaymentMethods: () => listPaymentMethods(all),
      createOrder: (request, call) => createOrder(all, request, call),
      getOrder: (request, call) => getOrder(all, request, call),
      listOrders: (request, call) => listOrders(all, request, call),
      watchOrder: (request, call) => watchOrder(all, request, call),
      cancelOrder: (request, call) => cancelOrder(all, request, call),
      listAttention: (request) => listAttention(all, request),
      decideOrder: (request, call) => decideOrder(all, request, call),
      approveDecision: (request, call) => approveDecision(all, request, call),
      beginRefund: (request, call) => beginRefund(all, request, call),
      completeRefund: (request, call) => completeRefund(all, request, call),
      cancelRefund: (request, call) => cancelRefund(all, request, call),
      simulateDeposit: (request, call) => simulateDeposit(all, request, call),
    },
    start: poller.start,
    async stop() {
      watchers.stop();
      await poller.stop();
    },
  };
}
