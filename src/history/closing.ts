// Closing a month: its charges are summed up, and take no more of them. From then on the verifier
// takes the sums instead of the charges.
//
// Most of the month was read ahead: read-month.ts. The rest is read in parts, each in a statement
// of about a second, so that requests do not notice it. A closing becomes visible in one
// transaction at its end: one that is killed leaves the month as it was, but for the seal, which
// refuses charges that nobody can have.

import * as sql from "../../gen/sql/history.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { lineForm } from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { nameOfMonth, nextMonth } from "./months.ts";
import {
  asReader,
  forget,
  keepLease,
  type Reader,
  readAhead,
  readRest,
  removeProgress,
} from "./read-month.ts";

/** A closed month, `YYYY-MM-01`. `sha256`: the digest of its lines, which have this form. */
export type Closing = sql.InsertClosingRow;

/**
 * Closes a month, `YYYY-MM-01`, unless it is closed. Throws a `HistoryError` for a month that
 * cannot be closed now, when another process reads or closes one, and when `signal` aborts.
 */
export async function closeMonth(
  ledger: Pick<OpenLedger, "asOwner">,
  month: string,
  signal?: AbortSignal,
): Promise<Closing> {
  const closing = await ledger.asOwner((owner) => owner.run(sql.findClosing, { month }));
  return closing ?? asReader(ledger, signal, (reader) => closeOpen(reader, month));
}

/**
 * Reads what has been settled of open months, `YYYY-MM-01`, so that their closing has little left
 * to read. Throws a `HistoryError` when another process reads or closes one, and when `signal`
 * aborts.
 */
export function prepareClosing(
  ledger: Pick<OpenLedger, "asOwner">,
  months: readonly string[],
  signal?: AbortSignal,
): Promise<void> {
  return asReader(ledger, signal, async (reader) => {
    // Another process may have closed it meanwhile.
    for (const month of months)
      if (!(await reader.owner.run(sql.findClosing, { month }))) await readAhead(reader, month);
  });
}

async function closeOpen(reader: Reader, month: string): Promise<Closing> {
  const { owner } = reader;
  const earlier = await owner.run(sql.findClosing, { month });
  if (earlier) return earlier;
  await owner.transaction(`closing of ${nameOfMonth(month)}`, async () => {
    await checkClosable(owner, month);
    await owner.sealMonth(month);
    // What was settled before the seal is visible now, and nothing is left that could be settled.
    await checkClosable(owner, month);
  });
  const charges = await readRest(reader, month);
  try {
    return await owner.transaction(`closing of ${nameOfMonth(month)}`, () =>
      storeClosing(reader, month, charges),
    );
  } catch (error) {
    // Whoever mends the charges or the days may have changed what was read.
    if (error instanceof HistoryError) await forget(reader, month);
    throw error;
  }
}

async function storeClosing(
  { owner, lease }: Reader,
  month: string,
  charges: bigint,
): Promise<Closing> {
  const refuse = (why: string) =>
    new HistoryError(
      `${nameOfMonth(month)} cannot be closed: ${why}; npm run verify-ledger shows them`,
    );
  await keepLease(lease);
  const sums = await owner.run(sql.checkSums, { month });
  if (sums.charges !== charges)
    throw new Error(`${charges} charges were digested, ${sums.charges} summed up`);
  if (sums.broken > 0n) throw refuse(`${sums.broken} of its charges break a rule of the ledger`);
  const { sha256 } = await owner.run(sql.combineBlocks, { month });
  await owner.run(sql.insertClosedSums, { month });
  const closing = await owner.run(sql.insertClosing, { month, sha256, form: lineForm });
  if (closing.charges !== charges)
    throw new Error(`${closing.charges} charges were summed up, and ${charges} digested`);
  const { differences } = await owner.run(sql.compareClosing, { month });
  if (differences !== 0) throw refuse(`its days differ from its charges in ${differences} places`);
  await removeProgress(owner, month);
  return closing;
}

async function checkClosable(owner: Owner, month: string): Promise<void> {
  const name = nameOfMonth(month);
  const refuse = (why: string) => new HistoryError(`${name} cannot be closed: ${why}`);
  const state = await owner.run(sql.readClosingState, { month });
  if (month >= state.currentMonth) throw refuse("it is not over");
  const months = await owner.readMonths();
  if (!months.includes(month)) throw refuse("the ledger has no charges of it");
  const earlier = months.find((one) => one > (state.lastClosed ?? "") && one < month);
  if (earlier !== undefined) throw refuse(`${nameOfMonth(earlier)} before it is open`);
  if (state.lastClosed !== null && month < state.lastClosed)
    throw refuse(`${nameOfMonth(state.lastClosed)} after it is closed`);
  if (state.holds > 0)
    throw refuse(
      `${state.holds} of its requests still hold credits, the oldest since ${state.oldest?.toISOString()}; each ends at its deadline`,
    );
  if (!state.hasDays)
    throw refuse(
      `the usage of its days is not complete; a running gateway completes it by ${nextMonth(month, 2)}`,
    );
}
