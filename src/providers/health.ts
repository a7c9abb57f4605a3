// How one provider does for one model: the share of calls that it gets, its retries, its pauses,
// and the outcomes of the last calls. The numbers were found by the simulation in
// `test/providers/brown-out.test.ts`.

import type { Clock } from "../base/clock.ts";

/** Calls that are looked at: the last ones, and those of the last minute. */
const recentMax = 20;
const recentMs = 60_000;
/** Fewer calls say nothing. */
const callsMin = 3;

/** Half of the time whose calls decide the share. */
const bucketMs = 5_000;
/** The share is whole while at least one call in ten is answered. */
const callsPerAnswer = 10;
/** Calls that a provider gets whatever came of them. */
const callsFree = 10;
/** The calls of one account count as at most so many, so that its failures are its own. */
const accountWeightMax = 20;
/** A call passes where none did for so long. */
const probeMs = 1_000;

/** A request may lead to two more calls, and on average to 1.25. */
const retriesPerRequest = 1.25;
const retriesAtFirst = 10;
const retriesMax = 110;

const pauseMaxMs = 600_000;
/** While a provider asked for a pause, this part of the calls passes: its word may not bind. */
const pausedShare = 0.1;
/** Where the quota of a day is used up, only the call of each second passes, for so long. */
const dayQuotaMs = 600_000;
/** After a call that was answered during a pause, no 429 makes one for so long. */
const looseMs = 60_000;
/** But if more than nine in ten of at least so many calls are 429, the word binds. */
const strictCallsMin = 100;
const strictShare = 0.9;
const strictMs = 600_000;

/** Why a call got no answer, for operators alone. */
export type CallFailure = {
  readonly at: Date;
  /** HTTP status; 0 if none was received. */
  readonly status: number;
  /** The provider's own words, without secrets, at most 500 characters. */
  readonly reason: string;
};

/** Calls of half of the time. */
type Bucket = {
  /** By account. Those that no request can cause are not in it. */
  readonly byAccount: Map<string, { calls: number; answered: number }>;
  calls: number;
  answered: number;
  /** Failures without an account: no connection, or a refused credential. */
  ownFailures: number;
  quotaFailures: number;
};

function emptyBucket(): Bucket {
  return { byAccount: new Map(), calls: 0, answered: 0, ownFailures: 0, quotaFailures: 0 };
}

/** A call that passed. `isProbe`: during a pause. */
export type Passed = { readonly isProbe: boolean };

/** A call that failed. */
export type FailedCall = {
  /** Undefined for a failure that no request can cause. */
  readonly accountId: string | undefined;
  /** True of a 429. */
  readonly isQuota?: boolean;
  /** True of one whose quota is that of a day. */
  readonly isDayQuota?: boolean;
  /** The time that it asks to wait. */
  readonly retryAfterMs?: number | undefined;
};

export class ModelHealth {
  readonly #clock: Clock;
  readonly #random: () => number;
  #recent: { readonly atMs: number; readonly isAnswered: boolean }[] = [];
  #isUnusable = false;
  #lastAnsweredAtMs: number | undefined;
  #lastFailure: CallFailure | undefined;

  /** Number of the half of the time that `#current` has. */
  #half = -1;
  #current = emptyBucket();
  #earlier = emptyBucket();
  #lastPassedMs = Number.NEGATIVE_INFINITY;
  #retries = retriesAtFirst;
  #pausedUntilMs = 0;
  /** Of these pauses, those for the quota of a day. */
  #dayUntilMs = 0;
  #looseUntilMs = 0;
  #strictUntilMs = 0;

  constructor(clock: Clock, random: () => number = Math.random) {
    this.#clock = clock;
    this.#random = random;
  }

  /**
   * True when of the last 20 calls, or of those of the last 60 s, there were at least 3 and none
   * was answered. So until one is answered. A first event and the refusal of a request are answers.
   */
  get isUnusable(): boolean {
    return this.#isUnusable;
  }

  get lastFailure(): CallFailure | undefined {
    return this.#lastFailure;
  }

  /** True if a call was answered within the last `ms`. */
  wasAnsweredWithin(ms: number): boolean {
    return this.#lastAnsweredAtMs !== undefined && this.#lastAnsweredAtMs > this.#clock.now() - ms;
  }

