// What becomes of months while `RETENTION_MONTHS` is set: each is read for its closing as its
// charges are settled, and closed when it can be. Its charges are removed when they are older than
// that, an export of them was verified, and the sink has them.

import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { statement } from "../postgres/postgres.ts";
import { closeMonth, prepareClosing } from "./closing.ts";
import { firstPlace, type PlaceRow, placeOf, valuesOf } from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { monthsBefore, nameOfMonth } from "./months.ts";

const statements = {
  listClosings: statement(import.meta.url, "list-closings"),
  readCursor: statement(import.meta.url, "read-cursor"),
  findUnsent: statement(import.meta.url, "find-unsent"),
  markDropped: statement(import.meta.url, "mark-dropped"),
};

export type RetentionSettings = {
  /** Months before the current one whose charges are kept. */
  readonly months: number;
  /** The sink that must have the charges before they are removed. Undefined: there is none. */
  readonly sink: string | undefined;
};

/** What is left to do, with the reason. */
export type Waiting = { readonly month: string; readonly why: Error };

type ClosedRow = { month: string; is_exported: boolean; is_dropped: boolean };
/** Without a month, a row has the current one alone. */
type ClosingRow = Omit<ClosedRow, "month"> & { month: string | null; current_month: string };

/**
 * Closes the months that can be closed, reads the others ahead, and removes the charges that need
 * not be kept. Returns the months that should be gone and are not, oldest first, with the reason of
 * the first one.
 */
export async function keepRetention(
  ledger: Pick<OpenLedger, "asOwner">,
  settings: RetentionSettings,
  signal?: AbortSignal,
): Promise<readonly Waiting[]> {
  const { open, current } = await ledger.asOwner(readMonths);
  const past = open.filter((month) => month < current);
  let refusal: HistoryError | undefined;
  let closed = 0;
  for (const month of past) {
    refusal = await errorOf(closeMonth(ledger, month, signal));
    if (refusal) break;
    closed += 1;
  }
  // Where another process does it, it need not be done here.
  await errorOf(prepareClosing(ledger, open.slice(closed), signal));
  const first = monthsBefore(current, settings.months);
  return ledger.asOwner(async (owner) => {
    const left = await readMonths(owner);
    const waiting: Waiting[] = [];
    for (const row of left.closed.filter((one) => one.month < first && !one.is_dropped)) {
      const why = await removeMonth(owner, row, settings.sink);
      if (why) waiting.push({ month: row.month, why });
    }
    for (const month of left.open.filter((one) => one < first))
      waiting.push({ month, why: refusal ?? new HistoryError(`${nameOfMonth(month)} is open`) });
    return waiting;
  });
}

/** What kept `work` from being done now. Undefined: it is done. */
async function errorOf(work: Promise<unknown>): Promise<HistoryError | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    if (error instanceof HistoryError) return error;
    throw error;
  }
}

/** The closed months, the open ones that have begun and have a partition, and the current one. */
async function readMonths(owner: Owner) {
  const rows = await owner.query<ClosingRow>(statements.listClosings, []);
  const current = rows[0]?.current_month ?? "";
  const closed = rows.flatMap(({ month, ...row }): ClosedRow[] =>
    month === null ? [] : [{ ...row, month }],
  );
  const last = closed.at(-1)?.month ?? "";
  const months = await owner.readMonths();
  return { closed, current, open: months.filter((month) => month > last && month <= current) };
}

/** Removes the charges of a closed month. Returns why not, if it does not. */
async function removeMonth(
  owner: Owner,
  { month, is_exported }: ClosedRow,
  sink: string | undefined,
): Promise<Error | undefined> {
  const name = nameOfMonth(month);
  if (!is_exported)
    return new HistoryError(`${name} is not exported: npm run export -- --month ${name} --to DIR`);
  if (sink !== undefined) {
    const [cursor] = await owner.query<PlaceRow>(statements.readCursor, [sink]);
    const last = cursor ? placeOf(cursor) : firstPlace;
    const unsent = await owner.query(statements.findUnsent, [month, ...valuesOf(last)]);
    if (unsent.length > 0) return new HistoryError(`${name} is not in the sink ${sink} yet`);
  }
  await owner.transaction(`removal of ${name}`, async () => {
    const marked = await owner.query(statements.markDropped, [month]);
    // Another process was faster.
    if (marked.length > 0) await owner.dropMonth(month);
  });
  return undefined;
}
