// The years behind the current month: closing, export and removal of months, and the sink that gets
// every charge. docs/operating/history.md says how an operator uses them.

import { withTimeout } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Outbound } from "../base/outbound.ts";
import { Task } from "../base/task.ts";
import type { SinkSettings } from "../config/environment.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { OpenLedger } from "../postgres/open-ledger.ts";
import { isUnreachable } from "../postgres/postgres.ts";
import { nameOfMonth } from "./months.ts";
import { keepRetention, type Waiting } from "./retention.ts";
import { Sink } from "./sink.ts";

export { closeMonth, prepareClosing } from "./closing.ts";
export { exportMonth } from "./export-month.ts";
export { HistoryError } from "./history-error.ts";
export { nameOfMonth, parseMonth } from "./months.ts";

export type History = {
  start(): void;
  /** Ends with the batch that is being sent, or after five seconds. Closes no month further. */
  stop(): Promise<void>;
};

type Parts = {
  readonly ledger: Pick<OpenLedger, "asOwner" | "postgres">;
  readonly log: Log;
  /** Absent: nothing is counted. */
  readonly metrics?: Metrics | undefined;
  /** Undefined: nothing is closed or removed. */
  readonly retentionMonths: number | undefined;
  /** Undefined: charges are sent nowhere. */
  readonly sink: SinkSettings | undefined;
  /** The way to the sink. */
  readonly outbound: Outbound | undefined;
};

const everyMs = 3_600_000;
const stopMsMax = 5_000;
/** Not with the first requests of a new process. */
const firstMs = 60_000;

export function createHistory(parts: Parts): History {
  const { ledger, log, metrics, retentionMonths, sink, outbound } = parts;
  const sending = sink && new Sink({ db: ledger.postgres, log, settings: sink, outbound });
  const keeper =
    retentionMonths === undefined
      ? undefined
      : new RetentionKeeper(
          (signal) => keepRetention(ledger, { months: retentionMonths, sink: sink?.name }, signal),
          log,
        );
  if (metrics && sending) {
    metrics.readOne("gateway_sink_lag_seconds", () => sending.lag);
    metrics.readOne("gateway_sink_charges_total", () => sending.sent);
    metrics.readOne("gateway_sink_failures_total", () => sending.failed);
  }
  if (metrics && keeper) metrics.readOne("gateway_history_months_due", () => keeper.due);
  return {
    start() {
      sending?.start();
      keeper?.start();
    },
    async stop() {
      // What a sink or a lock keeps waiting is done again by another process.
      const stopped = Promise.all([sending?.stop(), keeper?.stop()]);
      await withTimeout(stopped, stopMsMax, () => undefined);
    },
  };
}

/**
 * Reads, closes and removes months once an hour: the months come slowly, their exports any time.
 */
export class RetentionKeeper {
  readonly #keep: (signal: AbortSignal) => Promise<readonly Waiting[]>;
  readonly #log: Log;
  readonly #task: Task;
  #due: number | undefined;
  /** What the log was told last. */
  #told = "";

  constructor(keep: (signal: AbortSignal) => Promise<readonly Waiting[]>, log: Log) {
    this.#keep = keep;
    this.#log = log;
    this.#task = new Task({
      run: (stopping) => this.run(stopping),
      firstMs,
      everyMs,
      report: {
        failed: (err) => {
          if (isUnreachable(err)) return;
          log.error(
            { code: "history_failed", err },
            "cannot close or remove months; look at the error, and at the rights of MIGRATION_DATABASE_URL",
          );
        },
      },
    });
  }

  /** Months whose charges should be gone and are not. Undefined: not known yet. */
  get due(): number | undefined {
    return this.#due;
  }

  start(): void {
    this.#task.start();
  }

  stop(): Promise<void> {
    return this.#task.stop();
  }

  /** Does what can be done now. Logs what has to wait. */
  async run(stopping: AbortSignal): Promise<void> {
    const waiting = await this.#keep(stopping);
    this.#due = waiting.length;
    this.#tell(waiting[0]);
  }

  #tell(first: Waiting | undefined): void {
    const text = first === undefined ? "" : `${first.month} ${first.why.message}`;
    if (text !== this.#told && first !== undefined)
      this.#log.warn(
        { code: "month_not_removed", month: nameOfMonth(first.month), why: first.why.message },
        "charges that RETENTION_MONTHS need not keep are still here",
      );
    this.#told = text;
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * past months are neither closed nor removed; look at the error, and at the rights of
     * `MIGRATION_DATABASE_URL`
     */
    history_failed: true;
    /**
     * charges stay longer than `RETENTION_MONTHS`, and the line says why; export the month if it is
     * not exported
     */
    month_not_removed: true;
  }
}
