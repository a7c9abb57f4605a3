// Closing a month: its charges are summed up, and take no more of them. From then on the verifier
// takes the sums instead of the charges.
//
// Most of the month was read ahead: read-month.ts. The rest is read in parts, each in a statement
// of about a second, so that requests do not notice it. The sums are compared with the days, and
// stored, by slices of accounts. They count from a last transaction on: a closing that is killed
// before it leaves the month open, with a seal, which refuses charges that nobody can have, and
// with sums that the next one finds.

import * as sql from "../../gen/sql/history.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { lineForm } from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { nameOfMonth, nextMonth } from "./months.ts";
import {
  asReader,
  forget,
  inSlice,
  keepLease,
  type Reader,
  readAhead,
  readRest,
  removeSums,
} from "./read-month.ts";

/** Each has up to 31 days, which are read with it. */
const sumsPerSlice = 5_000;
/** Sorts after every account. */
const lastAccount = "\u{10ffff}";

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
    await checkRead(reader, month, charges);
    await storeSums(reader, month);
  } catch (error) {
    // Whoever mends the charges or the days may have changed what was read.
    if (error instanceof Refused) await forget(reader, month);
    throw error;
  }
  const closing = await storeClosing(reader, month, charges);
  await removeSums(reader, month);
  return closing;
}

/** What was read of the month cannot be closed. */
class Refused extends HistoryError {
  constructor(month: string, why: string) {
    super(`${nameOfMonth(month)} cannot be closed: ${why}; npm run verify-ledger shows them`);
  }
}

/** Checks the sums by the number of charges, by the rules of the ledger, and by the days. */
async function checkRead(reader: Reader, month: string, charges: bigint): Promise<void> {
  const { owner } = reader;
  const sums = await owner.run(sql.checkSums, { month });
  if (sums.charges !== charges)
    throw new Error(`${charges} charges were digested, ${sums.charges} summed up`);
  if (sums.broken > 0n)
    throw new Refused(month, `${sums.broken} of its charges break a rule of the ledger`);
  let differences = 0;
  await bySlices(reader, month, async (slice) => {
    differences += (await owner.run(sql.compareClosing, slice)).differences;
  });
  if (differences !== 0)
    throw new Refused(month, `its days differ from its charges in ${differences} places`);
}

async function storeSums(reader: Reader, month: string): Promise<void> {
  const { owner } = reader;
  await bySlices(reader, month, async (slice) => {
    await owner.run(sql.insertClosedSums, slice);
    const { differences } = await owner.run(sql.compareClosedSums, slice);
    if (differences !== 0)
      throw new Refused(
        month,
        `${differences} sums of an earlier attempt are not those of its charges`,
      );
  });
}

/** Runs `work` for all accounts, by slices of about so many sums, each in one transaction. */
async function bySlices(
  reader: Reader,
  month: string,
  work: (slice: { month: string; after: string; upto: string }) => Promise<void>,
): Promise<void> {
  const { owner } = reader;
  for (let after = ""; after < lastAccount; ) {
    const from = after;
    after = await inSlice(reader, month, async () => {
      const end = await owner.run(sql.findSumsEnd, { month, after: from, sums: sumsPerSlice });
      const upto = end.accountId ?? lastAccount;
      await work({ month, after: from, upto });
      return upto;
    });
  }
}

async function storeClosing(
  { owner, lease }: Reader,
  month: string,
  charges: bigint,
): Promise<Closing> {
  return owner.transaction(`closing of ${nameOfMonth(month)}`, async () => {
    await keepLease(lease);
    const { sha256 } = await owner.run(sql.combineBlocks, { month });
    const closing = await owner.run(sql.insertClosing, { month, sha256, form: lineForm });
    if (closing.charges !== charges)
      throw new Error(`${closing.charges} charges were summed up, and ${charges} digested`);
    await owner.run(sql.removeBlocks, { month });
    return closing;
  });
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
