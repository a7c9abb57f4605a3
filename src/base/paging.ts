// Pages of lists, and the ranges of time that lists and reports are asked for. A page token is the
// cursor of the last entry in base64url, so a position in the list stays valid while entries are
// added. It begins with a hash of the question, so that it continues no other one.

import { createHash } from "node:crypto";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type ApiError, invalidField } from "./errors.ts";

export type PageRequest = {
  /** 0 means the default. */
  readonly pageSize: number;
  /** Empty for the first page. */
  readonly pageToken: string;
};

export type Page<Entry> = {
  readonly entries: Entry[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
};

/**
 * What a list was asked for besides its page: account, range, filters, as the caller sent them.
 * Texts, numbers, bigints, dates, and arrays of them.
 */
export type Question = readonly unknown[];

/** The sizes of pages. */
export type PageSizes = {
  /** Of a request that names none. Default: 100. */
  readonly sizeDefault?: number;
  /** Default: 1,000. */
  readonly sizeMax?: number;
};

/** A position in a list that is ordered by time and id. */
export type TimeCursor = { readonly at: Date; readonly id: string };

/**
 * Reads one page of a list. `read` gives at most `limit` entries after the cursor `after`, from the
 * start if `after` is undefined. Throws `invalid_request` for a size or token that is not valid, or
 * a token of another question.
 */
export async function readPage<Entry>(
  request: PageRequest,
  list: PageSizes & {
    /** Absent: the list has no filters. */
    question?: Question;
    read(after: string | undefined, limit: number): Promise<readonly Entry[]>;
    cursorOf(entry: Entry): string;
  },
): Promise<Page<Entry>> {
  const size = pageSizeOf(request, list);
  // One entry more than the page holds shows whether another page follows.
  const found = await list.read(parsePageToken(request.pageToken, list.question), size + 1);
  const entries = found.slice(0, size);
  const last = found.length > size ? entries.at(-1) : undefined;
  return {
    entries,
    nextPageToken: last === undefined ? "" : encodePageToken(list.cursorOf(last), list.question),
  };
}

/** The entries of the page. Throws `invalid_request`. */
export function pageSizeOf(
  { pageSize }: Pick<PageRequest, "pageSize">,
  { sizeDefault = 100, sizeMax = 1000 }: PageSizes = {},
): number {
  if (pageSize > sizeMax) throw invalidField("page_size", `is at most ${sizeMax}`);
  return pageSize || sizeDefault;
}

/** A token that only the same question accepts. */
export function encodePageToken(cursor: string, question: Question = []): string {
  return Buffer.from(hashOf(question) + cursor).toString("base64url");
}

/**
 * The cursor of a token. Undefined: the first page. Throws `invalid_request` for a token that
 * `encodePageToken` did not make of this question.
 */
export function parsePageToken(token: string, question: Question = []): string | undefined {
  if (token === "") return undefined;
  const text = Buffer.from(token, "base64url").toString("utf8");
  const hash = hashOf(question);
  // PostgreSQL refuses a text with NUL.
  if (
    !text.startsWith(hash) ||
    text.includes("\0") ||
    Buffer.from(text).toString("base64url") !== token
  )
    throw invalidPageToken();
  return text.slice(hash.length);
}

function hashOf(question: Question): string {
  const text = JSON.stringify(question, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return createHash("sha256").update(text).digest("base64url").slice(0, 12);
}

export function encodeTimeCursor({ at, id }: TimeCursor): string {
  return `${at.toISOString()} ${id}`;
}

/** Throws `invalid_request` for text that `encodeTimeCursor` cannot have made. */
export function parseTimeCursor(cursor: string): TimeCursor {
  const [time = "", id = ""] = cursor.split(" ");
  const at = new Date(time);
  // PostgreSQL cannot hold a year of more than four digits in this form.
  if (!/^\d{4}-/.test(time) || Number.isNaN(at.getTime())) throw invalidPageToken();
  return { at, id };
}

export function invalidPageToken(): ApiError {
  return invalidField("page_token", "is not a next_page_token of this list");
}

/** A range of time as a request names it. */
export type AskedRange = {
  readonly from?: Timestamp | undefined;
  /** Exclusive. */
  readonly to?: Timestamp | undefined;
};

/** The same range. Undefined: the request named no such end. */
export type TimeRange = { readonly from: Date | undefined; readonly to: Date | undefined };

/** Clocks differ: the start of a range may be this far ahead. */
const aheadMsMax = 5 * 60_000;
const yearsMax = 10;

/**
 * Reads the range of a request. Throws `invalid_request` for a range that goes backwards, begins in
 * the future or is longer than ten years, and for times that a Timestamp cannot represent.
 */
export function readTimeRange(asked: AskedRange, now: Date): TimeRange {
  const from = asked.from && dateOf("from", asked.from);
  const to = asked.to && dateOf("to", asked.to);
  if (from === undefined) return { from, to };
  if (to !== undefined && to < from) throw invalidField("to", "is before from");
  if (from.getTime() > now.getTime() + aheadMsMax) throw invalidField("from", "is in the future");
  const last = new Date(from);
  last.setUTCFullYear(last.getUTCFullYear() + yearsMax);
  if ((to ?? now) > last)
    throw invalidField("from", `is more than ${yearsMax} years before the end of the range`);
  return { from, to };
}

// The years that a protobuf Timestamp may represent.
function dateOf(field: string, timestamp: Timestamp): Date {
  const date = timestampDate(timestamp);
  const year = date.getUTCFullYear();
  if (!(year >= 1 && year <= 9999)) throw invalidField(field, "is not in the years 1 to 9999");
  return date;
}

const walkSize = 500;

/** All entries of a list, in pages that are not empty. Each page is read when it is asked for. */
export async function* walkPages<Entry>(list: {
  read(after: string | undefined, limit: number): Promise<readonly Entry[]>;
  cursorOf(entry: Entry): string;
}): AsyncGenerator<Entry[], void> {
  let after: string | undefined;
  for (;;) {
    const entries = await list.read(after, walkSize);
    const last = entries.at(-1);
    if (last === undefined) return;
    yield [...entries];
    if (entries.length < walkSize) return;
    after = list.cursorOf(last);
  }
}
