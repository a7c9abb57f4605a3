// Reads the charges of an open month for its closing, in the order of their settlement: it keeps a
// digest of each block of their lines, and what they sum up to.
//
// While a month runs, what was settled a day ago is read ahead: nothing is settled before it any
// more, so that the closing has little left to read. Should a charge come late all the same, by a
// clock that was set back or a commit that hung for a day, the closing counts more charges than
// were read, and reads the month again.

import * as sql from "../../gen/sql/history.ts";
import { timeOrderedId } from "../base/ids.ts";
import { runSlice } from "../base/slices.ts";
import { Lease } from "../postgres/lease.ts";
import type { OpenLedger, Owner } from "../postgres/open-ledger.ts";
import { blockLines, lastOf, lineForm, type Place, placeOf } from "./digest.ts";
import { HistoryError } from "./history-error.ts";
import { nameOfMonth } from "./months.ts";

/** Blocks that are summed up in one statement, of a second or two. */
const blocksPerPart = 10;
/** Blocks that are counted in one statement, which reads an index alone. */
const blocksPerCount = 100;
/** No transaction that settles takes as long, and no clocks are as far apart. */
const settledHoursAgo = 24;
const leaseMs = 60_000;
/** Sums that are removed in one statement. */
const sumsPerSlice = 50_000;

/** Who reads months, on two connections: a part is summed up while the next one is digested. */
export type Reader = {
  readonly owner: Owner;
  readonly other: Owner;
  /** Of `owner` and of `other`. */
  readonly lease: Lease;
  readonly otherLease: Lease;
  readonly signal: AbortSignal | undefined;
};

/**
 * Runs `work` as the only reader of months. Throws a `HistoryError` when another process reads one.
 */
export async function asReader<T>(
  ledger: Pick<OpenLedger, "asOwner">,
  signal: AbortSignal | undefined,
  work: (reader: Reader) => Promise<T>,
): Promise<T> {
  const holder = timeOrderedId("close_");
  return ledger.asOwner((owner) =>
    ledger.asOwner(async (other) => {
      const [lease, otherLease] = [owner, other].map(
        (one) => new Lease(one, { task: "close", holder, ms: leaseMs }),
      );
      if (!lease || !otherLease) throw new Error("two connections have two leases");
      await keepLease(lease);
      try {
        return await work({ owner, other, lease, otherLease, signal });
      } finally {
        await lease.release();
      }
    }),
  );
}

/** In a transaction, keeps other readers away until its end. */
export async function keepLease(lease: Lease): Promise<void> {
  if (!(await lease.take()))
    throw new HistoryError("another process reads or closes a month; try again in a minute");
}

/** Reads what was settled a day ago, in whole blocks. */
export async function readAhead(reader: Reader, month: string): Promise<void> {
  const { past } = await readProgress(reader.owner, month);
  await readOn(reader, month, { before: past, isLast: false });
}

/** Reads all that is left of a month that takes no more charges. Returns the number of them all. */
export async function readRest(reader: Reader, month: string): Promise<bigint> {
  for (const isFirst of [true, false]) {
    const charges = await readOn(reader, month, { before: "infinity", isLast: true });
    if (charges === (await countCharges(reader, month))) return charges;
    if (isFirst) await forget(reader, month);
  }
  throw new HistoryError(`${nameOfMonth(month)} cannot be closed: it still takes charges`);
}

/** Removes what is read of a month, so that it is read again. */
export async function forget(reader: Reader, month: string): Promise<void> {
  // Without blocks, the sums do not count.
  await inSlice(reader, month, () => reader.owner.run(sql.removeBlocks, { month }));
  await removeSums(reader, month);
}

/** Removes the sums of a month without blocks, and those of closed ones. */
export async function removeSums(reader: Reader, month: string): Promise<void> {
  await inSlice(reader, month, () => reader.owner.run(sql.removeBudgets, { month }));
  const remove = () => reader.owner.run(sql.removeSums, { month, sums: sumsPerSlice });
  while ((await inSlice(reader, month, remove)) === sumsPerSlice);
}

