// The days of `usage_daily`. A UTC day is closed two days after its end, when no request of it runs
// any more: its sums are then written from its hours, once. Hours are removed when they are older
// than any report may ask for, and their day is checked against them.
//
// Then the sums of its tags are written from its charges, apart from the others: an account may
// have millions of values, and closing the day must not wait for them.
//
// A day is written, checked and removed by slices of accounts, each in a transaction of its own: of
// ten million charges a day, one for all accounts would take minutes. What is written of a day
// counts when its last slice is, and a process that dies leaves a day to be written again. Of the
// day whose hours are being removed, the progress says up to which account they are.
//
// A settlement of a closed day should not exist: requests end within a day, and a day with a hold
// stays open. It does when the clock of the database was set back. Its charge is in the hours, as
// always, and the process that settled it writes the day again. Days that are closed too early by
// the clock of now are opened again.

import * as sql from "../../gen/sql/billing.ts";
import { randomId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { hoursKeptDays } from "../base/shown-figures.ts";
import { runSlice } from "../base/slices.ts";
import { Task, warnOnce } from "../base/task.ts";
import { Lease } from "../postgres/lease.ts";
import { isBlocked, type Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;
/** A day is closed this many days after it began. */
const closedAfterDays = 3;
const everyMs = 60_000;
/** One process writes days at a time. Longer than a slice and its rest take. */
const leaseMs = 60_000;
/** A slice ends with the account that fills it. */
const sliceSizes = {
  accounts: 2_000,
  hours: 20_000,
  charges: 20_000,
  /** Sums of tags that are added up. */
  sums: 20_000,
  /** Values of tags that are kept of an account and day. */
  values: 1_000,
};

/** The UTC day, as `YYYY-MM-DD`. */
export function dayOf(at: Date): string {
  return at.toISOString().slice(0, 10);
}

export function startOfDay(day: string): Date {
  return new Date(`${day}T00:00:00Z`);
}

/** The UTC day so many days later. */
export function addDays(day: string, days: number): string {
  return dayOf(new Date(startOfDay(day).getTime() + days * dayMs));
}

function earlierOf(one: string, other: string): string {
  return one < other ? one : other;
}

/**
 * The days before `closedTo` are closed, the tags of those before `tagsTo` are written, and the
 * hours of those before `hoursFrom` are removed, as are those of this day of the accounts up to
 * `removedTo`.
 */
type Progress = sql.LockUsageProgressRow;

type Count = typeof sql.countHours | typeof sql.countCharges;
/** Accounts, and their rows together. */
type Slice = { readonly accountIds: readonly string[]; readonly rows: number };
type DayOfAccount = { readonly accountId: string; readonly day: string };
type Value = sql.FindCostliestRow;

/** Another process writes days. */
class TakenElsewhere extends Error {}

export class UsageDays {
  readonly #postgres: Pick<Postgres, "transaction">;
  readonly #log: Log;
  readonly #sizes: typeof sliceSizes;
  readonly #lease = { task: "usage_days", holder: randomId("days_"), ms: leaseMs };
  readonly #closing: Task;
  readonly #mending: Task;
  /** Closed days with late settlements, which are to be written again. */
  readonly #late = new Set<string>();
  /** Start of the first open day, as this process knows. */
  #closedTo = new Date(0);
  /** Resolves when the work of this process has ended. */
  #turn = Promise.resolve();

  constructor(
    postgres: Pick<Postgres, "transaction">,
    log: Log,
    sizes: typeof sliceSizes = sliceSizes,
  ) {
    this.#sizes = sizes;
    this.#postgres = postgres;
    this.#log = log;
    const report = (failed: string) => warnOnce(log, { code: "usage_day_not_closed", failed });
    this.#closing = new Task({
      run: (stopping) => this.run(stopping),
      everyMs,
      report: report("cannot close the days of the usage yet"),
    });
    // However many settlements are late, a day is written by one transaction at a time.
    this.#mending = new Task({
      run: () => this.#mendAll(),
      everyMs,
      report: report("cannot write a closed day again yet"),
    });
  }

  start(): void {
    this.#closing.start();
    this.#mending.wake();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#closing.stop(), this.#mending.stop()]);
  }

  /**
   * Closes the days that can be closed, removes the hours that are too old, and writes tags. Leaves
   * it to another process that is at it.
   */
  run(stopping?: AbortSignal): Promise<void> {
    return this.#inTurn(() => this.#runAll(stopping));
  }

  async #runAll(stopping: AbortSignal | undefined): Promise<void> {
    try {
      while (await this.#closeNext(stopping));
      while (await this.#removeNext(stopping));
      while (await this.#writeNextTags(stopping));
    } catch (error) {
      const isPassed = error instanceof TakenElsewhere || isBlocked(error) || stopping?.aborted;
      if (!isPassed) throw error;
    } finally {
      await this.#release();
    }
  }

  /** Reports that a request was settled, which was admitted then. Cheap. */
  noteSettled(admittedAt: Date): void {
    if (admittedAt >= this.#closedTo) return;
    const day = dayOf(admittedAt);
    if (!this.#late.has(day))
      this.#log.error(
        { code: "usage_day_reopened", day },
        "a request of a closed day was settled: the day is written again",
      );
    this.#late.add(day);
    // Most processes never have one.
    this.#mending.start();
    this.#mending.wake();
  }

  async #mendAll(): Promise<void> {
    for (const day of this.#late) {
      // Before the work: a settlement that comes meanwhile adds the day again.
      this.#late.delete(day);
      try {
        await this.mend(day);
      } catch (error) {
        this.#late.add(day);
        if (error instanceof TakenElsewhere) return;
        throw error;
      }
    }
  }

  /** Writes a closed day again. No effect on an open one. */
  mend(day: string): Promise<void> {
    return this.#inTurn(() => this.#mendDay(day));
  }

  /**
   * Begins after all earlier work of this process, which has the same lease: a day that is mended
   * while its tags are written, slice by slice, would keep the earlier tags of some accounts.
   */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  async #mendDay(day: string): Promise<void> {
    try {
      const { closedTo, tagsTo } = await this.#step((_, progress) => Promise.resolve(progress));
      if (day >= closedTo) return;
      for await (const { accountIds } of this.#slices(day, sql.countHours))
        await this.#step(async (tx, progress) => {
          const isRemoved = (accountId: string) => areHoursRemoved(progress, { accountId, day });
          const added = { day, accountIds: accountIds.filter(isRemoved) };
          const written = accountIds.filter((accountId) => !isRemoved(accountId));
          await tx.run(sql.addToDay, added);
          await tx.run(sql.removeHours, added);
          await tx.run(sql.writeDay, { day, accountIds: written });
        });
      if (day < tagsTo) await this.#writeTags(day, { isShown: true });
    } finally {
      await this.#release();
    }
  }

  /** Closes the first open day that has hours. Returns false when there is none. */
  async #closeNext(stopping?: AbortSignal): Promise<boolean> {
    const day = await this.#step(async (tx, progress) => {
      const old = addDays(progress.today, 1 - closedAfterDays);
      if (progress.closedTo > old) return this.#reopen(tx, progress, old);
      const oldest = await tx.run(sql.findOldestHold);
      const end = earlierOf(old, oldest.day ?? old);
      if (end <= progress.closedTo) return undefined;
      const first = await tx.run(sql.findFirstHours, { day: progress.closedTo });
      if (first.day !== null && first.day < end) return first.day;
      await this.#move(tx, { ...progress, closedTo: end });
      return undefined;
    }, stopping);
    if (day === undefined) return false;
    for await (const { accountIds } of this.#slices(day, sql.countHours, { stopping }))
      await this.#step((tx) => tx.run(sql.writeDay, { day, accountIds }), stopping);
    await this.#step((tx, progress) => this.#move(tx, { ...progress, closedTo: addDays(day, 1) }));
    return true;
  }

  /** Opens the days from `old` on, as far as their hours are there. */
  async #reopen(tx: Runner, progress: Progress, old: string): Promise<undefined> {
    const { hoursFrom, removedTo } = progress;
    const first = removedTo === "" ? hoursFrom : addDays(hoursFrom, 1);
    const closedTo = old < first ? first : old;
    if (closedTo >= progress.closedTo) return;
    // Their rows count no more, and are written anew.
    if (closedTo < progress.tagsTo) await tx.run(sql.moveTagsProgress, { tagsTo: closedTo });
    await this.#move(tx, { ...progress, closedTo });
  }

  /** Removes the hours of the first day that is too old. Returns false when there is none. */
  async #removeNext(stopping?: AbortSignal): Promise<boolean> {
    const found = await this.#step(async (tx, progress) => {
      // One day more than reports may ask for: a report that began yesterday may still run.
      const kept = addDays(progress.today, -hoursKeptDays - 1);
      const end = earlierOf(kept, progress.closedTo);
      if (end <= progress.hoursFrom) return undefined;
      const first = await tx.run(sql.findFirstHours, { day: progress.hoursFrom });
      const day = earlierOf(first.day ?? end, end);
      const removedTo = day === progress.hoursFrom ? progress.removedTo : "";
      await this.#move(tx, { ...progress, hoursFrom: day, removedTo });
      return { day, end, after: removedTo };
    }, stopping);
    if (!found) return false;
    const { day, end, after } = found;
    if (day < end) {
      for await (const { accountIds } of this.#slices(day, sql.countHours, { after, stopping }))
        await this.#step(async (tx, progress) => {
          await this.#check(tx, { day, accountIds });
          await tx.run(sql.removeHours, { day, accountIds });
          await this.#move(tx, { ...progress, removedTo: accountIds.at(-1) ?? "" });
        }, stopping);
      await this.#step((tx, progress) =>
        this.#move(tx, { ...progress, hoursFrom: addDays(day, 1), removedTo: "" }),
      );
    }
    for await (const page of this.#pages(day, sql.countHours, { stopping })) {
      const accountIds = page.map(({ accountId }) => accountId);
      const before = day < end ? addDays(day, 1) : end;
      await this.#step((tx) => tx.run(sql.removeErrors, { day: before, accountIds }), stopping);
    }
    return true;
  }

  /** Writes the tags of the first closed day that lacks them. Returns false when there is none. */
  async #writeNextTags(stopping?: AbortSignal): Promise<boolean> {
    const day = await this.#step(async (tx, { tagsTo, closedTo }) => {
      if (tagsTo >= closedTo) return undefined;
      const first = await tx.run(sql.findFirstHours, { day: tagsTo });
      if (first.day !== null && first.day < closedTo) return first.day;
      await tx.run(sql.moveTagsProgress, { tagsTo: closedTo });
      return undefined;
    }, stopping);
    if (day === undefined) return false;
    await this.#writeTags(day, { stopping, isShown: false });
    await this.#step((tx) => tx.run(sql.moveTagsProgress, { tagsTo: addDays(day, 1) }));
    return true;
  }

  /** Writes the tags of a day anew. `isShown`: reports read them. */
  async #writeTags(
    day: string,
    { stopping, isShown }: { stopping?: AbortSignal | undefined; isShown: boolean },
  ): Promise<void> {
    for await (const { accountIds, rows } of this.#slices(day, sql.countCharges, { stopping })) {
      const [accountId] = accountIds;
      if (accountId !== undefined && rows > this.#sizes.charges && accountIds.length === 1)
        await this.#writeManyTags({ accountId, day }, { stopping, isShown });
      else
        await this.#step(async (tx) => {
          await tx.run(sql.removeTags, { day, accountIds });
          await tx.run(sql.writeTags, { day, accountIds, kept: this.#sizes.values });
        }, stopping);
    }
  }

  /**
   * Writes the tags of a day of an account that has too many charges for one transaction: adds them
   * up part by part, finds the values that cost most, adds the others to `(other)`, and then puts
   * the sums into the place of those of before: in one transaction if these are shown.
   */
  async #writeManyTags(
    of: DayOfAccount,
    { stopping, isShown }: { stopping?: AbortSignal | undefined; isShown: boolean },
  ): Promise<void> {
    await this.#clearTagSums(stopping);
    const end = { lastAt: startOfDay(addDays(of.day, 1)).toISOString(), lastRequestId: "" };
    for (let from = { at: startOfDay(of.day).toISOString(), requestId: "" }; ; ) {
      const { charges } = this.#sizes;
      const to = await this.#step(async (tx) => {
        const last = await tx.run(sql.findTagPart, { ...of, ...from, charges });
        const upTo = last ? { lastAt: last.at, lastRequestId: last.requestId } : end;
        await tx.run(sql.addTagSums, { ...of, ...from, ...upTo });
        return last;
      }, stopping);
      if (!to) break;
      from = to;
    }
    const { values } = this.#sizes;
    let kept: readonly Value[] = [];
    for await (const part of this.#valueParts(of, stopping)) {
      const found = await this.#step(
        (tx) => tx.run(sql.findCostliest, { ...of, ...part, kept: values }),
        stopping,
      );
      kept = [...kept, ...found].sort(byCost).slice(0, values);
    }
    const keeping = { tags: kept.map(({ tag }) => tag), values: kept.map(({ value }) => value) };
    for await (const part of this.#valueParts(of, stopping))
      await this.#step((tx) => tx.run(sql.foldValues, { ...of, ...part, ...keeping }), stopping);
    const removed = { day: of.day, accountIds: [of.accountId] };
    if (isShown)
      await this.#step(async (tx) => {
        await tx.run(sql.removeTags, removed);
        await tx.run(sql.storeTagSums, { ...of, ...everyValue });
      }, stopping);
    else {
      await this.#step((tx) => tx.run(sql.removeTags, removed), stopping);
      for await (const part of this.#valueParts(of, stopping))
        await this.#step((tx) => tx.run(sql.storeTagSums, { ...of, ...part }), stopping);
    }
    await this.#clearTagSums(stopping);
  }

  /** The values of the tags that are added up, in parts. */
  async *#valueParts(of: DayOfAccount, stopping?: AbortSignal) {
    for (let from = { tag: "", value: "" }; ; ) {
      const { sums } = this.#sizes;
      const to = await this.#step((tx) => tx.run(sql.findValuesEnd, { ...of, ...from, sums }));
      stopping?.throwIfAborted();
      yield { ...from, lastTag: to?.tag ?? afterEveryTag, lastValue: to?.value ?? "" };
      if (!to) return;
      from = to;
    }
  }

  async #clearTagSums(stopping?: AbortSignal): Promise<void> {
    const { sums } = this.#sizes;
    while ((await this.#step((tx) => tx.run(sql.removeTagSums, { sums }), stopping)) === sums);
  }

  // Settlements write the hours together with the charge, so the hours are right.
  async #check(
    tx: Runner,
    slice: { readonly day: string; readonly accountIds: readonly string[] },
  ): Promise<void> {
    const { differences } = await tx.run(sql.compareDay, slice);
    if (differences === 0) return;
    const { day } = slice;
    this.#log.error(
      { code: "usage_day_mended", day, differences },
      "a day of the usage differs from its hours: it is mended",
    );
    await tx.run(sql.writeDay, slice);
  }

  /** The accounts that have rows on a day, in their order. One with too many is a slice alone. */
  async *#slices(
    day: string,
    count: Count,
    from: { readonly after?: string; readonly stopping?: AbortSignal | undefined } = {},
  ): AsyncGenerator<Slice> {
    const most = count === sql.countHours ? this.#sizes.hours : this.#sizes.charges;
    let accountIds: string[] = [];
    let rows = 0;
    for await (const page of this.#pages(day, count, from))
      for (const one of page) {
        if (one.rows === 0) continue;
        if (accountIds.length > 0 && rows + one.rows > most) {
          yield { accountIds, rows };
          accountIds = [];
          rows = 0;
        }
        accountIds.push(one.accountId);
        rows += one.rows;
      }
    if (accountIds.length > 0) yield { accountIds, rows };
  }

  /** All accounts, with the number of their rows on a day. */
  async *#pages(
    day: string,
    count: Count,
    { after = "", stopping }: { after?: string; stopping?: AbortSignal | undefined },
  ): AsyncGenerator<readonly sql.CountHoursRow[]> {
    const { accounts, charges } = this.#sizes;
    for (let last = after; ; ) {
      const asked = { day, after: last, accounts };
      const page = await this.#step(
        (tx) =>
          count === sql.countHours
            ? tx.run(sql.countHours, asked)
            : tx.run(sql.countCharges, { ...asked, most: charges + 1 }),
        stopping,
      );
      yield page;
      if (page.length < accounts) return;
      last = page.at(-1)?.accountId ?? "";
    }
  }

  /**
   * Runs a slice of the work in a transaction, with the progress, which it locks. Throws
   * `TakenElsewhere` while another process writes days.
   */
  #step<T>(
    work: (tx: Runner, progress: Progress) => Promise<T>,
    stopping?: AbortSignal,
  ): Promise<T> {
    const slice = () =>
      this.#postgres.transaction(async (tx) => {
        if (!(await new Lease(tx, this.#lease).take())) throw new TakenElsewhere();
        const progress = await tx.run(sql.lockUsageProgress);
        this.#closedTo = startOfDay(progress.closedTo);
        return work(tx, progress);
      });
    return runSlice(slice, stopping);
  }

  async #move(tx: Runner, progress: Progress): Promise<void> {
    await tx.run(sql.moveUsageProgress, progress);
    this.#closedTo = startOfDay(progress.closedTo);
  }

  /** Otherwise the lease ends by itself. */
  async #release(): Promise<void> {
    await this.#postgres
      .transaction((tx) => new Lease(tx, this.#lease).release())
      .catch(() => undefined);
  }
}

/** Sorts after every tag. */
const afterEveryTag = "\u{10ffff}";
const everyValue = { tag: "", value: "", lastTag: afterEveryTag, lastValue: "" };

function areHoursRemoved(
  { hoursFrom, removedTo }: Progress,
  { accountId, day }: DayOfAccount,
): boolean {
  return day < hoursFrom || (day === hoursFrom && accountId <= removedTo);
}

/** As `WriteTags` ranks values: by bytes, where their amounts are the same. */
function byCost(one: Value, other: Value): number {
  if (one.amount !== other.amount) return one.amount > other.amount ? -1 : 1;
  return byBytes(one.tag, other.tag) || byBytes(one.value, other.value);
}

const byBytes = (one: string, other: string) =>
  Buffer.compare(Buffer.from(one), Buffer.from(other));

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * nothing, once: the sums of a day were written anew from its hours. A bug if it comes again
     */
    usage_day_mended: true;
    /** reports over days grow slow if it goes on; look at the database */
    usage_day_not_closed: true;
    /** nothing: a request of a past day was settled late */
    usage_day_reopened: true;
  }
}
