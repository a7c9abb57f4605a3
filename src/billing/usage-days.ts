// The days of `usage_daily`. A UTC day is closed two days after its end, when no request of it runs
// any more: its sums are then written from its hours, once. Hours are removed when they are older
// than any report may ask for, and their day is checked against them.
//
// Then the sums of its tags are written from its charges, apart from the others: an account may
// have millions of values, and closing the day must not wait for them.
//
// A settlement of a closed day should not exist: requests end within a day, and a day with a hold
// stays open. It does when the clock of the database was set back. Its charge is in the hours, as
// always, and the process that settled it writes the day again. Days that are closed too early by
// the clock of now are opened again.

import * as sql from "../../gen/sql/billing.ts";
import type { Log } from "../base/log.ts";
import { hoursKeptDays } from "../base/shown-figures.ts";
import { Task, warnOnce } from "../base/task.ts";
import { isBlocked, type Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;
/** A day is closed this many days after it began. */
const closedAfterDays = 3;
const everyMs = 60_000;

/** The UTC day, as `YYYY-MM-DD`. */
export function dayOf(at: Date): string {
  return at.toISOString().slice(0, 10);
}

export function startOfDay(day: string): Date {
  return new Date(`${day}T00:00:00Z`);
}

function addDays(day: string, days: number): string {
  return dayOf(new Date(startOfDay(day).getTime() + days * dayMs));
}

function earlierOf(one: string, other: string): string {
  return one < other ? one : other;
}

/**
 * The days before `closedTo` are closed, the hours of those before `hoursFrom` were removed, and
 * the tags of those before `tagsTo` are written.
 */
type Progress = sql.LockUsageProgressRow;

export class UsageDays {
  readonly #postgres: Pick<Postgres, "transaction">;
  readonly #log: Log;
  readonly #closing: Task;
  readonly #mending: Task;
  /** Closed days with late settlements, which are to be written again. */
  readonly #late = new Set<string>();
  /** Start of the first open day, as this process knows. */
  #closedTo = new Date(0);

  constructor(postgres: Pick<Postgres, "transaction">, log: Log) {
    this.#postgres = postgres;
    this.#log = log;
    const report = (failed: string) => warnOnce(log, { code: "usage_day_not_closed", failed });
    this.#closing = new Task({
      run: (stopping) => this.run(stopping).catch(passBlocked),
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

  /** Closes the days that can be closed, removes the hours that are too old, and writes tags. */
  async run(stopping?: AbortSignal): Promise<void> {
    while (!stopping?.aborted && (await this.#closeNext()));
    while (!stopping?.aborted && (await this.#removeNext()));
    while (!stopping?.aborted && (await this.#writeNextTags()));
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
      await this.mend(day).catch((error: unknown) => {
        this.#late.add(day);
        throw error;
      });
    }
  }

  /** Writes a closed day again. No effect on an open one. */
  mend(day: string): Promise<void> {
    return this.#postgres.transaction(async (tx) => {
      const { closedTo, hoursFrom, tagsTo } = await this.#lock(tx);
      if (day >= closedTo) return;
      if (day < tagsTo) await writeTags(tx, day);
      if (day >= hoursFrom) {
        await tx.run(sql.writeDay, { day });
        return;
      }
      await tx.run(sql.addToDay, { day });
      await tx.run(sql.removeHours, { day });
    });
  }

  /** Closes the first open day that has hours. Returns false when there is none. */
  #closeNext(): Promise<boolean> {
    return this.#postgres.transaction(async (tx) => {
      const progress = await this.#lock(tx);
      const old = addDays(progress.today, 1 - closedAfterDays);
      if (progress.closedTo > old) return this.#reopen(tx, progress, old);
      const oldest = await tx.run(sql.findOldestHold);
      const end = earlierOf(old, oldest.day ?? old);
      if (end <= progress.closedTo) return false;
      const first = await tx.run(sql.findFirstHours, { day: progress.closedTo });
      const day = first.day ?? end;
      if (day < end) await tx.run(sql.writeDay, { day });
      const closedTo = day < end ? addDays(day, 1) : end;
      await tx.run(sql.moveUsageProgress, { ...progress, closedTo });
      this.#closedTo = startOfDay(closedTo);
      return true;
    });
  }

  /** Opens the days from `old` on, as far as their hours are there. */
  async #reopen(tx: Runner, progress: Progress, old: string): Promise<false> {
    const { hoursFrom } = progress;
    const closedTo = old < hoursFrom ? hoursFrom : old;
    if (closedTo < progress.closedTo) {
      await tx.run(sql.reopenDays, { day: closedTo });
      if (closedTo < progress.tagsTo) {
        await tx.run(sql.removeTags, { from: closedTo, to: "infinity" });
        await tx.run(sql.moveTagsProgress, { tagsTo: closedTo });
      }
      await tx.run(sql.moveUsageProgress, { closedTo, hoursFrom });
      this.#closedTo = startOfDay(closedTo);
    }
    return false;
  }

  /** Removes the hours of the first day that is too old. Returns false when there is none. */
  #removeNext(): Promise<boolean> {
    return this.#postgres.transaction(async (tx) => {
      const progress = await this.#lock(tx);
      // One day more than reports may ask for: a report that began yesterday may still run.
      const kept = addDays(progress.today, -hoursKeptDays - 1);
      const end = earlierOf(kept, progress.closedTo);
      if (end <= progress.hoursFrom) return false;
      const first = await tx.run(sql.findFirstHours, { day: progress.hoursFrom });
      const day = first.day ?? end;
      if (day < end) {
        await this.#check(tx, day);
        await tx.run(sql.removeHours, { day });
      }
      const hoursFrom = day < end ? addDays(day, 1) : end;
      await tx.run(sql.moveUsageProgress, { ...progress, hoursFrom });
      await tx.run(sql.removeErrors, { day: hoursFrom });
      return true;
    });
  }

  /** Writes the tags of the first closed day that lacks them. Returns false when there is none. */
  #writeNextTags(): Promise<boolean> {
    return this.#postgres.transaction(async (tx) => {
      const { tagsTo, closedTo } = await this.#lock(tx);
      if (tagsTo >= closedTo) return false;
      const first = await tx.run(sql.findFirstHours, { day: tagsTo });
      const day = first.day ?? closedTo;
      if (day < closedTo) await writeTags(tx, day);
      await tx.run(sql.moveTagsProgress, { tagsTo: day < closedTo ? addDays(day, 1) : closedTo });
      return true;
    });
  }

  // Settlements write the hours together with the charge, so the hours are right.
  async #check(tx: Runner, day: string): Promise<void> {
    const { differences } = await tx.run(sql.compareDay, { day });
    if (differences === 0) return;
    this.#log.error(
      { code: "usage_day_mended", day, differences },
      "a day of the usage differs from its hours: it is mended",
    );
    await tx.run(sql.writeDay, { day });
  }

  async #lock(tx: Runner): Promise<Progress> {
    const progress = await tx.run(sql.lockUsageProgress);
    this.#closedTo = startOfDay(progress.closedTo);
    return progress;
  }
}

/** Another process is at it. */
function passBlocked(error: unknown): void {
  if (!isBlocked(error)) throw error;
}

/** Writes the tags of a day anew. */
async function writeTags(tx: Runner, day: string): Promise<void> {
  await tx.run(sql.allowLongWrite);
  await tx.run(sql.removeTags, { from: day, to: addDays(day, 1) });
  await tx.run(sql.writeTags, { day });
}
