// Says "a key changed" to the other nodes. Only a nudge: what changed they read in the database.

import type { Redis } from "../redis/redis.ts";

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
