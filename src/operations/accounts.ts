// The search of accounts: which ones, and what operators ask first about each.

import { create } from "@bufbuild/protobuf";
import type { Account } from "../../gen/gateway/billing/v1/account_pb.ts";
import type { Pool } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  AccountFilter,
  type AccountSummary,
  AccountSummarySchema,
  type FindAccountsRequest,
  type FindAccountsResponse,
  FindAccountsResponseSchema,
  OperationsService,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { readPage } from "../base/paging.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { accountsOfExact, type SearchParts } from "./search.ts";
import type { AccountSearch, OperationsStore } from "./store.ts";

/** More accounts than these cannot wait for a person and be found. */
const waitingMax = 10_000;
/** How many days of charges are summed, today included. */
const spentDays = 30;

/** What the other services know of accounts. */
export type AccountsParts = SearchParts & {
  readonly store: OperationsStore;
  readonly ledger: {
    /** These accounts, in any order. `since`: a UTC day, `2026-11-22`. */
    readAccounts(
      accountIds: readonly string[],
      since: string,
    ): Promise<
      readonly {
        readonly account: Account;
        readonly pools: readonly Pool[];
        readonly spentMicro: bigint;
      }[]
    >;
    /** Micro-credits that pools lack, by account. */
    debts(limit: number): Promise<ReadonlyMap<string, bigint>>;
  };
  /** Orders that wait for a person, by account. */
  readonly waitingOrders: (limit: number) => Promise<ReadonlyMap<string, number>>;
  readonly ownersOf: (accountIds: readonly string[]) => Promise<
    ReadonlyMap<
      string,
      {
        readonly count: number;
        readonly first: readonly {
          readonly personId: string;
          readonly login: string;
          readonly name: string;
        }[];
      }
    >
  >;
};

/** What waits in all accounts. */
type Waiting = {
  readonly orders: ReadonlyMap<string, number>;
  readonly approvals: ReadonlyMap<string, number>;
  readonly debts: ReadonlyMap<string, bigint>;
};

export async function findAccounts(
  parts: AccountsParts,
  request: FindAccountsRequest,
  call: AuthenticatedCall,
): Promise<FindAccountsResponse> {
  const { store } = parts;
  const matching = await accountsOfExact(parts, request.query);
  const waiting = await readWaiting(parts);
  const { status, among } = chosenBy(request.filter, waiting);
  const search: AccountSearch = {
    text: request.query.trim().toLowerCase(),
    matching,
    status,
    among,
  };
  const { findAccounts } = OperationsService.method;
  const { entries, nextPageToken } = await readPage(findAccounts, request, call, {
    read: (before, limit) => store.findAccounts(search, before, limit),
    cursorOf: (accountId) => accountId,
  });
  const accounts = await describe(parts, entries, waiting);
  return create(FindAccountsResponseSchema, { accounts, nextPageToken });
}

async function readWaiting({ store, ledger, waitingOrders }: AccountsParts): Promise<Waiting> {
  const [orders, approvals, debts] = await Promise.all([
    waitingOrders(waitingMax),
    store.waitingApprovals(waitingMax),
    ledger.debts(waitingMax),
  ]);
  return { orders, approvals, debts };
}

function chosenBy(
  filter: AccountFilter,
  { orders, approvals, debts }: Waiting,
): Pick<AccountSearch, "status" | "among"> {
  const all = { status: undefined, among: undefined };
  switch (filter) {
    case AccountFilter.WAITING:
      return { ...all, among: [...orders.keys(), ...approvals.keys(), ...debts.keys()] };
    case AccountFilter.IN_DEBT:
      return { ...all, among: [...debts.keys()] };
    case AccountFilter.SUSPENDED:
      return { ...all, status: "suspended" };
    case AccountFilter.CLOSED:
      return { ...all, status: "closed" };
    default:
      return all;
  }
}

/** In the order of the ids. */
async function describe(
  { ledger, ownersOf }: AccountsParts,
  accountIds: readonly string[],
  { orders, approvals, debts }: Waiting,
): Promise<AccountSummary[]> {
  const [figures, owners] = await Promise.all([
    ledger.readAccounts(accountIds, firstDay(new Date())),
    ownersOf(accountIds),
  ]);
  const byId = new Map(figures.map((one) => [one.account.accountId, one]));
  return accountIds.flatMap((accountId) => {
    const found = byId.get(accountId);
    if (!found) return [];
    const ofAccount = owners.get(accountId);
    return create(AccountSummarySchema, {
      account: found.account,
      pools: [...found.pools],
      spentMicrocredits: found.spentMicro,
      debtMicrocredits: debts.get(accountId) ?? 0n,
      owners: ofAccount ? [...ofAccount.first] : [],
      ownerCount: ofAccount?.count ?? 0,
      waitingOrders: orders.get(accountId) ?? 0,
      waitingApprovals: approvals.get(accountId) ?? 0,
    });
  });
}

const dayMs = 86_400_000;

/** The first of the UTC days that are summed. */
function firstDay(now: Date): string {
  return new Date(now.getTime() - (spentDays - 1) * dayMs).toISOString().slice(0, 10);
}
