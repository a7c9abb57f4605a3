// Counts work in progress, so that a shutdown can wait until none is left.

export class WaitGroup {
  #count = 0;
  #empty: PromiseWithResolvers<void> | undefined;

  /** Units of work in progress. */
  get count(): number {
    return this.#count;
  }

  add(): void {
    this.#count++;
  }

  /** Call exactly once for each `add`. */
  done(): void {
    this.#count--;
    if (this.#count > 0) return;
    this.#empty?.resolve();
    this.#empty = undefined;
  }

  /** Resolves when the count is zero: at once if it already is. */
  wait(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    this.#empty ??= Promise.withResolvers<void>();
    return this.#empty.promise;
  }
}
