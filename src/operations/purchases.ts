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
  SupportService,
} from "../../gen/gateway/operations/v1/support_pb.ts";
import { DocumentKind } from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/operations.ts";
import { familyOf } from "../base/families.ts";
import { readPage } from "../base/paging.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Reports } from "../postgres/postgres.ts";
import { checkAccount } from "./store.ts";

export type PurchasesParts = { readonly reports: Reports };

export async function listPromotionUses(
  { reports }: PurchasesParts,
  request: ListPromotionUsesRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = request;
  await checkAccount(reports, accountId);
  const page = await readPage(SupportService.method.listPromotionUses, request, call, {
    read: (after, rows) =>
      reports.run(sql.listPromotionUses, { accountId, before: after ?? null, rows }),
    cursorOf: ({ codeId }) => codeId,
  });
  const uses = page.entries.map(({ codeId, family, bonusMicro, usedAt, isTakenBack, ...use }) =>
    create(PromotionUseSchema, {
      ...use,
      promotionId: codeId,
      takenBack: isTakenBack,
      family: familyOf(family),
      bonusMicrocredits: bonusMicro,
      usedAt: timestampFromDate(usedAt),
    }),
  );
  return create(ListPromotionUsesResponseSchema, { uses, nextPageToken: page.nextPageToken });
}

export async function listDocuments(
  { reports }: PurchasesParts,
  request: ListDocumentsRequest,
  call: AuthenticatedCall,
) {
  const { accountId } = request;
  await checkAccount(reports, accountId);
  const page = await readPage(SupportService.method.listDocuments, request, call, {
    read: (after, rows) =>
      reports.run(sql.listDocumentsOf, { accountId, before: after ?? null, rows }),
    cursorOf: ({ number }) => number,
  });
  const documents = page.entries.map(({ kind, issuedAt, ...document }) =>
    create(AccountDocumentSchema, {
      ...document,
      kind: kind === "receipt" ? DocumentKind.RECEIPT : DocumentKind.CREDIT_NOTE,
      issuedAt: timestampFromDate(issuedAt),
    }),
  );
  return create(ListDocumentsResponseSchema, { documents, nextPageToken: page.nextPageToken });
}
