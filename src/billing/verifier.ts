// Verifies the ledger by slices, each in a statement and a snapshot of its own: the head of
// sql/verification.sql says what may be compared while the ledger moves.

import { create } from "@bufbuild/protobuf";
import {
  type Violation,
  ViolationSchema,
} from "../../gen/gateway/verification/v1/verification_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { runSlice } from "../base/slices.ts";
import type { Runner } from "../postgres/statement.ts";
import { addDays } from "./usage-days.ts";

/** So many violations of each invariant are returned. */
const violationsMax = 100;
/** A slice ends with the hour, the day or the account that fills it. */
const sliceSizes = {
  charges: 10_000,
  /** Of charges, without anything else of them. */
  ids: 50_000,
  accounts: 500,
  /** Hours, days or transfers of accounts. */
  rows: 50_000,
};

/** Sorts before and after every id. */
const firstId = "";
const lastId = "\u{10ffff}";
/** In the order of accounts and times, no time matters beside these ids. */
const anyTime = new Date(0);

/** Checks every invariant of the ledger as it is now. `signal` ends it between two slices. */
export async function findViolations(
  db: Runner,
  signal: AbortSignal,
  sizes: typeof sliceSizes = sliceSizes,
): Promise<Violation[]> {
  const found = new Map<string, Violation[]>();
  for await (const violations of verify(db, signal, sizes))
    for (const violation of violations) {
      const same = found.get(violation.invariant) ?? [];
      if (same.length < violationsMax) same.push(create(ViolationSchema, violation));
      found.set(violation.invariant, same);
    }
  const names = [...found.keys()].sort();
  return names.flatMap((name) =>
    (found.get(name) ?? []).sort((one, other) => (one.subject < other.subject ? -1 : 1)),
  );
}

type Slice = readonly sql.VerifyAccountsRow[];

/** The violations, slice by slice. */
async function* verify(
  db: Runner,
  signal: AbortSignal,
  { accounts, rows, charges, ids }: typeof sliceSizes,
): AsyncGenerator<Slice> {
  const slowly = (slice: () => Promise<Slice>) => runSlice(slice, signal);
  const closed = (await db.run(sql.listClosedMonths)).map(({ month }) => month);
  const months = (await db.run(sql.listOpenMonths)).map(({ month }) => month);
  const monthsFrom = months[0] ?? "infinity";
  yield slowly(() => db.run(sql.verifyTotals));
  for (const month of closed) yield slowly(() => db.run(sql.verifyClosedMonth, { month }));

  for (let after = firstId; after < lastId; ) {
    const end = await db.run(sql.findAccountsEnd, { after, accounts, rows });
    const upto = end.accountId ?? lastId;
    const slice = { after, upto, months };
    yield slowly(() => db.run(sql.verifyAccounts, slice));
    after = upto;
  }

  for (const month of months)
    for (const [unit, check] of [
      ["hour", sql.verifyCharges],
      ["day", sql.verifyDays],
    ] as const)
      for (let from = { accountId: firstId, at: anyTime }; from.accountId < lastId; ) {
        const size = { month, unit, ...from, charges };
        const to = (await db.run(sql.findChargesEnd, size)) ?? { accountId: lastId, at: anyTime };
        const start = { fromAccount: from.accountId, fromAt: from.at };
        const end = { toAccount: to.accountId, toAt: to.at };
        yield slowly(() => db.run(check, { month, ...start, ...end }));
        from = to;
      }

  for (const { month } of await db.run(sql.listSalesMonths))
    yield* verifySales(db, signal, { month, rows });

  const lastClosed = closed.at(-1) ?? null;
  yield* verifyManagers(db, signal, { monthsFrom, lastClosed, charges });

  for (let from = { requestId: firstId, accountId: firstId }; from.requestId < lastId; ) {
    const size = { monthsFrom, ...from, charges: ids };
    const to = (await db.run(sql.findIdsEnd, size)) ?? { requestId: lastId, accountId: firstId };
    const start = { fromAccount: from.accountId, fromRequest: from.requestId };
    const end = { toAccount: to.accountId, toRequest: to.requestId };
    yield slowly(() => db.run(sql.verifyIds, { monthsFrom, ...start, ...end }));
    from = to;
  }
}

/** Compares the sums of sales of a month with its days, by slices of so many of them. */
async function* verifySales(
  db: Runner,
  signal: AbortSignal,
  { month, rows }: { readonly month: string; readonly rows: number },
): AsyncGenerator<Slice> {
  const slowly = (slice: () => Promise<Slice>) => runSlice(slice, signal);
  const nextMonth = addDays(month, daysIn(month));
  for (let from = { day: month, accountId: firstId }; from.day < nextMonth; ) {
    const end = { day: nextMonth, accountId: firstId };
    const to = (await db.run(sql.findSalesEnd, { month, ...from, rows })) ?? end;
    const start = { fromDay: from.day, fromAccount: from.accountId };
    const slice = { ...start, toDay: to.day, toAccount: to.accountId };
    yield slowly(() => db.run(sql.verifySales, slice));
    from = to;
  }
  // A sum of a month is of as many days as it has.
  const perMonth = Math.ceil(rows / daysIn(month));
  for (let after = firstId; after < lastId; ) {
    const end = await db.run(sql.findSalesAccount, { month, after, rows: perMonth });
    const upto = end?.accountId ?? lastId;
    const slice = { month, after, upto };
    yield slowly(() => db.run(sql.verifySalesMonth, slice));
    after = upto;
  }
  for (let fromDay = month; fromDay < nextMonth; fromDay = addDays(fromDay, 1)) {
    const slice = { fromDay, toDay: addDays(fromDay, 1) };
    yield slowly(() => db.run(sql.verifySalesTotals, slice));
  }
}

function daysIn(month: string): number {
  const start = new Date(`${month}T00:00:00Z`);
  return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 0)).getUTCDate();
}

/** Compares what persons and management keys have spent with the charges that name them. */
async function* verifyManagers(
  db: Runner,
  signal: AbortSignal,
  { lastClosed, ...slice }: { monthsFrom: string; lastClosed: string | null; charges: number },
): AsyncGenerator<Slice> {
  const found = await db.run(sql.findManagers);
  if (!found) return;
  const { settledTo } = found;
  const sums = new Map<string, sql.SumManagedRow>();
  let after = "-infinity";
  while (after !== settledTo) {
    const end = await db.run(sql.findSettledEnd, { ...slice, after, settledTo });
    const upto = end.settledAt ?? settledTo;
    const part = { monthsFrom: slice.monthsFrom, after, upto };
    for (const row of await runSlice(() => db.run(sql.sumManaged, part), signal)) {
      const name = `${row.accountId}/${row.family}/${row.payer}`;
      const amount = (sums.get(name)?.amount ?? 0n) + row.amount;
      sums.set(name, { ...row, amount });
    }
    after = upto;
  }
  const rows = [...sums.values()];
  const end = {
    accountIds: rows.map(({ accountId }) => accountId),
    families: rows.map(({ family }) => family),
    payers: rows.map(({ payer }) => payer),
    amounts: rows.map(({ amount }) => amount),
    monthsFrom: slice.monthsFrom,
    after,
    lastClosed,
  };
  yield runSlice(() => db.run(sql.verifyManagers, end), signal);
}
