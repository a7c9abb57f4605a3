// Charges of closed months that were exported and removed. Their sums are kept, so that nothing of
// such a month is silently unknown or short.

import { ApiError } from "../base/errors.ts";
import { monthsNear } from "../base/ids.ts";
import type { LedgerStore } from "./store.ts";

type Store = Pick<LedgerStore, "readArchivedMonths">;

/** Whose charges. Undefined: of any account, of any key. */
export type ArchivedScope = {
  readonly accountId: string | undefined;
  readonly keyId: string | undefined;
};

/**
 * Throws `archived` if a request that has no charge here may have one in an archived month: its id
 * tells when it was made.
 */
export async function refuseArchived(
  store: Store,
  scope: ArchivedScope,
  requestId: string,
): Promise<void> {
  const near = monthsNear(requestId);
  if (near === undefined) return;
  const month = (await store.readArchivedMonths(scope)).find((one) => near.includes(one));
  if (month !== undefined) throw archived(month);
}

/** The start of the first day from which on all charges are here. Undefined: all are. */
export async function keptFrom(store: Store, scope: ArchivedScope): Promise<Date | undefined> {
  const last = (await store.readArchivedMonths(scope)).at(-1);
  if (last === undefined) return undefined;
  const at = new Date(`${last}T00:00:00Z`);
  at.setUTCMonth(at.getUTCMonth() + 1);
  return at;
}

export function archivedBefore(at: Date): ApiError {
  const day = at.toISOString().slice(0, 10);
  return new ApiError("archived", {
    field: "start_at",
    message: `from: charges before ${day} were archived. The operator of this gateway has them.`,
  });
}

/** The UTC months of two times, as their first days. The times are less than a month apart. */
export function monthsBetween(fromMs: number, toMs: number): string[] {
  return [fromMs, toMs].map((ms) => `${new Date(ms).toISOString().slice(0, 7)}-01`);
}

function archived(month: string): ApiError {
  const name = month.slice(0, 7);
  return new ApiError("archived", {
    message: `The charges of ${name} were archived. The operator of this gateway has them.`,
  });
}
