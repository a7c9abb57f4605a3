// The load of the requests of one key on this process, and its knowledge of them: the memory of
// their bodies, the time of the event loop that nobody paid for, and the error that the next one
// would meet. A key that can pay for nothing must not make the process receive and parse one large
// body after the other. The services check everything again.
//
// A facade learns only of the changes that are made through it. After other changes it may repeat
// an error for a second.

import type { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { actorText } from "../base/actors.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { networkOf } from "../base/client-address.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import { ApiError, type ErrorReason, toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { credits } from "../base/money.ts";
import { type RateLimits, windowMs } from "../rate-limits/rate-limits.ts";
import { type AddressLoad, shareOf } from "./connections.ts";

/** An event after which an earlier error of a key may no longer hold. */
export type PayerChange =
  | { readonly kind: "transfer" | "settlement" | "budget"; readonly accountId: string }
  | { readonly kind: "key"; readonly keyId: string };

/** Subscribes to the changes that this process makes or learns of. */
export type OnPayerChange = (listener: (change: PayerChange) => void) => void;

/** Bytes of memory of request bodies. */
type BodyMemoryLimits = { readonly totalBytes: number; readonly perKeyBytes: number };

export type KeyLoadParts = {
  readonly memory: BodyMemoryLimits;
  readonly addresses: AddressLoad;
  readonly rateLimits: Pick<RateLimits, "check" | "tooManyFailed" | "recordFailed">;
  readonly onPayerChange: OnPayerChange;
  /** Called with each error of `check`. */
  readonly onRejected?:
    | ((key: Key, error: ApiError, request: { readonly requestId: string }) => void)
    | undefined;
  readonly clock?: Clock;
};

/**
 * Bytes of memory for each byte of a body: the bytes themselves, their text, its values, and the
 * encoded request to the provider.
 */
const memoryPerByte = 4;
/** Long enough for a large body to be sent on to its provider. */
const fullRetryMs = 1_000;
/** A body up to this size takes two milliseconds, and never waits. */
export const smallBodyBytes = 32 * 1024;
/** Milliseconds of unpaid work that a key may have done before it waits. */
const freeMs = 25;
/**
 * Milliseconds of unpaid work that are forgotten each second. Turns of 30 ms that fill one percent
 * of the time are the slowest percent of everybody else's requests.
 */
const forgottenPerSecond = 2;
/** Beyond this, no more is counted: no request waits longer than ten seconds for the one before. */
const unpaidMsMax = freeMs + 10 * forgottenPerSecond;
/** One command of a coding assistant sends 27 counting calls at once. */
const waitingMax = 100;
/** How long an error is answered again without a new check. */
const knownMs = 1_000;
/** Beyond so many keys, errors are forgotten early. */
const keysWithErrorsMax = 20_000;
const changesMax = 200_000;

/** Statuses of requests that failed although they could be read in full. */
const failedStatuses: ReadonlySet<number> = new Set([400, 402, 403, 404, 413]);
/** Faults of a body that show while it is read. */
const contentFaults: ReadonlySet<ErrorReason> = new Set([
  "request_too_large",
  "request_body_encoding_invalid",
  "request_body_too_large_after_decoding",
]);

/** One instance for all requests of a listener, REST and Connect. */
export class KeyLoad {
  readonly #parts: KeyLoadParts;
  readonly #memory: Memory;
  readonly #clock: Clock;
  readonly #keys: KeyStates;
  // Changes are numbered. An error counts only if its request began after the last change of its
  // payer: the request may have been decided before a transfer, and fail after it was answered.
  #lastChange = 0;
  readonly #changes = new BoundedMap<string, number>(changesMax);
  readonly #settlements = new BoundedMap<string, number>(changesMax);

  constructor(parts: KeyLoadParts) {
    this.#parts = parts;
    this.#memory = new Memory(parts.memory, parts.addresses);
    this.#clock = parts.clock ?? systemClock;
    this.#keys = new KeyStates(this.#clock);
    parts.onPayerChange((change) => {
      this.#lastChange += 1;
      if (change.kind === "settlement") this.#settlements.set(change.accountId, this.#lastChange);
      else
        this.#changes.set(
          change.kind === "key" ? change.keyId : change.accountId,
          this.#lastChange,
        );
    });
  }

  /** Bytes of memory that bodies hold now. */
  get usedBytes(): number {
    return this.#memory.usedBytes;
  }

  /** Begins a request of a key, or of a caller that has none. `address`: of its client. */
  open({
    keyId,
    address,
  }: {
    readonly keyId?: string | undefined;
    readonly address: string;
  }): Turn {
    return new Turn(this.#memory, this.#keys, keyId, networkOf(address));
  }

  /**
   * Begins a request of a key that would generate, if it would not meet an error that is known.
   * Throws `requests_not_allowed`, `rate_limited`, `too_many_failed`, or a 402.
   */
  check(key: Key, address: string, requestId = ""): Turn {
    const { keyId, requestsPerMinute } = key;
    const { rateLimits, onRejected } = this.#parts;
    try {
      rateLimits.check(keyId, requestsPerMinute);
      this.#checkErrors(key);
    } catch (error) {
      onRejected?.(key, toApiError(error), { requestId });
      throw error;
    }
    const startedAt = this.#lastChange;
    return new Turn(
      this.#memory,
      this.#keys,
      keyId,
      networkOf(address),
      (error, bytes, isFailed) => {
        const remembered = withoutNeed(error);
        const atMs = this.#clock.now();
        const known = knownFrom(remembered, atMs);
        const endsMs = atMs + resetsInMs(remembered);
        const learnt = { known, last: remembered, endsMs, confirmedAtMs: atMs, startedAt };
        this.#keys.of(keyId).error = learnt;
        if (known && isManagers(remembered)) this.#keys.of(managerOf(key)).error = learnt;
        if (isFailed) void rateLimits.recordFailed(keyId, requestsPerMinute, bytes);
      },
    );
  }

  #checkErrors(key: Key): void {
    const { keyId, accountId, managedBy, requestsPerMinute } = key;
    const nowMs = this.#clock.now();
    // After a transfer or a change of the key, the next request shows whether it still fails.
    const changedAt = Math.max(this.#changes.get(accountId) ?? 0, this.#changes.get(keyId) ?? 0);
    const settledAt = this.#settlements.get(accountId) ?? 0;
    const find = (id: string) => {
      const error = this.#keys.find(id)?.error;
      return error && error.startedAt >= changedAt && nowMs < error.endsMs ? error : undefined;
    };
    const found = find(keyId);
    for (const error of managedBy === undefined ? [found] : [found, find(managerOf(key))])
      if (error?.known && nowMs < error.known.untilMs && error.startedAt >= settledAt)
        throw error.known.error;
    const tooManyFailed = this.#parts.rateLimits.tooManyFailed(keyId, requestsPerMinute);
    if (!tooManyFailed || !found) return;
    if (!isPayment(found.last)) throw tooManyFailed;
    // Another process may have added credits: one request a second is checked in full.
    const isByCount = tooManyFailed.facts.limit?.name === "failed_requests_per_minute";
    if (!isByCount || nowMs - found.confirmedAtMs < knownMs) throw found.last;
    found.confirmedAtMs = nowMs;
  }
}

/** The load of one request. */
export class Turn {
  readonly #memory: Memory;
  readonly #keys: KeyStates;
  readonly #keyId: string | undefined;
  readonly #client: string;
  readonly #onFailed: OnFailed | undefined;
  #isOpen = true;
  #heldBytes = 0;
  #hasBegun = false;
  #bodyBytes = 0;
  #isWhole = false;
  #isLarge = false;
  #workMs = 0;
  /** True while it runs as the one request of a key that owes work. */
  #isAlone = false;
  #isWorkCounted = false;
  #isAccepted = false;

  /** Without `onFailed`, its errors say nothing of the next request. */
  constructor(
    memory: Memory,
    keys: KeyStates,
    keyId: string | undefined,
    client: string,
    onFailed?: OnFailed,
  ) {
    this.#memory = memory;
    this.#keys = keys;
    this.#keyId = keyId;
    this.#client = client;
    this.#onFailed = onFailed;
  }

  /** Found anew each time: a key of which nothing is left is forgotten. */
  get #key(): KeyState | undefined {
    return this.#keyId === undefined ? undefined : this.#keys.of(this.#keyId);
  }

  /**
   * May its body be read now? `declared`: the bytes of it; undefined if nobody knows. Returns no
   * promise for a small body, and for a key that owes nothing; the others run one by one. Rejects
   * with `too_many_bodies`. While a request waits, its connection is not read.
   */
  take(declared: number | undefined): void | Promise<void> {
    this.#hasBegun = true;
    this.#isLarge = declared === undefined || declared > smallBodyBytes;
    const key = this.#isLarge ? this.#key : undefined;
    if (key?.owesWork()) return this.#wait(key);
  }

  async #wait(key: KeyState): Promise<void> {
    await key.wait();
    // It may have ended meanwhile.
    if (this.#isOpen) this.#isAlone = true;
    else key.leave();
  }

  /**
   * Takes memory for a body of so many bytes, which may only grow. Throws `too_many_bodies` beyond
   * the share of the key, otherwise `gateway_unavailable`. No effect once the memory is free.
   */
  grow(bodyBytes: number): void {
    const more = memoryPerByte * bodyBytes - this.#heldBytes;
    if (!this.#isOpen || more <= 0) return;
    this.#memory.take(this.#key, this.#client, more);
    this.#heldBytes += more;
  }

  /** So many bytes of the body have come, unpacked. `items`: of its values, once it is parsed. */
  read(bytes: number, items?: number): void {
    this.#bodyBytes = bytes;
    this.#workMs = workMsOf(bytes, items);
  }

  /** The whole body has come. */
  readWhole(): void {
    this.#isWhole = true;
  }

  /** A provider has the whole request, which is paid for: its memory may go. */
  accepted(): void {
    this.#isAccepted = true;
    this.#end(true);
  }

  /** The request failed with this status. */
  fail(error: ApiError, status: number): void {
    const isFailed = failedStatuses.has(status);
    if (this.#isWhole || (this.#hasBegun && contentFaults.has(error.reason)))
      this.#onFailed?.(error, this.#bodyBytes, isFailed);
    this.#end(!isFailed);
  }

  /**
   * The request ended, and lets the next one of its key begin. `isPaid`: false for a count of
   * tokens, and for a client that hung up before a provider had its request.
   */
  end(isPaid: boolean): void {
    this.#end(isPaid || this.#isAccepted);
  }

  /** Unpaid work counts once, after an end that was paid too. */
  #end(isPaid: boolean): void {
    this.free();
    const key = this.#isLarge ? this.#key : undefined;
    if (!key) return;
    if (!isPaid && !this.#isWorkCounted && this.#workMs > 0) {
      this.#isWorkCounted = true;
      key.addWork(this.#workMs);
    }
    if (this.#isAlone) key.leave();
    this.#isAlone = false;
  }

  /** Frees the memory alone. Repeating it has no effect. */
  free(): void {
    this.#isOpen = false;
    if (this.#heldBytes > 0) this.#memory.free(this.#key, this.#client, this.#heldBytes);
    this.#heldBytes = 0;
  }
}

/** `isFailed`: it counts among the failed requests of its key. */
type OnFailed = (error: ApiError, bodyBytes: number, isFailed: boolean) => void;

type KeyError = {
  /** An error that the next request of the key would meet, whatever it asks for. */
  readonly known: { readonly error: ApiError; readonly untilMs: number } | undefined;
  /** The last error of a request whose body was read. */
  readonly last: ApiError;
  /** When `last` ends by itself: its window is over. Infinite: by no time. */
  readonly endsMs: number;
  /** When `last` was confirmed by a full check. */
  confirmedAtMs: number;
  /** Number of the last change before the request began. */
  readonly startedAt: number;
};

/** The keys of which something is known. */
class KeyStates {
  readonly #clock: Clock;
  readonly #keys = new Map<string, KeyState>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  find(keyId: string): KeyState | undefined {
    return this.#keys.get(keyId);
  }

  of(keyId: string): KeyState {
    const found = this.#keys.get(keyId);
    if (found) return found;
    this.#forgetSome();
    const made = new KeyState(this.#clock);
    this.#keys.set(keyId, made);
    return made;
  }

  /**
   * Looks at the two that were looked at longest ago, so that more are forgotten than made. What
   * goes on is kept, and errors that may still be answered, unless there are too many.
   */
  #forgetSome(): void {
    const nowMs = this.#clock.now();
    const keepsErrors = this.#keys.size < keysWithErrorsMax;
    let looks = 0;
    for (const [keyId, key] of this.#keys) {
      this.#keys.delete(keyId);
      if (!key.isIdle(nowMs) || (keepsErrors && key.hasError(nowMs))) this.#keys.set(keyId, key);
      looks += 1;
      if (looks === 2) return;
    }
  }
}

/** One key. */
class KeyState {
  readonly #clock: Clock;
  /** Memory of its bodies. */
  bytes = 0;
  error: KeyError | undefined;
  /** Milliseconds of unpaid work, as of `#atMs`. */
  #unpaidMs = 0;
  #atMs: number;
  /** True while a request runs that had to wait. */
  #isBusy = false;
  readonly #waiting: (() => void)[] = [];
  #cancelTimer = () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#atMs = clock.now();
  }

  /** True if its next large request has to wait. */
  owesWork(): boolean {
    return this.#unpaidNow() > 0 || this.#waiting.length > 0;
  }

  addWork(ms: number): void {
    this.#unpaidMs = Math.min(unpaidMsMax, this.#unpaidNow() + ms);
  }

  /** Resolves when one more request may run. Rejects with `too_many_bodies`. */
  async wait(): Promise<void> {
    if (this.#waiting.length >= waitingMax)
      throw new ApiError("too_many_bodies", {
        retryAfterMs: 10_000,
        limit: { name: "waiting_bodies", limit: BigInt(waitingMax), remaining: 0n },
      });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    this.#advance();
    await promise;
  }

  /** A request that waited has ended. */
  leave(): void {
    this.#isBusy = false;
    this.#advance();
  }

  isIdle(nowMs: number): boolean {
    const isWaiting = this.#isBusy || this.#waiting.length > 0;
    return this.bytes === 0 && !isWaiting && this.#unpaidAt(nowMs) === 0;
  }

  /** True while its error may still be answered. */
  hasError(nowMs: number): boolean {
    return this.error !== undefined && nowMs - this.error.confirmedAtMs < windowMs;
  }

  /** Begins the next request that waits, or sets the timer for it. */
  #advance(): void {
    this.#cancelTimer();
    if (this.#isBusy || this.#waiting.length === 0) return;
    const waitMs = ((this.#unpaidNow() - freeMs) / forgottenPerSecond) * 1_000;
    if (waitMs > 0) {
      this.#cancelTimer = this.#clock.after(Math.ceil(waitMs), () => this.#advance());
      return;
    }
    this.#isBusy = true;
    this.#waiting.shift()?.();
  }

  #unpaidNow(): number {
    return this.#unpaidAt(this.#clock.now());
  }

  #unpaidAt(nowMs: number): number {
    const forgotten = ((nowMs - this.#atMs) / 1_000) * forgottenPerSecond;
    this.#unpaidMs = Math.max(0, this.#unpaidMs - forgotten);
    this.#atMs = nowMs;
    return this.#unpaidMs;
  }
}

/** The memory of all bodies that are received or wait for a provider. */
class Memory {
  readonly #limits: BodyMemoryLimits;
  readonly #addresses: AddressLoad;
  usedBytes = 0;

  constructor(limits: BodyMemoryLimits, addresses: AddressLoad) {
    this.#limits = limits;
    this.#addresses = addresses;
  }

  take(key: KeyState | undefined, client: string, more: number): void {
    const { totalBytes, perKeyBytes } = this.#limits;
    if (key && key.bytes + more > perKeyBytes)
      throw new ApiError("too_many_bodies", {
        retryAfterMs: fullRetryMs,
        limit: shareOf("key_body_memory_bytes", perKeyBytes, key.bytes),
      });
    this.#addresses.checkBytes(client, more);
    // Without a limit in the error: callers need not learn how busy the others are.
    if (this.usedBytes + more > totalBytes)
      throw new ApiError("gateway_unavailable", {
        message: "The gateway holds as many requests as it can; try again shortly.",
        retryAfterMs: fullRetryMs,
      });
    this.#add(key, client, more);
  }

  free(key: KeyState | undefined, client: string, bytes: number): void {
    this.#add(key, client, -bytes);
  }

  #add(key: KeyState | undefined, client: string, bytes: number): void {
    this.usedBytes += bytes;
    if (key) key.bytes += bytes;
    this.#addresses.addBytes(client, bytes);
  }
}

/** The milliseconds of the event loop that a body takes. `items`: undefined for a broken one. */
function workMsOf(bytes: number, items: number | undefined): number {
  const mebibytes = bytes / (1024 * 1024);
  // Measured on the two cores of a cloud machine: 19,000 parts (57,000 items, 0.7 MB) take 40 ms
  // from the parser to the provider, 30 MB of text 35 ms. The fault of a broken body is searched
  // byte by byte.
  return items === undefined ? mebibytes * 35 : mebibytes * 1.2 + items / 1_500;
}

type PaymentReason = "credits_exhausted" | "monthly_cap_reached" | "budget_reached";

/** Whose budget all keys of a manager share in a pool. No key has such an id. */
function managerOf({ accountId, family, managedBy }: Key): string {
  return `${accountId} ${family} ${actorText(managedBy)}`;
}

/** True for the end of a budget of who manages the key: the next one of his keys meets it too. */
function isManagers({ reason, facts }: ApiError): boolean {
  return reason === "budget_reached" && facts.limit?.name?.startsWith("manager_") === true;
}

function isPayment(error: ApiError): error is ApiError & { reason: PaymentReason } {
  const { reason } = error;
  return (
    reason === "credits_exhausted" ||
    reason === "monthly_cap_reached" ||
    reason === "budget_reached"
  );
}

/** The error as another request of its key meets it: what is free, not what this one needed. */
function withoutNeed(error: ApiError): ApiError {
  const { limit } = error.facts;
  if (!isPayment(error) || limit?.remaining === undefined) return error;
  const free = credits(limit.remaining);
  const reached = {
    credits_exhausted:
      `The ${familyNameOf(limit.family)}pool of this account has ${free} credits free. ` +
      "Add credits to continue.",
    monthly_cap_reached: `The monthly credit cap of this key is reached: ${free} credits of it are left.`,
    budget_reached: `A budget that bounds this key is reached: ${free} credits of it are left.`,
  };
  const message = reached[error.reason];
  const { neededMicro: _, ...facts } = error.facts;
  return new ApiError(error.reason, { ...facts, message });
}

function familyNameOf(family: Family | undefined): string {
  const name = family === undefined ? undefined : familyName(family);
  return name === undefined ? "" : `${name} `;
}

/** The error as every request of its key would meet it now, and until when at most. */
function knownFrom(error: ApiError, nowMs: number): KeyError["known"] {
  const { limit, retryAfterMs } = error.facts;
  if (error.reason === "rate_limited")
    return { error, untilMs: nowMs + Math.min(knownMs, retryAfterMs ?? knownMs) };
  if (!isPayment(error) || !limit?.exhausted) return undefined;
  return { error, untilMs: nowMs + Math.min(knownMs, resetsInMs(error)) };
}

/**
 * In how many milliseconds the window of a budget that is reached begins anew. The end of a window
 * is a time of day, and the clock of this memory is none. Infinite: it has no end.
 */
function resetsInMs(error: ApiError): number {
  const seconds = error.facts.limit?.resetsAt?.seconds;
  if (!isPayment(error) || seconds === undefined) return Number.POSITIVE_INFINITY;
  return Number(seconds) * 1000 - Date.now();
}
