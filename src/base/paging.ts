// Pages of lists. A page token is the cursor of the last entry in base64url, so a position in the
// list stays valid while entries are added.

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

/** A position in a list that is ordered by time and id. */
export type TimeCursor = { readonly at: Date; readonly id: string };

const sizeDefault = 100;
const sizeMax = 1000;

/**
 * Reads one page of a list. `read` gives at most `limit` entries after the cursor `after`, from the
 * start if `after` is undefined. Throws `invalid_request` for a size or token that is not valid.
 */
export async function readPage<Entry>(
  { pageSize, pageToken }: PageRequest,
  list: {
    read(after: string | undefined, limit: number): Promise<readonly Entry[]>;
    cursorOf(entry: Entry): string;
    sizeDefault?: number;
  },
): Promise<Page<Entry>> {
  if (pageSize > sizeMax) throw invalidField("page_size", `is at most ${sizeMax}`);
  const size = pageSize || (list.sizeDefault ?? sizeDefault);
  // One entry more than the page holds shows whether another page follows.
  const found = await list.read(parseToken(pageToken), size + 1);
  const entries = found.slice(0, size);
  const last = found.length > size ? entries.at(-1) : undefined;
  return {
    entries,
    nextPageToken: last === undefined ? "" : Buffer.from(list.cursorOf(last)).toString("base64url"),
  };
}

function parseToken(token: string): string | undefined {
  if (token === "") return undefined;
  const cursor = Buffer.from(token, "base64url").toString("utf8");
  // PostgreSQL refuses a text with NUL.
  if (Buffer.from(cursor).toString("base64url") !== token || cursor.includes("\0"))
    throw invalidPageToken();
  return cursor;
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
