// What came of an account's purchases: the promotions that it used, and its receipts and credit
// notes.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  AccountDocumentSchema,
  type ListDocumentsRequest,
  ListDocumentsResponseSchema,
  type ListPromotionUsesRequest,
  ListPromotionUsesResponseSchema,
  PromotionUseSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { DocumentKind } from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/operations.ts";
import { familyOf } from "../base/families.ts";
import type { Reports } from "../postgres/postgres.ts";
import { checkAccount } from "./store.ts";

const rowsMax = 100;

export type PurchasesParts = { readonly reports: Reports };

export async function listPromotionUses(
  { reports }: PurchasesParts,
  { accountId }: ListPromotionUsesRequest,
) {
  await checkAccount(reports, accountId);
  const rows = await reports.run(sql.listPromotionUses, { accountId, rows: rowsMax + 1 });
  const uses = rows.slice(0, rowsMax).map(({ family, bonusMicro, usedAt, ...use }) =>
    create(PromotionUseSchema, {
      ...use,
      family: familyOf(family),
      bonusMicrocredits: bonusMicro,
      usedAt: timestampFromDate(usedAt),
    }),
  );
  return create(ListPromotionUsesResponseSchema, { uses, isIncomplete: rows.length > rowsMax });
}

export async function listDocuments(
  { reports }: PurchasesParts,
  { accountId }: ListDocumentsRequest,
) {
  await checkAccount(reports, accountId);
  const rows = await reports.run(sql.listDocumentsOf, { accountId, rows: rowsMax + 1 });
  const documents = rows.slice(0, rowsMax).map(({ kind, issuedAt, ...document }) =>
    create(AccountDocumentSchema, {
      ...document,
      kind: kind === "receipt" ? DocumentKind.RECEIPT : DocumentKind.CREDIT_NOTE,
      issuedAt: timestampFromDate(issuedAt),
    }),
  );
  return create(ListDocumentsResponseSchema, { documents, isIncomplete: rows.length > rowsMax });
}
