// Runs the transactions of a batch queue on a connection of its own, and classifies their errors.

import { DatabaseError } from "pg";
import { type Clock, systemClock } from "../base/clock.ts";
import type { Result } from "../postgres/pipeline.ts";
import {
  type Connection,
  isBlocked,
  isConflict,
  isUniqueViolation,
  isUnreachable,
  type Postgres,
} from "../postgres/postgres.ts";
import type { Query, RowsOf } from "../postgres/statement.ts";
import type { Failure } from "./batch-queue.ts";

const begin: Query = [{ name: "billing/begin", text: "begin" }, []];
const commit: Query = [{ name: "billing/commit", text: "commit" }, []];
const rollback: Query = [{ name: "billing/rollback", text: "rollback" }, []];

/** What a transaction writes after its reads. */
export type Decided<Outcome> = { readonly writes: readonly Query[]; readonly outcome: Outcome };

/** A transaction in two round trips. */
export type Decision<Outcome> = {
  readonly reads: readonly Query[];
  /** `results`: of the reads. */
  decide(results: readonly Result[]): Decided<Outcome>;
};

/** A transaction in one round trip: no query depends on the rows of another. */
export type Sequence<Outcome> = {
  readonly queries: readonly Query[];
  outcome(results: readonly Result[]): Outcome;
};

/** `decide` gets the rows of the reads. */
export function decision<const Reads extends readonly Query[], Outcome>(
  reads: Reads,
  decide: (rows: RowsOf<Reads>) => Decided<Outcome>,
): Decision<Outcome> {
  return { reads, decide: (results) => decide(rowsOf(results)) };
}

/** `outcome` gets the rows of the queries. */
export function sequence<const Queries extends readonly Query[], Outcome>(
  queries: Queries,
  outcome: (rows: RowsOf<Queries>) => Outcome,
): Sequence<Outcome> {
  return { queries, outcome: (results) => outcome(rowsOf(results)) };
}

/** The one place where results get the types of their queries, which read them. */
function rowsOf<Queries extends readonly Query[]>(results: readonly Result[]): RowsOf<Queries> {
  return results.map(({ rows }) => rows) as never;
}

// Several times the server's own time limits for the statements of a batch.
const batchMsMax = 5_000;
/** How long to wait for the server when the connection is closed. */
const closeMsMax = 1_000;

/**
 * A database connection for one batch queue. It is opened again after it broke or the server did
 * not respond in time.
 */
export class BatchConnection {
  readonly #postgres: Postgres;
  readonly #clock: Clock;
  readonly #prepare: ((connection: Connection) => Promise<void>) | undefined;
  #connection: Connection | undefined;

  /** `prepare` is called with each new connection, before its first batch. */
  constructor(
    postgres: Postgres,
    {
      prepare,
      clock = systemClock,
    }: { prepare?: (connection: Connection) => Promise<void>; clock?: Clock } = {},
  ) {
    this.#postgres = postgres;
    this.#clock = clock;
    this.#prepare = prepare;
  }

  /**
   * Connects if necessary, calls `build` and runs its batch. Throws the error of the first
   * statement that failed, and an error when the server answered the commit with a rollback.
   */
  run<Outcome>(build: () => Decision<Outcome> | Sequence<Outcome>): Promise<Outcome> {
    return this.#use(async (connection) => {
      const batch = build();
      if ("queries" in batch) {
        const [, ...results] = await this.#commit(connection, [begin, ...batch.queries]);
        return batch.outcome(results);
      }
      const [, ...results] = await connection.send([begin, ...batch.reads]);
      const { writes, outcome } = batch.decide(results);
      await this.#commit(connection, writes);
      return outcome;
    });
  }

  /** Runs the queries and takes back what they wrote. Throws as `run` does. */
  async rehearse(queries: readonly Query[]): Promise<void> {
    await this.#use((connection) => connection.send([begin, ...queries, rollback]));
  }

  async #use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#connection === undefined || this.#connection.lost) {
      this.#connection?.destroy();
      this.#connection = await this.#connect();
    }
    const connection = this.#connection;
    const cancelTimer = this.#clock.after(batchMsMax, () => connection.destroy());
    try {
      return await work(connection);
    } catch (error) {
      await connection.send([rollback]).catch(() => undefined);
      throw connection.lost
        ? new ConnectionLost("the connection broke during a batch", { cause: error })
        : error;
    } finally {
      cancelTimer();
    }
  }

  // Any reason counts (file descriptors, ports, certificates, passwords, a proxy): the batch was
  // not sent.
  async #connect(): Promise<Connection> {
    let connection: Connection | undefined;
    let cancelTimer = () => {};
    try {
      connection = await this.#postgres.connect();
      cancelTimer = this.#clock.after(batchMsMax, () => connection?.destroy());
      await this.#prepare?.(connection);
      return connection;
    } catch (cause) {
      connection?.destroy();
      throw new NotConnected("cannot connect to the ledger", { cause });
    } finally {
      cancelTimer();
    }
  }

  async #commit(connection: Connection, queries: readonly Query[]): Promise<Result[]> {
    const results = await connection.send([...queries, commit]);
    if (results.pop()?.command !== "COMMIT") throw new RolledBack();
    return results;
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    // Without a timeout, a server that does not respond delays this until the system's own one.
    const cancelTimer = this.#clock.after(closeMsMax, () => connection?.destroy());
    await connection?.end().catch(() => undefined);
    cancelTimer();
  }
}

class NotConnected extends Error {}
class ConnectionLost extends Error {}
class RolledBack extends Error {}

// SQLSTATEs that may be gone at the repeat:
// - 25P02 in_failed_sql_transaction.
// - 25006 read_only_sql_transaction: the server is becoming the primary one, or was it until now.
// - 0A000 feature_not_supported and 26000 invalid_sql_statement_name: a migration changed the
//   columns of a prepared statement, or a proxy switched to a server that never prepared it. The
//   repeat prepares it again.
// - Classes 53 insufficient resources, 57 operator intervention, 58 system error.
const transientStates = /^(25P02|25006|0A000|26000|53...|57...|58...)$/;

/** True when a repeat of the same batch may succeed. */
export function isTransient(error: unknown): boolean {
  if (
    error instanceof NotConnected ||
    error instanceof ConnectionLost ||
    error instanceof RolledBack
  )
    return true;
  if (isConflict(error) || isUnreachable(error)) return true;
  return error instanceof DatabaseError && transientStates.test(error.code ?? "");
}

/**
 * Classifies the error of an admission batch. After a unique violation, the repeat reads the
 * transaction that took the same request id.
 */
export function classifyAdmissionError(error: unknown): Failure {
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  return isTransient(error) || isUniqueViolation(error) ? "unconfirmed" : "rejected";
}

// Classes 22 data exception and 23 integrity constraint violation: a value is at fault.
const valueStates = /^2[23]/;

// The month of a charge has no partition yet. A violated check has the name of its constraint.
function lacksPartition(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23514" && error.constraint === undefined;
}

/**
 * Classifies the error of a settlement batch. Every settlement must be made, so an item is rejected
 * only when its own values are at fault.
 */
export function classifySettlementError(error: unknown): Failure {
  if (lacksPartition(error)) return "blocked";
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  if (isTransient(error)) return "unconfirmed";
  return error instanceof DatabaseError && !valueStates.test(error.code ?? "")
    ? "blocked"
    : "rejected";
}
