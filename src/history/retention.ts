// What becomes of past months while `RETENTION_MONTHS` is set: each is closed when it can be, and
// its charges are removed when they are older than that, an export of them was verified, and the
// sink has them.

import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { statement } from "../postgres/postgres.ts";
import { closeMonth } from "./closing.ts";
import { firstPlace, type PlaceRow, placeOf, valuesOf } from "./digest.ts";
import { monthsBefore, nameOfMonth } from "./months.ts";
import { Refusal } from "./refusal.ts";

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
 * Closes the months that can be closed, and removes the charges that need not be kept. Returns the
 * months that should be gone and are not, oldest first, with the reason of the first one.
 */
export async function keepRetention(
  ledger: Pick<OpenLedger, "asOwner">,
  settings: RetentionSettings,
  signal?: AbortSignal,
): Promise<readonly Waiting[]> {
  const { open, current } = await ledger.asOwner(readMonths);
  let refusal: Error | undefined;
  for (const month of open) {
    refusal = await closeMonth(ledger, month, signal).then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof Refusal) return error;
        throw error;
      },
    );
    if (refusal) break;
  }
  const first = monthsBefore(current, settings.months);
  return ledger.asOwner(async (owner) => {
    const left = await readMonths(owner);
    const waiting: Waiting[] = [];
    for (const row of left.closed.filter((one) => one.month < first && !one.is_dropped)) {
      const why = await removeMonth(owner, row, settings.sink);
      if (why) waiting.push({ month: row.month, why });
    }
    for (const month of left.open.filter((one) => one < first))
      waiting.push({ month, why: refusal ?? new Refusal(`${nameOfMonth(month)} is open`) });
    return waiting;
  });
}

/** The closed months, the past ones with a partition that are open, and the current month. */
async function readMonths(owner: Owner) {
  const rows = await owner.query<ClosingRow>(statements.listClosings, []);
  const current = rows[0]?.current_month ?? "";
  const closed = rows.flatMap(({ month, ...row }): ClosedRow[] =>
    month === null ? [] : [{ ...row, month }],
  );
  const last = closed.at(-1)?.month ?? "";
  const months = await owner.readMonths();
  return { closed, current, open: months.filter((month) => month > last && month < current) };
}

/** Removes the charges of a closed month. Returns why not, if it does not. */
async function removeMonth(
  owner: Owner,
  { month, is_exported }: ClosedRow,
  sink: string | undefined,
): Promise<Error | undefined> {
  const name = nameOfMonth(month);
  if (!is_exported)
    return new Refusal(`${name} is not exported: npm run export -- --month ${name} --to DIR`);
  if (sink !== undefined) {
    const [cursor] = await owner.query<PlaceRow>(statements.readCursor, [sink]);
    const last = cursor ? placeOf(cursor) : firstPlace;
    const unsent = await owner.query(statements.findUnsent, [month, ...valuesOf(last)]);
    if (unsent.length > 0) return new Refusal(`${name} is not in the sink ${sink} yet`);
  }
  await owner.transaction(`removal of ${name}`, async () => {
    const marked = await owner.query(statements.markDropped, [month]);
    // Another process was faster.
    if (marked.length > 0) await owner.dropMonth(month);
  });
  return undefined;
}
