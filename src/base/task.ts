// Work that a process does again and again, such as a poll: one run at a time. A failed run is
// reported, and repeated like any other.

import { backgroundClock, type Clock } from "./clock.ts";
import type { Log, LogCode } from "./log.ts";

export type TaskSettings = {
  /** Does what there is to do now. True: there is more, so the next run begins at once. */
  readonly run: (stopping: AbortSignal) => Promise<boolean> | Promise<void>;
  /** Milliseconds from the start to the first run. Default: none. */
  readonly firstMs?: number;
  /** Milliseconds from the end of a run to the next one. A function: as it is then. */
  readonly everyMs: number | (() => number);
  /** Failures in a row double the pause, up to this. Default: they do not. */
  readonly everyMsMax?: number;
  /** Milliseconds that lie at least between two runs, also for a task that is woken. */
  readonly pauseMs?: number;
  /**
   * Share of the pause by which it is shorter, at most: chance decides, so that processes that
   * started together do not go on together.
   */
  readonly jitter?: number;
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

const usualJitter = 0.1;

export class Task {
  readonly #settings: TaskSettings;
  readonly #clock: Clock;
  readonly #stopping = new AbortController();
  #isOn = false;
  #isWoken = false;
  #failures = 0;
  #endedAtMs = Number.NEGATIVE_INFINITY;
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

  /** Runs as soon as it may. An active run may have begun too early, so another one follows it. */
  wake(): void {
    if (!this.#isOn) return;
    if (this.#running) this.#isWoken = true;
    else this.#beginAfterPause();
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
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(ms, () => this.#begin());
  }

  #beginAfterPause(): void {
    const { pauseMs = 0 } = this.#settings;
    const leftMs = this.#endedAtMs + pauseMs - this.#clock.now();
    if (leftMs > 0) this.#plan(leftMs);
    else this.#begin();
  }

  #begin(): void {
    this.#cancelTimer();
    // Not at once, since a run may call `wake`.
    this.#isWoken = false;
    const run = Promise.resolve().then(() => this.#runOnce());
    this.#running = run.then((isMore) => {
      this.#running = undefined;
      this.#endedAtMs = this.#clock.now();
      if (!this.#isOn) return;
      // A failed run is no sooner repeated for being woken.
      if (isMore || (this.#isWoken && this.#failures === 0)) this.#beginAfterPause();
      else this.#plan(this.#nextMs());
    });
  }

  #nextMs(): number {
    const { everyMs, everyMsMax = 0, jitter = usualJitter } = this.#settings;
    const usualMs = typeof everyMs === "number" ? everyMs : everyMs();
    // 16 doublings make a day of a second.
    const longerMs = Math.min(everyMsMax, usualMs * 2 ** Math.min(this.#failures, 16));
    return Math.max(usualMs, longerMs) * (1 - jitter * Math.random());
  }

  /** True if there is more to do. */
  async #runOnce(): Promise<boolean> {
    const { run, report } = this.#settings;
    try {
      const isMore = await run(this.#stopping.signal);
      if (this.#failures > 0) report.recovered?.();
      this.#failures = 0;
      return isMore === true;
    } catch (error) {
      // A run that the stop has cut off has not failed.
      if (!this.#stopping.signal.aborted) report.failed(error, this.#failures === 0);
      this.#failures += 1;
      return false;
    }
  }
}
