// Waits for a database at the start of a gateway: a machine that has just begun starts both at
// once, and a slow one takes longer to connect than a request may wait.

import { setTimeout as delay } from "node:timers/promises";
import type { Log } from "../base/log.ts";
import { tlsProblemOf } from "../base/tls-problem.ts";
import { parseDatabaseUrl } from "../config/database-url.ts";
import { isServerAtFault } from "./failures.ts";

const pauseMs = 500;

/** What people call the database at `url`. Has no password. */
export function databaseOf(url: string): string {
  return `the database at ${parseDatabaseUrl(url)
    .servers.map(({ name }) => name)
    .join(", ")}`;
}

export type DatabaseWait = {
  /** Without a password. For people: "the database at db.internal:5432". */
  readonly database: string;
  readonly withinMs: number;
  /** Ends the wait: its reason is thrown. */
  readonly giveUp?: AbortSignal | undefined;
  readonly log: Log;
};

/** A database was not reached in time. `cause`: the last error. */
export class DatabaseAway extends Error {
  readonly database: string;

  constructor(database: string, cause: unknown) {
    super(`${database} is not reachable`, { cause });
    this.database = database;
  }
}

/**
 * Runs `work` again until it reaches the database. `work` must be harmless when repeated. Throws
 * `DatabaseAway` after `withinMs`, and any other error at once.
 */
export async function waitForDatabase<T>(
  { database, withinMs, giveUp, log }: DatabaseWait,
  work: () => Promise<T>,
): Promise<T> {
  const untilMs = performance.now() + withinMs;
  for (let isFirst = true; ; isFirst = false) {
    giveUp?.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      // Nobody renews a certificate within a minute.
      if (!isServerAtFault(error) || tlsProblemOf(error)) throw error;
      if (performance.now() >= untilMs) throw new DatabaseAway(database, error);
      if (isFirst)
        log.warn(
          { code: "database_awaited", err: error, seconds: withinMs / 1000 },
          `waiting for ${database}`,
        );
      await delay(pauseMs, undefined, { signal: giveUp }).catch(() => undefined);
    }
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * nothing if the database is starting: a start waits for it for DATABASE_WAIT_SECONDS;
     * otherwise look at the database, and at DATABASE_URL
     */
    database_awaited: true;
  }
}
