// Pages of lists, and the ranges of time that lists and reports are asked for. A page token is the
// cursor of the last entry in base64url, so a position in the list stays valid while entries are
// added. It begins with a hash of the method, the account, the request and the cursor, so that it
// continues no other list. It has no key: a forged one reads nothing that its caller may not read.

import { createHash } from "node:crypto";
import type { DescMessage, DescMethodUnary, Message, MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type ApiError, invalidField } from "./errors.ts";

/** The fields that each request for a list has. */
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

/** A method that lists something in pages. */
export type PagedMethod<Request extends DescMessage = DescMessage> = DescMethodUnary<Request>;

/** What a call sees: also its scope, for lists that show a caller only what is of one key. */
type OfAccount = {
  /** Empty: it concerns no account, or all of them. */
  readonly accountId: string;
  readonly onlyKey?: string | undefined;
};

/** A position in a list that is ordered by time and id. */
export type TimeCursor = { readonly at: Date; readonly id: string };

/** The entries of a page that was asked for without a size. */
export const pageSizeDefault = 50;
/** The page that a request asks for. */
export type AskedPage = {
  /** Its most entries. */
  readonly size: number;
  /** The cursor of the last entry of the page before. Undefined: it is the first page. */
  readonly after: string | undefined;
  /** The token that continues the same list after an entry. */
  tokenOf(cursor: string): string;
};

/**
 * The page that a request asks for, for a list that reads it by itself. Throws `invalid_request`
 * for a token that was not made for this method, account and request. The most entries of a page
 * are a limit of the field.
 */
export function askedPage<Request extends DescMessage>(
  method: PagedMethod<Request>,
  request: MessageShape<Request> & PageRequest,
  { accountId, onlyKey = "" }: OfAccount,
): AskedPage {
  const path = `${method.parent.typeName}/${method.name}`;
  const question = [path, accountId, onlyKey, textOf(request)].join(" ");
  return {
    size: request.pageSize || pageSizeDefault,
    after: parseToken(request.pageToken, question),
    tokenOf: (cursor) =>
      Buffer.concat([hashOf(question, cursor), Buffer.from(cursor)]).toString("base64url"),
  };
}

/** How a list reads its entries. */
export type ReadList<Entry> = {
  /** At most `limit` entries after the cursor `after`, from the start if that is undefined. */
  read(after: string | undefined, limit: number): Promise<readonly Entry[]>;
  cursorOf(entry: Entry): string;
};

/** Reads one page of a list. Throws as `askedPage` does. */
export async function readPage<Request extends DescMessage, Entry>(
  method: PagedMethod<Request>,
  request: MessageShape<Request> & PageRequest,
  call: OfAccount,
  list: ReadList<Entry>,
): Promise<Page<Entry>> {
  const { size, after, tokenOf } = askedPage(method, request, call);
  // One entry more than the page holds shows whether another page follows.
  const found = await list.read(after, size + 1);
  const entries = found.slice(0, size);
  const last = found.length > size ? entries.at(-1) : undefined;
  return { entries, nextPageToken: last === undefined ? "" : tokenOf(list.cursorOf(last)) };
}

/**
 * A list that is whole in memory. `cursorOf` tells its entries apart. Reading it throws
 * `invalid_request` if the last entry of the page before is gone.
 */
export function wholeList<Entry>(
  all: readonly Entry[],
  cursorOf: (entry: Entry) => string,
): ReadList<Entry> {
  return {
    async read(after, limit) {
      const start = after === undefined ? 0 : all.findIndex((one) => cursorOf(one) === after) + 1;
      if (after !== undefined && start === 0) throw invalidPageToken();
      return all.slice(start, start + limit);
    },
    cursorOf,
  };
}

const hashBytes = 9;

/** The cursor of a token. Undefined: the first page. */
function parseToken(token: string, question: string): string | undefined {
  if (token === "") return undefined;
  const bytes = Buffer.from(token, "base64url");
  const text = bytes.subarray(hashBytes).toString("utf8");
  // PostgreSQL refuses a text with NUL.
  const isOurs =
    bytes.toString("base64url") === token &&
    hashOf(question, text).equals(bytes.subarray(0, hashBytes)) &&
    !text.includes("\0");
  if (!isOurs) throw invalidPageToken();
  return text;
}

function hashOf(question: string, cursor: string): Buffer {
  const text = JSON.stringify([question, cursor]);
  return createHash("sha256").update(text).digest().subarray(0, hashBytes);
}

/**
 * All fields of a request but those of its page, in one order: maps have none, and a client may
 * send theirs in another order with each page.
 */
function textOf(request: Message & PageRequest): string {
  const asked = { ...request, pageSize: 0, pageToken: "", $unknown: undefined };
  return JSON.stringify(asked, (_, value: unknown) => {
    if (typeof value === "bigint") return String(value);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(
      Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)),
    );
  });
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

/** The parts of a cursor that is a list in JSON. Throws `invalid_request` for any other. */
export function parseListCursor(cursor: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(cursor);
    if (Array.isArray(parts)) return parts;
  } catch {
    // Somebody made it up.
  }
  throw invalidPageToken();
}

export function invalidPageToken(): ApiError {
  return invalidField("page_token", "is not a next_page_token of this list");
}

/** A range of time as a request names it. */
export type AskedRange = {
  readonly startAt?: Timestamp | undefined;
  /** Exclusive. */
  readonly endAt?: Timestamp | undefined;
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
  const from = asked.startAt && dateOf("start_at", asked.startAt);
  const to = asked.endAt && dateOf("end_at", asked.endAt);
  if (from === undefined) return { from, to };
  if (to !== undefined && to < from) throw invalidField("end_at", "is before start_at");
  if (from.getTime() > now.getTime() + aheadMsMax)
    throw invalidField("start_at", "is in the future");
  const last = new Date(from);
  last.setUTCFullYear(last.getUTCFullYear() + yearsMax);
  if ((to ?? now) > last)
    throw invalidField("start_at", `is more than ${yearsMax} years before the end of the range`);
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
