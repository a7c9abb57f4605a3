// Reports: usage and rejected requests by time, key, model and family, and the forecast. Whole days
// that are closed are read from `usage_daily`, the rest from `usage_hourly` (`usage-days.ts`). By
// tags, they are read from `tags_daily`, the rest from the charges.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Forecast, ForecastSchema } from "../../gen/gateway/common/v1/forecast_pb.ts";
import { UsageTotalSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  Bucket,
  type OutcomeCount,
  OutcomeCountSchema,
  type QueryRefusalsRequest,
  type QueryRefusalsResponse,
  QueryRefusalsResponseSchema,
  type QueryUsageRequest,
  type QueryUsageResponse,
  QueryUsageResponseSchema,
  RefusalGroup,
  RefusalRowSchema,
  UsageGroup,
  UsageRowSchema,
  UsageService,
  type UsageSums,
  UsageSumsSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { toActor } from "../base/actors.ts";
import { readBudget, toBudget } from "../base/budgets.ts";
import { invalidField } from "../base/errors.ts";
import { familyOf } from "../base/families.ts";
import {
  type AskedPage,
  type AskedRange,
  askedPage,
  invalidPageToken,
  type Page,
  parseListCursor,
  readTimeRange,
} from "../base/paging.ts";
import { reasonOf } from "../base/reasons.ts";
import { hoursKeptDays } from "../base/shown-figures.ts";
import { checkTags } from "../base/tags.ts";
import { byCategory } from "../base/token-categories.ts";
import type { Runner } from "../postgres/statement.ts";
import { outcomeOf } from "./rows.ts";
import { dayMs, dayOf, hourMs, startOfDay } from "./usage-days.ts";

/** Whose figures a report shows. */
export type Scope = {
  readonly accountId: string;
  /** The only key that the caller may see. Undefined: all keys of the account. */
  readonly onlyKey: string | undefined;
};

export type Reports = ReturnType<typeof createReports>;

/** Longer than any admission: its request has the time at which its transaction began. */
const admissionMsMax = 60_000;
/** The forecast is from the mean of this many full days. */
export const forecastDays = 7;
/** The forecast begins after this many full days of use. */
export const forecastDaysMin = 2;

/** As statements name them. */
function bucketName(bucket: Bucket): "none" | "hour" | "day" | "month" {
  switch (bucket) {
    case Bucket.HOUR:
      return "hour";
    case Bucket.DAY:
      return "day";
    case Bucket.MONTH:
      return "month";
    default:
      return "none";
  }
}

/** `db` should be the connections for reports, which end a statement that takes too long. */
export function createReports(db: Runner) {
  async function readClock(accountId: string, keyIds: readonly string[] | null): Promise<Clock> {
    const row = await db.run(sql.findFirstRunning, { accountId, keyIds });
    const settledUntil = new Date(row.at.getTime() - admissionMsMax);
    const { admittedAt: running } = row;
    return {
      at: row.at,
      hoursFrom: new Date(startOfDay(row.today).getTime() - hoursKeptDays * dayMs),
      closedTo: startOfDay(row.closedTo),
      tagsTo: startOfDay(row.tagsTo),
      completeUntil: running && running < settledUntil ? running : settledUntil,
    };
  }

  type Reading = {
    readonly asked: Parameters<typeof sql.sumUsage.with>[0];
    readonly groupBy: readonly UsageGroup[];
    readonly bucket: Bucket;
    readonly page: { readonly size: number; readonly after: Place | undefined };
    /** Undefined: not by a tag. */
    readonly tag: TagQuestion | undefined;
  };

  /** What both statements of groups take. */
  const groupsOf = ({ asked, groupBy, bucket, page: { size, after } }: Reading) => {
    const [afterKeyId = null, afterModel = null, afterFamily = null, ...others] =
      after?.names ?? [];
    const [afterMember = null, afterValue = null] = others;
    return {
      ...asked,
      bucket: bucketName(bucket),
      byKey: groupBy.includes(UsageGroup.KEY),
      byModel: groupBy.includes(UsageGroup.MODEL),
      byFamily: groupBy.includes(UsageGroup.FAMILY),
      byMember: groupBy.includes(UsageGroup.MEMBER),
      afterPeriod: after?.at ?? null,
      afterKeyId,
      afterModel,
      afterFamily,
      afterMember,
      afterValue,
      rows: size + 1,
    };
  };

  async function sumTags(
    reading: Reading,
    { key, value, isGrouped }: TagQuestion,
  ): Promise<UsageSumRow[]> {
    const rows = await db.run(sql.queryTags, { ...groupsOf(reading), tag: key, value });
    return isGrouped ? rows : rows.map((row) => ({ ...row, value: "" }));
  }

  /** The sums of all rows of a question. */
  async function sumAll({ page, ...reading }: Reading): Promise<SumsRow[]> {
    const { asked, tag } = reading;
    // The requests with and without a tag are all requests.
    if (!tag || tag.value === null) return [await db.run(sql.sumUsage, asked)];
    const whole = { bucket: Bucket.NONE, groupBy: [], page: { size: page.size, after: undefined } };
    return sumTags({ ...reading, ...whole }, tag);
  }

  async function listDays(reading: Reading): Promise<UsageSumRow[]> {
    const { after } = reading.page;
    const afterDay = after ? dayOf(after.at) : null;
    const rows = await db.run(sql.listUsage, { ...groupsOf(reading), afterDay });
    return rows.map((row) => ({ ...row, period: startOfDay(row.day) }));
  }

  async function findRows(reading: Reading, isOfDays: boolean): Promise<UsageSumRow[]> {
    if (reading.tag) return sumTags(reading, reading.tag);
    return isOfDays ? listDays(reading) : db.run(sql.queryUsage, groupsOf(reading));
  }

  type Counted = Pick<Reading, "asked" | "tag"> & { readonly range: Range };

  /**
   * How the requests of a question failed. The rows of a tag are of all requests. By the value of a
   * tag they are counted from the charges, so also where the sums have it among `(other)`.
   */
  async function countOutcomes({ range, asked, tag }: Counted): Promise<OutcomeCount[]> {
    const { accountId, keyIds, models } = asked;
    const isFiltered = tag !== undefined && tag.value !== null;
    const tags = isFiltered ? JSON.stringify({ [tag.key]: tag.value }) : null;
    const rows = await db.run(sql.countOutcomes, { ...range, accountId, keyIds, models, tags });
    return rows.map(({ outcome, requests }) =>
      create(OutcomeCountSchema, { outcome: outcomeOf(outcome), requests }),
    );
  }

  return {
    /** Throws `invalid_request` and `report_too_large`. */
    async queryUsage(request: QueryUsageRequest, scope: Scope): Promise<QueryUsageResponse> {
      const { bucket, groupBy, models } = request;
      const tag = tagQuestionOf(request);
      const keyIds = keysOf(request.keyIds, scope);
      const page = pageOf(askedPage(UsageService.method.queryUsage, request, scope));
      // Before the sums: what was settled by now is in them.
      const clock = await readClock(scope.accountId, keyIds);
      const range = page.after?.range ?? rangeOf(request, clock, clock.hoursFrom);
      // A bucket may begin before the range.
      const start = page.after && page.after.at > range.from ? page.after.at : range.from;
      if (bucket === Bucket.HOUR && start < range.to) checkHours(start, clock);
      const daysTo = tag ? clock.tagsTo : clock.closedTo;
      const asked = {
        ...splitRange({ from: start, to: range.to }, bucket, daysTo),
        accountId: scope.accountId,
        keyIds,
        models: models.length > 0 ? models : null,
      };
      const reading = { asked, groupBy, bucket, page, tag };
      const found = await findRows(reading, isOfDays(request));
      const { entries, nextPageToken } = page.cut(found, range, (row) => [
        row.keyId,
        row.model,
        row.family,
        row.member,
        row.value ?? "",
      ]);
      const sums = nextPageToken === "" || page.after ? entries : await sumAll(reading);
      const areWanted = request.includeOutcomes && !page.after;
      const outcomes = areWanted ? await countOutcomes({ range, asked, tag }) : [];
      return create(QueryUsageResponseSchema, {
        rows: entries.map((row) =>
          create(UsageRowSchema, {
            startAt: timestampFromDate(row.period),
            keyId: row.keyId,
            model: row.model,
            ...(row.family !== "" && { family: familyOf(row.family) }),
            member: toActor(row.member),
            sums: toSums([row]),
            tagValue: row.value ?? "",
          }),
        ),
        ...(!page.after && { totals: toSums(sums) }),
        outcomes,
        nextPageToken,
        completeUntil: timestampFromDate(clock.completeUntil),
        startAt: timestampFromDate(range.from),
        endAt: timestampFromDate(range.to),
      });
    },

    /** Throws `invalid_request` and `report_too_large`. */
    async queryRefusals(
      request: QueryRefusalsRequest,
      scope: Scope,
    ): Promise<QueryRefusalsResponse> {
      const { bucket, groupBy } = request;
      const keyIds = keysOf(request.keyIds, scope);
      const page = pageOf(askedPage(UsageService.method.queryRefusals, request, scope));
      const clock = await readClock(scope.accountId, keyIds);
      const range = page.after?.range ?? keptRange(rangeOf(request, clock), clock);
      const [afterKeyId = null, afterReason = null] = page.after?.names ?? [];
      const rows = await db.run(sql.queryErrors, {
        ...range,
        accountId: scope.accountId,
        bucket: bucketName(bucket),
        byKey: groupBy.includes(RefusalGroup.KEY),
        byReason: groupBy.includes(RefusalGroup.REASON),
        keyIds,
        afterPeriod: page.after?.at ?? null,
        afterKeyId,
        afterReason,
        rows: page.size + 1,
      });
      const [total, found] = splitTotal(rows);
      const { entries, nextPageToken } = page.cut(found, range, ({ keyId, reason }) => [
        keyId,
        reason,
        ...(["", "", ""] as const),
      ]);
      return create(QueryRefusalsResponseSchema, {
        rows: entries.map((row) =>
          create(RefusalRowSchema, {
            startAt: timestampFromDate(row.period),
            keyId: row.keyId,
            reason: reasonOf(row.reason),
            requests: row.requests,
          }),
        ),
        ...(!page.after && { total: total.requests }),
        nextPageToken,
        startAt: timestampFromDate(range.from),
        endAt: timestampFromDate(range.to),
      });
    },

    /** One forecast for each pool. Empty: there is no such account. */
    async forecast(accountId: string): Promise<Forecast[]> {
      const rows = await db.run(sql.readSpending, { accountId, days: forecastDays });
      return rows.map(toForecast);
    },
  };
}

/** The times that a report depends on, by the clock of the database. */
type Clock = {
  readonly at: Date;
  /** Single hours are kept from this day on. */
  readonly hoursFrom: Date;
  /** The days before this one are closed. */
  readonly closedTo: Date;
  /** The tags of the days before this one are written. */
  readonly tagsTo: Date;
  /** Every request that was admitted before is in the sums. */
  readonly completeUntil: Date;
};

type Range = { readonly from: Date; readonly to: Date };

/**
 * The range of a request, widened to full hours, and to full UTC days before `daysBefore`. An empty
 * range stays empty.
 */
function rangeOf(asked: AskedRange, { at }: Pick<Clock, "at">, daysBefore = new Date(0)): Range {
  const { from: first, to: last = at } = readTimeRange(asked, at);
  // Nothing is later, and the year 9999 cannot be rounded up.
  const tomorrow = new Date(at.getTime() + dayMs);
  const to = last < tomorrow ? last : tomorrow;
  const from = first ?? startOfMonth(to < at ? to : at);
  const start = floor(from, from < daysBefore ? dayMs : hourMs);
  if (from.getTime() === to.getTime()) return { from: start, to: start };
  return { from: start, to: ceil(to, to < daysBefore ? dayMs : hourMs) };
}

/** The part of the range for which single hours are kept. */
function keptRange({ from, to }: Range, { hoursFrom }: Clock): Range {
  return { from: from < hoursFrom ? hoursFrom : from, to: to < hoursFrom ? hoursFrom : to };
}

function checkHours(from: Date, { hoursFrom }: Clock): void {
  if (from < hoursFrom)
    throw invalidField(
      "start_at",
      `single hours are kept for ${hoursKeptDays} days, since ${hoursFrom.toISOString()}: ask for days`,
    );
}

/**
 * Some hours, some days before `daysTo`, and hours after them, as statements take them. Ends are
 * exclusive, and a part may be empty.
 */
function splitRange({ from, to }: Range, bucket: Bucket, daysTo: Date) {
  const firstDay = ceil(from, dayMs);
  const lastDay = floor(to, dayMs);
  const end = lastDay < daysTo ? lastDay : daysTo;
  const hasDays = bucket !== Bucket.HOUR && firstDay < end;
  const [first, last] = hasDays ? [firstDay, end] : [to, to];
  return {
    hoursFrom: from,
    hoursTo: first,
    daysFrom: dayOf(first),
    daysTo: dayOf(last),
    laterFrom: last,
    laterTo: to,
  };
}

function floor(at: Date, ms: number): Date {
  return new Date(Math.floor(at.getTime() / ms) * ms);
}

function ceil(at: Date, ms: number): Date {
  return new Date(Math.ceil(at.getTime() / ms) * ms);
}

function startOfMonth(at: Date): Date {
  const start = startOfDay(dayOf(at));
  start.setUTCDate(1);
  return start;
}

/**
 * True if a row of a closed day is a row of the answer: there are many, and nothing to add up. A
 * key has one family.
 */
function isOfDays({ bucket, groupBy }: QueryUsageRequest): boolean {
  const { KEY, MODEL } = UsageGroup;
  return bucket === Bucket.DAY && groupBy.includes(KEY) && groupBy.includes(MODEL);
}

/** What a report asks of one tag. */
type TagQuestion = {
  readonly key: string;
  /** Only requests with this value. Null: all requests, also those without the tag. */
  readonly value: string | null;
  /** Whether each value has rows of its own. */
  readonly isGrouped: boolean;
};

/** Undefined: the report is not about a tag. Throws `invalid_request`. */
function tagQuestionOf({ groupByTag, tags }: QueryUsageRequest): TagQuestion | undefined {
  const [only] = Object.entries(checkTags(tags, "tags"));
  const isGrouped = groupByTag !== "";
  if (!only) return isGrouped ? { key: groupByTag, value: null, isGrouped } : undefined;
  const [key, value] = only;
  if (isGrouped && groupByTag !== key)
    throw invalidField(
      "tags",
      "has another tag than group_by_tag: sums are kept for one at a time",
    );
  return { key, value, isGrouped };
}

/** The keys to read. Null: all. A key that the caller may not see looks unused. */
function keysOf(asked: readonly string[], { onlyKey }: Scope): readonly string[] | null {
  if (onlyKey === undefined) return asked.length > 0 ? asked : null;
  return asked.length === 0 || asked.includes(onlyKey) ? [onlyKey] : [];
}

/** The place in a report after which a page begins. */
type Place = {
  /** The range of the first page: it must not move with the clock. */
  readonly range: Range;
  readonly at: Date;
  readonly names: readonly [string, string, string, string, string];
};

/** The page that a request asks for, and what cuts the rows that were found to this page. */
function pageOf({ size, after, tokenOf }: AskedPage) {
  return {
    size,
    after: after === undefined ? undefined : parsePlace(after),
    /** `found` has one row more than the page, if there is another page. */
    cut<Row extends { readonly period: Date }>(
      found: readonly Row[],
      { from, to }: Range,
      namesOf: (row: Row) => Place["names"],
    ): Page<Row> {
      const entries = found.slice(0, size);
      const last = found.length > size ? entries.at(-1) : undefined;
      if (!last) return { entries, nextPageToken: "" };
      const times = [from, to, last.period].map((at) => at.getTime());
      const place = JSON.stringify([...times, ...namesOf(last)]);
      return { entries, nextPageToken: tokenOf(place) };
    },
  };
}

function parsePlace(cursor: string): Place {
  const parts = parseListCursor(cursor);
  const [from, to, at] = parts.slice(0, 3).map(timeOf);
  const [first, second, third, fourth, fifth] = parts.slice(3).map(String);
  if (!from || !to || !at || first === undefined || second === undefined) throw invalidPageToken();
  if (third === undefined || fourth === undefined || fifth === undefined) throw invalidPageToken();
  const names = [first, second, third, fourth, fifth] as const;
  if (names.some((name) => name.includes("\0"))) throw invalidPageToken();
  return { range: { from, to }, at, names };
}

// The years that PostgreSQL and a Timestamp can represent.
function timeOf(part: unknown): Date {
  const time = new Date(Number(part));
  const year = time.getUTCFullYear();
  if (!(year >= 1 && year <= 9999)) throw invalidPageToken();
  return time;
}

/** The first row, which is the sum of all, and the rows of the page. */
function splitTotal<Row extends { period: Date | null }>(
  rows: readonly Row[],
): [Row, (Row & { period: Date })[]] {
  const [total] = rows;
  if (!total) throw new Error("a report without its sum");
  return [total, rows.filter((row): row is Row & { period: Date } => row.period !== null)];
}

const firstEvents = [
  "firstEvent1",
  "firstEvent2",
  "firstEvent3",
  "firstEvent4",
  "firstEvent5",
  "firstEvent6",
  "firstEvent7",
  "firstEvent8",
  "firstEvent9",
  "firstEvent10",
  "firstEvent11",
  "firstEvent12",
  "firstEvent13",
  "firstEvent14",
  "firstEvent15",
  "firstEvent16",
  "firstEvent17",
  "firstEvent18",
  "firstEvent19",
  "firstEvent20",
  "firstEvent21",
] as const satisfies readonly (keyof sql.SumUsageRow)[];
type Untagged = (typeof firstEvents)[number] | "cacheSaved";
/** Those by tag have no first events, nor what the cache saved. */
type SumsRow = Omit<sql.SumUsageRow, Untagged> & Partial<Pick<sql.SumUsageRow, Untagged>>;
type UsageSumRow = SumsRow &
  Pick<sql.QueryUsageRow, "period" | "keyId" | "model" | "family" | "member"> & {
    /** Of a tag. Absent: not by a tag. */
    readonly value?: string;
  };

function toSums(rows: readonly SumsRow[]): UsageSums {
  const sum = (column: keyof SumsRow) => rows.reduce((all, row) => all + (row[column] ?? 0n), 0n);
  return create(UsageSumsSchema, {
    usage: create(UsageTotalSchema, { ...byCategory(sum), webSearches: sum("webSearches") }),
    chargedMicrocredits: sum("amount"),
    inputMicrocredits: sum("amountInput"),
    outputMicrocredits: sum("amountOutput"),
    cacheMicrocredits: sum("amountCache"),
    thinkingMicrocredits: sum("amountThinking"),
    requests: sum("requests"),
    completed: sum("completed"),
    failed: sum("failed"),
    cut: sum("cut"),
    firstEventCounts: firstEvents.map(sum),
    ...(rows.every((row) => row.cacheSaved !== undefined) && {
      cacheSavedNanocredits: sum("cacheSaved"),
    }),
  });
}

function toForecast({ family, free, held, amount, ...row }: sql.ReadSpendingRow): Forecast {
  const firstDay = row.firstDay ?? row.today;
  const sinceFirst = (startOfDay(row.today).getTime() - startOfDay(firstDay).getTime()) / dayMs;
  const days = row.usedBefore ? forecastDays : sinceFirst;
  const isKnown = days >= forecastDaysMin;
  const credits = free > 0n ? free : 0n;
  return create(ForecastSchema, {
    family: familyOf(family),
    freeMicrocredits: free,
    heldMicrocredits: held,
    ...(row.filledTo !== null && { filledToMicrocredits: row.filledTo }),
    ...(isKnown && { dailyMicrocredits: amount / BigInt(days) }),
    ...(isKnown && amount > 0n && { daysLeft: (Number(credits) * days) / Number(amount) }),
    budget: toBudget({ case: "pool", value: true }, family, readBudget(row.budget, row.at)),
  });
}
