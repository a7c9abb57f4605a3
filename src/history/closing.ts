// Closing a month: its charges are summed up, and take no more of them. From then on the verifier
// takes the sums instead of the charges.
//
// Most of the month was read ahead: read-month.ts. The rest is read in parts, each in a statement
// of about a second, so that requests do not notice it. A closing becomes visible in one
// transaction at its end: one that is killed leaves the month as it was, but for the seal, which
// refuses charges that nobody can have.

import { lineVersion } from "../base/charge-line.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { statement } from "../postgres/postgres.ts";
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

const statements = {
  findClosing: statement(import.meta.url, "find-closing"),
  readClosingState: statement(import.meta.url, "read-closing-state"),
  checkSums: statement(import.meta.url, "check-sums"),
  combineBlocks: statement(import.meta.url, "combine-blocks"),
  insertClosedSums: statement(import.meta.url, "insert-closed-sums"),
  insertClosing: statement(import.meta.url, "insert-closing"),
  compareClosing: statement(import.meta.url, "compare-closing"),
};

/** A closed month. */
export type Closing = {
  /** `YYYY-MM-01`. */
  readonly month: string;
  readonly charges: bigint;
  readonly amountMicro: bigint;
  /** The digest of its lines. */
  readonly sha256: Buffer;
  /** The form of these lines, as `lineVersion`. */
  readonly form: number;
  readonly closedAt: Date;
};

type ClosingRow = {
  month: string;
  charges: bigint;
  amount: bigint;
  sha256: Buffer;
  form: number;
  closed_at: Date;
};

/** The closing of a month, and whether its charges were removed. Undefined: it is open. */
export async function findClosing(
  db: Pick<Owner, "query">,
  month: string,
): Promise<(Closing & { isDropped: boolean }) | undefined> {
  const [row] = await db.query<ClosingRow & { is_dropped: boolean }>(statements.findClosing, [
    month,
  ]);
  return row && { ...toClosing(row), isDropped: row.is_dropped };
}

/**
 * Closes a month, `YYYY-MM-01`, unless it is closed. Throws a `HistoryError` for a month that
 * cannot be closed now, when another process reads or closes one, and when `signal` aborts.
 */
export async function closeMonth(
  ledger: Pick<OpenLedger, "asOwner">,
  month: string,
  signal?: AbortSignal,
): Promise<Closing> {
  const closing = await ledger.asOwner((owner) => findClosing(owner, month));
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
      if (!(await findClosing(reader.owner, month))) await readAhead(reader, month);
  });
}

async function closeOpen(reader: Reader, month: string): Promise<Closing> {
  const { owner } = reader;
  const earlier = await findClosing(owner, month);
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
  type Sums = { charges: bigint; broken: bigint };
  const [sums] = await owner.query<Sums>(statements.checkSums, [month]);
  if (sums?.charges !== charges)
    throw new Error(`${charges} charges were digested, ${sums?.charges} summed up`);
  if (sums.broken > 0n) throw refuse(`${sums.broken} of its charges break a rule of the ledger`);
  const [digest] = await owner.query<{ sha256: Buffer }>(statements.combineBlocks, [month]);
  await owner.query(statements.insertClosedSums, [month]);
  const values = [month, digest?.sha256, lineVersion];
  const [row] = await owner.query<ClosingRow>(statements.insertClosing, values);
  if (row?.charges !== charges)
    throw new Error(`${row?.charges} charges were summed up, and ${charges} digested`);
  const [days] = await owner.query<{ differences: number }>(statements.compareClosing, [month]);
  if (days?.differences !== 0)
    throw refuse(`its days differ from its charges in ${days?.differences} places`);
  await removeProgress(owner, month);
  return toClosing(row);
}

type StateRow = {
  current_month: string;
  last_closed: string | null;
  holds: number;
  oldest: Date | null;
  has_days: boolean;
};

async function checkClosable(owner: Owner, month: string): Promise<void> {
  const name = nameOfMonth(month);
  const refuse = (why: string) => new HistoryError(`${name} cannot be closed: ${why}`);
  const [state] = await owner.query<StateRow>(statements.readClosingState, [month]);
  if (!state) throw new Error("the ledger has no row of usage_progress");
  if (month >= state.current_month) throw refuse("it is not over");
  const months = await owner.readMonths();
  if (!months.includes(month)) throw refuse("the ledger has no charges of it");
  const earlier = months.find((one) => one > (state.last_closed ?? "") && one < month);
  if (earlier !== undefined) throw refuse(`${nameOfMonth(earlier)} before it is open`);
  if (state.last_closed !== null && month < state.last_closed)
    throw refuse(`${nameOfMonth(state.last_closed)} after it is closed`);
  if (state.holds > 0)
    throw refuse(
      `${state.holds} of its requests still hold credits, the oldest since ${state.oldest?.toISOString()}; each ends at its deadline`,
    );
  if (!state.has_days)
    throw refuse(
      `the usage of its days is not complete; a running gateway completes it by ${nextMonth(month, 2)}`,
    );
}

function toClosing({ month, charges, amount, sha256, form, closed_at }: ClosingRow): Closing {
  return { month, charges, amountMicro: amount, sha256, form, closedAt: closed_at };
}
