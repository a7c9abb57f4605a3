// Decides whether the active requests of a key may continue, after each change of the key or of its
// account.

import { type Clock, pause, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Refusal } from "./store.ts";

const attemptsMax = 240;
const retryMs = 250;

/** The secrets that are not revoked, and why their active requests have to end, if they have to. */
type LiveSecrets = ReadonlyMap<string, Refusal | undefined>;

export class RevocationCheck {
  readonly #readLiveSecrets: (keyId: string) => Promise<LiveSecrets>;
  readonly #clock: Clock;
  readonly #reads = new Map<string, Promise<LiveSecrets>>();

  constructor(
    readLiveSecrets: (keyId: string) => Promise<LiveSecrets>,
    clock: Clock = systemClock,
  ) {
    this.#readLiveSecrets = readLiveSecrets;
    this.#clock = clock;
  }

  /** Why active requests with this secret have to end. Undefined: they may continue. */
  async refusalOf(keyId: string, secretId: string): Promise<Refusal | undefined> {
    // Called for all active requests of a key at once: they share one read.
    let read = this.#reads.get(keyId);
    if (!read) {
      read = this.#read(keyId).finally(() => {
        if (this.#reads.get(keyId) === read) this.#reads.delete(keyId);
      });
      this.#reads.set(keyId, read);
    }
    const live = await read;
    return live.has(secretId) ? live.get(secretId) : "revoked_key";
  }

  /**
   * Call when a key changed: a read that has begun may have missed the change, so later calls do
   * not share it.
   */
  forget(keyId: string): void {
    this.#reads.delete(keyId);
  }

  /**
   * Retries for a minute while the database is down, so that a revocation still ends the active
   * requests.
   */
  async #read(keyId: string): Promise<LiveSecrets> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#readLiveSecrets(keyId);
      } catch (error) {
        if (!(error instanceof ApiError) || attempt === attemptsMax) throw error;
        await pause(this.#clock, retryMs);
      }
    }
  }
}
