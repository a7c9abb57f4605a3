// Pages of lists. A token is the place of the last entry, in base64url: stable while entries are
// added.

import { type ApiError, invalidField } from "./errors.ts";

/** A place in a list that is ordered by time and id. */
export type Cursor = { readonly at: Date; readonly id: string };

const usualSize = 100;
const sizeMax = 1000;

/** The size of a page and the entry after which it begins. Throws `invalid_request`. */
export function parsePage(pageSize: number, pageToken: string): { size: number; after?: string } {
  if (pageSize > sizeMax) throw invalidField("page_size", `is at most ${sizeMax}`);
  const size = pageSize === 0 ? usualSize : pageSize;
  if (pageToken === "") return { size };
  const after = Buffer.from(pageToken, "base64url").toString("utf8");
  if (Buffer.from(after).toString("base64url") !== pageToken || after.includes("\0"))
    throw badToken();
  return { size, after };
}

/** The token of the page after `entries`; empty when this one was not full. */
export function encodePageToken<T>(
  entries: readonly T[],
  size: number,
  nameOf: (last: T) => string,
): string {
  const last = entries.at(-1);
  return last === undefined || entries.length < size
    ? ""
    : Buffer.from(nameOf(last)).toString("base64url");
}

/** A place in a list that is ordered by time and id. */
export function parseCursor(after: string): Cursor {
  const [time = "", id = ""] = after.split(" ");
  const at = new Date(time);
  // Years of more digits are beyond what the database knows.
  if (!/^\d{4}-/.test(time) || Number.isNaN(at.getTime())) throw badToken();
  return { at, id };
}

function badToken(): ApiError {
  return invalidField("page_token", "is not one that this list gave");
}
