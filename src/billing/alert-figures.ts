// What alerts compare with the settings of accounts: free credits, their pace, and budgets. Each
// function reads many accounts with one statement.

import * as sql from "../../gen/sql/billing.ts";
import type { FamilyName } from "../base/families.ts";
import type { Runner } from "../postgres/statement.ts";
import type { AccountStatusName } from "./admission.ts";
import { forecastDays, forecastDaysMin } from "./usage.ts";

export type AlertFigures = {
  /** The accounts that are not closed, in the order of their ids, from the cursor `after` on. */
  listAccounts(after: string, limit: number): Promise<readonly sql.ListOpenAccountsRow[]>;
  /**
   * What a pool spends a day, in micro-credits, as the forecast has it. It changes once a UTC day.
   * A pool without a forecast is left out.
   */
  readDailySpend(accountIds: readonly string[]): Promise<readonly DailySpend[]>;
  /** The pools with fewer free credits than these bounds. One that was never filled is left out. */
  findLow(bounds: readonly PoolBound[]): Promise<readonly sql.FindLowPoolsRow[]>;
  /** The limits of budgets of which so many percent are spent in the UTC window of now. */
  findSpentLimits(
    asked: readonly { readonly accountId: string; readonly percent: number }[],
  ): Promise<readonly sql.FindSpentLimitsRow[]>;
  /** Undefined: there is no such account. */
  readStatus(accountId: string): Promise<AccountStatusName | undefined>;
};

type DailySpend = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly dailyMicro: bigint;
};
type PoolBound = {
  readonly accountId: string;
  readonly family: FamilyName;
  readonly belowMicro: bigint;
};
/** `db` should be the connections for reports. */
export function createAlertFigures(db: Runner): AlertFigures {
  return {
    listAccounts: (after, rows) => db.run(sql.listOpenAccounts, { after, rows }),
    async readDailySpend(accountIds) {
      const rows = await db.run(sql.readDailySpend, { accountIds, days: forecastDays });
      return rows
        .filter(({ days }) => days >= forecastDaysMin)
        .map(({ amount, days, ...pool }) => ({ ...pool, dailyMicro: amount / BigInt(days) }));
    },
    findLow: (bounds) =>
      db.run(sql.findLowPools, {
        accountIds: bounds.map(({ accountId }) => accountId),
        families: bounds.map(({ family }) => family),
        bounds: bounds.map(({ belowMicro }) => belowMicro),
      }),
    findSpentLimits: (asked) =>
      db.run(sql.findSpentLimits, {
        accountIds: asked.map(({ accountId }) => accountId),
        percents: asked.map(({ percent }) => percent),
      }),
    async readStatus(accountId) {
      return (await db.run(sql.readAccountStatus, { accountId }))?.status;
    },
  };
}
