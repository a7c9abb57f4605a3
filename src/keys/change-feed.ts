// Informs every process of changed keys. A process notifies its listeners of its own changes at
// once. It finds the changes of other processes by polling a feed in the database. A hint makes
// it poll sooner.

import type { Log } from "../base/log.ts";
import type { Hints } from "../redis/redis.ts";
import type { ChangePage } from "./store.ts";

export type Listener = (change: { keyId: string }) => void;

export type Changes = {
  /** Calls `listener` for each change. Listeners run in the order in which they subscribed. */
  onChanged(listener: Listener): () => void;
  /** Reports a change by this process: to its own listeners at once, to others by the feed. */
  publish(keyId: string): void;
  start(): void;
  stop(): Promise<void>;
};

export function createChanges(parts: {
  store: {
    readChanges(since: Date | undefined): Promise<ChangePage>;
    removeOldChanges(): Promise<void>;
  };
  hints?: Hints | undefined;
  log: Log;
}): Changes {
  const { store, log } = parts;
  const listeners = new Set<Listener>();
  const notify = (keyId: string) => {
    for (const listener of listeners) listener({ keyId });
  };
  const feed = createFeed({
    read: store.readChanges,
    clean: store.removeOldChanges,
    onChange: notify,
    log,
  });
  const hints = parts.hints && createKeyHints(parts.hints);
  let stopHints: (() => void) | undefined;

  return {
    onChanged(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    publish(keyId) {
      notify(keyId);
      hints?.send();
    },
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
const cleanEveryMs = 600_000;
// Longer than the ten seconds that each read repeats.
const rememberMs = 60_000;

export type Feed = {
  start(): void;
  stop(): Promise<void>;
  /** Polls at once, but not sooner than a tenth of a second after the last read. */
  pollSoon(): void;
};

/**
 * Reports each change once. A read begins where the last successful one ended, so a failed read
 * loses nothing.
 */
export function createFeed(parts: {
  read: (since: Date | undefined) => Promise<ChangePage>;
  clean: () => Promise<void>;
  onChange: (keyId: string) => void;
  log: Log;
}): Feed {
  const { read, clean, onChange, log } = parts;
  /** Ids of reported changes, with the time of the report. */
  const reported = new Map<string, number>();
  let since: Date | undefined;
  let isFailing = false;
  let isRunning = false;
  let isHinted = false;
  let readAtMs = Number.NEGATIVE_INFINITY;
  let timer: NodeJS.Timeout | undefined;
  let lastRead: Promise<void> = Promise.resolve();
  let cleanedAtMs = Date.now();

  async function readOnce(): Promise<void> {
    try {
      const { at, changes } = await read(since);
      since = at;
      for (const [changeId, atMs] of reported) {
        if (Date.now() - atMs < rememberMs) break;
        reported.delete(changeId);
      }
      for (const { changeId, keyId } of changes) {
        if (reported.has(changeId)) continue;
        reported.set(changeId, Date.now());
        onChange(keyId);
      }
      if (isFailing) log.info("the change feed of keys is readable again");
      isFailing = false;
      if (Date.now() - cleanedAtMs > cleanEveryMs) {
        cleanedAtMs = Date.now();
        await clean();
      }
    } catch (err) {
      if (!isFailing)
        log.warn({ err }, "cannot read the change feed of keys; cached keys expire after 30 s");
      isFailing = true;
    }
  }

  function scheduleRead(afterMs: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      lastRead = readOnce().finally(() => {
        readAtMs = performance.now();
        if (isRunning) scheduleRead(isHinted ? pauseMs : pollMs);
        isHinted = false;
      });
    }, afterMs);
    timer.unref();
  }

  return {
    start() {
      isRunning = true;
      scheduleRead(0);
    },
    async stop() {
      isRunning = false;
      clearTimeout(timer);
      await lastRead;
    },
    pollSoon() {
      if (!isRunning) return;
      // Without a timer, a read is in progress. It may have missed the change of this hint.
      if (timer) scheduleRead(Math.max(0, readAtMs + pauseMs - performance.now()));
      else isHinted = true;
    },
  };
}

type KeyHints = {
  send(): void;
  listen(listener: () => void): () => void;
};

const channel = "gateway:keys-changed";

/** Hints that some key changed. They name no key: the change itself is read from the database. */
export function createKeyHints(hints: Hints): KeyHints {
  return {
    send: () => hints.publish(channel, ""),
    listen: (listener) => hints.subscribe(channel, listener),
  };
}
