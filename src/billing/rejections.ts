// Counts of rejected requests, by account, UTC hour, key and reason. They are figures, not money: a
// crash loses those of the last seconds.

import * as sql from "../../gen/sql/billing.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { type Report, Task, warnOnce } from "../base/task.ts";
import type { Runner } from "../postgres/statement.ts";
import { hourMs } from "./usage-days.ts";

/** A person who tries a new key sees within seconds why its request was refused. */
const everyMs = 1_000;
const batchMax = 1_000;

type Rejected = { accountId: string; hourMs: number; keyId: string; reason: string; count: bigint };

type Parts = {
  readonly db: Runner;
  readonly log: Log;
  readonly clock?: Clock | undefined;
  /** The most counts in memory. Rejections beyond are not counted, and logged. */
  readonly countsMax?: number;
};

export class Rejections {
  readonly #parts: Parts;
  readonly #report: Report;
  readonly #writing: Task;
  #counts = new Map<string, Rejected>();
  #uncounted = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#report = warnOnce(parts.log, {
      code: "rejections_not_counted",
      failed: "cannot write the counts of rejected requests yet",
    });
    this.#writing = new Task({
      run: () => this.write(),
      firstMs: everyMs,
      everyMs,
      report: this.#report,
      clock: parts.clock,
    });
  }

  start(): void {
    this.#writing.start();
  }

  /** Writes what was counted until now. */
  async stop(): Promise<void> {
    await this.#writing.stop();
    await this.write().catch((error: unknown) => this.#report.failed(error, true));
  }

  count(key: { readonly accountId: string; readonly keyId: string }, reason: string): void {
    this.#add({ ...key, reason, hourMs: Math.floor(Date.now() / hourMs) * hourMs, count: 1n });
  }

  /** Throws when it cannot: what is left is written the next time. */
  async write(): Promise<void> {
    const { db, log } = this.#parts;
    if (this.#uncounted > 0)
      log.warn(
        { code: "rejections_not_counted", requests: this.#uncounted },
        "rejected requests were not counted",
      );
    this.#uncounted = 0;
    const left = [...this.#counts.values()];
    this.#counts = new Map();
    try {
      while (left.length > 0) {
        const batch = left.slice(0, batchMax);
        await db.run(sql.addErrors, {
          accountIds: batch.map(({ accountId }) => accountId),
          hours: batch.map(({ hourMs }) => new Date(hourMs)),
          keyIds: batch.map(({ keyId }) => keyId),
          reasons: batch.map(({ reason }) => reason),
          counts: batch.map(({ count }) => count),
        });
        left.splice(0, batch.length);
      }
    } finally {
      for (const one of left) this.#add(one);
    }
  }

  #add({ count, ...of }: Rejected): void {
    const { countsMax = 20_000 } = this.#parts;
    const name = [of.accountId, of.hourMs, of.keyId, of.reason].join("\n");
    const known = this.#counts.get(name);
    if (known) known.count += count;
    else if (this.#counts.size < countsMax) this.#counts.set(name, { ...of, count });
    else this.#uncounted += Number(count);
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** reports of errors lack requests; look at the database if it goes on */
    rejections_not_counted: true;
  }
}
