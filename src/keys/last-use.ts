// Records when secrets were last used: collects them for a few seconds, then writes all of them
// with one statement. The statement writes a secret at most once a minute.

import type { Log } from "../base/log.ts";

const everyMs = 5_000;
// A write that fails is dropped: the next use of the secret is due again.
const batchMax = 5_000;
const pendingMax = 100_000;

export class LastUse {
  readonly #write: (secretIds: readonly string[]) => Promise<unknown>;
  readonly #log: Log;
  readonly #pending = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #written: Promise<void> = Promise.resolve();

  constructor(write: (secretIds: readonly string[]) => Promise<unknown>, log: Log) {
    this.#write = write;
    this.#log = log;
  }

  add(secretId: string): void {
    if (this.#pending.size >= pendingMax) return;
    this.#pending.add(secretId);
    this.#timer ??= setTimeout(() => void this.flush(), everyMs).unref();
  }

  /** Writes what was collected. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#written = this.#written.then(() => this.#writeAll());
    return this.#written;
  }

  async #writeAll(): Promise<void> {
    const secretIds = [...this.#pending];
    this.#pending.clear();
    try {
      for (let at = 0; at < secretIds.length; at += batchMax)
        await this.#write(secretIds.slice(at, at + batchMax));
    } catch (err) {
      this.#log.warn({ code: "last_use_not_stored", err }, "cannot record the last use of keys");
    }
  }
}
