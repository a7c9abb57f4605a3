// The reports of operators about money: sales, revenue, liabilities, and bills of providers.

import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type UsageTotal, UsageTotalSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  LiabilitiesSchema,
  type ListProviderBillsRequest,
  type ListProviderBillsResponse,
  ListProviderBillsResponseSchema,
  ProviderBillSchema,
  type QueryLiabilitiesRequest,
  type QueryLiabilitiesResponse,
  QueryLiabilitiesResponseSchema,
  type QueryRevenueRequest,
  type QueryRevenueResponse,
  QueryRevenueResponseSchema,
  type QuerySalesRequest,
  type QuerySalesResponse,
  QuerySalesResponseSchema,
  type Revenue,
  RevenueGroup,
  RevenueSchema,
  type Sales,
  SalesBucket,
  SalesGroup,
  SalesSchema,
  SalesService,
  type SetProviderBillRequest,
  type SetProviderBillResponse,
  SetProviderBillResponseSchema,
} from "../../gen/gateway/sales/v1/sales_pb.ts";
import * as sql from "../../gen/sql/sales.ts";
import { toActor } from "../base/actors.ts";
import { invalidField } from "../base/errors.ts";
import { familyOf, namedFamily } from "../base/families.ts";
import { decimal } from "../base/money.ts";
import { checkText } from "../base/names.ts";
import { askedPage, parseListCursor, readPage, wholeList } from "../base/paging.ts";
import { revenueKindOf } from "../base/revenue-kinds.ts";
import { byCategory } from "../base/token-categories.ts";
import { transferKindNames, transferKindOf } from "../base/transfer-kinds.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Json, Runner } from "../postgres/statement.ts";

const monthsMax = 13;
const picoDollarsPerMicroCredit = 5_000n;
const picoDollarsPerMicroDollar = 1_000_000n;

export type ReportParts = {
  /** Reads on connections that admissions do not use. */
  readonly reports: Postgres["reports"];
  readonly postgres: Runner;
};

/** The UTC days of a report, `YYYY-MM-DD`. `to` is the day after the last one. */
type Days = { readonly from: string; readonly to: string };
type AskedDays = {
  readonly startAt?: Timestamp | undefined;
  readonly endAt?: Timestamp | undefined;
};

/** Throws `invalid_request` for anything but whole UTC days, and for more than 13 months. */
function readDays(asked: AskedDays): Days {
  const from = dayOf("start_at", asked.startAt);
  const to = dayOf("end_at", asked.endAt);
  if (to <= from) throw invalidField("end_at", "must be after start_at");
  const last = new Date(`${from}T00:00:00Z`);
  last.setUTCMonth(last.getUTCMonth() + monthsMax);
  if (to > last.toISOString().slice(0, 10))
    throw invalidField("start_at", `is more than ${monthsMax} months before end_at`);
  return { from, to };
}

function dayOf(field: string, at: Timestamp | undefined): string {
  if (!at) throw new Error(`${field} is not set`);
  const date = timestampDate(at);
  const year = date.getUTCFullYear();
  if (!(year >= 1970 && year <= 9000))
    throw invalidField(field, "is not in the years 1970 to 9000");
  const [day = "", time] = date.toISOString().split("T");
  if (time !== "00:00:00.000Z" || at.nanos !== 0)
    throw invalidField(field, "must be the midnight of a UTC day");
  return day;
}

const startOf = (day: string) => new Date(`${day}T00:00:00Z`);
const dayIn = (at: Date) => at.toISOString().slice(0, 10);
const timestampOf = (day: string) => timestampFromDate(startOf(day));

const bucketNames: Readonly<Record<SalesBucket, string>> = {
  [SalesBucket.UNSPECIFIED]: "none",
  [SalesBucket.NONE]: "none",
  [SalesBucket.DAY]: "day",
  [SalesBucket.WEEK]: "week",
  [SalesBucket.MONTH]: "month",
};

