// Informs every process of changed things, such as keys. A process notifies its listeners of its
// own changes at once. It finds the changes of other processes by polling a feed in the database. A
// hint (through Redis) makes it poll sooner.

import { backgroundClock, type Clock } from "./clock.ts";
import type { Log } from "./log.ts";
import { Task, warnOnce } from "./task.ts";

/** `at`: time of this read, to be passed to the next one. `id`: of the thing that changed. */
export type ChangePage = { at: Date; changes: { changeId: string; id: string }[] };

/** Signals to other processes that something changed. It does not say what. */
export type ChangeHints = {
  send(): void;
  /** Returns the function that unsubscribes. */
  listen(listener: () => void): () => void;
};

export type Changes = {
  /** Calls `listener` for each change. Listeners run in the order in which they subscribed. */
  onChanged(listener: (id: string) => void): () => void;
  /** Reports a change by this process: to its own listeners at once, to others by the feed. */
  publish(id: string): void;
  /** True if every change that was committed more than a second ago is known here. */
  isCurrent(): boolean;
  start(): void;
  stop(): Promise<void>;
};

/** Where a feed is stored, and its name in the log, such as `keys`. */
export type ChangeSource = {
  readonly name: string;
  /** Changes since ten seconds before `since`. Undefined: before now. */
  read(since: Date | undefined): Promise<ChangePage>;
  /** Deletes what every process has read. */
  clean(): Promise<unknown>;
};

export function createChanges(parts: {
  source: ChangeSource;
  hints?: ChangeHints | undefined;
  /** Default: the clock of this machine. */
  clock?: Clock | undefined;
  log: Log;
}): Changes {
  const { source, hints, clock, log } = parts;
  const listeners = new Set<(id: string) => void>();
  const notify = (id: string) => {
    for (const listener of listeners) listener(id);
  };
  const feed = createFeed({ source, onChange: notify, clock, log });
  let stopHints: (() => void) | undefined;

  return {
    onChanged(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    publish(id) {
      notify(id);
      hints?.send();
    },
    isCurrent: feed.isCurrent,
    start() {
      stopHints = hints?.listen(feed.pollSoon);
      feed.start();
    },
    async stop() {
      stopHints?.();
      await feed.stop();
    },
  };
}

// The feed. Each read repeats ten seconds of changes, because transactions commit out of order. So
// a flood of hints must not cause reads without a pause.
const pollMs = 500;
const pauseMs = 100;
const currentMsMax = 1_000;
const cleanEveryMs = 600_000;
// Longer than the ten seconds that each read repeats.
const rememberMs = 60_000;

export type Feed = {
  start(): void;
  stop(): Promise<void>;
  /** Polls at once, but not sooner than a tenth of a second after the last read. */
  pollSoon(): void;
  /** True if a read that succeeded began within the last second. */
  isCurrent(): boolean;
};

/**
 * Reports each change once. A read begins where the last successful one ended, so a failed read
 * loses nothing.
 */
export function createFeed(parts: {
  source: ChangeSource;
  onChange: (id: string) => void;
  clock?: Clock | undefined;
  log: Log;
}): Feed {
  const { source, onChange, clock = backgroundClock, log } = parts;
  /** Ids of reported changes, with the time of the report. */
  const reported = new Map<string, number>();
  let since: Date | undefined;
  let cleanedAtMs = clock.now();
  let currentAtMs = Number.NEGATIVE_INFINITY;

  async function readOnce(): Promise<void> {
    const beganAtMs = clock.now();
    const { at, changes } = await source.read(since);
    since = at;
    for (const [changeId, atMs] of reported) {
      if (beganAtMs - atMs < rememberMs) break;
      reported.delete(changeId);
    }
    for (const { changeId, id } of changes) {
      if (reported.has(changeId)) continue;
      reported.set(changeId, beganAtMs);
      onChange(id);
    }
    currentAtMs = beganAtMs;
    if (beganAtMs - cleanedAtMs > cleanEveryMs) {
      cleanedAtMs = beganAtMs;
      await source.clean();
    }
  }

  const reading = new Task({
    run: readOnce,
    everyMs: pollMs,
    pauseMs,
    report: warnOnce(log, {
      code: "changes_unread",
      failed: `cannot read the change feed of ${source.name}`,
      recovered: `the change feed of ${source.name} is readable again`,
    }),
    clock,
  });

  return {
    start: () => reading.start(),
    stop: () => reading.stop(),
    pollSoon: () => reading.wake(),
    isCurrent: () => clock.now() - currentAtMs < currentMsMax,
  };
}

declare module "./log.ts" {
  interface LogCodes {
    /** changes of keys or people are seen late, for paid requests never; look at the database */
    changes_unread: true;
  }
}
