// Receipts and credit notes. A credited order has one receipt, and a credit note for each refund
// and chargeback. Their numbers are given in the transaction that credits or takes back, from one
// counter for each seller, kind and UTC year, so there is no gap. Seller and buyer are those of the
// time of the order.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type Document,
  DocumentKind,
  type DocumentLine,
  DocumentLineSchema,
  DocumentSchema,
  type GetReceiptDocumentRequest,
  GetReceiptDocumentResponseSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { plainCell } from "../base/cells.ts";
import { ApiError } from "../base/errors.ts";
import { familyOf } from "../base/families.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import { toDeposit } from "./messages.ts";
import { findVisible, type Parts } from "./parts.ts";
import type { StoredOrder } from "./store.ts";

/**
 * Gives a credited order its receipt, unless it has one, and a chargeback its credit note. Call in
 * the transaction that stores the grant, with the order locked.
 */
export async function documentGrant(
  db: Runner,
  { orderId, receiptNumber }: Pick<StoredOrder, "orderId" | "receiptNumber">,
  { n, micro }: { readonly n: number; readonly micro: bigint },
): Promise<void> {
  if (micro < 0n) await issueDocument(db, { kind: "credit_note", orderId, grantN: n });
  else if (micro > 0n && receiptNumber === null)
    await issueDocument(db, { kind: "receipt", orderId });
}

/**
 * Gives a refund its credit note. Call in the transaction that completes it, with the order locked.
 * Returns its number.
 */
export function documentRefund(
  db: Runner,
  { orderId, n }: { readonly orderId: string; readonly n: number },
): Promise<string> {
  return issueDocument(db, { kind: "credit_note", orderId, refundN: n });
}

/** Gives an order a document with the next number, and returns that. */
async function issueDocument(
  db: Runner,
  document: { kind: StoredDocument["kind"]; orderId: string; grantN?: number; refundN?: number },
): Promise<string> {
  const { kind, orderId } = document;
  const taken = await db.run(sql.takeNumber, { kind, orderId });
  if (!taken) throw new Error("a document of an order that does not exist");
  const { cell, ...place } = taken;
  const number = numberOf(kind, place, cell ?? plainCell);
  await db.run(sql.insertDocument, { grantN: null, refundN: null, ...document, ...place, number });
  if (kind === "receipt") await db.run(sql.setReceiptNumber, { orderId, number });
  return number;
}

/** `R2026-000001`, or `R07-2026-000001` where there are cells beside each other. */
function numberOf(
  kind: StoredDocument["kind"],
  { year, n }: { readonly year: number; readonly n: number },
  cell: string,
): string {
  const letter = kind === "receipt" ? "R" : "C";
  const ofCell = cell === plainCell ? "" : `${cell}-`;
  return `${letter}${ofCell}${year}-${String(n).padStart(6, "0")}`;
}

export async function getReceiptDocument(
  parts: Parts,
  { orderId }: GetReceiptDocumentRequest,
  call: AuthenticatedCall,
) {
  const { store } = parts;
  const order = await findVisible(parts, orderId, call);
  const { receipt, creditNotes } = await readDocuments(parts, order);
  if (!receipt && creditNotes.length === 0)
    throw new ApiError("not_found", {
      message: "This order has no receipt: nothing was credited for it yet.",
      field: "order_id",
    });
  const deposits = await store.listDeposits([orderId]);
  return create(GetReceiptDocumentResponseSchema, {
    ...(receipt && { receipt }),
    creditNotes,
    deposits: deposits.filter(({ state }) => state === "settled").map(toDeposit),
  });
}

/**
 * The receipt of an order and its credit notes by number. Without a receipt, nothing was credited;
 * what was sent back all the same has its note.
 */
export async function readDocuments(
  { store }: Pick<Parts, "store">,
  order: StoredOrder,
): Promise<{ receipt: Document | undefined; creditNotes: Document[] }> {
  const { orderId } = order;
  const documents = await store.run(sql.listDocuments, { orderId });
  const receipt = documents.find(({ kind }) => kind === "receipt");
  const notes = documents.filter(({ kind }) => kind === "credit_note");
  return {
    receipt:
      receipt &&
      toDocument(order, receipt, {
        lines: await store.run(sql.listGranted, { orderId }),
        receiptNumber: "",
      }),
    creditNotes: notes.map((note) =>
      toDocument(order, note, {
        lines: [{ ...note, createdAt: note.issuedAt }],
        receiptNumber: receipt?.number ?? "",
      }),
    ),
  };
}

type StoredDocument = sql.ListDocumentsRow;

function toDocument(
  { orderId, family, accountId }: StoredOrder,
  document: StoredDocument,
  { lines, receiptNumber }: { lines: readonly sql.ListGrantedRow[]; receiptNumber: string },
) {
  const { number, kind, issuedAt, sellerName, buyerName } = document;
  const shown = lines.map(toLine);
  const sum = (of: (line: DocumentLine) => bigint) => shown.reduce((all, one) => all + of(one), 0n);
  return create(DocumentSchema, {
    number,
    orderId,
    accountId,
    receiptNumber,
    family: familyOf(family),
    kind: kind === "receipt" ? DocumentKind.RECEIPT : DocumentKind.CREDIT_NOTE,
    issuedAt: timestampFromDate(issuedAt),
    seller: { name: sellerName, address: document.sellerAddress, taxId: document.sellerTaxId },
    buyer: { name: buyerName, address: document.buyerAddress, taxId: document.buyerTaxId },
    lines: shown,
    totalMicrocredits: sum((line) => line.microcredits),
    totalMicrodollars: sum((line) => line.microdollars),
  });
}

function toLine({ micro, usdMicro, createdAt }: sql.ListGrantedRow): DocumentLine {
  return create(DocumentLineSchema, {
    microcredits: micro,
    microdollars: usdMicro,
    occurredAt: timestampFromDate(createdAt),
  });
}
