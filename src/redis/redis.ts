// One Redis for what may vanish without changing any balance: the pace of keys, and hints. Nothing
// here waits for a server that does not answer, and nothing is sent twice.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { Redis as Connection, type RedisOptions } from "ioredis";
import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";

/** A Lua script; the server knows it by its digest once it has run. */
export type Script = { readonly text: string; readonly sha: string };

/** Reads `lua/<file>.lua` beside the caller's module. Call once, when the module loads. */
export function script(moduleUrl: string, file: string): Script {
  const text = readFileSync(`${dirname(fileURLToPath(moduleUrl))}/lua/${file}.lua`, "utf8");
  return { text, sha: createHash("sha1").update(text).digest("hex") };
}

export interface Redis {
  /**
   * Runs a script. Rejects when the server is away, or has not answered after `answerMsMax`; it may
   * have run all the same.
   */
  run(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    answerMsMax: number,
  ): Promise<unknown>;
  /** Tells all listeners of a channel, if the server is there. */
  publish(channel: string, message: string): void;
  /** Messages sent while the server is away are lost. */
  subscribe(channel: string, listener: (message: string) => void): () => void;
  /** Calls `listener` whenever a connection is made. */
  onConnected(listener: () => void): () => void;
  readonly connected: boolean;
  close(): Promise<void>;
}

const options = {
  // A command that cannot be sent now, or whose connection broke, fails: its caller has a way to go
  // on without.
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  retryStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, 1_000),
  connectTimeout: 2_000,
  // A host that vanished without a word is noticed by its silence.
  socketTimeout: 3_000,
} satisfies RedisOptions;

/** Connects in the background, and again whenever the connection is lost. */
export function connectRedis(url: string, log: Log): Redis {
  const commands = new Connection(url, options);
  // A connection that listens can send no other commands.
  const listening = new Connection(url, {
    ...options,
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
  });
  const listeners = new Map<string, Set<(message: string) => void>>();
  listening.on("message", (channel, message) => {
    for (const listener of listeners.get(channel) ?? []) listener(message);
  });

  let reported = "";
  commands.on("error", (error) => {
    // The message alone: an error of ioredis also holds its command, and with AUTH that is the
    // password.
    if (error.message !== reported) log.warn({ reason: error.message }, "redis: no connection");
    reported = error.message;
  });
  commands.on("ready", () => {
    log.info("redis: connected");
    reported = "";
  });
  commands.on("close", () => log.debug("redis: connection closed"));
  // The same news as the first connection's.
  listening.on("error", () => {});

  return {
    run: (one, keys, args, answerMsMax) =>
      withTimeout(runScript(commands, one, keys, args), answerMsMax, () => {
        throw new Error(`Redis did not answer within ${answerMsMax} ms`);
      }),
    publish(channel, message) {
      if (commands.status === "ready") commands.publish(channel, message).catch(() => undefined);
    },
    subscribe(channel, listener) {
      const others = listeners.get(channel);
      if (others) others.add(listener);
      else {
        listeners.set(channel, new Set([listener]));
        // Repeated by the connection whenever it is made anew.
        listening.subscribe(channel).catch(() => undefined);
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
      commands.disconnect();
      listening.disconnect();
    },
  };
}

async function runScript(
  connection: Connection,
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
