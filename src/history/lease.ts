// Work that one process does at a time. The process that has the lease renews it as it goes on; the
// lease of one that died ends by itself.

import { statement, type Tx } from "../postgres/postgres.ts";

const statements = {
  takeLease: statement(import.meta.url, "take-lease"),
  releaseLease: statement(import.meta.url, "release-lease"),
};

export class Lease {
  readonly #db: Tx;
  readonly #task: string;
  readonly #holder: string;
  readonly #ms: number;

  /** `ms`: how long it is kept without being renewed. */
  constructor(db: Tx, { task, holder, ms }: { task: string; holder: string; ms: number }) {
    this.#db = db;
    this.#task = task;
    this.#holder = holder;
    this.#ms = ms;
  }

  /** Takes or renews it. False: another process has it. */
  async take(): Promise<boolean> {
    const values = [this.#task, this.#holder, this.#ms];
    return (await this.#db.query(statements.takeLease, values)).length > 0;
  }

  async release(): Promise<void> {
    await this.#db.query(statements.releaseLease, [this.#task, this.#holder]);
  }
}
