// Removes what is kept for a while only: sessions and addresses. One process does it, once a day.

import * as sql from "../../gen/sql/people.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import { Lease } from "../postgres/lease.ts";
import type { Runner } from "../postgres/statement.ts";
import { idleMsMax } from "./sessions.ts";

/** Ended sessions, and addresses in audit events, are kept for so long. */
const keptDays = 180;
/** So are the events of refused calls. Those of what was done are kept for ever. */
const refusedDays = 90;
const askEveryMs = 3_600_000;
const dayMs = 24 * 3_600_000;
/** A process that died while it removed has left the rest to the next one after an hour. */
const leaseMs = 3_600_000;
// Short statements, so that none holds locks for long.
const batchMax = 1_000;
// A day's work that is larger goes on tomorrow.
const batchesMax = 1_000;

export function createRetention(parts: {
  store: Runner;
  clock?: Clock | undefined;
  log: Log;
}): Task {
  const { store, clock, log } = parts;
  const lease = new Lease(store, { task: "people/retention", ms: leaseMs });

  async function removeOld(stopping: AbortSignal): Promise<void> {
    // Asked each hour, so that a day is not lost with the process that would have done it.
    if (!(await lease.take())) return;
    const some = { days: keptDays, rows: batchMax };
    const inBatches = async (removeSome: () => Promise<number>) => {
      for (let batch = 0; batch < batchesMax && !stopping.aborted; batch++)
        if ((await removeSome()) < batchMax) return;
    };
    await inBatches(() => store.run(sql.removeSessions, { ...some, idleMsMax }));
    await inBatches(() => store.run(sql.removeAddresses, some));
    await inBatches(() => store.run(sql.removeRefused, { ...some, days: refusedDays }));
    await lease.release(dayMs);
  }

  return new Task({
    run: removeOld,
    firstMs: askEveryMs,
    everyMs: askEveryMs,
    report: warnOnce(log, {
      code: "retention_failed",
      failed: "cannot remove old sessions and addresses; trying again",
    }),
    clock,
  });
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** old sessions and addresses stay another day; look at the database */
    retention_failed: true;
  }
}
