// Decides whether the active requests of a key may continue, after each change of the key.

import { setTimeout as delay } from "node:timers/promises";
import { ApiError } from "../base/errors.ts";

const attemptsMax = 240;
const retryMs = 250;

export class RevocationCheck {
  readonly #readLiveSecrets: (keyId: string) => Promise<Set<string>>;
  readonly #reads = new Map<string, Promise<Set<string>>>();

  /** `readLiveSecrets` returns the ids of the secrets whose active requests may continue. */
  constructor(readLiveSecrets: (keyId: string) => Promise<Set<string>>) {
    this.#readLiveSecrets = readLiveSecrets;
  }

  /** False once the key or this secret of it is revoked. */
  async isActive(keyId: string, secretId: string): Promise<boolean> {
    // Called for all active requests of a key at once: they share one read.
    let read = this.#reads.get(keyId);
    if (!read) {
      read = this.#read(keyId).finally(() => {
        if (this.#reads.get(keyId) === read) this.#reads.delete(keyId);
      });
      this.#reads.set(keyId, read);
    }
    return (await read).has(secretId);
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
  async #read(keyId: string): Promise<Set<string>> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#readLiveSecrets(keyId);
      } catch (error) {
        if (!(error instanceof ApiError) || attempt === attemptsMax) throw error;
        await delay(retryMs, undefined, { ref: false });
      }
    }
  }
}
