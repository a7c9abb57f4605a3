// Streams of the newest alerts of accounts, for pages that are open. What this process raises or
// marks as read they show at once, what other processes do within two seconds: one statement reads
// a mark of all watched accounts, while there are any. After a change the alerts of an account are
// read once for all of its streams, at most twice: some callers do not see what names people.

import { create } from "@bufbuild/protobuf";
import {
  type NewestAlerts,
  type WatchAlertsResponse,
  WatchAlertsResponseSchema,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import { pause, systemClock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { AlertStore } from "./store.ts";

const pollMs = 2_000;
/** So often a stream without a change sends an empty message: a lost reader is noticed. */
const silenceMsMax = 15_000;
/** At most so often the alerts of a stream are read. */
const pauseMs = 250;
/** Streams of one account at one process. */
const streamsMax = 100;
/** Alerts in a message, and up to where those are counted that nobody has read. */
export const newestMax = 20;
export const unreadMax = 100;

type Watched = {
  readonly accountId: string;
  /** Without those that name people. */
  readonly hidesPeople: boolean;
};

export type AlertWatch = {
  /** The newest alerts now, and after each change. Ends when `signal` fires. */
  watch(watched: Watched, signal: AbortSignal): AsyncGenerator<WatchAlertsResponse, void>;
  /** Call when this process has changed alerts of an account. */
  changed(accountId: string): void;
  stop(): Promise<void>;
};

type Listener = { isChanged: boolean; wake: () => void };
type Account = {
  readonly listeners: Set<Listener>;
  /** What was read since the last change, by `hidesPeople`. */
  readonly reads: Map<boolean, Promise<NewestAlerts>>;
};

export function createAlertWatch({
  store,
  read,
  log,
}: {
  store: Pick<AlertStore, "run">;
  read: (watched: Watched) => Promise<NewestAlerts>;
  log: Log;
}): AlertWatch {
  const accounts = new Map<string, Account>();
  let marks = new Map<string, string>();
  const changed = (accountId: string) => {
    const account = accounts.get(accountId);
    account?.reads.clear();
    for (const one of account?.listeners ?? []) {
      one.isChanged = true;
      one.wake();
    }
  };
  const polling = new Task({
    async run() {
      const accountIds = [...accounts.keys()];
      const rows = await store.run(sql.readMarks, {
        ...{ accountIds, newest: newestMax, unreadMost: unreadMax },
      });
      const found = new Map(rows.map(({ accountId, mark }) => [accountId, mark]));
      // What is new here may have changed since its stream read it.
      for (const [accountId, mark] of found) if (marks.get(accountId) !== mark) changed(accountId);
      marks = found;
    },
    firstMs: pollMs,
    everyMs: pollMs,
    report: warnOnce(log, { code: "alerts_unread", failed: "watched alerts could not be read" }),
  });

  function join(accountId: string): { account: Account; one: Listener } {
    const account = accounts.get(accountId) ?? { listeners: new Set(), reads: new Map() };
    const { listeners } = account;
    if (listeners.size >= streamsMax)
      throw new ApiError("rate_limited", {
        message: `The alerts of this account have ${streamsMax} streams here.`,
        limit: { name: "streams", limit: BigInt(streamsMax), used: BigInt(listeners.size) },
        retryAfterMs: 1_000,
      });
    const one: Listener = { isChanged: true, wake: () => {} };
    listeners.add(one);
    accounts.set(accountId, account);
    polling.start();
    return { account, one };
  }

  function leave(accountId: string, one: Listener): void {
    const listeners = accounts.get(accountId)?.listeners;
    listeners?.delete(one);
    if (listeners?.size !== 0) return;
    accounts.delete(accountId);
    marks.delete(accountId);
    if (accounts.size === 0) polling.pause();
  }

  /** What another stream of the account has read since the last change, or reads now. */
  function readOnce({ reads }: Account, watched: Watched): Promise<NewestAlerts> {
    const { hidesPeople } = watched;
    const known = reads.get(hidesPeople);
    if (known) return known;
    const reading = read(watched);
    reads.set(hidesPeople, reading);
    reading.catch(() => {
      if (reads.get(hidesPeople) === reading) reads.delete(hidesPeople);
    });
    return reading;
  }

  return {
    async *watch(watched, signal) {
      const { accountId } = watched;
      const { account, one } = join(accountId);
      let shown: string | undefined;
      try {
        for (;;) {
          const isChanged = one.isChanged;
          one.isChanged = false;
          const newest = isChanged ? await readOnce(account, watched) : undefined;
          const mark = newest && markOf(newest);
          // Alerts that this caller does not see may have changed.
          if (newest && mark !== shown) {
            shown = mark;
            yield create(WatchAlertsResponseSchema, { newest });
          } else if (!isChanged) yield create(WatchAlertsResponseSchema);
          await pause(systemClock, pauseMs, signal);
          await untilChanged(one, signal);
          signal.throwIfAborted();
        }
      } finally {
        leave(accountId, one);
      }
    },
    changed,
    stop: () => polling.stop(),
  };
}

/** Resolves after a change, at the end of the silence, and when `signal` fires. */
async function untilChanged(one: Listener, signal: AbortSignal): Promise<void> {
  if (one.isChanged || signal.aborted) return;
  const woken = new AbortController();
  one.wake = () => woken.abort();
  await pause(systemClock, silenceMsMax - pauseMs, AbortSignal.any([signal, woken.signal]));
  one.wake = () => {};
}

function markOf({ alerts, unread }: NewestAlerts): string {
  const ids = alerts.map(({ alertId, dismissedAt }) => `${alertId}${dismissedAt ? "/" : ""}`);
  return [unread, ...ids].join(" ");
}
