// The requests that run in this process or are being admitted, so that the gateway can end them:
// those of a key when it is revoked, all of them when the process drains.

import type { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";

/** Why the gateway ends a request: the error that its client gets, and what decides the charge. */
export type CancelReason = {
  readonly error: ApiError;
  readonly ending: "revoked" | "timeLimit" | "declaredDead";
};

/** One request. */
export class ActiveRequest {
  readonly keyId: string;
  readonly secretId: string;
  /** Set when the gateway ends the request. The first reason stays. */
  cancelReason: CancelReason | undefined;
  /** Aborts the provider call. */
  provider = new AbortController();
  #onCancel: (() => void) | undefined;

  constructor(keyId: string, secretId: string) {
    this.keyId = keyId;
    this.secretId = secretId;
  }

  /** Ends the request and stops its provider. */
  cancel(reason: CancelReason): void {
    if (this.cancelReason) return;
    this.cancelReason = reason;
    this.provider.abort();
    this.#onCancel?.();
  }

  /** Stops the provider call, so that the request may make another. */
  stopCall(): void {
    this.provider.abort();
    if (!this.cancelReason) this.provider = new AbortController();
  }

  /**
   * Calls `callback` when the gateway ends the request, at once if it has already. A client that
   * stopped reading would otherwise keep the request from being settled. For one listener.
   */
  onCancel(callback: () => void): void {
    this.#onCancel = callback;
    if (this.cancelReason) callback();
  }
}

export class ActiveRequests {
  readonly #byKey = new Map<string, Set<ActiveRequest>>();
  readonly #count = new WaitGroup();

  open(keyId: string, secretId: string): ActiveRequest {
    const request = new ActiveRequest(keyId, secretId);
    const ofKey = this.#byKey.get(keyId);
    if (ofKey) ofKey.add(request);
    else this.#byKey.set(keyId, new Set([request]));
    this.#count.add();
    return request;
  }

  /** Repeating it has no effect. */
  close(request: ActiveRequest): void {
    const ofKey = this.#byKey.get(request.keyId);
    if (!ofKey?.delete(request)) return;
    if (ofKey.size === 0) this.#byKey.delete(request.keyId);
    this.#count.done();
  }

  ofKey(keyId: string): readonly ActiveRequest[] {
    return [...(this.#byKey.get(keyId) ?? [])];
  }

  cancelAll(reason: CancelReason): void {
    for (const ofKey of [...this.#byKey.values()])
      for (const request of [...ofKey]) request.cancel(reason);
  }

  /** Resolves when no request is active. */
  whenIdle(): Promise<void> {
    return this.#count.wait();
  }
}
