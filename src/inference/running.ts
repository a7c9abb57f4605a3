// The requests that run in this process or are being admitted, so that they can be ended: one key's when it is revoked, all when the
// process drains.

import type { Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Refusal } from "../base/errors.ts";

/** Why a request is ended from outside: what its client is told, and what is recorded. */
export type EndedBy = { readonly refusal: Refusal; readonly outcome: Outcome };

/** One running request. */
export class Running {
  readonly keyId: string;
  readonly secretId: string;
  /** Set when the gateway ends the request. */
  endedBy: EndedBy | undefined;
  readonly #provider = new AbortController();
  #tellEnded: (() => void) | undefined;

  constructor(keyId: string, secretId: string) {
    this.keyId = keyId;
    this.secretId = secretId;
  }

  /** Aborts the provider call. */
  get signal(): AbortSignal {
    return this.#provider.signal;
  }

  /** Ends the request; the first reason counts. */
  end(by: EndedBy): void {
    if (this.endedBy) return;
    this.endedBy = by;
    this.#provider.abort();
    this.#tellEnded?.();
  }

  /**
   * Calls back when the gateway ends the request, at once where it has: its client may have stopped reading, so that nobody else would
   * settle it soon. For one listener.
   */
  whenEnded(callback: () => void): void {
    this.#tellEnded = callback;
    if (this.endedBy) callback();
  }

  /** Stops the provider's work; nobody is told. */
  stopProvider(): void {
    this.#provider.abort();
  }
}

export class RunningRequests {
  readonly #byKey = new Map<string, Set<Running>>();
  #emptied: (() => void)[] = [];

  open(keyId: string, secretId: string): Running {
    const running = new Running(keyId, secretId);
    const ofKey = this.#byKey.get(keyId);
    if (ofKey) ofKey.add(running);
    else this.#byKey.set(keyId, new Set([running]));
    return running;
  }

  close(running: Running): void {
    const ofKey = this.#byKey.get(running.keyId);
    ofKey?.delete(running);
    if (ofKey?.size === 0) this.#byKey.delete(running.keyId);
    if (this.#byKey.size > 0) return;
    for (const tell of this.#emptied) tell();
    this.#emptied = [];
  }

  ofKey(keyId: string): readonly Running[] {
    return [...(this.#byKey.get(keyId) ?? [])];
  }

  endAll(by: EndedBy): void {
    for (const ofKey of [...this.#byKey.values()]) for (const running of [...ofKey]) running.end(by);
  }

  /** Resolves when nothing runs any more. */
  async emptied(): Promise<void> {
    if (this.#byKey.size > 0) await new Promise<void>((resolve) => this.#emptied.push(resolve));
  }
}
