// Records when secrets were last used: collects them for a few seconds, then writes all of them
// with one statement. The statement writes a secret at most once a minute.

import type { Log } from "../base/log.ts";
import { type Report, Task, warnOnce } from "../base/task.ts";

const everyMs = 5_000;
// A write that fails is dropped: the next use of the secret is due again.
const batchMax = 5_000;
const pendingMax = 100_000;

export class LastUse {
  readonly #write: (secretIds: readonly string[]) => Promise<unknown>;
  readonly #pending = new Set<string>();
  readonly #report: Report;
  readonly #writing: Task;

  constructor(write: (secretIds: readonly string[]) => Promise<unknown>, log: Log) {
    this.#write = write;
    this.#report = warnOnce(log, {
      code: "last_use_not_stored",
      failed: "cannot record the last use of keys",
    });
    this.#writing = new Task({
      run: () => this.#writeAll(),
      firstMs: everyMs,
      everyMs,
      report: this.#report,
    });
  }

  add(secretId: string): void {
    if (this.#pending.size < pendingMax) this.#pending.add(secretId);
  }

  start(): void {
    this.#writing.start();
  }

  /** Writes what was collected. */
  async stop(): Promise<void> {
    await this.#writing.stop();
    await this.#writeAll().catch((error: unknown) => this.#report.failed(error, true));
  }

  async #writeAll(): Promise<void> {
    const secretIds = [...this.#pending];
    this.#pending.clear();
    for (let at = 0; at < secretIds.length; at += batchMax)
      await this.#write(secretIds.slice(at, at + batchMax));
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** the last use of keys is stored late; look at the database if it goes on */
    last_use_not_stored: true;
  }
}
