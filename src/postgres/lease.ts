// Work that one process does at a time. The process that has the lease renews it as it goes on; the
// lease of one that died ends by itself.

import * as sql from "../../gen/sql/postgres.ts";
import { randomId } from "../base/ids.ts";
import type { Runner } from "./statement.ts";

export class Lease {
  readonly #db: Runner;
  readonly #lease: { readonly task: string; readonly holder: string };
  readonly #ms: number;

  /**
   * `ms`: how long it is kept without being renewed. `holder`: who has it, if several objects are
   * one holder.
   */
  constructor(
    db: Runner,
    { task, ms, holder = randomId("holder_") }: { task: string; ms: number; holder?: string },
  ) {
    this.#db = db;
    this.#lease = { task, holder };
    this.#ms = ms;
  }

  /** Takes or renews it. False: another process has it, or the task rests. */
  async take(): Promise<boolean> {
    return (await this.#db.run(sql.takeLease, { ...this.#lease, ms: this.#ms })) > 0;
  }

  /** Leaves it to others. `restMs`: nobody takes it for so long. */
  async release(restMs = 0): Promise<void> {
    await this.#db.run(sql.releaseLease, { ...this.#lease, restMs });
  }
}
