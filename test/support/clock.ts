// Time that tests move by hand.

import { setTimeout as delay } from "node:timers/promises";
import { vi } from "vitest";
import type { Clock } from "../../src/base/clock.ts";

/** A clock that stands still until `advance` moves it. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #creepMs: number;
  readonly #timers = new Set<{ atMs: number; callback: () => void }>();

  /**
   * `creeps`: no two looks at it show the same moment, as with a real one. Who compares moments may
   * need that: a secret that was read in the moment of its change is read again.
   */
  constructor({ creeps = false } = {}) {
    this.#creepMs = creeps ? 1e-6 : 0;
  }

  now(): number {
    this.#nowMs += this.#creepMs;
    return this.#nowMs;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Number of pending timers. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves the clock without its timers, as for a process that was paused. */
  skip(ms: number): void {
    this.#nowMs += ms;
  }

  /** Ends the next pause of work that tries again soon. Leaves time limits alone. */
  async endPause(msMax = 250): Promise<void> {
    const nextMs = Math.min(...[...this.#timers].map(({ atMs }) => atMs));
    await this.#moveTo(nextMs <= this.#nowMs + msMax ? nextMs : this.#nowMs);
  }

  /** Moves the clock and runs the timers that fall due, in order of their time. */
  advance(ms: number): Promise<void> {
    return this.#moveTo(this.#nowMs + ms);
  }

  async #moveTo(untilMs: number): Promise<void> {
    for (;;) {
      await runPendingTasks();
      const due = [...this.#timers]
        .filter(({ atMs }) => atMs <= untilMs)
        .sort((one, other) => one.atMs - other.atMs)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#nowMs = Math.max(this.#nowMs, due.atMs);
      due.callback();
    }
    this.#nowMs = Math.max(this.#nowMs, untilMs);
    await runPendingTasks();
  }
}

/**
 * Lets time pass, by calls of `pass`, until `check` throws no more. Returns what it returns. What
 * the clock sets off may still need a database, which takes real time.
 */
export function passUntil<T>(pass: () => Promise<void>, check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(
    async () => {
      try {
        return await check();
      } catch (error) {
        await pass();
        throw error;
      }
    },
    { interval: 10 },
  );
}

/** Lets time pass, by calls of `pass`, until `work` has settled. Settles as it does. */
export async function passDuring<T>(pass: () => Promise<void>, work: Promise<T>): Promise<T> {
  let isOver = false;
  const over = () => {
    isOver = true;
  };
  work.then(over, over);
  while (!isOver) {
    await pass();
    await delay(1);
  }
  return work;
}

/** Runs everything that is already due: promise callbacks and one turn of the event loop. */
export function runPendingTasks(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
