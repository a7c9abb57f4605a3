// The digest of a closed month, and the places between its charges.
//
// The lines of the charges, each with its line feed, in the order of their settlement, are divided
// into blocks of 10,000. The digest is the SHA-256 of the SHA-256s of the blocks: the database
// makes each of these in a statement of its own, so that no statement holds up others for long.

import { createHash } from "node:crypto";

/** Lines of a block. */
export const blockLines = 10_000;

/** A charge in the order of settlement: `settled_at` as the database writes it. */
export type Place = {
  readonly settledAt: string;
  readonly requestId: string;
  readonly accountId: string;
};

/** Before every charge. */
export const firstPlace: Place = { settledAt: "-infinity", requestId: "", accountId: "" };

/** A place as parameters of a statement. */
export function valuesOf({ settledAt, requestId, accountId }: Place): string[] {
  return [settledAt, requestId, accountId];
}

/** The end of what a statement has read. Null: it found nothing. */
export type PlaceRow = {
  settled_at: string | null;
  request_id: string | null;
  account_id: string | null;
};

export function placeOf({ settled_at, request_id, account_id }: PlaceRow): Place {
  return {
    settledAt: settled_at ?? firstPlace.settledAt,
    requestId: request_id ?? "",
    accountId: account_id ?? "",
  };
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
