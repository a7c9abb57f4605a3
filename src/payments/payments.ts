// Payments: orders of credits, what arrives for them, and the credits that follow, exactly once.

import type { Document } from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Outbound } from "../base/outbound.ts";
import { Task, warnOnce } from "../base/task.ts";
import {
  apiKeyOf,
  type PaymentSettings,
  type ProcessorSettings,
  simulatedPayments,
  webhookSecretOf,
} from "../config/catalog.ts";
import { isLocalhost } from "../config/environment.ts";
import type { CarryOut } from "../contract/approvals.ts";
import type {
  AuthenticatedCall,
  Core,
  Implementation,
  serviceTypes,
} from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { carryOutDecision, decideOrder, listAttention } from "./attention.ts";
import { createBtcpay } from "./btcpay.ts";
import type { Chain } from "./chain.ts";
import { postGrants } from "./crediting.ts";
import { getReceiptDocument, readDocuments } from "./documents.ts";
import type { EventFacts } from "./events.ts";
import { exportDocuments, exportMatching } from "./export-orders.ts";
import { createCleaning, receiveHook } from "./hooks.ts";
import { lookUpPayment } from "./look-up.ts";
import { factsOf } from "./messages.ts";
import { createNowpayments } from "./nowpayments.ts";
import { createOnchain } from "./onchain.ts";
import {
  cancelOrder,
  createOrder,
  exportOrders,
  getDepositAddress,
  getOrder,
  listDepositAddresses,
  listOrders,
  listPaymentMethods,
} from "./orders.ts";
import type { DepositAddresses, Guesses, Offer, Parts } from "./parts.ts";
import { createPoller } from "./poller.ts";
import type { MarketRate, Processor } from "./processor.ts";
import {
  carryOutPromotion,
  createPromotion,
  listPromotions,
  redeemPromotion,
  repeatBonus,
  stopPromotion,
} from "./promotions.ts";
import { coinsWithoutHistory, createMarketRate } from "./rates.ts";
import { createChainReader } from "./read-chains.ts";
import {
  beginRefund,
  cancelRefund,
  carryOutRefund,
  completeRefund,
  postRefunds,
} from "./refunds.ts";
import { simulateDeposit } from "./simulate.ts";
import { createSimulated } from "./simulated.ts";
import { createPaymentsStore, type PaymentsStore } from "./store.ts";
import {
  beginSweep,
  carryOutSweepPayment,
  endSweep,
  grantSweepPayment,
  listSweeps,
} from "./sweeps.ts";
import { watchOrder } from "./watch-order.ts";
import { createWatchers } from "./watchers.ts";

export type { Offer } from "./parts.ts";

/** What became true of an order, with what alerts say of the order. */
export type OrderEvent = Omit<sql.ListUnreadEventsRow, "facts" | "decimals"> & {
  readonly facts: EventFacts;
};

export type Payments = {
  /** Without authentication: the interceptor has authenticated the caller. */
  readonly service: Implementation<typeof serviceTypes.payments, AuthenticatedCall>;
  /** Does what was approved. */
  readonly carryOut: Readonly<
    Record<"decision" | "refund" | "promotion" | "sweep_payment", CarryOut>
  >;
  readonly ofAccount: {
    /** All orders of an account, newest first, then their receipts and credit notes. */
    export(accountId: string): ReturnType<typeof exportOrders>;
  };
  /**
   * The orders that wait for a person, each with the number of decisions about it so far, in the
   * order of their ids, from the cursor `after` on; '' is the start.
   */
  listWaiting(after: string, limit: number): Promise<readonly sql.ListAttentionRow[]>;
  /** The chains that were not read up to their newest block for two minutes, each since when. */
  listUnreadChains(): Promise<readonly sql.ListUnreadChainsRow[]>;
  /** How many orders of an account wait for a person, for at most so many accounts. */
  waitingOrders(limit: number): Promise<ReadonlyMap<string, number>>;
  readonly forAlerts: {
    /** What became true of orders and is no alert yet, in the order of their numbers. */
    listEvents(rows: number): Promise<readonly OrderEvent[]>;
    /** Notes that these are alerts. */
    markRead(events: readonly OrderEvent[]): Promise<void>;
    /** The receipt and the credit notes of an order. Empty: it has none. */
    documentsOf(orderId: string): Promise<readonly Document[]>;
    /** Calls `listener` after each commit of this process that has written an event. */
    onEvents(listener: () => void): void;
  };
  /** A receipt or credit note of an account by its number. Undefined: there is none. */
  findDocument(accountId: string, number: string): Promise<sql.FindDocumentRow | undefined>;
  /** True: there is a way to pay. */
  sells(): boolean;
  /** Takes what can be bought from another file. Orders of processors that are gone stay. */
  reload(settings: PaymentSettings | undefined): void;
  /** Begins to look at orders, and to post what earlier processes left. */
  start(): void;
  stop(): Promise<void>;
};