export async function querySales(
  { reports }: ReportParts,
  request: QuerySalesRequest,
  call: Pick<AuthenticatedCall, "accountId">,
): Promise<QuerySalesResponse> {
  const days = readDays(request);
  const by = (group: SalesGroup) => request.groupBy.includes(group);
  const families = request.families.map(namedFamily);
  const asked = {
    bucket: bucketNames[request.bucket] ?? "none",
    byAccount: by(SalesGroup.ACCOUNT),
    byModel: by(SalesGroup.MODEL),
    byProvider: by(SalesGroup.PROVIDER),
    byFamily: by(SalesGroup.FAMILY),
    accounts: request.accountIds,
    models: request.models,
    providers: request.providers,
    families,
  };
  const page = askedPage(SalesService.method.querySales, request, call);
  const { size } = page;
  const after = cursorOf(page.after);
  return reports.transaction(async (tx) => {
    await tx.run(sql.beginSnapshot);
    const found = await readRows(tx, { days, asked, after, rows: size + 1 });
    const [sums = noSums] = await tx.run(sql.querySales, {
      ...{ ...asked, bucket: "none", byAccount: false, byModel: false, byProvider: false },
      ...{ byFamily: false, ...days, start: days.from },
      ...sourceOf(days, { ofAccounts: asked.accounts.length > 0, mayTakeMonths: true }),
      ...{ ...cursorOf(undefined), rows: 1 },
    });
    const { from, to } = { from: startOf(days.from), to: startOf(days.to) };
    const gifts = await tx.run(sql.sumGifts, { from, to });
    const { completeTo } = await tx.run(sql.readSalesCompleteness);
    const rows = found.slice(0, size);
    const last = found.length > size ? rows.at(-1) : undefined;
    return create(QuerySalesResponseSchema, {
      rows: rows.map((row) => ({
        ...toSales(row),
        ...{ accountId: row.accountId, model: row.model, provider: row.provider },
        startAt: timestampOf(row.bucket),
        ...(row.family !== "" && { family: familyOf(row.family) }),
      })),
      totals: toSales(sums),
      bonusMicrocredits: gifts.bonus,
      adjustmentMicrocredits: gifts.adjustment,
      ...(completeTo && { completeUntil: timestampFromDate(completeTo) }),
      ...(last && {
        nextPageToken: page.tokenOf(
          JSON.stringify([last.bucket, last.accountId, last.model, last.provider, last.family]),
        ),
      }),
    });
  });
}

type Groups = Readonly<Record<"byAccount" | "byModel" | "byProvider" | "byFamily", boolean>>;
type Filters = Readonly<
  Record<"accounts" | "models" | "providers" | "families", readonly string[]>
>;
type Asked = Groups & Filters & { readonly bucket: string };
type Cursor = ReturnType<typeof cursorOf>;

/** The sums with the fewest rows: those of all accounts, or of each, by months if they may be. */
function sourceOf({ from, to }: Days, of: { ofAccounts: boolean; mayTakeMonths: boolean }) {
  const first = startOf(from);
  if (first.getUTCDate() > 1) first.setUTCMonth(first.getUTCMonth() + 1, 1);
  return {
    span: of.ofAccounts ? "day" : "total",
    byMonths: of.ofAccounts && of.mayTakeMonths,
    monthsFrom: dayIn(first),
    monthsTo: `${to.slice(0, 7)}-01`,
  };
}

/** Where times have rows of their own, so many of them are read at first. */
const stepsAtFirst = 2;

/**
 * The next rows. Accounts may have millions, in the order of their times: so many of these are read
 * as the rows need.
 */
async function readRows(
  tx: Runner,
  { days, asked, after, rows }: { days: Days; asked: Asked; after: Cursor; rows: number },
): Promise<sql.QuerySalesRow[]> {
  const { bucket, byAccount, accounts } = asked;
  const ofAccounts = byAccount || accounts.length > 0;
  const mayTakeMonths = bucket === "month" || bucket === "none";
  const source = sourceOf(days, { ofAccounts, mayTakeMonths });
  const read = (from: string, to: string, left: number) =>
    tx.run(sql.querySales, {
      ...{ ...asked, ...source, ...after, from, to, start: days.from, rows: left },
    });
  if (!ofAccounts || bucket === "none") return read(days.from, days.to, rows);
  const found: sql.QuerySalesRow[] = [];
  let from = after.after === null || after.after < days.from ? days.from : after.after;
  for (let steps = stepsAtFirst; from < days.to && found.length < rows; steps *= 4) {
    const [to = days.to] = [nextStep(from, bucket, steps), days.to].sort();
    found.push(...(await read(from, to, rows - found.length)));
    from = to;
  }
  return found;
}

