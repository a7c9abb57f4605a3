// Changes of keys, as every process learns of them: a reading of the feed in the database every
// half second, and on a hint at once, or a tenth of a second after the last reading: each repeats
// ten seconds of changes, and a flood of them must not be read without pause.

import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import type { ChangePage } from "./store.ts";

const everyMs = 500;
const pauseMs = 100;
const cleanEveryMs = 600_000;
// Longer than the ten seconds that each reading repeats.
const rememberMs = 60_000;

export type Feed = {
  start(): void;
  stop(): Promise<void>;
  /** Reads within a tenth of a second, not at the next half. */
  hurry(): void;
};

/**
 * Tells each change once. A reading that fails is repeated; what it missed is found then, since
 * readings go on from the last good one.
 */
export function createFeed(parts: {
  read: (since: Date | undefined) => Promise<ChangePage>;
  clean: () => Promise<void>;
  onChange: (keyId: string) => void;
  log: Log;
}): Feed {
  const { read, clean, onChange, log } = parts;
  const seen = new Map<string, number>();
  let since: Date | undefined;
  let failing = false;
  let running = false;
  let hurried = false;
  let readAtMs = Number.NEGATIVE_INFINITY;
  let timer: NodeJS.Timeout | undefined;
  let reading: Promise<void> = Promise.resolve();
  let cleanedAtMs = Date.now();

  async function readOnce(): Promise<void> {
    try {
      const { at, changes } = await read(since);
      since = at;
      for (const [changeId, atMs] of seen) {
        if (Date.now() - atMs < rememberMs) break;
        seen.delete(changeId);
      }
      for (const { changeId, keyId } of changes) {
        if (seen.has(changeId)) continue;
        seen.set(changeId, Date.now());
        onChange(keyId);
      }
      if (failing) log.info("the feed of key changes is readable again");
      failing = false;
      if (Date.now() - cleanedAtMs > cleanEveryMs) {
        cleanedAtMs = Date.now();
        await clean();
      }
    } catch (err) {
      if (!failing)
        log.warn({ err }, "the feed of key changes cannot be read; cached keys end after 30 s");
      failing = true;
    }
  }

  function readSoon(afterMs: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      reading = readOnce().finally(() => {
        readAtMs = performance.now();
        if (running) readSoon(hurried ? pauseMs : everyMs);
        hurried = false;
      });
    }, afterMs);
    timer.unref();
  }

  return {
    start() {
      running = true;
      readSoon(0);
    },
    async stop() {
      running = false;
      clearTimeout(timer);
      await reading;
    },
    hurry() {
      if (!running) return;
      // No timer: a reading is under way, and may have missed what the hint is about.
      if (timer) readSoon(Math.max(0, readAtMs + pauseMs - performance.now()));
      else hurried = true;
    },
  };
}

// Changes of keys: a node tells its own parts of one at once, and hears of those of others by the
// feed, sooner with hints.

export type Listener = (change: { keyId: string }) => void;

export type Changes = {
  /**
   * Calls `listener` for each change; the answer ends that. Listeners are called in the order in
   * which they came.
   */
  onChanged(listener: Listener): () => void;
  /** Tells of a change that this node made: here at once, elsewhere within half a second. */
  publish(keyId: string): void;
  start(): void;
  stop(): Promise<void>;
};

export function createChanges(parts: {
  store: {
    readChanges(since: Date | undefined): Promise<ChangePage>;
    removeOldChanges(): Promise<void>;
  };
  redis?: Redis | undefined;
  log: Log;
}): Changes {
  const { store, redis, log } = parts;
  const listeners = new Set<Listener>();
  const tell = (keyId: string) => {
    for (const listener of listeners) listener({ keyId });
  };
  const feed = createFeed({
    read: store.readChanges,
    clean: store.removeOldChanges,
    onChange: tell,
    log,
  });
  const hints = redis && createKeyHints(redis);
  let stopHints: (() => void) | undefined;

  return {
    onChanged(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    publish(keyId) {
      tell(keyId);
      hints?.send();
    },
    start() {
      stopHints = hints?.listen(feed.hurry);
      feed.start();
    },
    async stop() {
      stopHints?.();
      await feed.stop();
    },
  };
}

// Says "a key changed" to the other nodes. Only a nudge: what changed they read in the database.

type KeyHints = {
  send(): void;
  listen(listener: () => void): () => void;
};

const channel = "gateway:keys-changed";

export function createKeyHints(redis: Redis): KeyHints {
  return {
    send: () => redis.publish(channel, ""),
    listen: (listener) => redis.subscribe(channel, listener),
  };
}
