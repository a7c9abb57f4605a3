// Changes of keys: a node tells its own parts of one at once, and hears of those of others by the feed, sooner with hints.

import type { Log } from "../log.ts";
import type { Redis } from "../redis/redis.ts";
import { createFeed } from "./feed.ts";
import { createKeyHints } from "./key-hints.ts";
import type { ChangePage } from "./store.ts";

export type Listener = (change: { keyId: string }) => void;

export type Changes = {
  /** Calls `listener` for each change; the answer ends that. Listeners are called in the order in which they came. */
  onChanged(listener: Listener): () => void;
  /** Tells of a change that this node made: here at once, elsewhere within half a second. */
  publish(keyId: string): void;
  start(): void;
  stop(): Promise<void>;
};

export function createChanges(parts: {
  store: { readChanges(since: Date | undefined): Promise<ChangePage>; removeOldChanges(): Promise<void> };
  redis?: Redis | undefined;
  log: Log;
}): Changes {
  const { store, redis, log } = parts;
  const listeners = new Set<Listener>();
  const tell = (keyId: string) => {
    for (const listener of listeners) listener({ keyId });
  };
  const feed = createFeed({ read: store.readChanges, clean: store.removeOldChanges, onChange: tell, log });
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