/** The beginning of the day, week or month that is so many of them after that of a day. */
function nextStep(day: string, bucket: string, steps: number): string {
  const at = startOf(day);
  if (bucket === "month") at.setUTCMonth(at.getUTCMonth() + steps, 1);
  else if (bucket === "week")
    at.setUTCDate(at.getUTCDate() - ((at.getUTCDay() + 6) % 7) + 7 * steps);
  else at.setUTCDate(at.getUTCDate() + steps);
  return dayIn(at);
}

/** The row after which a page begins. */
function cursorOf(cursor: string | undefined) {
  const none = { afterAccount: "", afterModel: "", afterProvider: "", afterFamily: "" };
  if (cursor === undefined) return { after: null, ...none };
  const [after = "", afterAccount = "", afterModel = "", afterProvider = "", afterFamily = ""] =
    parseListCursor(cursor).map(String);
  return { after, afterAccount, afterModel, afterProvider, afterFamily };
}

type Sums = Omit<sql.QuerySalesRow, "bucket" | "accountId" | "family">;

const noSums: Sums = {
  ...byCategory(() => 0n),
  ...{ model: "", provider: "", requests: 0n, uncosted: 0n, uncostedAmount: 0n, webSearches: 0n },
  ...{ amount: 0n, overrun: 0n, costPico: "0" },
};

function toSales(sums: Sums): Sales {
  return create(SalesSchema, {
    requests: sums.requests,
    usage: usageOf(sums),
    chargedMicrocredits: sums.amount,
    overrunMicrocredits: sums.overrun,
    costPicodollars: sums.costPico,
    uncostedRequests: sums.uncosted,
    uncostedMicrocredits: sums.uncostedAmount,
    marginMicrodollars: marginMicro(sums.amount - sums.uncostedAmount, BigInt(sums.costPico)),
  });
}

function usageOf(sums: Sums): UsageTotal {
  const ofCategories = byCategory((category) => sums[category]);
  return create(UsageTotalSchema, { ...ofCategories, webSearches: sums.webSearches });
}

/** Micro-dollars of what was charged less what it cost, rounded down, below zero too. */
export function marginMicro(chargedMicro: bigint, costPico: bigint): bigint {
  const pico = chargedMicro * picoDollarsPerMicroCredit - costPico;
  const whole = pico / picoDollarsPerMicroDollar;
  return pico % picoDollarsPerMicroDollar < 0n ? whole - 1n : whole;
}

export async function queryRevenue(
  { reports }: ReportParts,
  request: QueryRevenueRequest,
  call: Pick<AuthenticatedCall, "accountId">,
): Promise<QueryRevenueResponse> {
  const days = readDays(request);
  const by = (group: RevenueGroup) => request.groupBy.includes(group);
  const asked = {
    from: startOf(days.from),
    to: startOf(days.to),
    bucket: bucketNames[request.bucket] ?? "none",
    byPack: by(RevenueGroup.PACK),
    byAsset: by(RevenueGroup.ASSET),
    byNetwork: by(RevenueGroup.NETWORK),
    byProcessor: by(RevenueGroup.PROCESSOR),
    byKind: by(RevenueGroup.KIND),
  };
  const documents = await reports.run(sql.sumDocuments, asked);
  const coins = Map.groupBy(await reports.run(sql.sumCoins, asked), groupName);
  const rows = documents.map((row) =>
    create(RevenueSchema, {
      ...moneyOf(row),
      ...{ asset: row.asset, network: row.network, processor: row.processor },
      kind: revenueKindOf(row.kind),
      startAt: timestampOf(row.bucket),
      packMicrodollars: row.pack,
      coins: toCoins(coins.get(groupName(row)) ?? []),
    }),
  );
  const totals = create(RevenueSchema, {
    ...moneyOf({
      orders: sumOf(documents, ({ orders }) => orders),
      paidMicro: sumOf(documents, ({ paidMicro }) => paidMicro),
      refundedMicro: sumOf(documents, ({ refundedMicro }) => refundedMicro),
      lostMicro: sumOf(documents, ({ lostMicro }) => lostMicro),
    }),
    coins: toCoins([...coins.values()].flat()),
  });
  const list = wholeList(rows, revenueName);
  const page = await readPage(SalesService.method.queryRevenue, request, call, list);
  return create(QueryRevenueResponseSchema, {
    rows: page.entries,
    totals,
    nextPageToken: page.nextPageToken,
  });
}

/** The time and the groups of a row. */
const revenueName = ({
  startAt: from,
  packMicrodollars,
  asset,
  network,
  processor,
  kind,
}: Revenue) =>
  JSON.stringify([
    ...[String(from?.seconds), String(packMicrodollars)],
    ...[asset, network, processor, kind],
  ]);

