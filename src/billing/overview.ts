// What operators ask about the whole ledger, for the operations service.

import { create } from "@bufbuild/protobuf";
import { type Account, type Pool, PoolSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, PriceSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { familyOf } from "../base/families.ts";
import { byCategory, categoryColumns } from "../base/token-categories.ts";
import { type Postgres, statement } from "../postgres/postgres.ts";
import { type AccountQuery, accountQuery } from "./accounts.ts";
import { type AccountRow, type PoolRow, toAccount } from "./rows.ts";
import { type LedgerStore, throwTooLarge, throwUnavailable } from "./store.ts";
import { latestVerification } from "./verification.ts";

const statements = {
  readAccounts: statement(import.meta.url, "read-accounts"),
  readAccountsPools: statement(import.meta.url, "read-accounts-pools"),
  sumAccounts: statement(import.meta.url, "sum-accounts"),
  listDebts: statement(import.meta.url, "list-debts"),
  countPendingTransfers: statement(import.meta.url, "count-pending-transfers"),
  listNodes: statement(import.meta.url, "list-nodes"),
  sumHolds: statement(import.meta.url, "sum-holds"),
  listPrices: statement(import.meta.url, "list-prices"),
};

/** An account with what operators ask first. */
export type AccountFigures = {
  readonly account: Account;
  readonly pools: readonly Pool[];
  /** Charged since the given day. */
  readonly spentMicro: bigint;
};

/** A process on this database. */
export type NodeRecord = {
  readonly nodeId: string;
  readonly startedAt: Date;
  /** Polls by other nodes since its last heartbeat: about one a second. */
  readonly silentPolls: number;
  /** As the process described itself. Undefined: it has not. */
  readonly report: unknown;
  readonly reportedAt: Date | undefined;
};

/** The requests that run now. */
export type RunningSum = {
  readonly requests: bigint;
  readonly heldMicro: bigint;
  /** Undefined: none runs. */
  readonly oldestAdmittedAt: Date | undefined;
  readonly firstDeadlineAt: Date | undefined;
};

/** A price at which requests were admitted. */
export type UsedPrice = {
  readonly model: string;
  readonly price: Price;
  readonly firstUsedAt: Date;
};

/** Every function reads on connections that admissions do not use, and throws as reports do. */
export type LedgerOverview = ReturnType<typeof createOverview>;

type PriceRow = { price_version: string; model: string; created_at: Date } & Readonly<
  Record<(typeof categoryColumns)[keyof typeof categoryColumns], bigint>
>;

export function createOverview(postgres: Pick<Postgres, "reports">, reports: LedgerStore) {
  const read: LedgerStore["query"] = (one, values) =>
    postgres.reports.query<never>(one, values).catch(throwTooLarge).catch(throwUnavailable);
  return {
    /** What the text of a search may mean. Throws `invalid_request`. */
    matchAccounts: (text: string): Promise<AccountQuery> => accountQuery(reports, text),
    /** These accounts, in any order. `since`: a UTC day, `2026-11-22`. */
    async readAccounts(accountIds: readonly string[], since: string): Promise<AccountFigures[]> {
      if (accountIds.length === 0) return [];
      const [accounts, pools, sums] = await Promise.all([
        read<AccountRow>(statements.readAccounts, [accountIds]),
        read<PoolRow & { account_id: string }>(statements.readAccountsPools, [accountIds]),
        read<{ account_id: string; amount: bigint }>(statements.sumAccounts, [accountIds, since]),
      ]);
      const spent = new Map(sums.map(({ account_id, amount }) => [account_id, amount]));
      return accounts.map((row) => ({
        account: toAccount(row),
        pools: pools.filter(({ account_id }) => account_id === row.account_id).map(toPool),
        spentMicro: spent.get(row.account_id) ?? 0n,
      }));
    },
    /** What the pools of accounts in debt lack, in micro-credits. */
    async debts(limit: number): Promise<ReadonlyMap<string, bigint>> {
      const rows = await read<{ account_id: string; debt: bigint }>(statements.listDebts, [limit]);
      return new Map(rows.map(({ account_id, debt }) => [account_id, debt]));
    },
    /** How many transfers of an account wait for an approval. */
    async waitingTransfers(limit: number): Promise<ReadonlyMap<string, number>> {
      const rows = await read<{ account_id: string; transfers: number }>(
        statements.countPendingTransfers,
        [limit],
      );
      return new Map(rows.map(({ account_id, transfers }) => [account_id, transfers]));
    },
    async nodes(): Promise<NodeRecord[]> {
      const rows = await read<{
        node_id: string;
        started_at: Date;
        silent_polls: number;
        report: unknown;
        reported_at: Date | null;
      }>(statements.listNodes, []);
      return rows.map((row) => ({
        nodeId: row.node_id,
        startedAt: row.started_at,
        silentPolls: row.silent_polls,
        report: row.report ?? undefined,
        reportedAt: row.reported_at ?? undefined,
      }));
    },
    async running(): Promise<RunningSum> {
      const [row] = await read<{
        requests: bigint;
        held: bigint;
        oldest_admitted_at: Date | null;
        first_deadline_at: Date | null;
      }>(statements.sumHolds, []);
      if (!row) throw new Error("a sum returned no row");
      return {
        requests: row.requests,
        heldMicro: row.held,
        oldestAdmittedAt: row.oldest_admitted_at ?? undefined,
        firstDeadlineAt: row.first_deadline_at ?? undefined,
      };
    },
    /** By model, newest first. */
    async prices(): Promise<UsedPrice[]> {
      const rows = await read<PriceRow>(statements.listPrices, []);
      return rows.map((row) => ({
        model: row.model,
        price: create(PriceSchema, {
          priceVersion: row.price_version,
          ...byCategory((category) => row[categoryColumns[category]]),
        }),
        firstUsedAt: row.created_at,
      }));
    },
    latestVerification: () => latestVerification(read),
    /** The newest check of the ledger, if it found something. */
    async findViolations(): Promise<{ verificationId: string; violations: number } | undefined> {
      const { latest } = await latestVerification(read);
      if (!latest || latest.violationCount === 0) return undefined;
      return { verificationId: latest.verificationId, violations: latest.violationCount };
    },
  };
}

function toPool({ family, posted, held }: PoolRow): Pool {
  return create(PoolSchema, {
    family: familyOf(family),
    postedMicrocredits: posted,
    heldMicrocredits: held,
    freeMicrocredits: posted - held,
  });
}