export function createPayments(parts: {
  postgres: Postgres;
  /** The billing service of this process. */
  billing: Core["billing"];
  /** The address under which people reach the console. */
  publicUrl: () => URL;
  /** Of the configuration file. Undefined: it does not say. */
  settings: PaymentSettings | undefined;
  /** Holds the secrets of the processors. */
  env: NodeJS.ProcessEnv;
  /** The way to processors, nodes and sources of rates. Default: the direct one. */
  outbound?: Outbound | undefined;
  guesses: Guesses;
  /** Default: that of the settings. */
  offer?: (() => Offer) | undefined;
  /** Between two readings of a chain. Default: 10 s. */
  chainPaceMs?: number;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
  log: Log;
}): Payments {
  const { billing, publicUrl, env, guesses, clock = systemClock, log } = parts;
  const { outbound = new Outbound() } = parts;
  let onEvents = () => {};
  const store = createPaymentsStore(parts.postgres, () => onEvents());
  const watchers = createWatchers({ store, clock, log });
  // Nobody may take pretended money for real: elsewhere it has to be configured.
  const offered = (settings: PaymentSettings | undefined) =>
    openOffer(settings ?? (isLocalhost(publicUrl()) ? simulatedPayments : nothing), {
      store,
      env,
      outbound,
      publicUrl,
      log,
    });
  let current = offered(parts.settings);
  const all: Parts = {
    store,
    reports: parts.postgres.reports,
    billing,
    watchers,
    guesses,
    redeeming: new Map(),
    lookingUp: new Map(),
    clock,
    log,
    processors: () => current.processors,
    chains: () => current.chains,
    addresses: () => current.addresses,
    offer: parts.offer ?? (() => current.offer),
    seller: () => current.seller,
    changed: watchers.changed,
    wake: () => poller.wake(),
  };
  const poller = createPoller(all, {
    async order(orderId) {
      await postGrants(all, orderId);
      await postRefunds(all, orderId);
    },
    bonus: (codeId, accountId) => repeatBonus(all, codeId, accountId),
  });
  const chains = createChainReader(all, parts.chainPaceMs ?? chainPaceMs);
  const cleaning = createCleaning(all);
  const rates = new Task({
    run: () => current.keepRates(),
    everyMs: ratesMs,
    report: warnOnce(log, { code: "rates_not_kept", failed: "rates could not be kept" }),
    clock,
  });
  return {
    service: {
      listPaymentMethods: (request, call) => listPaymentMethods(all, request, call),
      createOrder: (request, call) => createOrder(all, request, call),
      getOrder: (request, call) => getOrder(all, request, call),
      listOrders: (request, call) => listOrders(all, request, call),
      exportOrders: (request, call) => exportMatching(all, request, call),
      exportDocuments: (request, call) => exportDocuments(all, request, call),
      watchOrder: (request, call) => watchOrder(all, request, call),
      createDepositAddress: (request, call) => getDepositAddress(all, request, call),
      cancelOrder: (request, call) => cancelOrder(all, request, call),
      listDepositAddresses: (request, call) => listDepositAddresses(all, request, call),
      beginSweep: (request, call) => beginSweep(all, request, call),
      endSweep: (request) => endSweep(all, request),
      listSweeps: (request, call) => listSweeps(all, request, call),
      grantSweepPayment: (request, call) => grantSweepPayment(all, request, call),
      lookUpPayment: (request, call) => lookUpPayment(all, request, call),
      listAttention: (request, call) => listAttention(all, request, call),
      decideOrder: (request, call) => decideOrder(all, request, call),
      beginRefund: (request, call) => beginRefund(all, request, call),
      completeRefund: (request, call) => completeRefund(all, request, call),
      cancelRefund: (request, call) => cancelRefund(all, request, call),
      simulateDeposit: (request, call) => simulateDeposit(all, request, call),
      getReceiptDocument: (request, call) => getReceiptDocument(all, request, call),
      redeemPromotion: (request, call) => redeemPromotion(all, request, call),
      createPromotion: (request, call) => createPromotion(all, request, call),
      stopPromotion: (request) => stopPromotion(all, request),
      listPromotions: (request, call) => listPromotions(all, request, call),
      receiveWebhook: (request) => receiveHook(all, request),
    },
    carryOut: {
      decision: carryOutDecision(all),
      refund: carryOutRefund(all),
      promotion: carryOutPromotion,
      sweep_payment: carryOutSweepPayment,
    },
    ofAccount: { export: (accountId) => exportOrders(all, accountId) },
    listWaiting: (after, limit) => store.run(sql.listAttention, { after, rows: limit }),
    async listUnreadChains() {
      const read = new Set(current.chains.map((one) => `${one.processor} ${one.chain.name}`));
      const all = await store.run(sql.listUnreadChains);
      return all.filter(({ processor, chain }) => read.has(`${processor} ${chain}`));
    },
    async waitingOrders(limit) {
      const counts = await store.run(sql.countWaiting, { rows: limit });
      return new Map(counts.map(({ accountId, orders }) => [accountId, orders]));
    },
    forAlerts: {
      async listEvents(rows) {
        const unread = await store.run(sql.listUnreadEvents, { rows });
        return unread.map((event) => ({ ...event, facts: factsOf(event) }));
      },
      async markRead(events) {
        const orderIds = events.map(({ orderId }) => orderId);
        await store.run(sql.markEventsRead, { orderIds, ns: events.map(({ n }) => n) });
      },
      async documentsOf(orderId) {
        const order = await store.findOrder(orderId);
        if (!order) return [];
        const { receipt, creditNotes } = await readDocuments({ store }, order);
        return [...(receipt ? [receipt] : []), ...creditNotes];
      },
      onEvents(listener) {
        onEvents = listener;
      },
    },
    findDocument: (accountId, number) => store.run(sql.findDocument, { accountId, number }),
    sells: () => current.processors.size > 0,
    reload(settings) {
      current = offered(settings);
      chains.reload();
    },
    start() {
      poller.start();
      chains.start();
      rates.start();
      cleaning.start();
    },
    async stop() {
      await watchers.stop();
      await cleaning.stop();
      await chains.stop();
      await rates.stop();
      await poller.stop();
    },
  };
}

