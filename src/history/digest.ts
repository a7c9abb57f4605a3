// The lines of charges, the digest of a closed month, and the places between its charges.
//
// The lines, each with its line feed, in the order of the settlement of their charges, are divided
// into blocks of 10,000. The digest is the SHA-256 of the SHA-256s of the blocks: the database
// makes each of these in a statement of its own, so that no statement holds up others for long.

import { createHash } from "node:crypto";

/**
 * The form of the lines, which closings and manifests name: the view `charge_lines_1` writes them.
 * Another form changes the digests of months that are closed later, not of earlier ones.
 */
export const lineForm = 1;

/** What the charges of an export are added up by. A line names web searches if there are any. */
export const figureNames = [
  "hold",
  "amount",
  "overrun",
  "input",
  "output",
  "thinking",
  "cache_write_5m",
  "cache_write_1h",
  "cache_read",
  "web_searches",
] as const;

// The end of every line. Nothing in front of it can look like it: in a string its quotes would be
// escaped, and nested objects have none of these members. The searches come last, if there are any.
const ofEvery = figureNames.slice(0, -1).map((name) => `"${name}":(\\d+),`);
const figures = new RegExp(
  `${ofEvery.join("")}"granted_output":\\d+,[^{}]*?(?:,"web_searches":(\\d+))?}$`,
);

/** The figures of a line, in the order of `figureNames`. Undefined: it is not such a line. */
export function readFigures(line: string): bigint[] | undefined {
  const found = figures.exec(line)?.slice(1);
  return found?.map((figure: string | undefined) => BigInt(figure ?? 0));
}

/** Lines of a block. */
export const blockLines = 10_000;

/** A charge in the order of settlement: `settledAt` as the database writes it. */
export type Place = {
  readonly settledAt: string;
  readonly requestId: string;
  readonly accountId: string;
};

/** Before every charge. */
export const firstPlace: Place = { settledAt: "-infinity", requestId: "", accountId: "" };

/** The end of what a statement has read. Nulls: it found nothing. */
export function placeOf(row: { readonly [Member in keyof Place]: string | null }): Place {
  const { settledAt, requestId, accountId } = row;
  return {
    settledAt: settledAt ?? firstPlace.settledAt,
    requestId: requestId ?? "",
    accountId: accountId ?? "",
  };
}

/** A place as the last one, for statements that take it beside the one before it. */
export function lastOf({ settledAt, requestId, accountId }: Place) {
  return { lastSettledAt: settledAt, lastRequestId: requestId, lastAccountId: accountId };
}

/** The digest of a month, from its blocks in their order. */
export class MonthDigest {
  readonly #hash = createHash("sha256");

  add(block: Buffer): void {
    this.#hash.update(block);
  }

  /** Call once. */
  end(): Buffer {
    return this.#hash.digest();
  }
}
