// Removes what is kept for a while only: sessions and addresses. One process does it, once a day.

import * as sql from "../../gen/sql/people.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Runner } from "../postgres/statement.ts";
import { idleMsMax } from "./sessions.ts";

/** Ended sessions, and addresses in audit events, are kept for so long. */
const keptDays = 180;
/** So are the events of refused calls. Those of what was done are kept for ever. */
const refusedDays = 90;
const askEveryMs = 3_600_000;
// Short statements, so that none holds locks for long.
const batchMax = 1_000;
// A day's work that is larger goes on tomorrow.
const batchesMax = 1_000;

export type Retention = {
  start(): void;
  stop(): Promise<void>;
};

export function createRetention(parts: {
  store: Runner;
  clock?: Clock | undefined;
  log: Log;
}): Retention {
  const { store, clock = systemClock, log } = parts;
  let cancel = () => {};
  let isRunning = false;
  let work: Promise<void> = Promise.resolve();

  async function removeOld(): Promise<void> {
    try {
      // Asked each hour, so that a day is not lost with the process that would have done it.
      if ((await store.run(sql.claimCleaning)) === 0) return;
      const some = { days: keptDays, rows: batchMax };
      await inBatches(() => store.run(sql.removeSessions, { ...some, idleMsMax }));
      await inBatches(() => store.run(sql.removeAddresses, some));
      await inBatches(() => store.run(sql.removeRefused, { ...some, days: refusedDays }));
    } catch (err) {
      log.warn(
        { code: "retention_failed", err },
        "cannot remove old sessions and addresses; trying again tomorrow",
      );
    }
  }

  async function inBatches(removeSome: () => Promise<number>): Promise<void> {
    for (let batch = 0; batch < batchesMax && isRunning; batch++)
      if ((await removeSome()) < batchMax) return;
  }

  function schedule(): void {
    cancel = clock.after(askEveryMs, () => {
      work = removeOld().finally(() => {
        if (isRunning) schedule();
      });
    });
  }

  return {
    start() {
      isRunning = true;
      schedule();
    },
    async stop() {
      isRunning = false;
      cancel();
      await work;
    },
  };
}
