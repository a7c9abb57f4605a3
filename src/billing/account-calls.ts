// The queries of the batches where an engine spreads the accounts over servers: calls of the
// functions in `postgres/migrations/0001_ledger.citus.sql`, one per account. Each runs on the
// server with the rows of its account, which exchanges one message for it.

import { type categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type { Query } from "../postgres/pipeline.ts";
import type { Statement } from "../postgres/postgres.ts";
import type { AccountStatusName, Payer } from "./admission.ts";
import {
  type AdmissionReads,
  type BatchStatements,
  distinct,
  endingValues,
  type LockedRows,
  placedValues,
  type Resized,
} from "./ledger-batches.ts";

const parameters = (count: number) => Array.from({ length: count }, (_, at) => `$${at + 1}`);

/** Calls a function of an account with `count` parameters, of which the first is the account. */
function call(name: string, count: number): Statement {
  const text = `select ${name}(${parameters(count).join(", ")}) as result`;
  return { name: `billing/${name}`, text };
}

export const calls = {
  lock: call("lock_account", 5),
  place: call("place_account", 13),
  resize: call("resize_account", 4),
  settle: call("settle_account", 13 + tokenCategories.length),
};

/** Amounts are texts, as `lock_account` explains. */
type LockedAccount = {
  pools: {
    family: string;
    posted: string;
    held: string;
    in_debt: boolean;
    account_status: AccountStatusName;
  }[];
  months: { key_id: string; month: string; spent: string; held: string }[];
  used: {
    request_id: string;
    node_id: string | null;
    nonce: string;
    key_id: string;
    model: string;
    amount: string;
    granted_output: number;
    admitted_at: string;
    month: string;
    price_version: string;
  }[];
  prices: ({ price_version: string } & Record<PriceColumn, number>)[];
};
type PriceColumn = (typeof categoryColumns)[keyof typeof categoryColumns];

type SettledAccount = {
  account_id: string;
  charges: {
    request_id: string;
    hold: string;
    amount: string;
    overrun: string;
    settled_at_ms: number;
  }[];
};

export const accountCalls: BatchStatements = {
  read(reads) {
    const accounts = accountsOf(reads.payers);
    return {
      queries: accounts.map((account) => lockQuery(account, reads)),
      rowsOf: (results) => {
        const locked = accounts.map((account, at) =>
          rowsOf(account, resultOf<LockedAccount>(results[at]), reads),
        );
        return {
          pools: locked.flatMap(({ pools }) => pools),
          used: locked.flatMap(({ used }) => used),
          amounts: locked.flatMap(({ amounts }) => amounts),
          months: locked.flatMap(({ months }) => months),
        };
      },
    };
  },
  place: (placed, nodeId) =>
    byAccount(
      placed,
      ({ request }) => request.payer,
      (own) => [
        calls.place,
        [own.map(({ request }) => request.requestId), ...placedValues(own, nodeId)],
      ],
    ),
  grow: (grown) =>
    byAccount(
      grown,
      ({ payer }) => payer,
      (own) => resizeCall(own, true),
    ),
  // Account by account, each of which is locked at its first call.
  settle(shrunk, ended) {
    const payers = [...shrunk, ...ended.map(({ hold }) => hold)].map(({ payer }) => payer);
    return accountsOf(payers).flatMap((account) => {
      const own = shrunk.filter(({ payer }) => payer.accountId === account);
      const endings = ended.filter(({ hold }) => hold.payer.accountId === account);
      return [
        ...byAccount(
          own,
          ({ payer }) => payer,
          (all) => resizeCall(all, false),
        ),
        ...byAccount(
          endings,
          ({ hold }) => hold.payer,
          (all) => [calls.settle, [all.map(({ hold }) => hold.requestId), ...endingValues(all)]],
        ),
      ];
    });
  },
  chargedOf: (results) =>
    results.flatMap((rows) => {
      const result = resultOf<SettledAccount | "">(rows);
      // A resized account returns nothing.
      if (result === "") return [];
      return result.charges.map((row) => ({
        account_id: result.account_id,
        request_id: row.request_id,
        hold: BigInt(row.hold),
        amount: BigInt(row.amount),
        overrun: BigInt(row.overrun),
        settled_at_ms: BigInt(row.settled_at_ms),
      }));
    }),
};

function resizeCall(resized: readonly Resized[], mayGrow: boolean): Query {
  const amounts = resized.map(({ amountMicro }) => amountMicro);
  return [calls.resize, [resized.map(({ requestId }) => requestId), amounts, mayGrow]];
}

function lockQuery(account: string, { payers, named, proposed, growing }: AdmissionReads): Query {
  const isOwn = ({ payer }: { readonly payer: Payer }) => payer.accountId === account;
  const idOf = ({ requestId }: { readonly requestId: string }) => requestId;
  const own = growing.filter(isOwn);
  return [
    calls.lock,
    [
      account,
      distinct(payers.flatMap(({ accountId, keyId }) => (accountId === account ? [keyId] : []))),
      distinct([...named.filter(isOwn), ...own].map(idOf)),
      distinct(proposed.filter(isOwn).map(idOf)),
      distinct(own.map(({ month }) => month)),
    ],
  ];
}

function rowsOf(
  account_id: string,
  { pools, months, used, prices }: LockedAccount,
  { growing }: AdmissionReads,
): LockedRows {
  const priceOf = new Map(
    prices.map((price) => [price.price_version, { ...price, ...bigPrices(price) }]),
  );
  const rows = used.flatMap((row) => {
    const price = priceOf.get(row.price_version);
    const { amount, admitted_at } = row;
    return price === undefined
      ? []
      : [
          {
            ...price,
            ...row,
            account_id,
            amount: BigInt(amount),
            admitted_at: new Date(admitted_at),
          },
        ];
  });
  const isGrowing = new Set(
    growing.flatMap(({ payer, requestId }) => (payer.accountId === account_id ? [requestId] : [])),
  );
  return {
    pools: pools.map((row) => ({
      ...row,
      account_id,
      posted: BigInt(row.posted),
      held: BigInt(row.held),
    })),
    months: months.map((row) => ({ ...row, spent: BigInt(row.spent), held: BigInt(row.held) })),
    used: rows,
    // Of a charge the node is empty. It has no hold that could grow.
    amounts: rows.filter((row) => isGrowing.has(row.request_id) && row.node_id !== ""),
  };
}

function bigPrices(price: Record<PriceColumn, number>): Record<PriceColumn, bigint> {
  return {
    input: BigInt(price.input),
    output: BigInt(price.output),
    cache_write_5m: BigInt(price.cache_write_5m),
    cache_write_1h: BigInt(price.cache_write_1h),
    cache_read: BigInt(price.cache_read),
    thinking: BigInt(price.thinking),
  };
}

/** One query per account, in the order of the accounts, in which they are locked. */
function byAccount<Item>(
  items: readonly Item[],
  payerOf: (item: Item) => Payer,
  /** Without its first parameter, the account. */
  query: (own: readonly Item[]) => Query,
): Query[] {
  return accountsOf(items.map(payerOf)).map((account) => {
    const [statement, values] = query(items.filter((item) => payerOf(item).accountId === account));
    return [statement, [account, ...values]];
  });
}

function accountsOf(payers: readonly Payer[]): string[] {
  return distinct(payers.map(({ accountId }) => accountId)).sort();
}

/** The result of a call. */
function resultOf<Result>(rows: readonly unknown[] | undefined): Result {
  const [row] = (rows ?? []) as { result: Result }[];
  if (row === undefined) throw new Error("a call of a function returned no row");
  return row.result;
}
