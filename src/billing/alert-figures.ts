// What alerts compare with the settings of accounts: free credits, their pace, and caps. Each
// function reads many accounts with one statement.

import type { FamilyName } from "../base/families.ts";
import { statement, type Tx } from "../postgres/postgres.ts";
import type { AccountStatusName } from "./admission.ts";
import { forecastDays, forecastDaysMin } from "./usage.ts";

const statements = {
  listOpenAccounts: statement(import.meta.url, "list-open-accounts"),
  readDailySpend: statement(import.meta.url, "read-daily-spend"),
  findLowPools: statement(import.meta.url, "find-low-pools"),
  findSpentCaps: statement(import.meta.url, "find-spent-caps"),
  readAccountStatus: statement(import.meta.url, "read-account-status"),
};

export type AlertFigures = {
  /** The accounts that are not closed, in the order of their ids, from the cursor `after` on. */
  listAccounts(after: string, limit: number): Promise<readonly OpenAccount[]>;
  /**
   * What a pool spends a day, in micro-credits, as the forecast has it. It changes once a UTC day.
   * A pool without a forecast is left out.
   */
  readDailySpend(accountIds: readonly string[]): Promise<readonly DailySpend[]>;
  /** The pools with fewer free credits than these bounds. One that was never filled is left out. */
  findLow(bounds: readonly PoolBound[]): Promise<readonly LowPool[]>;
  /** The keys that have spent so many percent of their cap of this UTC month. */
  findSpentCaps(accountIds: readonly string[], percent: number): Promise<readonly SpentCap[]>;
  /** Undefined: there is no such account. */
  readStatus(accountId: string): Promise<AccountStatusName | undefined>;
};

type OpenAccount = {
  readonly accountId: string;
  /** Undefined: it is active. */
  readonly suspendedAt: Date | undefined;
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
type LowPool = PoolBound & {
  readonly freeMicro: bigint;
  /** The last transfer after which the pool had as much as the bound. Undefined: it never had. */
  readonly filledBy: string | undefined;
};
type SpentCap = {
  readonly accountId: string;
  readonly keyId: string;
  readonly name: string;
  readonly capMicro: bigint;
  readonly spentMicro: bigint;
  /** `YYYY-MM`. */
  readonly month: string;
  /** Nothing is left, or a request was rejected for it in the last hours. */
  readonly isReached: boolean;
};

/** `db` should be the connections for reports. */
export function createAlertFigures(db: Tx): AlertFigures {
  return {
    async listAccounts(after, limit) {
      const rows = await db.query<{ account_id: string; suspended_at: Date | null }>(
        statements.listOpenAccounts,
        [after, limit],
      );
      return rows.map((row) => ({
        accountId: row.account_id,
        suspendedAt: row.suspended_at ?? undefined,
      }));
    },
    async readDailySpend(accountIds) {
      const rows = await db.query<SpendRow>(statements.readDailySpend, [accountIds, forecastDays]);
      return rows
        .filter(({ days }) => days >= forecastDaysMin)
        .map((row) => ({
          accountId: row.account_id,
          family: row.family,
          dailyMicro: row.amount / BigInt(row.days),
        }));
    },
    async findLow(bounds) {
      const rows = await db.query<LowRow>(statements.findLowPools, [
        bounds.map(({ accountId }) => accountId),
        bounds.map(({ family }) => family),
        bounds.map(({ belowMicro }) => belowMicro),
      ]);
      return rows.map((row) => ({
        accountId: row.account_id,
        family: row.family,
        belowMicro: row.below,
        freeMicro: row.free,
        filledBy: row.filled_by ?? undefined,
      }));
    },
    async findSpentCaps(accountIds, percent) {
      const rows = await db.query<CapRow>(statements.findSpentCaps, [accountIds, percent]);
      return rows.map((row) => ({
        accountId: row.account_id,
        keyId: row.key_id,
        name: row.name,
        capMicro: row.monthly_cap,
        spentMicro: row.spent,
        month: row.month.slice(0, 7),
        isReached: row.is_reached,
      }));
    },
    async readStatus(accountId) {
      const rows = await db.query<{ status: AccountStatusName }>(statements.readAccountStatus, [
        accountId,
      ]);
      return rows[0]?.status;
    },
  };
}

type SpendRow = { account_id: string; family: FamilyName; amount: bigint; days: number };
type LowRow = {
  account_id: string;
  family: FamilyName;
  below: bigint;
  free: bigint;
  filled_by: string | null;
};
type CapRow = {
  account_id: string;
  key_id: string;
  name: string;
  monthly_cap: bigint;
  month: string;
  spent: bigint;
  is_reached: boolean;
};
