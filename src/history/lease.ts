// Work that one process does at a time. The process that has the lease renews it as it goes on; the
// lease of one that died ends by itself.

import * as sql from "../../gen/sql/history.ts";
import type { Runner } from "../postgres/statement.ts";

export class Lease {
  readonly #db: Runner;
  readonly #lease: { task: string; holder: string; ms: number };

  /** `ms`: how long it is kept without being renewed. */
  constructor(db: Runner, lease: { task: string; holder: string; ms: number }) {
    this.#db = db;
    this.#lease = lease;
  }

  /** Takes or renews it. False: another process has it. */
  async take(): Promise<boolean> {
    return (await this.#db.run(sql.takeLease, this.#lease)) > 0;
  }

  async release(): Promise<void> {
    await this.#db.run(sql.releaseLease, this.#lease);
  }
}
