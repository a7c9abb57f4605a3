// The statements of this folder. They read on the connections for reports, which admissions do not
// use and which end a statement that takes too long.

import { ApiError } from "../base/errors.ts";
import { isTimedOut, isUnreachable, type Postgres, statement } from "../postgres/postgres.ts";

const statements = { findAccounts: statement(import.meta.url, "find-accounts") };

/** Which accounts. */
export type AccountSearch = {
  /** Part of a name, or of the login or the address of an owner, in small letters. Empty: all. */
  readonly text: string;
  /** Accounts that match the text in another way. */
  readonly matching: readonly string[];
  /** Undefined: any. */
  readonly status: "suspended" | "closed" | undefined;
  /** The only accounts to look at. Undefined: all. */
  readonly among: readonly string[] | undefined;
};

export type OperationsStore = ReturnType<typeof createOperationsStore>;

export function createOperationsStore({ reports }: Pick<Postgres, "reports">) {
  return {
    /**
     * The ids of accounts before `before`, newest first. Throws `report_too_large` and
     * `billing_unavailable`.
     */
    async findAccounts(
      { text, matching, status, among }: AccountSearch,
      before: string | undefined,
      limit: number,
    ): Promise<string[]> {
      const values = [before ?? null, limit, text, matching, status ?? null, among ?? null];
      const rows = await reports
        .query<{ account_id: string }>(statements.findAccounts, values)
        .catch(toApiError);
      return rows.map(({ account_id }) => account_id);
    },
  };
}

function toApiError(cause: unknown): never {
  if (isTimedOut(cause)) throw new ApiError("report_too_large", { cause });
  if (isUnreachable(cause))
    throw new ApiError("billing_unavailable", { retryAfterMs: 1000, cause });
  throw cause;
}
