// Charges as CSV, page by page: the next page is read while this one is sent, and none before the
// reader has taken the one before it.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type ExportChargesRequest,
  type ExportChargesResponse,
  ExportChargesResponseSchema,
  QueryUsageRequestSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import type { ExportChargesRow } from "../../gen/sql/billing.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { ApiError } from "../base/errors.ts";
import { credits, usd } from "../base/money.ts";
import { readTimeRange } from "../base/paging.ts";
import { noTags, tagsText } from "../base/tags.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import { archivedBefore, keptFrom } from "./archived.ts";
import { readTags } from "./rows.ts";
import type { ExportQuery, LedgerStore } from "./store.ts";
import type { Reports, Scope } from "./usage.ts";

/** The most charges of one export: the rows that a spreadsheet or a script can still take. */
const chargesMax = 5_000_000;
const pageSize = 1_000;

const columns = [
  "request_id",
  "admitted_at",
  "settled_at",
  "key_id",
  "key_name",
  "family",
  "model",
  "outcome",
  "basis",
  ...tokenCategories.map((category) => categoryColumns[category]),
  "web_searches",
  "granted_output",
  "charge_credits",
  "hold_credits",
  "overrun_credits",
  "price_version",
  "made_by",
  "tags",
  "charge_usd",
];

function lineOf(row: ExportChargesRow): string {
  return csvLine([
    row.requestId,
    row.admittedAt,
    row.settledAt,
    row.keyId,
    textCell(row.keyName ?? ""),
    row.family,
    textCell(row.model),
    row.outcome,
    row.basis,
    ...tokenCategories.map((category) => row[category]),
    row.webSearches,
    row.grantedOutput,
    credits(row.amount),
    credits(row.hold),
    credits(row.overrun),
    row.priceVersion,
    textCell(row.madeBy ?? ""),
    textCell(tagsText(readTags(row.tags) ?? noTags)),
    usd(row.amount),
  ]);
}

type ExportParts = {
  readonly store: Pick<LedgerStore, "exportCharges" | "readArchivedMonths">;
  readonly usage: Pick<Reports, "queryUsage">;
};

/** The lines of an export. Throws `invalid_request` and `archived`. */
export async function* exportCharges(
  { store, usage }: ExportParts,
  request: ExportChargesRequest,
  scope: Scope,
  signal: AbortSignal,
): AsyncGenerator<ExportChargesResponse, void> {
  const { query, from, isEmpty } = await readExport(store, request, scope);
  const { keyId, to } = query;
  if (!isEmpty) {
    const keyIds = keyId === undefined ? [] : [keyId];
    const times = { startAt: timestampFromDate(from), endAt: timestampFromDate(to) };
    const asked = create(QueryUsageRequestSchema, { ...times, keyIds });
    const { totals } = await usage.queryUsage(asked, scope);
    if ((totals?.requests ?? 0n) > chargesMax) throw tooMany();
  }
  yield create(ExportChargesResponseSchema, { csv: csvLine(columns) });
  if (isEmpty) return;

  let count = 0;
  for await (const rows of pagesFrom(store, query, from)) {
    signal.throwIfAborted();
    count += rows.length;
    // The sums are of whole hours, and do not tell the number of charges exactly.
    if (count > chargesMax) throw tooMany();
    yield create(ExportChargesResponseSchema, { csv: rows.map(lineOf).join("") });
  }
}

/** The charges of an export, and from when on they are. Throws `archived`. */
async function readExport(
  store: ExportParts["store"],
  request: ExportChargesRequest,
  { accountId, onlyKey }: Scope,
): Promise<{ readonly query: ExportQuery; readonly from: Date; readonly isEmpty: boolean }> {
  const now = new Date();
  const range = readTimeRange(request, now);
  // What is admitted later is not exported, so that an export has an end.
  const to = range.to && range.to < now ? range.to : now;
  const asked = request.keyId === "" ? undefined : request.keyId;
  const keyId = onlyKey ?? asked;
  const isForeign = asked !== undefined && asked !== keyId;
  const kept = await keptFrom(store, { accountId, keyId });
  if (kept && range.from && range.from < kept) throw archivedBefore(kept);
  // No gateway is as old.
  const from = range.from ?? kept ?? new Date(now.getTime() - 3_650 * 86_400_000);
  return { query: { accountId, keyId, to }, from, isEmpty: isForeign || from >= to };
}

/** Charges in pages. While a page is written, the next one is read. */
async function* pagesFrom(
  store: ExportParts["store"],
  query: ExportQuery,
  from: Date,
): AsyncGenerator<Awaited<ReturnType<LedgerStore["exportCharges"]>>, void> {
  let next = store.exportCharges(query, { at: from.toISOString(), id: "" }, pageSize);
  for (;;) {
    const rows = await next;
    const last = rows.at(-1);
    if (!last) return;
    const isWhole = rows.length < pageSize;
    if (!isWhole) {
      next = store.exportCharges(query, { at: last.admittedAt, id: last.requestId }, pageSize);
      // The loop throws it, unless the reader leaves before.
      next.catch(() => undefined);
    }
    yield rows;
    if (isWhole) return;
  }
}

function tooMany(): ApiError {
  return new ApiError("invalid_request", {
    field: "start_at",
    message: `from: the range has more than ${chargesMax.toLocaleString("en")} charges: export parts of it`,
  });
}
