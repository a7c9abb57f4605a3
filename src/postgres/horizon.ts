// How far readers that follow charges by their settlement may go. Charges do not become visible in
// that order: `settled_at` is the time at which their transaction began. So readers take only those
// that were settled some time before the horizon, a time from which on every transaction has ended
// that had begun by then.

import * as sql from "../../gen/sql/postgres.ts";
import type { Runner } from "./statement.ts";

/** Above the longest settlement, from the start of its transaction to its first write. */
export const settlementMsMax = 60_000;

export class Horizon {
  readonly #db: Runner;
  /** The oldest time for which it is open whether its transactions have ended. */
  #sample: { readonly at: string; readonly firstToCome: bigint } | undefined;
  /** Every transaction that had begun by then has ended. */
  #until: string | undefined;

  constructor(db: Runner) {
    this.#db = db;
  }

  /** A time before which no transaction began that still runs. Undefined: none is known yet. */
  async read(): Promise<string | undefined> {
    const { at, firstRunning, firstToCome } = await this.#db.run(sql.readHorizon);
    if (this.#sample === undefined || firstRunning >= this.#sample.firstToCome) {
      this.#until = this.#sample?.at;
      this.#sample = { at, firstToCome };
    }
    return this.#until;
  }
}