type Group = Pick<
  sql.SumDocumentsRow,
  "bucket" | "pack" | "asset" | "network" | "processor" | "kind"
>;
const groupName = ({ bucket, pack, asset, network, processor, kind }: Group) =>
  JSON.stringify([bucket, String(pack), asset, network, processor, kind]);

function sumOf<T>(all: readonly T[], amount: (one: T) => bigint): bigint {
  return all.reduce((sum, one) => sum + amount(one), 0n);
}

type Money = Pick<sql.SumDocumentsRow, "orders" | "paidMicro" | "refundedMicro" | "lostMicro">;

function moneyOf({ orders, paidMicro, refundedMicro, lostMicro }: Money) {
  return {
    orders,
    paidMicrodollars: paidMicro,
    refundedMicrodollars: refundedMicro,
    lostMicrodollars: lostMicro,
    netMicrodollars: paidMicro - refundedMicro - lostMicro,
  };
}

/** Sums by coin. A coin has the same number of decimals wherever it is. */
function toCoins(rows: readonly sql.SumCoinsRow[]) {
  return [...Map.groupBy(rows, ({ coin, decimals }) => `${coin} ${decimals}`).values()].map(
    (all) => {
      const [{ coin, decimals } = { coin: "", decimals: 0 }] = all;
      const atoms = sumOf(all, (one) => BigInt(one.atoms));
      return { asset: coin, coins: decimal(atoms, decimals, 0) };
    },
  );
}

export async function queryLiabilities(
  { reports }: ReportParts,
  request: QueryLiabilitiesRequest,
): Promise<QueryLiabilitiesResponse> {
  const days = readDays(request);
  const rows = await reports.run(sql.listLiabilities, days);
  return create(QueryLiabilitiesResponseSchema, {
    rows: rows.map((row) =>
      create(LiabilitiesSchema, {
        day: timestampOf(row.day),
        family: familyOf(row.family),
        owedMicrocredits: row.owed,
        debtsMicrocredits: row.debts,
        added: readAdded(row.added),
        chargedMicrocredits: row.charged,
      }),
    ),
  });
}

function readAdded(json: Json) {
  const amounts: { [name: string]: unknown } = Object(json);
  return transferKindNames
    .filter((name) => amounts[name] !== undefined)
    .map((name) => ({
      kind: transferKindOf(name),
      addedMicrocredits: BigInt(String(amounts[name])),
    }));
}

export async function listProviderBills(
  { reports }: ReportParts,
  request: ListProviderBillsRequest,
  call: Pick<AuthenticatedCall, "accountId">,
): Promise<ListProviderBillsResponse> {
  const days = readDays(request);
  for (const [field, day] of [
    ["start_at", days.from],
    ["end_at", days.to],
  ] as const)
    if (!day.endsWith("-01")) throw invalidField(field, "must be the first of a month");
  const all = await reports.run(sql.listBills, days);
  const list = wholeList(all, ({ month, provider }) => `${month} ${provider}`);
  const page = await readPage(SalesService.method.listProviderBills, request, call, list);
  return create(ListProviderBillsResponseSchema, {
    nextPageToken: page.nextPageToken,
    bills: page.entries.map((row) =>
      create(ProviderBillSchema, {
        provider: row.provider,
        month: row.month.slice(0, 7),
        costPicodollars: row.costPico,
        requests: row.requests,
        uncostedRequests: row.uncosted,
        ...(row.usdMicro !== null && { billedMicrodollars: row.usdMicro }),
        note: row.note ?? "",
        setBy: toActor(row.setBy),
        ...(row.setAt && { setAt: timestampFromDate(row.setAt) }),
      }),
    ),
  });
}

export async function setProviderBill(
  { postgres }: ReportParts,
  { provider, month, billedMicrodollars, note }: SetProviderBillRequest,
  { caller }: AuthenticatedCall,
): Promise<SetProviderBillResponse> {
  checkText("provider", provider);
  checkText("note", note);
  if (provider.trim() === "") throw invalidField("provider", "must not be blank");
  await postgres.run(sql.setBill, {
    provider,
    month: `${month}-01`,
    usdMicro: billedMicrodollars,
    note,
    setBy: actorOf(caller),
  });
  return create(SetProviderBillResponseSchema);
}
