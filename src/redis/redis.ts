// The connection to Redis, which keeps only data that may vanish: rate limits, and hints. No call
// waits for an unreachable server, and no command is sent twice.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { Cluster, Redis as Connection, type RedisOptions } from "ioredis";
import { plainCell } from "../base/cells.ts";
import type { ChangeHints } from "../base/change-feed.ts";
import { withTimeout } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task } from "../base/task.ts";
import { tlsProblemOf } from "../base/tls-problem.ts";
import { parseRedisUrl } from "../config/redis-url.ts";

/** A Lua script. The server caches it under its SHA-1 digest after the first run. */
export type Script = { readonly text: string; readonly sha: string };

/** Reads `lua/<file>.lua` beside the caller's module. Call once, when the module loads. */
export function script(moduleUrl: string, file: string): Script {
  const text = readFileSync(`${dirname(fileURLToPath(moduleUrl))}/lua/${file}.lua`, "utf8");
  return { text, sha: createHash("sha1").update(text).digest("hex") };
}

/** Messages to the other processes of this gateway. Each may be lost. */
export interface Hints {
  /** Sends a message to all subscribers of a channel. */
  publish(channel: string, message: string): void;
  /** Calls `listener` for each message of a channel. Returns a function that unsubscribes. */
  subscribe(channel: string, listener: (message: string) => void): () => void;
}

/** Hints are lost while the server is unreachable. */
export interface Redis extends Hints {
  /**
   * Runs a script. Rejects when the server is unreachable or has not answered after `answerMsMax`
   * milliseconds; the script may have run nevertheless.
   */
  run(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    answerMsMax: number,
  ): Promise<unknown>;
  /** Calls `listener` after each new connection. Returns a function that unsubscribes. */
  onConnected(listener: () => void): () => void;
  readonly connected: boolean;
  close(): Promise<void>;
}

/** Hints of one feed, through a channel. */
export function hintsOn(hints: Hints, channel: string): ChangeHints {
  return {
    send: () => hints.publish(channel, ""),
    listen: (listener) => hints.subscribe(channel, listener),
  };
}

const options = {
  // A command that cannot be sent now, or whose connection broke, fails at once: each caller has a
  // fallback.
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  retryStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, 1_000),
  connectTimeout: 2_000,
  // Detects a host that vanished without closing its connections.
  socketTimeout: 3_000,
} satisfies RedisOptions;

const reopenMs = 1_000;

/**
 * Connects in the background, and reconnects whenever the connection is lost. All keys of a script
 * must have the same hash tag. Names of keys and channels begin with `gateway:`, and with
 * `gateway:07:` in a cell, which may share a Redis. Throws an Error for an address that
 * `parseRedisUrl` refuses.
 */
export function connectRedis(url: string, log: Log, cell = plainCell): Redis {
  const nameIn = (name: string) =>
    cell === plainCell ? name : name.replace("gateway:", `gateway:${cell}:`);
  const commands = open(url, options);
  // A connection in subscriber mode can send no other commands.
  const subscriber = open(url, {
    ...options,
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
  });
  const listeners = new Map<string, Set<(message: string) => void>>();
  const reopening = [
    keepOpen(commands, () => {}),
    keepOpen(subscriber, () => {
      const channels = [...listeners.keys()];
      if (channels.length > 0) subscriber.subscribe(...channels).catch(() => undefined);
    }),
  ];
  subscriber.on("message", (channel, message) => {
    for (const listener of listeners.get(channel) ?? []) listener(message);
  });

  let reported = "";
  commands.on("error", (error) => {
    // Only the message: an error of ioredis also carries its command, and that of AUTH contains the
    // password.
    if (error.message !== reported) {
      const tls = tlsProblemOf(error);
      const reason = tls ? `Redis ${tls.text} (${error.message})` : error.message;
      log.warn({ code: "redis_unreachable", reason }, "redis: cannot connect");
    }
    reported = error.message;
  });
  commands.on("ready", () => {
    log.info("redis: connected");
    reported = "";
  });
  commands.on("close", () => log.debug("redis: connection closed"));
  // The first connection reports the same errors.
  subscriber.on("error", () => {});

  return {
    run: (script, keys, args, answerMsMax) =>
      withTimeout(runScript(commands, script, keys.map(nameIn), args), answerMsMax, () => {
        throw new Error(`Redis did not answer within ${answerMsMax} ms`);
      }),
    publish(name, message) {
      const channel = nameIn(name);
      if (commands.status === "ready") commands.publish(channel, message).catch(() => undefined);
    },
    subscribe(name, listener) {
      const channel = nameIn(name);
      const known = listeners.get(channel);
      if (known) known.add(listener);
      else {
        listeners.set(channel, new Set([listener]));
        // ioredis repeats this after each reconnection.
        subscriber.subscribe(channel).catch(() => undefined);
      }
      return () => listeners.get(channel)?.delete(listener);
    },
    onConnected(listener) {
      commands.on("ready", listener);
      return () => commands.off("ready", listener);
    },
    get connected() {
      return commands.status === "ready";
    },
    async close() {
      for (const task of reopening) void task.stop();
      commands.disconnect();
      subscriber.disconnect();
    },
  };
}

// ioredis gives up when a sentinel reports a failover while it asks another one for the primary.
function keepOpen(connection: Connection | Cluster, onOpen: () => void): Task {
  const reopening = new Task({
    async run() {
      await connection.connect();
      reopening.pause();
      onOpen();
    },
    firstMs: reopenMs,
    everyMs: reopenMs,
    // The connection itself reports why it cannot connect.
    report: { failed() {} },
  });
  connection.on("end", () => reopening.start());
  return reopening;
}

/** How long a cluster or a sentinel may take to say where the servers are. */
const askMsMax = 2_000;

type Options = Omit<typeof options, "enableOfflineQueue" | "maxRetriesPerRequest"> & {
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number | null;
};

function open(text: string, all: Options): Connection | Cluster {
  const address = parseRedisUrl(text);
  if (address.kind === "server") return new Connection(address.url, all);
  const { servers, username, password } = address;
  const tls = address.tls ? { tls: {} } : undefined;
  const user = { ...(username && { username }), ...(password && { password }) };
  if (address.kind === "sentinel")
    return new Connection({
      ...all,
      ...user,
      ...tls,
      sentinels: [...servers],
      name: address.name,
      db: address.db,
      ...(tls && { enableTLSForSentinelMode: true, sentinelTLS: {} }),
      sentinelCommandTimeout: askMsMax,
      sentinelRetryStrategy: all.retryStrategy,
      // Leaves a primary that was demoted, as soon as a sentinel says so.
      failoverDetector: true,
    });
  const { retryStrategy, enableOfflineQueue, ...redisOptions } = all;
  return new Cluster([...servers], {
    enableOfflineQueue,
    clusterRetryStrategy: retryStrategy,
    // A certificate names the server, not its address.
    dnsLookup: (name, callback) => callback(null, name),
    slotsRefreshTimeout: askMsMax,
    slotsRefreshInterval: askMsMax,
    // A command that a broken connection may have sent is not sent again.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    redisOptions: { ...redisOptions, ...user, ...tls },
  });
}

async function runScript(
  connection: Connection | Cluster,
  { text, sha }: Script,
  keys: readonly string[],
  args: readonly (string | number)[],
): Promise<unknown> {
  try {
    return await connection.evalsha(sha, keys.length, ...keys, ...args);
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith("NOSCRIPT"))) throw error;
    return connection.eval(text, keys.length, ...keys, ...args);
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** bring Redis back, or correct `REDIS_URL` */
    redis_unreachable: true;
  }
}
