// The requests that run in this process or are being admitted, so that the gateway can end them:
// those of a key when it is revoked, one that an owner wants ended, all of them when the process
// drains. And the provider calls that nobody paid for, because the hold was not given after them or
// the client left before it: a key with many of them waits for its holds.

import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";
import type { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";

/** Why the gateway ends a request: the error that its client gets, and what decides the charge. */
export type CancelReason = {
  readonly error: ApiError;
  readonly ending: "revoked" | "timeLimit" | "declaredDead";
};

/** Names a request, and who sent it. */
export type RequestNames = {
  readonly accountId: string;
  readonly requestId: string;
  readonly keyId: string;
  readonly secretId: string;
};

/** One request. */
export class ActiveRequest {
  readonly accountId: string;
  readonly requestId: string;
  readonly keyId: string;
  readonly secretId: string;
  /** Set when the gateway ends the request. The first reason stays. */
  cancelReason: CancelReason | undefined;
  /** Aborts the provider call. */
  provider = new AbortController();

  constructor(names: RequestNames) {
    this.accountId = names.accountId;
    this.requestId = names.requestId;
    this.keyId = names.keyId;
    this.secretId = names.secretId;
  }

  /** Ends the request and stops its provider. */
  cancel(reason: CancelReason): void {
    if (this.cancelReason) return;
    this.cancelReason = reason;
    this.provider.abort();
  }

  /** Stops the provider call, so that the request may make another. */
  stopCall(): void {
    this.provider.abort();
    if (!this.cancelReason) this.provider = new AbortController();
  }
}

export class ActiveRequests {
  readonly #byKey = new Map<string, Set<ActiveRequest>>();
  readonly #count = new WaitGroup();

  open(names: RequestNames): ActiveRequest {
    const { keyId } = names;
    const request = new ActiveRequest(names);
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

  /** The request of an account with this id. It looks at all: few are looked for. */
  find(accountId: string, requestId: string): ActiveRequest | undefined {
    for (const ofKey of this.#byKey.values())
      for (const one of ofKey)
        if (one.requestId === requestId && one.accountId === accountId) return one;
    return undefined;
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

const callsMax = 5;
const recentMs = 60_000;
const keysMax = 20_000;

export class UnpaidCalls {
  readonly #clock: Clock;
  /** Times of the last ones, by key. */
  readonly #byKey = new BoundedMap<string, number[]>(keysMax);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(keyId: string): void {
    const times = [...(this.#byKey.get(keyId) ?? []), this.#clock.now()];
    this.#byKey.set(keyId, times.slice(-callsMax));
  }

  /** True after five of them within a minute. */
  areMany(keyId: string): boolean {
    const times = this.#byKey.get(keyId);
    const [first] = times ?? [];
    if (times === undefined || first === undefined) return false;
    return times.length === callsMax && first > this.#clock.now() - recentMs;
  }
}
