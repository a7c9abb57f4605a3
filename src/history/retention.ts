// What becomes of months while `RETENTION_MONTHS` is set: each is read for its closing as its
// charges are settled, and closed when it can be. Its charges are removed when they are older than
// that, an export of them was verified, and the sink has them.

import * as sql from "../../gen/sql/history.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { closeMonth, prepareClosing } from "./closing.ts";
import { firstPlace } from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { monthsBefore, nameOfMonth } from "./months.ts";

export type RetentionSettings = {
  /** Months before the current one whose charges are kept. */
  readonly months: number;
  /** The sink that must have the charges before they are removed. Undefined: there is none. */
  readonly sink: string | undefined;
};

/** What is left to do, with the reason. */
export type Waiting = { readonly month: string; readonly why: Error };

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
    for (const row of left.closed.filter((one) => one.month < first && !one.isDropped)) {
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
  const rows = await owner.run(sql.listClosings);
  const current = rows[0]?.currentMonth ?? "";
  const closed = rows.flatMap(({ month, ...row }) => (month === null ? [] : [{ ...row, month }]));
  const last = closed.at(-1)?.month ?? "";
  const months = await owner.readMonths();
  return { closed, current, open: months.filter((month) => month > last && month <= current) };
}

/** Removes the charges of a closed month. Returns why not, if it does not. */
async function removeMonth(
  owner: Owner,
  { month, isExported }: { month: string; isExported: boolean },
  sink: string | undefined,
): Promise<Error | undefined> {
  const name = nameOfMonth(month);
  if (!isExported)
    return new HistoryError(`${name} is not exported: npm run export -- --month ${name} --to DIR`);
  if (sink !== undefined) {
    const last = (await owner.run(sql.readCursor, { sink })) ?? firstPlace;
    if (await owner.run(sql.findUnsent, { month, ...last }))
      return new HistoryError(`${name} is not in the sink ${sink} yet`);
  }
  return owner.transaction(`removal of ${name}`, async () => {
    // What the sums of sales lack could never be added to them.
    const { isEmptying, ...added } = await owner.run(sql.lockSales);
    if (isEmptying || (await owner.run(sql.findUnsent, { month, ...added })))
      return new HistoryError(`${name} is not in the sums of sales yet`);
    const marked = await owner.run(sql.markDropped, { month });
    // Another process was faster.
    if (marked > 0) await owner.dropMonth(month);
    return undefined;
  });
}
