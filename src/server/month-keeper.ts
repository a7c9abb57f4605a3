// Keeps partitions for the months ahead, once a day, and knows how many there are.

import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import type { PartState } from "../http/http.ts";
import type { OpenLedger } from "../postgres/open-ledger.ts";

const everyMs = 24 * 3_600_000;

export class MonthKeeper {
  readonly #ledger: Pick<OpenLedger, "keepMonthsAhead" | "readLastMonth">;
  readonly #log: Log;
  readonly #task = new Task({
    run: () => this.keep(),
    firstMs: everyMs,
    everyMs,
    // `keep` logs what fails.
    report: { failed() {} },
  });
  #last: number | undefined;

  constructor(ledger: Pick<OpenLedger, "keepMonthsAhead" | "readLastMonth">, log: Log) {
    this.#ledger = ledger;
    this.#log = log;
  }

  /** The months after the current one that have partitions. Undefined before `start`. */
  get monthsAhead(): number | undefined {
    if (this.#last === undefined) return undefined;
    const now = new Date();
    return this.#last - (now.getUTCFullYear() * 12 + now.getUTCMonth());
  }

  async start(): Promise<void> {
    this.#last = await this.#ledger.readLastMonth();
    this.#task.start();
  }

  stop(): void {
    void this.#task.stop();
  }

  /** Adds what is missing. Logs an error, and reads what is there all the same. */
  async keep(): Promise<void> {
    try {
      await this.#ledger.keepMonthsAhead();
    } catch (err) {
      this.#log.error(
        { err, code: "ledger_months_missing" },
        "cannot add partitions for the months ahead; check the rights of MIGRATION_DATABASE_URL",
      );
    }
    this.#last = await this.#ledger.readLastMonth().catch(() => this.#last);
  }

  /** Undefined where there is nothing to report. */
  state(): PartState | undefined {
    const ahead = this.monthsAhead;
    if (ahead === undefined || ahead >= 1) return undefined;
    return ahead < 0
      ? { state: "down", message: "the current month has no partition: no request can be charged" }
      : { state: "degraded", message: "the next month has no partition yet" };
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * give `MIGRATION_DATABASE_URL` the rights of the owner; without the partition of a month
     * nothing is charged in it
     */
    ledger_months_missing: true;
  }
}
