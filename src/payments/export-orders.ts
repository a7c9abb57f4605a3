// Orders of all accounts by filters, their sums, and orders and documents as CSV. They are read on
// the connections for reports, page by page, and no page before the reader has taken the last one.

import { create } from "@bufbuild/protobuf";
import {
  type ExportDocumentsRequest,
  type ExportDocumentsResponse,
  ExportDocumentsResponseSchema,
  type ExportOrdersRequest,
  type ExportOrdersResponse,
  ExportOrdersResponseSchema,
  type OrderFilter,
  type OrderSums,
  OrderSumsSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { idsBetween } from "../base/ids.ts";
import { credits, decimal, microCreditsPerMicroDollar, usd } from "../base/money.ts";
import { readTimeRange } from "../base/paging.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { coins } from "./coins.ts";
import { isSameAsset } from "./decide.ts";
import { stateNames } from "./messages.ts";
import type { Parts } from "./parts.ts";
import { readOrders, type StoredOrder } from "./store.ts";

const exportedRows = 500;

/** What a filter chooses, as the statements take it. */
type OrderQuery = ReturnType<typeof toQuery>;

/** Throws `invalid_request`. `accountId`: null for all accounts. */
export function toQuery(accountId: string | null, filter: OrderFilter | undefined) {
  const range = readTimeRange(filter ?? {}, new Date());
  const leastUsdMicro = filter?.minMicrodollars ?? 0n;
  const states = (filter?.states ?? []).flatMap((state) => stateNames.get(state) ?? []);
  return {
    accountId,
    states: states.length > 0 ? states : null,
    needsAttention: filter?.needsAttention ?? false,
    processor: filter?.processor || null,
    asset: filter?.asset || null,
    from: range.from ?? new Date(0),
    to: range.to ?? null,
    leastUsdMicro,
    ...idsBetween("ord_", range),
  };
}

/** An order that matches, with its buyer and the transactions that paid it. */
export type FoundOrder = sql.FindOrdersRow & { readonly order: StoredOrder };

/** Pages of the orders that match, newest first. */
export function matchingPages({ reports }: Pick<Parts, "reports">, query: OrderQuery) {
  return {
    async read(after: string | undefined, rows: number): Promise<FoundOrder[]> {
      const found = await reports.run(sql.findOrders, { ...query, after: after ?? null, rows });
      const orders = await readOrders(
        reports,
        found.map(({ orderId }) => orderId),
      );
      const byId = new Map(orders.map((order) => [order.orderId, order]));
      return found.flatMap((one) => {
        const order = byId.get(one.orderId);
        return order ? { ...one, order } : [];
      });
    },
    cursorOf: ({ orderId }: FoundOrder) => orderId,
  };
}

export async function sumOrders({ reports }: Parts, query: OrderQuery): Promise<OrderSums> {
  const sums = await reports.run(sql.sumOrders, query);
  return create(OrderSumsSchema, {
    orders: sums.orders,
    orderedMicrodollars: sums.orderedUsdMicro,
    grantedMicrocredits: sums.grantedMicro,
    refundedMicrodollars: sums.refundedUsdMicro,
  });
}

const orderColumns = [
  ...["order_id", "created_at", "account_id", "family", "kind", "state", "attention"],
  ...["processor", "asset", "network", "quoted_amount", "received_amount", "usd_rate"],
  ...["usd", "pack_credits", "granted_credits", "granted_usd", "refunded_usd"],
  ...["receipt_number", "transactions", "buyer_name", "buyer_tax_id", "created_by"],
];

export async function* exportMatching(
  parts: Parts,
  { allAccounts, filter }: ExportOrdersRequest,
  { accountId, signal }: AuthenticatedCall,
): AsyncGenerator<ExportOrdersResponse, void> {
  const pages = matchingPages(parts, toQuery(allAccounts ? null : accountId, filter));
  yield create(ExportOrdersResponseSchema, { csv: csvLine(orderColumns) });
  for (let after: string | undefined; ; ) {
    const orders = await pages.read(after, exportedRows);
    signal.throwIfAborted();
    if (orders.length > 0)
      yield create(ExportOrdersResponseSchema, { csv: await orderLines(parts, orders) });
    if (orders.length < exportedRows) return;
    after = orders.at(-1)?.orderId;
  }
}

async function orderLines({ store }: Parts, found: readonly FoundOrder[]): Promise<string> {
  const deposits = await store.listDeposits(found.map(({ orderId }) => orderId));
  const depositsOf = Map.groupBy(deposits, ({ orderId }) => orderId);
  const lines = found.map(({ order, buyerName, buyerTaxId, transactions }) => {
    const received = (depositsOf.get(order.orderId) ?? [])
      .filter((one) => one.state === "settled" && isSameAsset(one, order))
      .reduce((sum, { atoms }) => sum + atoms, 0n);
    const granted = order.grantedMicro - order.takenBackMicro;
    return csvLine([
      ...[order.orderId, order.createdAt.toISOString(), order.accountId, order.family],
      ...[order.kind, order.state, order.attention ?? "", textCell(order.processor)],
      ...[order.asset, order.network, coins(BigInt(order.quotedAtoms ?? 0), order.decimals)],
      ...[coins(received, order.decimals), decimal(order.rate ?? 0n, 6, 2)],
      ...[dollars(order.usdMicro), credits(order.usdMicro * microCreditsPerMicroDollar)],
      ...[credits(granted), usd(granted), dollars(order.refundedUsdMicro)],
      ...[order.receiptNumber ?? "", (transactions ?? []).join(" ")],
      ...[textCell(buyerName), textCell(buyerTaxId), textCell(order.createdBy)],
    ]);
  });
  return lines.join("");
}

const documentColumns = [
  ...["number", "kind", "issued_at", "order_id", "account_id", "family", "processor", "credits"],
  ...["usd", "seller_name", "seller_tax_id", "buyer_name", "buyer_tax_id"],
];

export async function* exportDocuments(
  { reports }: Parts,
  { allAccounts, ...request }: ExportDocumentsRequest,
  { accountId, signal }: AuthenticatedCall,
): AsyncGenerator<ExportDocumentsResponse, void> {
  const range = readTimeRange(request, new Date());
  yield create(ExportDocumentsResponseSchema, { csv: csvLine(documentColumns) });
  let after = { afterAt: (range.from ?? new Date(0)).toISOString(), afterOrderId: "" };
  for (let afterNumber = ""; ; ) {
    const rows: sql.FindDocumentsRow[] = await reports.run(sql.findDocuments, {
      accountId: allAccounts ? null : accountId,
      to: range.to ?? null,
      ...{ ...after, afterNumber, rows: exportedRows },
    });
    signal.throwIfAborted();
    if (rows.length > 0)
      yield create(ExportDocumentsResponseSchema, { csv: rows.map(documentLine).join("") });
    const last = rows.at(-1);
    if (!last || rows.length < exportedRows) return;
    after = { afterAt: last.position, afterOrderId: last.orderId };
    afterNumber = last.number;
  }
}

function documentLine(row: sql.FindDocumentsRow): string {
  return csvLine([
    ...[row.number, row.kind, row.issuedAt.toISOString(), row.orderId, row.accountId, row.family],
    ...[textCell(row.processor), credits(row.micro), dollars(row.usdMicro)],
    ...[textCell(row.sellerName), textCell(row.sellerTaxId)],
    ...[textCell(row.buyerName), textCell(row.buyerTaxId)],
  ]);
}

/** Micro-dollars as a decimal number of dollars. */
function dollars(usdMicro: bigint): string {
  return decimal(usdMicro, 6, 2);
}
