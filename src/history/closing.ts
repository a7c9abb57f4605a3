// Closing a month: its charges are summed up, and take no more of them. From then on the verifier
// takes the sums instead of the charges.
//
// A closing reads the month in parts, each in a statement of about a second, so that requests do
// not notice it. It becomes visible in one transaction at its end: one that is killed leaves the
// month as it was, but for the seal, which refuses charges that nobody can have.

import { lineVersion } from "../base/charge-line.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { statement } from "../postgres/postgres.ts";
import {
  blockLines,
  firstPlace,
  MonthDigest,
  type Place,
  type PlaceRow,
  placeOf,
  valuesOf,
} from "./digest.ts";
import { Lease } from "./lease.ts";
import { nameOfMonth, nextMonth } from "./months.ts";
import { Refusal } from "./refusal.ts";

const statements = {
  findClosing: statement(import.meta.url, "find-closing"),
  readClosingState: statement(import.meta.url, "read-closing-state"),
  digestBlock: statement(import.meta.url, "digest-block"),
  addClosingSums: statement(import.meta.url, "add-closing-sums"),
  sumClosing: statement(import.meta.url, "sum-closing"),
  insertClosedSums: statement(import.meta.url, "insert-closed-sums"),
  insertClosing: statement(import.meta.url, "insert-closing"),
  removeClosingSums: statement(import.meta.url, "remove-closing-sums"),
  compareClosing: statement(import.meta.url, "compare-closing"),
};

/** Blocks that are summed up in one statement. */
const blocksPerPart = 10;
// A part takes a second or two.
const leaseMs = 60_000;

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
 * Closes a month, `YYYY-MM-01`, unless it is closed. Throws a `Refusal` for a month that cannot be
 * closed now, when another process is closing, and when `signal` aborts.
 */
export function closeMonth(
  ledger: Pick<OpenLedger, "asOwner">,
  month: string,
  signal?: AbortSignal,
): Promise<Closing> {
  // On two connections, since each part is digested and summed up, which takes equally long.
  return ledger.asOwner((owner) =>
    ledger.asOwner(async (other) => {
      const closing = await findClosing(owner, month);
      if (closing) return closing;
      const closingId = timeOrderedId("close_");
      const lease = new Lease(owner, { task: "close", holder: closingId, ms: leaseMs });
      if (!(await lease.take())) throw new Refusal("another process is closing a month");
      try {
        return await closeOpen({ owner, other, month, closingId, lease, signal });
      } finally {
        await lease.release();
      }
    }),
  );
}

type Work = {
  readonly owner: Owner;
  readonly other: Owner;
  readonly month: string;
  readonly closingId: string;
  readonly lease: Lease;
  readonly signal: AbortSignal | undefined;
};

async function closeOpen(work: Work): Promise<Closing> {
  const { owner, month, closingId } = work;
  const name = nameOfMonth(month);
  await owner.transaction(`closing of ${name}`, async () => {
    await checkClosable(owner, month);
    await owner.sealMonth(month);
    // What was settled before the seal is visible now, and nothing is left that could be settled.
    await checkClosable(owner, month);
  });
  await owner.query(statements.removeClosingSums, [closingId]);
  const { sha256, charges } = await sumUp(work);
  return owner.transaction(`closing of ${name}`, async () => {
    // The lease may have ended meanwhile.
    const earlier = await findClosing(owner, month);
    if (earlier) return earlier;
    await owner.query(statements.insertClosedSums, [closingId, month]);
    const [row] = await owner.query<ClosingRow>(statements.insertClosing, [
      month,
      sha256,
      lineVersion,
    ]);
    if (row?.charges !== charges)
      throw new Error(`${row?.charges} charges were summed up, and ${charges} digested`);
    const [days] = await owner.query<{ differences: number }>(statements.compareClosing, [month]);
    if (days?.differences !== 0)
      throw new Refusal(
        `${name} cannot be closed: its days differ from its charges in ${days?.differences} places; npm run verify-ledger shows them`,
      );
    await owner.query(statements.removeClosingSums, [""]);
    return toClosing(row);
  });
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
  const refuse = (why: string) => new Refusal(`${name} cannot be closed: ${why}`);
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

/** Digests the charges of a month, and adds their sums to `closing_sums`. */
async function sumUp({ owner, other, month, closingId, lease, signal }: Work) {
  const digest = new MonthDigest();
  let charges = 0n;
  let from = firstPlace;
  let to = firstPlace;
  let adding: Promise<void> = Promise.resolve();
  const add = async (after: Place, last: Place) => {
    const values = [closingId, month, ...valuesOf(after), ...valuesOf(last)];
    await other.query(statements.addClosingSums, values);
  };
  try {
    for (let blocks = 1, isLast = false; !isLast; blocks++) {
      if (signal?.aborted) throw new Refusal("this process stops");
      const block = await readBlock(owner, month, to);
      if (block.charges > 0) {
        digest.add(block.sha256);
        charges += BigInt(block.charges);
        to = block.last;
      }
      isLast = block.charges < blockLines;
      if (!isLast && blocks % blocksPerPart !== 0) continue;
      await adding;
      if (!(await lease.take())) throw new Refusal("another process is closing a month");
      adding = add(from, to);
      adding.catch(() => undefined);
      from = to;
    }
  } finally {
    await adding;
  }
  const [sums] = await owner.query<{ charges: bigint; broken: bigint }>(statements.sumClosing, [
    closingId,
  ]);
  if (sums?.charges !== charges)
    throw new Error(`${charges} charges were digested, ${sums?.charges} summed up`);
  if (sums.broken > 0n)
    throw new Refusal(
      `${nameOfMonth(month)} cannot be closed: ${sums.broken} of its charges break a rule of the ledger; npm run verify-ledger shows them`,
    );
  return { sha256: digest.end(), charges };
}

async function readBlock(owner: Owner, month: string, after: Place) {
  const values = [month, ...valuesOf(after), blockLines];
  const [row] = await owner.query<PlaceRow & { charges: number; sha256: Buffer | null }>(
    statements.digestBlock,
    values,
  );
  if (!row) throw new Error("a statement without groups returned no row");
  return {
    charges: row.charges,
    sha256: row.sha256 ?? Buffer.alloc(0),
    last: placeOf(row),
  };
}

function toClosing({ month, charges, amount, sha256, form, closed_at }: ClosingRow): Closing {
  return { month, charges, amountMicro: amount, sha256, form, closedAt: closed_at };
}
