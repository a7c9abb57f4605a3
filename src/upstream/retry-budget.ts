// Bounds second attempts, so that they cannot double the load of providers that are in trouble already.

const perCall = 0.1;
const most = 20;

/** One second attempt for ten calls, and a few at once. */
export class RetryBudget {
  #attempts = most;

  /** A call began. */
  earn(): void {
    this.#attempts = Math.min(most, this.#attempts + perCall);
  }

  /** True when a second attempt may be made, which is then counted. */
  spend(): boolean {
    if (this.#attempts < 1) return false;
    this.#attempts--;
    return true;
  }
}
