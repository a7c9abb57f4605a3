// Measures how long something waited for others.

/** The time in which at least one wait was open. Waits may overlap: that time counts once. */
export class Stopwatch {
  #open = 0;
  #sinceMs = 0;
  #sumMs = 0;

  start(): void {
    if (this.#open === 0) this.#sinceMs = performance.now();
    this.#open += 1;
  }

  /** Call it once for each `start`. */
  stop(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#sumMs += performance.now() - this.#sinceMs;
  }

  /** The milliseconds so far. */
  get ms(): number {
    return this.#open === 0 ? this.#sumMs : this.#sumMs + performance.now() - this.#sinceMs;
  }

  /** Runs `work` as a wait. */
  async around<T>(work: Promise<T>): Promise<T> {
    this.start();
    try {
      return await work;
    } finally {
      this.stop();
    }
  }
}

/** Returns `work`, which is a wait of `waits` if somebody asks for them. */
export function waitFor<T>(work: Promise<T>, waits: Stopwatch | undefined): Promise<T> {
  return waits ? waits.around(work) : work;
}