const nothing: PaymentSettings = { ...simulatedPayments, packsUsd: [], mostUsd: 0, processors: [] };

const chainPaceMs = 10_000;
const ratesMs = 60_000;
const microDollarsPerDollar = 1_000_000n;

type Surroundings = {
  readonly store: PaymentsStore;
  readonly env: NodeJS.ProcessEnv;
  readonly outbound: Outbound;
  readonly publicUrl: () => URL;
  readonly log: Log;
};

/** What the settings offer, with its processors. */
function openOffer(settings: PaymentSettings, surroundings: Surroundings) {
  const { packsUsd, mostUsd, seller, processors, rates, secondApprovalAboveUsd: above } = settings;
  const offer: Offer = {
    packsUsdMicro: packsUsd.map((usd) => BigInt(usd) * microDollarsPerDollar),
    mostUsdMicro: BigInt(mostUsd) * microDollarsPerDollar,
    secondApprovalAboveUsdMicro:
      above === undefined ? undefined : BigInt(above) * microDollarsPerDollar,
  };
  const marketRate = createMarketRate(rates, surroundings);
  const unknown = processors.some(({ type }) => type === "onchain")
    ? coinsWithoutHistory(rates)
    : [];
  if (unknown.length > 0)
    surroundings.log.warn(
      { code: "rates_without_history", coins: unknown },
      "what arrives while no rates are kept waits for a person",
    );
  const opened = new Map<string, Processor>();
  let addresses: DepositAddresses | undefined;
  const chains: { processor: string; chain: Chain }[] = [];
  for (const one of processors) {
    if (one.type === "onchain") {
      const parts = { ...surroundings, marketRate };
      const { chains: read, ...processor } = createOnchain(one, surroundings.env, parts);
      addresses = processor;
      for (const chain of read) chains.push({ processor: one.name, chain });
      opened.set(one.name, processor);
    } else opened.set(one.name, openProcessor(one, { ...surroundings, marketRate }));
  }
  const keepRates = async () => {
    for (const asset of Object.keys(rates ?? {})) await marketRate?.({ asset }, "now");
  };
  return { offer, seller, processors: opened, chains, addresses, keepRates };
}

function openProcessor(
  settings: Exclude<ProcessorSettings, { type: "onchain" }>,
  surroundings: Surroundings & { readonly marketRate: MarketRate | undefined },
): Processor {
  const { env, store } = surroundings;
  const webhookSecret = webhookSecretOf(settings, env);
  if (settings.type === "simulated") return createSimulated(settings.name, store, webhookSecret);
  // The start refuses a configuration without it.
  const apiKey = apiKeyOf(settings, env) ?? "";
  return settings.type === "btcpay"
    ? createBtcpay(settings, { apiKey, webhookSecret }, surroundings)
    : createNowpayments(settings, { apiKey, webhookSecret }, surroundings);
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * what arrives now may wait for a person later, since its rate is unknown; look at the database
     */
    rates_not_kept: true;
    /**
     * name `history_url` and `history_path` of two sources of each coin, or expect to decide about
     * what arrives while the gateway is away
     */
    rates_without_history: true;
  }
}
