// A list of charges that grows at both ends: newer ones come as they end, older ones by pages.
// Pure, so that tests need no browser.

import type { Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import type { ListChargesResponse } from "../../../../gen/gateway/usage/v1/usage_pb.ts";

export type ChargeList = {
  /** Newest first. */
  readonly charges: readonly Receipt[];
  /** Of the page behind the oldest one. Empty: there is none. */
  readonly token: string;
  /** All charges since then have been looked at. Undefined: all there are. */
  readonly searchedTo: Date | undefined;
  /** Charges before then were archived, and are in no list. Undefined: none, as far as known. */
  readonly archivedBefore: Date | undefined;
  /** True: the last page was not full, since few charges match. Others may follow. */
  readonly isSparse: boolean;
  /** True: charges were dropped behind those that are shown. */
  readonly isIncomplete: boolean;
};

export const chargePageSize = 50;
/** A page must stay quick: more than these are dropped, the oldest first. */
const shownMax = 1_000;

/** A list of one page, the newest. */
export function begin(page: ListChargesResponse): ChargeList {
  return { ...behind(page), charges: page.charges, isIncomplete: false };
}

/** The newest page was read again. If charges lie between it and the list, the list begins anew. */
export function addNewest(list: ChargeList | undefined, page: ListChargesResponse): ChargeList {
  if (!list) return begin(page);
  const known = new Set(list.charges.map(({ requestId }) => requestId));
  const last = page.charges.at(-1);
  const isJoined = page.nextPageToken === "" || !last || known.has(last.requestId);
  return isJoined ? withCharges(list, page.charges) : begin(page);
}

export function addOlder(list: ChargeList, page: ListChargesResponse): ChargeList {
  return { ...withCharges(list, page.charges), ...behind(page) };
}

function behind({ nextPageToken, searchedTo, archivedBefore, charges }: ListChargesResponse) {
  return {
    token: nextPageToken,
    isSparse: charges.length < chargePageSize,
    searchedTo: searchedTo && new Date(Number(searchedTo.seconds) * 1000),
    archivedBefore: archivedBefore && new Date(Number(archivedBefore.seconds) * 1000),
  };
}

function withCharges(list: ChargeList, more: readonly Receipt[]): ChargeList {
  const byId = new Map([...list.charges, ...more].map((one) => [one.requestId, one]));
  const charges = [...byId.values()].sort(newestFirst);
  if (charges.length <= shownMax) return { ...list, charges };
  return { ...list, charges: charges.slice(0, shownMax), token: "", isIncomplete: true };
}

function newestFirst(a: Receipt, b: Receipt): number {
  const order = admittedNanos(b) - admittedNanos(a);
  if (order !== 0n) return order < 0n ? -1 : 1;
  return a.requestId < b.requestId ? 1 : -1;
}

function admittedNanos({ admittedAt }: Receipt): bigint {
  return admittedAt ? admittedAt.seconds * 1_000_000_000n + BigInt(admittedAt.nanos) : 0n;
}

/** How long a request took, in milliseconds. Undefined: it runs. */
export function durationOf({ admittedAt, settledAt }: Receipt): number | undefined {
  if (!admittedAt || !settledAt) return undefined;
  const seconds = Number(settledAt.seconds - admittedAt.seconds);
  return Math.max(0, seconds * 1000 + (settledAt.nanos - admittedAt.nanos) / 1_000_000);
}

/** From the start of the last attempt to its first event, in milliseconds. */
export function firstEventOf({ attempts }: Receipt): number | undefined {
  const after = attempts.at(-1)?.firstEventAfter;
  return after && Number(after.seconds) * 1000 + after.nanos / 1_000_000;
}
