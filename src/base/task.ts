// Work that a process does again and again, such as a poll: one run at a time. A failed run is
// reported, and repeated like any other.

import { backgroundClock, type Clock } from "./clock.ts";
import type { Log, LogCode } from "./log.ts";

export type TaskSettings = {
  /** Does what there is to do now. True: there is more, so the next run begins at once. */
  readonly run: (stopping: AbortSignal) => Promise<boolean> | Promise<void>;
  /** Milliseconds from the start to the first run. Default: none. */
  readonly firstMs?: number;
  /** Milliseconds from the end of a run to the next one. */
  readonly everyMs: number;
  readonly report: Report;
  /** Default: the clock of this machine. The process may end while a run is due. */
  readonly clock?: Clock | undefined;
};

export type Report = {
  /** A run failed. `isFirst`: the run before it had not. */
  failed(error: unknown, isFirst: boolean): void;
  /** The first run succeeded after failed ones. */
  recovered?(): void;
};

/** Logs the first of several failures in a row as a warning, and the success after them. */
export function warnOnce(
  log: Log,
  { code, failed, recovered }: { code: LogCode; failed: string; recovered?: string },
): Report {
  return {
    failed(err, isFirst) {
      if (isFirst) log.warn({ code, err }, failed);
    },
    recovered() {
      if (recovered !== undefined) log.info(recovered);
    },
  };
}

export class Task {
  readonly #settings: TaskSettings;
  readonly #clock: Clock;
  readonly #stopping = new AbortController();
  #isOn = false;
  #isWoken = false;
  #isFailing = false;
  #running: Promise<void> | undefined;
  #cancelTimer = () => {};

  constructor(settings: TaskSettings) {
    this.#settings = settings;
    this.#clock = settings.clock ?? backgroundClock;
  }

  start(): void {
    if (this.#isOn || this.#stopping.signal.aborted) return;
    this.#isOn = true;
    // Paused and started again during a run: the next one follows that one.
    if (this.#running) return;
    const { firstMs = 0 } = this.#settings;
    if (firstMs > 0) this.#plan(firstMs);
    else this.#begin();
  }

  /** Runs at once. A run that is active may have begun too early, so another one follows it. */
  wake(): void {
    if (!this.#isOn) return;
    if (this.#running) this.#isWoken = true;
    else this.#begin();
  }

  /** Runs no more until it is started again. A run that is active goes on. */
  pause(): void {
    this.#isOn = false;
    this.#cancelTimer();
  }

  /** Runs never again. Resolves when no run is active. */
  async stop(): Promise<void> {
    this.pause();
    this.#stopping.abort();
    await this.#running;
  }

  #plan(ms: number): void {
    this.#cancelTimer = this.#clock.after(ms, () => this.#begin());
  }

  #begin(): void {
    this.#cancelTimer();
    // Not at once, since a run may call `wake`.
    const run = Promise.resolve().then(() => this.#runUntilDone());
    this.#running = run.then(() => {
      this.#running = undefined;
      if (this.#isOn) this.#plan(this.#settings.everyMs);
    });
  }

  async #runUntilDone(): Promise<void> {
    do this.#isWoken = false;
    while ((await this.#runOnce()) && this.#isOn);
  }

  /** True if another run is due at once. */
  async #runOnce(): Promise<boolean> {
    const { run, report } = this.#settings;
    try {
      const isMore = await run(this.#stopping.signal);
      if (this.#isFailing) report.recovered?.();
      this.#isFailing = false;
      return isMore === true || this.#isWoken;
    } catch (error) {
      // A run that the stop has cut off has not failed.
      if (!this.#stopping.signal.aborted) report.failed(error, !this.#isFailing);
      this.#isFailing = true;
      return false;
    }
  }
}
