// Streams of charges as they are settled. A process passes its own charges to its streams at once,
// and finds those of other processes in the ledger, once a second while somebody watches: one read
// for all watched accounts. Memory and rate of a stream are bounded: a page needs the newest
// charges, and has the others from `ListCharges`.

import { create } from "@bufbuild/protobuf";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  type WatchChargesResponse,
  WatchChargesResponseSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { type Clock, pause, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { LedgerStore, SettledRequest } from "./store.ts";

const pollMs = 1_000;
/** How far back each read goes, as `ReadSettled` says. */
const rereadMs = 10_000;
/** Charges in one read, of all watched accounts: 1,000 a second for the ten seconds it repeats. */
const readMax = 10_000;
/** At least half of them are remembered: those of a read, and as many of this process. */
const seenMax = 4 * readMax;
// At most 20 charges in any second.
const messageMs = 250;
const messageChargesMax = 5;
/** What a stream keeps for a reader that is behind: ten seconds at full rate. */
const waitingMax = 200;
/** A stream without charges sends an empty message this often, so that a lost reader is noticed. */
const silenceMsMax = 15_000;
/** Streams of one account at one process. */
const streamsMax = 100;

/** Which charges a stream shows. */
export type Watched = {
  readonly accountId: string;
  readonly matches: (charge: Receipt) => boolean;
};

type Store = Pick<LedgerStore, "readSettled" | "findSettled">;

/** A watched account. */
type Feed = {
  readonly streams: Set<ChargeStream>;
  /** Ids of the requests that the streams have got, or that were left out. */
  readonly seen: BoundedMap<string, true>;
  /** The newest charges, and when they were passed on: for a stream that begins later. */
  readonly recent: { readonly charge: Receipt; readonly atMs: number }[];
};

export class ChargeWatch {
  readonly #store: Store;
  readonly #clock: Clock;
  /** Runs while somebody watches. */
  readonly #polling: Task;
  readonly #feeds = new Map<string, Feed>();
  #readAt: Date | undefined;

  constructor(parts: { store: Store; clock?: Clock | undefined; log: Log }) {
    const { store, clock = systemClock, log } = parts;
    this.#store = store;
    this.#clock = clock;
    this.#polling = new Task({
      run: () => this.#read(),
      everyMs: pollMs,
      report: warnOnce(log, {
        code: "charges_unread",
        failed: "cannot read the settled charges",
        recovered: "the settled charges are readable again",
      }),
      clock,
    });
  }

  /**
   * The charges of an account from now on, and those of the ten seconds before: a reader that lists
   * charges and then watches misses none. Ends when `signal` fires. Throws `rate_limited`.
   */
  async *watch(
    { accountId, matches }: Watched,
    signal: AbortSignal,
  ): AsyncGenerator<WatchChargesResponse, void> {
    const stream = new ChargeStream(matches, this.#clock);
    this.#join(accountId, stream);
    try {
      for (;;) {
        yield stream.take();
        await pause(this.#clock, messageMs, signal);
        await stream.ready(silenceMsMax - messageMs, signal);
        signal.throwIfAborted();
      }
    } finally {
      this.#leave(accountId, stream);
    }
  }

  /** Passes on a charge that this process has made. */
  pass(charge: Receipt): void {
    const feed = this.#feeds.get(charge.accountId);
    if (feed) passTo(feed, charge, this.#clock.now());
  }

  /** Reads no more. The listeners end the streams. */
  stop(): Promise<void> {
    return this.#polling.stop();
  }

  #join(accountId: string, stream: ChargeStream): void {
    const known = this.#feeds.get(accountId);
    if (known) {
      if (known.streams.size >= streamsMax)
        throw new ApiError("rate_limited", {
          message: `This account has ${streamsMax} streams of charges already.`,
        });
      known.streams.add(stream);
      const sinceMs = this.#clock.now() - rereadMs;
      for (const { charge, atMs } of known.recent) if (atMs >= sinceMs) stream.offer(charge);
      return;
    }
    const streams = new Set([stream]);
    this.#feeds.set(accountId, { streams, seen: new BoundedMap(seenMax), recent: [] });
    if (this.#feeds.size === 1) this.#polling.start();
    else this.#polling.wake();
  }

  #leave(accountId: string, stream: ChargeStream): void {
    const feed = this.#feeds.get(accountId);
    feed?.streams.delete(stream);
    if (feed?.streams.size === 0) this.#feeds.delete(accountId);
    if (this.#feeds.size > 0) return;
    this.#polling.pause();
    this.#readAt = undefined;
  }

  async #read(): Promise<void> {
    const accountIds = [...this.#feeds.keys()];
    const { at, requests } = await this.#store.readSettled(accountIds, this.#readAt, readMax);
    const unseen = requests.filter(
      ({ accountId, requestId }) => !this.#feeds.get(accountId)?.seen.get(requestId),
    );
    const chosen = this.#choose(unseen);
    if (requests.length === readMax) for (const feed of this.#feeds.values()) leaveOut(feed);
    if (chosen.length > 0)
      for (const charge of await this.#store.findSettled(chosen)) this.pass(charge);
    // Only now: a failed read loses nothing.
    if (this.#feeds.size > 0) this.#readAt = at;
  }

  /** The newest requests of each account that its streams can hold. The others are left out. */
  #choose(unseen: readonly SettledRequest[]): SettledRequest[] {
    const counts = new Map<string, number>();
    return unseen.filter(({ accountId, requestId }) => {
      const feed = this.#feeds.get(accountId);
      const count = (counts.get(accountId) ?? 0) + 1;
      counts.set(accountId, count);
      if (!feed || count <= waitingMax) return feed !== undefined;
      feed.seen.set(requestId, true);
      leaveOut(feed);
      return false;
    });
  }
}

function passTo({ streams, seen, recent }: Feed, charge: Receipt, atMs: number): void {
  if (seen.get(charge.requestId)) return;
  seen.set(charge.requestId, true);
  recent.push({ charge, atMs });
  if (recent.length > waitingMax) recent.shift();
  for (const stream of streams) stream.offer(charge);
}

function leaveOut({ streams }: Feed): void {
  for (const stream of streams) stream.leaveOut();
}

/** What one reader still has to get. */
class ChargeStream {
  readonly #matches: (charge: Receipt) => boolean;
  readonly #clock: Clock;
  readonly #waiting: Receipt[] = [];
  #isIncomplete = false;
  #wake: (() => void) | undefined;

  constructor(matches: (charge: Receipt) => boolean, clock: Clock) {
    this.#matches = matches;
    this.#clock = clock;
  }

  offer(charge: Receipt): void {
    if (!this.#matches(charge)) return;
    this.#waiting.push(charge);
    if (this.#waiting.length > waitingMax) {
      this.#waiting.shift();
      this.#isIncomplete = true;
    }
    this.#wake?.();
  }

  leaveOut(): void {
    this.#isIncomplete = true;
  }

  /** The next message, which may be empty. */
  take(): WatchChargesResponse {
    const isIncomplete = this.#isIncomplete;
    this.#isIncomplete = false;
    const charges = this.#waiting.splice(0, messageChargesMax);
    return create(WatchChargesResponseSchema, { charges, incomplete: isIncomplete });
  }

  /** Resolves when a charge waits, when `ms` have passed, or when `signal` fires. */
  async ready(ms: number, signal: AbortSignal): Promise<void> {
    if (this.#waiting.length > 0) return;
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await pause(this.#clock, ms, AbortSignal.any([woken.signal, signal]));
    this.#wake = undefined;
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a stream of charges stands still; look at the database */
    charges_unread: true;
  }
}