/** Runs a slice of the work on a month in a transaction, as the only reader. */
export function inSlice<T>(
  { owner, lease, signal }: Reader,
  month: string,
  work: () => Promise<T>,
): Promise<T> {
  const slice = () =>
    owner.transaction(`closing of ${nameOfMonth(month)}`, async () => {
      await keepLease(lease);
      return work();
    });
  return runSlice(slice, signal).catch((error: unknown) => {
    throw signal?.aborted ? new HistoryError("this process stops") : error;
  });
}

function readProgress(owner: Owner, month: string) {
  return owner.run(sql.readProgress, { month, form: lineForm, hours: settledHoursAgo });
}

type Block = { readonly charges: number; readonly sha256: Buffer; readonly last: Place };

/**
 * Reads the charges after those that are read, settled before a time. `isLast`: also a block that
 * is not full. Returns how many are read then.
 */
async function readOn(
  reader: Reader,
  month: string,
  { before, isLast }: { before: string; isLast: boolean },
): Promise<bigint> {
  const { owner, signal } = reader;
  const readAgain = async () => {
    await forget(reader, month);
    return readOn(reader, month, { before, isLast });
  };
  const progress = await readProgress(owner, month);
  if (!progress.hasForm) return readAgain();
  let { blocks, charges } = progress;
  if (blocks === 0) await removeSums(reader, month);
  let from = placeOf(progress);
  let to = from;
  let part: Block[] = [];
  let storing: Promise<void> = Promise.resolve();
  try {
    for (let isDone = false; !isDone; ) {
      if (signal?.aborted) throw new HistoryError("this process stops");
      const block = await readBlock(owner, { month, after: to, before });
      // The last block was not full, and was thought to be the end.
      if (block.charges > 0 && charges % BigInt(blockLines) > 0n) return await readAgain();
      isDone = block.charges < blockLines;
      if (!isDone || (isLast && block.charges > 0)) {
        part.push(block);
        charges += BigInt(block.charges);
        to = block.last;
      }
      if (part.length === 0 || (!isDone && part.length < blocksPerPart)) continue;
      await storing;
      storing = storePart(reader, { month, first: blocks + 1, part, from, to });
      storing.catch(() => undefined);
      blocks += part.length;
      from = to;
      part = [];
    }
  } finally {
    await storing;
  }
  return charges;
}

type Part = {
  readonly month: string;
  /** The number of the first block. */
  readonly first: number;
  readonly part: readonly Block[];
  readonly from: Place;
  readonly to: Place;
};

async function storePart(
  { other, otherLease }: Reader,
  { month, first, part, from, to }: Part,
): Promise<void> {
  const blocks = {
    charges: part.map(({ charges }) => charges),
    digests: part.map(({ sha256 }) => sha256),
    settledAts: part.map(({ last }) => last.settledAt),
    requestIds: part.map(({ last }) => last.requestId),
    accountIds: part.map(({ last }) => last.accountId),
  };
  await other.transaction(`closing of ${nameOfMonth(month)}`, async () => {
    await keepLease(otherLease);
    await other.run(sql.addBlocks, { month, first, form: lineForm, ...blocks });
    await other.run(sql.addSums, { month, ...from, ...lastOf(to) });
    await other.run(sql.addBudgets, { month, ...from, ...lastOf(to) });
  });
}

async function readBlock(
  owner: Owner,
  { month, after, before }: { month: string; after: Place; before: string },
): Promise<Block> {
  const row = await owner.run(sql.digestBlock, { month, ...after, before, rows: blockLines });
  return { charges: row.charges, sha256: row.sha256 ?? Buffer.alloc(0), last: placeOf(row) };
}

/** Counts the charges of a month, part by part. */
async function countCharges({ owner, lease }: Reader, month: string): Promise<bigint> {
  const times = await owner.run(sql.listTimes, { month, blocks: blocksPerCount });
  const bounds = ["-infinity", ...times.map(({ settledAt }) => settledAt), "infinity"];
  let charges = 0n;
  for (const [index, upTo] of bounds.slice(1).entries()) {
    await keepLease(lease);
    charges += await owner.countCharges(month, { after: bounds[index] ?? "", upTo });
  }
  return charges;
}
