// What operators ask about the whole ledger, for the operations service.

import type { Account } from "../../gen/gateway/billing/v1/account_pb.ts";
import type { Pool } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import type { Runner } from "../postgres/statement.ts";
import { toAccount, toPool, toPrice } from "./rows.ts";
import { type LedgerStore, searchedMonths } from "./store.ts";
import { latestVerification } from "./verification.ts";

/** An account with what operators ask first. */
export type AccountFigures = {
  readonly account: Account;
  readonly pools: readonly Pool[];
  /** Charged since the given day. */
  readonly spentMicro: bigint;
};

/** A price at which requests were admitted. */
export type UsedPrice = {
  readonly model: string;
  readonly price: Price;
  readonly firstUsedAt: Date;
};

/** A request, by its id. */
export type FoundRequest = {
  readonly kind: "request" | "refusal";
  readonly accountId: string;
  readonly model: string;
  /** When it was admitted or refused. */
  readonly at: Date;
};

/** Every function reads on connections that admissions do not use, and throws as reports do. */
export type LedgerOverview = ReturnType<typeof createOverview>;

/** `reports` should read on connections that admissions do not use. */
export function createOverview(reports: LedgerStore) {
  const { run } = reports;
  return {
    /**
     * The running, charged and refused requests with an id, in all accounts. Charges are looked for
     * in three months at most. `db`: may be a transaction of the caller.
     */
    async findRequests(db: Runner, requestId: string): Promise<FoundRequest[]> {
      const rows = await db.run(sql.findRequests, {
        requestId,
        months: searchedMonths(requestId),
      });
      return rows.map(({ kind, ...row }) => ({
        ...row,
        kind: kind === "refusal" ? "refusal" : "request",
      }));
    },
    /** These accounts, in any order. `since`: a UTC day, `2026-11-22`. */
    async readAccounts(accountIds: readonly string[], since: string): Promise<AccountFigures[]> {
      if (accountIds.length === 0) return [];
      const [accounts, pools, sums] = await Promise.all([
        run(sql.readAccounts, { accountIds }),
        run(sql.readAccountsPools, { accountIds }),
        run(sql.sumAccounts, { accountIds, since }),
      ]);
      const spent = new Map(sums.map(({ accountId, amount }) => [accountId, amount]));
      return accounts.map((row) => ({
        account: toAccount(row),
        pools: pools.filter(({ accountId }) => accountId === row.accountId).map(toPool),
        spentMicro: spent.get(row.accountId) ?? 0n,
      }));
    },
    /** What the pools of accounts in debt lack, in micro-credits. */
    async debts(rows: number): Promise<ReadonlyMap<string, bigint>> {
      const debts = await run(sql.listDebts, { rows });
      return new Map(debts.map(({ accountId, debt }) => [accountId, debt]));
    },
    /** The processes on this database. */
    nodes: () => run(sql.listNodes),
    /** The requests that run now. */
    running: () => run(sql.sumHolds),
    /** By model, newest first. */
    async prices(): Promise<UsedPrice[]> {
      const rows = await run(sql.listPrices);
      return rows.map((row) => ({
        model: row.model,
        price: toPrice(row),
        firstUsedAt: row.createdAt,
      }));
    },
    latestVerification: () => latestVerification(reports),
    /** The newest check of the ledger, if it found something. */
    async findViolations(): Promise<{ verificationId: string; violations: number } | undefined> {
      const { latest } = await latestVerification(reports);
      if (!latest || latest.violationCount === 0) return undefined;
      return { verificationId: latest.verificationId, violations: latest.violationCount };
    },
  };
}
