// Keeps calls away from a provider that fails: circuit breakers for the provider and for single
// accounts, and cool-downs for single models.

import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";

// The circuit opens when at least half of the last 20 calls failed, and at least five did. A
// provider with occasional failures stays in use.
const windowSize = 20;
const failuresMin = 5;
const openMinMs = 2_000;
const openMaxMs = 60_000;

/** Closed: calls pass. Open: none does. Half-open: the next call decides. */
export type CircuitState = "closed" | "open" | "half-open";

/** The result of a call. `accountId`: the requests of this account may have caused the failure. */
type Result = { readonly isFailure: boolean; readonly accountId?: string };

/**
 * One circuit breaker. Closed: calls pass. Open: none passes, for 2 s at first. Half-open, after
 * that time: one call passes as the probe. A success of any call closes the circuit. A failure of
 * the probe opens it for twice as long, up to a minute.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  /** Results of the last calls, newest last. */
  #results: Result[] = [];
  /** End of the open time. Undefined while the circuit is closed. */
  #openUntilMs: number | undefined;
  #openMs = openMinMs;
  #isProbing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** 0 when a call may begin now, else the milliseconds until one may. */
  waitMs(): number {
    if (this.#openUntilMs !== undefined) {
      const remainingMs = Math.ceil(this.#openUntilMs - this.#clock.now());
      if (remainingMs > 0) return remainingMs;
    }
    // Half-open, with the probe under way: other calls wait for its result.
    return this.#isProbing ? this.#openMs : 0;
  }

  get state(): CircuitState {
    if (this.#openUntilMs === undefined) return "closed";
    return this.#openUntilMs > this.#clock.now() ? "open" : "half-open";
  }

  /** Begins a call, which `waitMs` must allow. True if the call is the probe. */
  begin(): boolean {
    if (this.#openUntilMs !== undefined) this.#isProbing = true;
    return this.#isProbing;
  }

  /** True if one of the last calls failed. */
  get hasFailures(): boolean {
    return this.#results.some(({ isFailure }) => isFailure);
  }

  /** Records a call that the provider answered. */
  succeed(): void {
    if (this.#openUntilMs !== undefined) this.#close();
    this.#record({ isFailure: false });
  }

  /**
   * Records a call that failed. True if this opened the circuit. Failures with an `accountId` open
   * it only when the last calls of a second account failed too.
   */
  fail(isProbe: boolean, accountId?: string): boolean {
    this.#record({ isFailure: true, ...(accountId !== undefined && { accountId }) });
    if (this.#openUntilMs !== undefined) {
      // A call that began before the circuit opened is no verdict on the provider's state now.
      if (!isProbe) return false;
      // One account's requests may fail while the provider works again. They must not keep the
      // circuit of all open for a minute.
      if (accountId === undefined) this.#openMs = Math.min(this.#openMs * 2, openMaxMs);
    } else if (!this.#mustOpen()) return false;
    this.#openUntilMs = this.#clock.now() + this.#openMs;
    this.#isProbing = false;
    return true;
  }

  /** Ends a call whose result is no verdict on the provider. */
  noVerdict(isProbe: boolean): void {
    if (isProbe) this.#isProbing = false;
  }

  #mustOpen(): boolean {
    const failures = this.#results.filter(({ isFailure }) => isFailure);
    if (failures.length < failuresMin || failures.length * 2 < this.#results.length) return false;
    const [first] = failures;
    return failures.some(
      ({ accountId }) => accountId === undefined || accountId !== first?.accountId,
    );
  }

  #close(): void {
    this.#openUntilMs = undefined;
    this.#openMs = openMinMs;
    this.#isProbing = false;
    this.#results = [];
  }

  #record(result: Result): void {
    this.#results.push(result);
    if (this.#results.length > windowSize) this.#results.shift();
  }
}

/** Whose circuits a failure counts for. */
export type FailureScope =
  /** The request may be the cause: the account's, and the provider's if other accounts fail too. */
  | "account"
  /** No request can be the cause: the provider's. */
  | "provider"
  /** Only this request is affected: none. */
  | "request";

/** The half-open circuits for which a call is the probe. */
export type Probes = { readonly ofProvider: boolean; readonly ofAccount: boolean };

/** Most accounts of which a provider's failures are remembered. */
const accountsMax = 10_000;

/**
 * The circuits of one provider: one for all accounts, and one for each account whose calls failed
 * lately. A call passes where both are closed, so that requests that make the provider fail keep
 * only their own account away from it.
 */
export class ProviderCircuit {
  readonly #clock: Clock;
  readonly #ofProvider: CircuitBreaker;
  readonly #byAccount = new BoundedMap<string, CircuitBreaker>(accountsMax);

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#ofProvider = new CircuitBreaker(clock);
  }

  /** Of the circuit for all accounts. */
  get state(): CircuitState {
    return this.#ofProvider.state;
  }

  /**
   * 0 when a call of the account may begin now, else the milliseconds until one may. Without an
   * account, only the circuit for all counts.
   */
  waitMs(accountId?: string): number {
    const breaker = accountId === undefined ? undefined : this.#byAccount.get(accountId);
    return Math.max(this.#ofProvider.waitMs(), breaker?.waitMs() ?? 0);
  }

  /** Begins a call, which `waitMs` must allow. */
  begin(accountId: string): Probes {
    return {
      ofProvider: this.#ofProvider.begin(),
      ofAccount: this.#byAccount.get(accountId)?.begin() ?? false,
    };
  }

  /** Records a call that the provider answered. */
  succeed(accountId: string): void {
    this.#ofProvider.succeed();
    const breaker = this.#byAccount.get(accountId);
    breaker?.succeed();
    if (breaker?.hasFailures === false) this.#byAccount.delete(accountId);
  }

  /** Records a call that failed. Returns the circuit that this opened. */
  fail(
    accountId: string,
    probes: Probes,
    scope: FailureScope,
  ): Exclude<FailureScope, "request"> | undefined {
    if (scope === "request") {
      this.noVerdict(accountId, probes);
      return undefined;
    }
    if (scope === "provider") {
      this.#byAccount.get(accountId)?.noVerdict(probes.ofAccount);
      return this.#ofProvider.fail(probes.ofProvider) ? "provider" : undefined;
    }
    const breaker = this.#byAccount.get(accountId) ?? new CircuitBreaker(this.#clock);
    this.#byAccount.set(accountId, breaker);
    const opensAccount = breaker.fail(probes.ofAccount);
    if (this.#ofProvider.fail(probes.ofProvider, accountId)) return "provider";
    return opensAccount ? "account" : undefined;
  }

  /** Ends a call whose result is no verdict on the provider. */
  noVerdict(accountId: string, probes: Probes): void {
    this.#ofProvider.noVerdict(probes.ofProvider);
    this.#byAccount.get(accountId)?.noVerdict(probes.ofAccount);
  }
}

const coolDownMaxMs = 600_000;

/** The cool-down of one model. */
type CoolDown = {
  /** End of the cool-down of all accounts. */
  endMs: number;
  /** Ends of the cool-downs of single accounts. Few: the second one closes the model to all. */
  readonly byAccount: Map<string, number>;
};

/**
 * The cool-downs of one provider: times in which it asked to receive no calls. Each belongs to a
 * model, because providers limit calls by model. One that an account's request may have caused
 * keeps only that account away, until a second account meets one as well.
 */
export class CoolDowns {
  readonly #clock: Clock;
  /** By the name of the model at the provider. */
  readonly #byModel = new Map<string, CoolDown>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Begins a cool-down, of ten minutes at most. One that ends later stays. `accountId`: a request
   * of this account may be the cause.
   */
  add(model: string, ms: number, accountId?: string): void {
    const nowMs = this.#clock.now();
    const endMs = nowMs + Math.min(ms, coolDownMaxMs);
    const coolDown = this.#byModel.get(model) ?? {
      endMs: nowMs,
      byAccount: new Map<string, number>(),
    };
    this.#byModel.set(model, coolDown);
    const { byAccount } = coolDown;
    if (accountId !== undefined) {
      byAccount.set(accountId, Math.max(byAccount.get(accountId) ?? endMs, endMs));
      if (!this.#hasOther(byAccount, accountId)) return;
    }
    coolDown.endMs = Math.max(coolDown.endMs, endMs);
  }

  /**
   * 0 when a call for `model` may begin now, else the milliseconds until one may. Without an
   * account, only the cool-down of all accounts counts.
   */
  waitMs(model: string, accountId?: string): number {
    const coolDown = this.#byModel.get(model);
    if (coolDown === undefined) return 0;
    const own = accountId === undefined ? undefined : coolDown.byAccount.get(accountId);
    return Math.max(0, Math.ceil(Math.max(coolDown.endMs, own ?? 0) - this.#clock.now()));
  }

  /** The models for which no call of any account may begin now. */
  get waiting(): string[] {
    return [...this.#byModel.keys()].filter((model) => this.waitMs(model) > 0).sort();
  }

  /** True if another account has a cool-down. Forgets those that have ended. */
  #hasOther(byAccount: Map<string, number>, accountId: string): boolean {
    const nowMs = this.#clock.now();
    for (const [id, endMs] of byAccount) {
      if (endMs <= nowMs) byAccount.delete(id);
      else if (id !== accountId) return true;
    }
    return false;
  }
}
