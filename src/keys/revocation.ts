// Whether the running streams of a key may go on, asked after each change of it.

import { setTimeout as delay } from "node:timers/promises";
import { ApiError } from "../base/errors.ts";

const attemptsMax = 240;
const retryMs = 250;

export class RevocationCheck {
  readonly #readLiveSecrets: (keyId: string) => Promise<Set<string>>;
  readonly #reading = new Map<string, Promise<Set<string>>>();

  /** `readLiveSecrets` answers the ids of the secrets whose running requests may go on. */
  constructor(readLiveSecrets: (keyId: string) => Promise<Set<string>>) {
    this.#readLiveSecrets = readLiveSecrets;
  }

  /** False once the key or this secret of it is revoked. */
  async isLive(keyId: string, secretId: string): Promise<boolean> {
    // Asked for each of a key's streams at once: one reading serves them all.
    let reading = this.#reading.get(keyId);
    if (!reading) {
      reading = this.#read(keyId).finally(() => {
        if (this.#reading.get(keyId) === reading) this.#reading.delete(keyId);
      });
      this.#reading.set(keyId, reading);
    }
    return (await reading).has(secretId);
  }

  /**
   * A key changed: a reading that is under way may have missed that, and serves nobody who asks
   * from now on.
   */
  forget(keyId: string): void {
    this.#reading.delete(keyId);
  }

  /**
   * A revoked key's streams end although the database is away at that moment: it is asked again for
   * a minute.
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
