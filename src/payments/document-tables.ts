// The tables of receipts and credit notes.

import { type Query, timed } from "./query.ts";

const statements = {
  takeNumber: timed("take-number"),
  insertDocument: timed("insert-document"),
  setReceiptNumber: timed("set-receipt-number"),
  listDocuments: timed("list-documents"),
  listGranted: timed("list-granted"),
};

/** A seller or a buyer. A text is empty where nothing is known. */
export type Party = { readonly name: string; readonly address: string; readonly taxId: string };

export type StoredDocument = {
  readonly number: string;
  readonly kind: "receipt" | "credit_note";
  readonly issuedAt: Date;
  readonly seller: Party;
  readonly buyer: Party;
  /** Of a credit note: what it takes back, and when. */
  readonly micro: bigint;
  readonly usdMicro: bigint;
  readonly at: Date;
};

export type DocumentTables = ReturnType<typeof documentTables>;

export function documentTables(query: Query) {
  return {
    /** Gives an order a document with the next number. The caller has locked the order. */
    async issueDocument(document: {
      kind: "receipt" | "credit_note";
      orderId: string;
      grantN?: number;
      refundN?: number;
    }): Promise<void> {
      const { kind, orderId, grantN = null, refundN = null } = document;
      const [taken] = await query<{ seller: string; year: number; n: number }>(
        statements.takeNumber,
        [orderId, kind],
      );
      if (!taken) throw new Error("a document of an order that does not exist");
      const { seller, year, n } = taken;
      const number = `${kind === "receipt" ? "R" : "C"}${year}-${String(n).padStart(6, "0")}`;
      const values = [seller, kind, year, n, number, orderId, grantN, refundN];
      await query(statements.insertDocument, values);
      if (kind === "receipt") await query(statements.setReceiptNumber, [orderId, number]);
    },
    /** The receipt of an order, then its credit notes in the order of their numbers. */
    listDocuments: async (orderId: string): Promise<StoredDocument[]> =>
      (await query<DocumentRow>(statements.listDocuments, [orderId])).map((row) => ({
        number: row.number,
        kind: row.kind,
        issuedAt: row.issued_at,
        seller: { name: row.seller_name, address: row.seller_address, taxId: row.seller_tax_id },
        buyer: { name: row.buyer_name, address: row.buyer_address, taxId: row.buyer_tax_id },
        micro: row.micro,
        usdMicro: row.usd_micro,
        at: row.issued_at,
      })),
    /** What was granted for an order, oldest first, without chargebacks. */
    listGranted: async (orderId: string) =>
      (await query<GrantedRow>(statements.listGranted, [orderId])).map((row) => ({
        micro: row.micro,
        usdMicro: row.usd_micro,
        at: row.created_at,
      })),
  };
}

type DocumentRow = {
  number: string;
  kind: "receipt" | "credit_note";
  issued_at: Date;
  seller_name: string;
  seller_address: string;
  seller_tax_id: string;
  buyer_name: string;
  buyer_address: string;
  buyer_tax_id: string;
  micro: bigint;
  usd_micro: bigint;
};

type GrantedRow = { micro: bigint; usd_micro: bigint; created_at: Date };
