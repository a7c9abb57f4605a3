// The requests that run in this process or are being admitted, so that they can be ended: one key's
// when it is revoked, all when the process drains.

import type { Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";

/** Why a request is ended from outside: what its client is told, and what is recorded. */
export type CancelReason = { readonly error: ApiError; readonly outcome: Outcome };

/** One running request. */
export class ActiveRequest {
  readonly keyId: string;
  readonly secretId: string;
  /** Set when the gateway ends the request. */
  cancelReason: CancelReason | undefined;
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
  cancel(by: CancelReason): void {
    if (this.cancelReason) return;
    this.cancelReason = by;
    this.#provider.abort();
    this.#tellEnded?.();
  }

  /**
   * Calls back when the gateway ends the request, at once where it has: its client may have stopped
   * reading, so that nobody else would settle it soon. For one listener.
   */
  onCancel(callback: () => void): void {
    this.#tellEnded = callback;
    if (this.cancelReason) callback();
  }

  /** Stops the provider's work; nobody is told. */
  stopProvider(): void {
    this.#provider.abort();
  }
}

export class ActiveRequests {
  readonly #byKey = new Map<string, Set<ActiveRequest>>();
  readonly #count = new WaitGroup();

  open(keyId: string, secretId: string): ActiveRequest {
    const running = new ActiveRequest(keyId, secretId);
    const ofKey = this.#byKey.get(keyId);
    if (ofKey) ofKey.add(running);
    else this.#byKey.set(keyId, new Set([running]));
    this.#count.add();
    return running;
  }

  close(running: ActiveRequest): void {
    const ofKey = this.#byKey.get(running.keyId);
    if (!ofKey?.delete(running)) return;
    if (ofKey.size === 0) this.#byKey.delete(running.keyId);
    this.#count.done();
  }

  ofKey(keyId: string): readonly ActiveRequest[] {
    return [...(this.#byKey.get(keyId) ?? [])];
  }

  cancelAll(by: CancelReason): void {
    for (const ofKey of [...this.#byKey.values()])
      for (const running of [...ofKey]) running.cancel(by);
  }

  /** Resolves when nothing runs any more. */
  whenIdle(): Promise<void> {
    return this.#count.wait();
  }
}
