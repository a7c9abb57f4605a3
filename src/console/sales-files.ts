// The files about money of the whole installation, for operators: `sales.csv`, `revenue.csv` and
// `liabilities.csv`. Their sums are those of the page: both ask the same methods.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import {
  type Liabilities,
  type Revenue,
  RevenueGroup,
  type Sales,
  SalesBucket,
  SalesGroup,
} from "../../gen/gateway/sales/v1/sales_pb.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { familyName } from "../base/families.ts";
import { described, oneOf, text } from "../base/json-schema.ts";
import { credits, decimal, usd } from "../base/money.ts";
import { choiceOf, listParam, type Query, rangeParams, textParam } from "../base/query.ts";
import { revenueKindName } from "../base/revenue-kinds.ts";
import { reportRowsMax } from "../base/shown-figures.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import { transferKindOf } from "../base/transfer-kinds.ts";
import type { Core } from "../contract/contract.ts";

const buckets = {
  all: SalesBucket.NONE,
  day: SalesBucket.DAY,
  week: SalesBucket.WEEK,
  month: SalesBucket.MONTH,
};
const salesGroups = {
  account: SalesGroup.ACCOUNT,
  model: SalesGroup.MODEL,
  provider: SalesGroup.PROVIDER,
  family: SalesGroup.FAMILY,
};
const revenueGroups = {
  pack: RevenueGroup.PACK,
  asset: RevenueGroup.ASSET,
  network: RevenueGroup.NETWORK,
  processor: RevenueGroup.PROCESSOR,
  kind: RevenueGroup.KIND,
};

const ofRange = {
  from: described("The first UTC day.", text),
  to: described("The day after the last one, at most 13 months later.", text),
};
const ofReport = (groups: object) => ({
  ...ofRange,
  bucket: described("The time that one line covers. Default: a day.", {
    ...oneOf(...Object.keys(buckets)),
  }),
  group_by: described(
    `Groups of the lines: some of ${Object.keys(groups).join(", ")}, with commas.`,
    text,
  ),
});

/** What the public description says of them, and their lines. */
export const salesFiles = {
  "sales.csv": {
    id: "downloadSales",
    summary: "Downloads what was used, what it cost and the margin, for operators",
    parameters: ofReport(salesGroups),
    lines: salesLines,
  },
  "revenue.csv": {
    id: "downloadRevenue",
    summary: "Downloads what was paid by receipts and credit notes, for operators",
    parameters: ofReport(revenueGroups),
    lines: revenueLines,
  },
  "liabilities.csv": {
    id: "downloadLiabilities",
    summary: "Downloads what customers were owed at the end of each day, for operators",
    parameters: ofRange,
    lines: liabilityLines,
  },
};

/** The time of a line, and the groups that it is of. */
function askedOf<Group>(query: Query, groups: Readonly<Record<string, Group>>) {
  return {
    ...rangeParams(query),
    bucket: choiceOf(buckets, "bucket", textParam(query, "bucket") || "day"),
    groupBy: listParam(query, "group_by").map((name) => choiceOf(groups, "group_by", name)),
    pageSize: reportRowsMax,
  };
}

const dayOf = ({ startAt }: Pick<Sales | Revenue, "startAt">) =>
  startAt ? timestampDate(startAt).toISOString().slice(0, 10) : "";
/** Micro-dollars, and pico-dollars, as a decimal number of dollars. */
const dollars = (micro: bigint) => decimal(micro, 6, 2);
const picoDollars = (pico: string) => decimal(BigInt(pico || "0"), 12, 2);

const salesColumns = [
  ...["from", "account_id", "model", "provider", "family", "requests"],
  ...tokenCategories.map((category) => categoryColumns[category]),
  ...["web_searches", "charged_credits", "charged_usd", "overrun_credits", "cost_usd"],
  ...["uncosted_requests", "uncosted_credits", "margin_usd"],
];

async function* salesLines(core: Core, query: Query, options: CallOptions): AsyncGenerator<string> {
  const request = askedOf(query, salesGroups);
  let head = csvLine(salesColumns);
  let pageToken = "";
  do {
    const page = await core.operations.querySales({ ...request, pageToken }, options);
    yield head + page.rows.map(salesLine).join("");
    head = "";
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

function salesLine(row: Sales): string {
  const { usage } = row;
  return csvLine([
    ...[dayOf(row), row.accountId, textCell(row.model), textCell(row.provider)],
    ...[familyName(row.family) ?? "", row.requests],
    ...tokenCategories.map((category) => usage?.[category] ?? 0n),
    ...[usage?.webSearches ?? 0n, credits(row.chargedMicrocredits), usd(row.chargedMicrocredits)],
    ...[credits(row.overrunMicrocredits), picoDollars(row.costPicodollars)],
    ...[row.uncostedRequests, credits(row.uncostedMicrocredits), dollars(row.marginMicrodollars)],
  ]);
}

const revenueColumns = [
  ...["from", "pack_usd", "asset", "network", "processor", "kind", "orders"],
  ...["paid_usd", "refunded_usd", "lost_usd", "net_usd", "coins"],
];

async function* revenueLines(
  core: Core,
  query: Query,
  options: CallOptions,
): AsyncGenerator<string> {
  const request = askedOf(query, revenueGroups);
  let head = csvLine(revenueColumns);
  let pageToken = "";
  do {
    const page = await core.operations.queryRevenue({ ...request, pageToken }, options);
    yield head + page.rows.map(revenueLine).join("");
    head = "";
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

function revenueLine(row: Revenue): string {
  return csvLine([
    ...[dayOf(row), row.packMicrodollars === 0n ? "" : dollars(row.packMicrodollars)],
    ...[row.asset, row.network, textCell(row.processor), revenueKindName(row.kind), row.orders],
    ...[dollars(row.paidMicrodollars), dollars(row.refundedMicrodollars)],
    ...[dollars(row.lostMicrodollars), dollars(row.netMicrodollars)],
    textCell(row.coins.map(({ asset, coins: amount }) => `${amount} ${asset}`).join("; ")),
  ]);
}

const kinds = ["purchase", "deposit", "bonus", "adjustment", "refund", "chargeback"] as const;
const liabilityColumns = [
  "day",
  ...["v1", "v2"].flatMap((family) =>
    ["owed", "debts", ...kinds, "charged"].map((name) => `${family}_${name}_credits`),
  ),
  "owed_usd",
];

/** A line for each day, with the figures of both families. */
async function* liabilityLines(
  core: Core,
  query: Query,
  options: CallOptions,
): AsyncGenerator<string> {
  const { rows } = await core.operations.queryLiabilities(rangeParams(query), options);
  const byDay = Map.groupBy(rows, ({ day }) => (day ? Number(day.seconds) : 0));
  yield csvLine(liabilityColumns) + [...byDay.values()].map(liabilityLine).join("");
}

function liabilityLine(families: readonly Liabilities[]): string {
  const [first] = families;
  const day = first?.day ? timestampDate(first.day).toISOString().slice(0, 10) : "";
  const owed = families.reduce((sum, one) => sum + one.owedMicrocredits, 0n);
  return csvLine([
    day,
    ...families.flatMap((one) =>
      [
        one.owedMicrocredits,
        one.debtsMicrocredits,
        ...kinds.map(
          (kind) =>
            one.added.find((added) => added.kind === transferKindOf(kind))?.addedMicrocredits ?? 0n,
        ),
        one.chargedMicrocredits,
      ].map(credits),
    ),
    usd(owed),
  ]);
}
