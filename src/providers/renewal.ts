// A credential that ends: fetched once for all that wait, renewed in the background before its end.

import type { Clock } from "../base/clock.ts";
import { type Authenticator, CredentialError } from "./surface.ts";

/** A credential as its source gave it. `lifeMs` absent: it does not end. */
export type Fetched<T> = { readonly value: T; readonly lifeMs?: number | undefined };

/** Long before its end another one is fetched, or in the second half of a short life. */
const aheadMs = 300_000;
/** Pauses after failures: doubled from the first to the last. */
const pausesMs = { first: 1_000, last: 60_000 };
/** An answer that refuses a credential so young was to a request with the one before. */
const youngMs = 5_000;

/** Secrets that are removed from what a provider says, those of earlier credentials included. */
export const keptSecrets = 6;

export class Renewal<T> {
  readonly #clock: Clock;
  readonly #fetch: () => Promise<Fetched<T>>;
  readonly #source: string;
  #current: { value: T; fetchedMs: number; renewMs: number; endsMs: number } | undefined;
  #running: Promise<T> | undefined;
  #failure: { error: CredentialError; retryMs: number; pauseMs: number } | undefined;

  /** `source`: where the credential is from, in words for operators. */
  constructor(clock: Clock, source: string, fetch: () => Promise<Fetched<T>>) {
    this.#clock = clock;
    this.#source = source;
    this.#fetch = fetch;
  }

  /** A credential that is good now. Rejects with a `CredentialError`. */
  get(): T | Promise<T> {
    const nowMs = this.#clock.now();
    const current = this.#current;
    if (current === undefined || nowMs >= current.endsMs) return this.#renew();
    // A failure leaves the old one in place, which serves until its end.
    if (nowMs >= current.renewMs) this.#renew().catch(() => {});
    return current.value;
  }

  /** Fetches another one after an answer that refuses this one. False if none can be had. */
  async refresh(): Promise<boolean> {
    const fetchedMs = this.#current?.fetchedMs ?? Number.NEGATIVE_INFINITY;
    if (this.#clock.now() - fetchedMs < youngMs) return true;
    return this.#renew().then(
      () => true,
      () => false,
    );
  }

  /** The last one, also after its end. Undefined: there was none yet. */
  get last(): T | undefined {
    return this.#current?.value;
  }

  /** Where it is from, and its end by the clock of this machine. */
  get credential(): { source: string; endsAt?: Date } {
    const { endsMs = Number.POSITIVE_INFINITY } = this.#current ?? {};
    const leftMs = endsMs - this.#clock.now();
    return {
      source: this.#source,
      ...(Number.isFinite(leftMs) && { endsAt: new Date(Date.now() + leftMs) }),
    };
  }

  #renew(): Promise<T> {
    if (this.#running) return this.#running;
    const failure = this.#failure;
    // A source that is away is not asked once for each request.
    if (failure && this.#clock.now() < failure.retryMs) return Promise.reject(failure.error);
    this.#running = this.#fetchOnce().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #fetchOnce(): Promise<T> {
    try {
      const { value, lifeMs = Number.POSITIVE_INFINITY } = await this.#fetch();
      if (!(lifeMs > 0)) throw new Error("it gives a credential that has ended");
      const nowMs = this.#clock.now();
      const renewMs = nowMs + Math.max(lifeMs - aheadMs, lifeMs / 2);
      this.#current = { value, fetchedMs: nowMs, renewMs, endsMs: nowMs + lifeMs };
      this.#failure = undefined;
      return value;
    } catch (cause) {
      const words = cause instanceof Error ? cause.message : String(cause);
      const message = `no credential can be had from ${this.#source}: ${words}`;
      const error = new CredentialError(message, { cause });
      const pauseMs = Math.min((this.#failure?.pauseMs ?? 0) * 2 || pausesMs.first, pausesMs.last);
      this.#failure = { error, pauseMs, retryMs: this.#clock.now() + pauseMs };
      throw error;
    }
  }
}

/** A token in `authorization`, which is renewed before its end. */
export function bearerAuthenticator(
  clock: Clock,
  source: string,
  fetch: () => Promise<Fetched<string>>,
): Authenticator {
  let secrets: readonly string[] = [];
  const renewal = new Renewal(clock, source, async () => {
    const { value: token, lifeMs } = await fetch();
    // Requests with the token of before may still be answered.
    secrets = [token, ...secrets].slice(0, keptSecrets);
    return { value: ["authorization", `Bearer ${token}`], lifeMs };
  });
  return {
    headers: () => renewal.get(),
    refresh: ({ status }) => (status === 401 ? renewal.refresh() : undefined),
    secrets: () => secrets,
    credential: () => renewal.credential,
  };
}
