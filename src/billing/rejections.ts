// Counts of rejected requests, by account, UTC hour, key and reason. They are figures, not money: a
// crash loses those of the last seconds.

import * as sql from "../../gen/sql/billing.ts";
import type { Log } from "../base/log.ts";
import type { Runner } from "../postgres/statement.ts";
import { hourMs } from "./usage-days.ts";

const everyMs = 10_000;
const batchMax = 1_000;

type Rejected = { accountId: string; hourMs: number; keyId: string; reason: string; count: bigint };

export class Rejections {
  readonly #db: Runner;
  readonly #log: Log;
  /** The most counts in memory. Rejections beyond are not counted, and logged. */
  readonly #countsMax: number;
  #counts = new Map<string, Rejected>();
  #uncounted = 0;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(db: Runner, log: Log, countsMax = 20_000) {
    this.#db = db;
    this.#log = log;
    this.#countsMax = countsMax;
  }

  start(): void {
    this.#timer = setInterval(() => void this.write(), everyMs).unref();
  }

  /** Writes what was counted until now. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await this.write();
  }

  count(key: { readonly accountId: string; readonly keyId: string }, reason: string): void {
    this.#add({ ...key, reason, hourMs: Math.floor(Date.now() / hourMs) * hourMs, count: 1n });
  }

  /** Never throws: what could not be written is written the next time. */
  write(): Promise<void> {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    if (this.#uncounted > 0)
      this.#log.warn(
        { code: "rejections_not_counted", requests: this.#uncounted },
        "rejected requests were not counted",
      );
    this.#uncounted = 0;
    const left = [...this.#counts.values()];
    this.#counts = new Map();
    while (left.length > 0) {
      const batch = left.slice(0, batchMax);
      try {
        await this.#db.run(sql.addErrors, {
          accountIds: batch.map(({ accountId }) => accountId),
          hours: batch.map(({ hourMs }) => new Date(hourMs)),
          keyIds: batch.map(({ keyId }) => keyId),
          reasons: batch.map(({ reason }) => reason),
          counts: batch.map(({ count }) => count),
        });
        left.splice(0, batch.length);
      } catch (err) {
        this.#log.warn(
          { code: "rejections_not_counted", err },
          "cannot write the counts of rejected requests yet",
        );
        for (const one of left.splice(0)) this.#add(one);
      }
    }
  }

  #add({ count, ...of }: Rejected): void {
    const name = [of.accountId, of.hourMs, of.keyId, of.reason].join("\n");
    const known = this.#counts.get(name);
    if (known) known.count += count;
    else if (this.#counts.size < this.#countsMax) this.#counts.set(name, { ...of, count });
    else this.#uncounted += Number(count);
  }
}
