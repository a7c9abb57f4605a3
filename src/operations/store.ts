// The statements of this folder. They read on the connections for reports, which admissions do not
// use and which end a statement that takes too long.

import * as sql from "../../gen/sql/operations.ts";
import { ApiError } from "../base/errors.ts";
import { countApprovals } from "../contract/approvals.ts";
import type { Runner } from "../postgres/statement.ts";

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

/** Throws `not_found`. */
export async function checkAccount(reports: Runner, accountId: string): Promise<void> {
  const { hasAccount } = await reports.run(sql.hasAccount, { accountId });
  if (!hasAccount) throw noSuchAccount();
}

export function noSuchAccount(): ApiError {
  return new ApiError("not_found", { message: "No such account.", field: "account_id" });
}

export function createOperationsStore(reports: Runner) {
  return {
    /**
     * The ids of accounts before `before`, newest first. Throws `report_too_large` and
     * `database_unavailable`.
     */
    async findAccounts(
      { status, among, ...search }: AccountSearch,
      before: string | undefined,
      rows: number,
    ): Promise<string[]> {
      const found = await reports.run(sql.findAccounts, {
        ...search,
        status: status ?? null,
        among: among ?? null,
        before: before ?? null,
        rows,
      });
      return found.map(({ accountId }) => accountId);
    },
    /** How many requests about an account wait for an approval, for at most so many accounts. */
    async waitingApprovals(rows: number): Promise<ReadonlyMap<string, number>> {
      const counts = await reports.run(countApprovals, { rows });
      return new Map(counts.map(({ accountId, approvals }) => [accountId, approvals]));
    },
  };
}
