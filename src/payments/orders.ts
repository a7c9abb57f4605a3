// Ordering credits, and reading orders.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Account } from "../../gen/gateway/billing/v1/account_pb.ts";
import type { Order } from "../../gen/gateway/payments/v1/order_pb.ts";
import {
  type CancelOrderRequest,
  CancelOrderResponseSchema,
  type CreateDepositAddressRequest,
  CreateDepositAddressResponseSchema,
  type CreateOrderRequest,
  CreateOrderResponseSchema,
  type Document,
  type GetOrderRequest,
  GetOrderResponseSchema,
  type ListOrdersRequest,
  ListOrdersResponseSchema,
  type ListPaymentMethodsRequest,
  ListPaymentMethodsResponseSchema,
  PaymentsService,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import {
  type ListDepositAddressesRequest,
  ListDepositAddressesResponseSchema,
  SweepsService,
} from "../../gen/gateway/payments/v1/sweeps_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField, tooOften } from "../base/errors.ts";
import { familyOf, namedFamily } from "../base/families.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkText } from "../base/names.ts";
import { readPage, walkPages, wholeList } from "../base/paging.ts";
import { packStepUsdCents } from "../base/shown-figures.ts";
import { actorOf, checkStrong, roleIn } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { readOptionalReason, readReason } from "../contract/reason.ts";
import { redecide } from "./crediting.ts";
import { isSameAsset } from "./decide.ts";
import { readDocuments } from "./documents.ts";
import { type FoundOrder, matchingPages, sumOrders, toQuery } from "./export-orders.ts";
import { toOrder } from "./messages.ts";
import { findOpenAccount, findVisible, noSuchOrder, type Parts, wrongState } from "./parts.ts";
import type { Method, NewOrder, Processor } from "./processor.ts";
import type { PaymentsTables, StoredOrder } from "./store.ts";

const packStepMicro = BigInt(packStepUsdCents) * 10_000n;
/** Open at once, and made in an hour: before an account has paid for the first time, and after. */
const ordersMax = { unpaid: { open: 5, perHour: 20 }, paid: { open: 20, perHour: 60 } } as const;
/** How long a processor may take to open an order. */
const openingMsMax = 20_000;
const firstLookMs = 10_000;
/** An order that changes during each of so many readings is shown as it was read last. */
const readingsMax = 5;

export async function listPaymentMethods(
  parts: Parts,
  request: ListPaymentMethodsRequest,
  call: AuthenticatedCall,
) {
  const { packsUsdMicro, mostUsdMicro } = parts.offer();
  const readers = new Set(parts.chains().map(({ processor }) => processor));
  const offered = (await allMethods(parts, call.signal)).filter(
    // A coin on a network is offered once, by the first processor that has it.
    ({ method }, index, all) => all.findIndex((one) => isSameAsset(one.method, method)) === index,
  );
  const list = wholeList(offered, (one) => one.method.method);
  const page = await readPage(PaymentsService.method.listPaymentMethods, request, call, list);
  return create(ListPaymentMethodsResponseSchema, {
    nextPageToken: page.nextPageToken,
    methods: page.entries.map(
      ({ processor, method: { decimals: _, leastUsdMicro, ...method } }) => ({
        ...method,
        processor: processor.name,
        minPackMicrodollars: leastUsdMicro,
        simulated: processor.isSimulated,
        hasDepositAddress: readers.has(processor.name),
      }),
    ),
    packsMicrodollars: [...packsUsdMicro],
    maxPackMicrodollars: mostUsdMicro,
  });
}

export async function createOrder(
  parts: Parts,
  request: CreateOrderRequest,
  { accountId, caller, signal }: AuthenticatedCall,
) {
  const { store } = parts;
  const { packMicrodollars: usdMicro, idempotencyKey } = request;
  const family = namedFamily(request.family);
  checkText("idempotency_key", idempotencyKey);
  const { processor, method } = await findMethod(parts, request.method, signal);
  const { mostUsdMicro } = parts.offer();
  if (usdMicro <= 0n || usdMicro % packStepMicro !== 0n || usdMicro > mostUsdMicro)
    throw invalidField(
      "pack_microdollars",
      `is a multiple of ${packStepMicro}, up to ${mostUsdMicro}`,
    );
  if (usdMicro < method.leastUsdMicro)
    throw invalidField("pack_microdollars", `is at least ${method.leastUsdMicro} by this method`);
  const { asset, network, decimals } = method;
  const orderId = timeOrderedId("ord_");
  const stored = await storeOnce(parts, signal, {
    orderId,
    accountId,
    family,
    idempotencyKey,
    usdMicro,
    asset,
    network,
    decimals,
    processor: processor.name,
    method: method.method,
    createdBy: actorOf(caller),
  });
  if (stored.family !== family || stored.usdMicro !== usdMicro || stored.method !== method.method)
    throw new ApiError("idempotency_key_reused");
  const isRepeat = stored.orderId !== orderId;
  if (stored.externalId === null)
    await openAtProcessor(parts, processor, { ...stored, isRepeat }, signal);
  const order = await store.findOrder(stored.orderId);
  if (!order) throw new Error("an order that was stored is gone");
  return create(CreateOrderResponseSchema, { order: await describe(parts, order) });
}

/**
 * Seller and buyer of an order, as they are now. Pretended money has receipts and numbers of its
 * own, which name it.
 */
export function partiesOf(parts: Parts, processor: string, account: Account | undefined) {
  const { id, name, address, taxId } = parts.seller();
  const isSimulated = parts.processors().get(processor)?.isSimulated === true;
  const details = account?.billingDetails;
  return {
    sellerId: isSimulated ? `simulated:${id}` : id,
    sellerName: isSimulated ? `${name} (simulated, no real money)`.trim() : name,
    sellerAddress: address,
    sellerTaxId: taxId,
    buyerName: details?.name || (account?.name ?? ""),
    buyerAddress: details?.address ?? "",
    buyerTaxId: details?.taxId ?? "",
  };
}

type NewStoredOrder = Omit<
  Parameters<typeof sql.insertOrder.with>[0],
  keyof ReturnType<typeof partiesOf>
>;

/** Stores an order, unless the account has used its idempotency key. Returns the stored one. */
async function storeOnce(
  parts: Parts,
  signal: AbortSignal,
  order: NewStoredOrder,
): Promise<StoredOrder> {
  const { store } = parts;
  const { accountId, idempotencyKey } = order;
  const find = async (tables: PaymentsTables) => {
    const found = await tables.run(sql.findOrderByKey, { accountId, idempotencyKey });
    return found && tables.findOrder(found.orderId);
  };
  const known = await find(store);
  if (known) return known;
  const account = await findOpenAccount(parts, accountId, signal);
  await store.transaction(async (tables) => {
    await tables.run(sql.lockAccount, { accountId });
    // A repeat at the same time has stored it: that is no further order.
    if (await find(tables)) return;
    checkCount(await tables.run(sql.countOrders, { accountId }));
    const parties = partiesOf(parts, order.processor, account);
    await tables.run(sql.insertOrder, { ...order, ...parties });
  });
  const stored = await find(store);
  if (!stored) throw new Error("an order that was stored is gone");
  return stored;
}

/** The permanent address of an account and pool on a network, made by the first call. */
export async function getDepositAddress(
  parts: Parts,
  request: CreateDepositAddressRequest,
  { accountId, signal }: AuthenticatedCall,
) {
  const family = namedFamily(request.family);
  const found = parts.addresses();
  if (!found) throw invalidField("network", "is not read here: no chain is", []);
  await findOpenAccount(parts, accountId, signal);
  const { network } = request;
  const known = await found.findAddress(accountId, family, network);
  // The operator's wallet has to watch each address, so nobody gets one for nothing.
  if (known === undefined && !(await parts.store.run(sql.countOrders, { accountId })).hasPaid)
    throw wrongState("An account gets its address with its first order, or once it has paid.");
  const address = known ?? (await found.addressOf(accountId, family, network));
  return create(CreateDepositAddressResponseSchema, { address });
}

/** The addresses that were given for a network, oldest first. */
export async function listDepositAddresses(
  parts: Parts,
  request: ListDepositAddressesRequest,
  call: AuthenticatedCall,
) {
  const found = parts.addresses();
  const networks = [...(found?.networks() ?? [])];
  const network = request.network || (networks[0] ?? "");
  if (!found || network === "") return create(ListDepositAddressesResponseSchema);
  let [given, gapLimit] = [0n, 0];
  const { entries, nextPageToken } = await readPage(
    SweepsService.method.listDepositAddresses,
    request,
    call,
    {
      async read(after, rows) {
        const page = await found.listAddresses(network, BigInt(after ?? -1), rows);
        ({ given, gapLimit } = page);
        return [...page.addresses];
      },
      cursorOf: ({ index }) => String(index),
    },
  );
  const addresses = entries.map(({ address, accountId, family, createdAt }) => ({
    ...{ address, accountId },
    family: familyOf(family),
    createdAt: timestampFromDate(createdAt),
  }));
  return create(ListDepositAddressesResponseSchema, {
    ...{ network, networks, given, gapLimit, addresses, nextPageToken },
  });
}

async function openAtProcessor(
  parts: Parts,
  processor: Processor,
  order: NewOrder,
  signal: AbortSignal,
): Promise<void> {
  const { store, log } = parts;
  const { orderId } = order;
  if ((await store.run(sql.leaseOpening, { orderId, leaseMs: openingMsMax })) === 0)
    throw new ApiError("gateway_unavailable", {
      message: "This order is being opened by another call. Repeat the call shortly.",
      retryAfterMs: 1_000,
    });
  try {
    const within = AbortSignal.any([signal, AbortSignal.timeout(openingMsMax)]);
    const quote = await processor.open(order, within);
    await store.run(sql.putQuote, { ...quote, orderId, firstLookMs });
    for (const replaced of (await processor.findReplaced?.(order)) ?? [])
      await cancelOpen(parts, replaced);
  } catch (error) {
    await store.run(sql.failOpening, { orderId });
    if (error instanceof ApiError) throw error;
    log.warn(
      { code: "order_not_opened", orderId, processor: processor.name, err: error },
      "a processor opened no order",
    );
    throw new ApiError("gateway_unavailable", {
      message: "The payment processor does not answer. Nothing was ordered; try again shortly.",
      retryAfterMs: 5_000,
      cause: error,
    });
  }
}

type Offered = { readonly processor: Processor; readonly method: Method };

async function findMethod(parts: Parts, name: string, signal: AbortSignal): Promise<Offered> {
  const all = await allMethods(parts, signal);
  const found = all.find(({ method }) => method.method === name);
  if (found) return found;
  const allowed = all.map(({ method }) => method.method);
  throw invalidField("method", "is not offered here", allowed);
}

/** The methods of all processors, in the order of the configuration. */
async function allMethods({ processors, log }: Parts, signal: AbortSignal): Promise<Offered[]> {
  const offered = [...processors().values()].map(async (processor) => {
    const methods = await processor.methods(signal).catch((err: unknown) => {
      log.warn(
        { code: "processor_silent", processor: processor.name, err },
        "a processor does not say what it offers",
      );
      return [];
    });
    return methods.map((method) => ({ processor, method }));
  });
  return (await Promise.all(offered)).flat();
}

function checkCount({ open, made, firstAt, hasPaid }: sql.CountOrdersRow): void {
  const { open: openOrdersMax, perHour: ordersPerHourMax } = ordersMax[hasPaid ? "paid" : "unpaid"];
  if (open >= openOrdersMax)
    throw new ApiError("rate_limited", {
      message: `An account can have ${openOrdersMax} open orders. Pay or cancel one of them.`,
      limit: { name: "open_orders", limit: BigInt(openOrdersMax), used: BigInt(open) },
    });
  if (made >= ordersPerHourMax) {
    const resetsAt = firstAt && new Date(firstAt.getTime() + 3_600_000);
    throw tooOften("rate_limited", `An account can make ${ordersPerHourMax} orders an hour.`, {
      ...{ name: "orders_per_hour", most: ordersPerHourMax, made, resetsAt },
    });
  }
}

export async function getOrder(
  parts: Parts,
  { orderId }: GetOrderRequest,
  call: AuthenticatedCall,
) {
  const order = await findVisible(parts, orderId, call);
  return create(GetOrderResponseSchema, { order: await describe(parts, order) });
}

export async function listOrders(
  parts: Parts,
  request: ListOrdersRequest,
  call: AuthenticatedCall,
) {
  const { filter, allAccounts } = request;
  const query = toQuery(allAccounts ? null : call.accountId, filter);
  const found = await readPage(
    PaymentsService.method.listOrders,
    request,
    call,
    matchingPages(parts, query),
  );
  const { entries, nextPageToken } = found;
  const orders = await describeAll(
    parts,
    entries.map(({ order }) => order),
  );
  return create(ListOrdersResponseSchema, {
    ...{ orders, nextPageToken },
    ...(request.includeSums && { sums: await sumOrders(parts, query) }),
  });
}

/** All orders of an account, newest first, then their documents. */
export async function* exportOrders(
  parts: Parts,
  accountId: string,
): AsyncGenerator<{ orders: Order[] } | { documents: Document[] }, void> {
  const pages = () => walkPages(matchingPages(parts, toQuery(accountId, undefined)));
  const ordersOf = (found: readonly FoundOrder[]) => found.map(({ order }) => order);
  for await (const some of pages()) yield { orders: await describeAll(parts, ordersOf(some)) };
  for await (const some of pages())
    for (const order of ordersOf(some)) {
      // What was sent back without having been credited has a note without a receipt.
      const { receipt, creditNotes } = await readDocuments(parts, order);
      const documents = [...(receipt ? [receipt] : []), ...creditNotes];
      if (documents.length > 0) yield { documents };
    }
}

/** Cancels an order to which nothing was paid. What is sent to it all the same still counts. */
export async function cancelOrder(
  parts: Parts,
  { orderId, reason }: CancelOrderRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = await findVisible(parts, orderId, call);
  call.note?.({ accountId });
  const { caller, allowed } = call;
  // By a right as an operator alone.
  if (caller.kind === "person" && roleIn(caller, accountId) < allowed.person) {
    checkStrong(caller);
    readReason(reason, call);
  } else readOptionalReason(reason, call);
  const state = await cancelOpen(parts, orderId);
  if (state !== "cancelled" && state !== "open")
    throw wrongState("Only an open order can be cancelled: this one is paid, or has ended.");
  const order = await findVisible(parts, orderId, call);
  return create(CancelOrderResponseSchema, { order: await describe(parts, order) });
}

/** Cancels an order if it is open. Returns the state in which it was. */
async function cancelOpen(parts: Parts, orderId: string): Promise<StoredOrder["state"]> {
  const state = await parts.store.transaction(async (tables) => {
    const order = await tables.lockOrder(orderId);
    if (!order) throw noSuchOrder();
    if (order.state !== "open") return order.state;
    await tables.run(sql.cancelOrder, { orderId });
    await redecide(tables, { ...order, cancelledAt: order.readAt });
    return order.state;
  });
  parts.changed(orderId);
  return state;
}

/**
 * An order as the service shows it, with its deposits and refunds of one moment: whatever changes
 * these counts up its version.
 */
export async function describe(parts: Parts, order: StoredOrder): Promise<Order> {
  for (let shown = order, tries = 1; ; tries++) {
    const [described] = await describeAll(parts, [shown]);
    const now = await parts.store.findOrder(order.orderId);
    if (!described || !now) throw new Error("an order is gone");
    if (now.version === shown.version || tries === readingsMax) return described;
    shown = now;
  }
}

/** In the given order. */
export async function describeAll(
  { store, processors }: Parts,
  orders: readonly StoredOrder[],
): Promise<Order[]> {
  const idOf = ({ orderId }: { orderId: string }) => orderId;
  const orderIds = orders.map(idOf);
  const [deposits, refunds, events] = await Promise.all([
    store.listDeposits(orderIds),
    store.run(sql.listRefunds, { orderIds }),
    store.run(sql.listEvents, { orderIds }),
  ]);
  const depositsOf = Map.groupBy(deposits, idOf);
  const refundsOf = Map.groupBy(refunds, idOf);
  const eventsOf = Map.groupBy(events, idOf);
  return orders.map((order) =>
    toOrder(order, depositsOf.get(order.orderId) ?? [], {
      refunds: refundsOf.get(order.orderId) ?? [],
      events: eventsOf.get(order.orderId) ?? [],
      // A processor that is gone from the configuration may have been a simulated one.
      isSimulated:
        processors().get(order.processor)?.isSimulated ?? order.payTo.startsWith("simulated-"),
    }),
  );
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** the buyer was asked to choose another way to pay; look at the processor */
    order_not_opened: true;
    /**
     * a payment processor did not answer, and is asked again; look at its status page if it goes on
     */
    processor_silent: true;
  }
}