  /** The part of its calls that passes now, from 0 to 1, without the one each second. */
  get share(): number {
    if (this.#clock.now() < this.#dayUntilMs) return 0;
    return Math.min(shareOf(this.#weighed()), this.pauseMs > 0 ? pausedShare : 1);
  }

  /** Answered ÷ calls of the last ten seconds, near 1 without calls. */
  get answeredRatio(): number {
    const { calls, answered } = this.#weighed();
    return (answered + 1) / (calls + 1);
  }

  /** What is left of the time that the provider asked to wait. */
  get pauseMs(): number {
    return Math.max(0, Math.ceil(this.#pausedUntilMs - this.#clock.now()));
  }

  /** True if no call passed within the last second. */
  get needsProbe(): boolean {
    return this.#clock.now() - this.#lastPassedMs >= probeMs;
  }

  /** Decides whether a call of an account may begin now. Undefined: it may not. */
  pass(accountId: string): Passed | undefined {
    const isPaused = this.pauseMs > 0;
    if (!this.needsProbe) {
      const share = Math.min(this.share, shareOf(this.#ofAccount(accountId)));
      if (share < 1 && this.#random() >= share) return undefined;
    }
    this.#lastPassedMs = this.#clock.now();
    return { isProbe: isPaused };
  }

  /** A request that may come here began. */
  earnRetries(): void {
    this.#retries = Math.min(retriesMax, this.#retries + retriesPerRequest);
  }

  /** True if another call of a request may come here. */
  get canRetry(): boolean {
    return this.#retries >= 1;
  }

  spendRetry(): void {
    this.#retries -= 1;
  }

  answer(accountId: string, { isProbe }: Passed): void {
    const nowMs = this.#clock.now();
    this.#count(accountId, true);
    this.#lastAnsweredAtMs = nowMs;
    this.#isUnusable = false;
    this.#record(true);
    // The provider works although it asked for a pause.
    if (!isProbe || this.pauseMs === 0 || nowMs < this.#strictUntilMs) return;
    this.#pausedUntilMs = 0;
    this.#dayUntilMs = 0;
    this.#looseUntilMs = nowMs + looseMs;
  }

  fail(call: FailedCall, failure: CallFailure): void {
    const { accountId, isQuota = false, isDayQuota = false } = call;
    const retryAfterMs = isDayQuota ? dayQuotaMs : call.retryAfterMs;
    this.#count(accountId, false);
    if (isQuota) this.#current.quotaFailures += 1;
    this.#lastFailure = failure;
    this.#record(false);
    const sinceMs = this.#clock.now() - recentMs;
    const ofLastMinute = this.#recent.filter(({ atMs }) => atMs > sinceMs);
    for (const calls of [this.#recent, ofLastMinute])
      if (calls.length >= callsMin && !calls.some(({ isAnswered }) => isAnswered))
        this.#isUnusable = true;
    if (isQuota && retryAfterMs !== undefined) this.#pause(retryAfterMs);
    if (isDayQuota) this.#dayUntilMs = this.#pausedUntilMs;
  }

  #pause(ms: number): void {
    const nowMs = this.#clock.now();
    const calls = this.#earlier.calls + this.#current.calls;
    const quotaFailures = this.#earlier.quotaFailures + this.#current.quotaFailures;
    const binds = calls >= strictCallsMin && quotaFailures > strictShare * calls;
    if (nowMs < this.#looseUntilMs && binds) {
      this.#looseUntilMs = 0;
      this.#strictUntilMs = nowMs + strictMs;
    }
    if (nowMs < this.#looseUntilMs) return;
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + Math.min(ms, pauseMaxMs));
  }

  #record(isAnswered: boolean): void {
    this.#recent.push({ atMs: this.#clock.now(), isAnswered });
    if (this.#recent.length > recentMax) this.#recent.shift();
  }

  #count(accountId: string | undefined, isAnswered: boolean): void {
    this.#roll();
    const bucket = this.#current;
    bucket.calls += 1;
    if (isAnswered) bucket.answered += 1;
    if (accountId === undefined) {
      bucket.ownFailures += 1;
      return;
    }
    const known = bucket.byAccount.get(accountId) ?? { calls: 0, answered: 0 };
    bucket.byAccount.set(accountId, known);
    known.calls += 1;
    if (isAnswered) known.answered += 1;
  }

  /** All calls, those of each account with its weight. */
  #weighed(): Counted {
    this.#roll();
    const [one, other] = [this.#current, this.#earlier];
    const calls = one.calls + other.calls;
    // Most providers answer most calls: then no weights change the share.
    if (one.answered + other.answered === calls) return { calls, answered: calls };
    const sum = { calls: one.ownFailures + other.ownFailures, answered: 0 };
    for (const accountId of new Set([...one.byAccount.keys(), ...other.byAccount.keys()])) {
      const own = this.#ofAccount(accountId);
      const weight = Math.min(1, accountWeightMax / own.calls);
      sum.calls += weight * own.calls;
      sum.answered += weight * own.answered;
    }
    return sum;
  }

  #ofAccount(accountId: string): Counted {
    this.#roll();
    const one = this.#current.byAccount.get(accountId);
    const other = this.#earlier.byAccount.get(accountId);
    return {
      calls: (one?.calls ?? 0) + (other?.calls ?? 0),
      answered: (one?.answered ?? 0) + (other?.answered ?? 0),
    };
  }

  #roll(): void {
    const half = Math.floor(this.#clock.now() / bucketMs);
    if (half === this.#half) return;
    this.#earlier = half === this.#half + 1 ? this.#current : emptyBucket();
    this.#current = emptyBucket();
    this.#half = half;
  }
}

type Counted = { readonly calls: number; readonly answered: number };

function shareOf({ calls, answered }: Counted): number {
  return Math.min(1, (callsPerAnswer * answered + callsFree) / Math.max(1, calls));
}
