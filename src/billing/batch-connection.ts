// The transactions of a lane on a connection of its own, and what their failures mean.

import { DatabaseError } from "pg";
import type { Query } from "../postgres/pipeline.ts";
import {
  type Connection,
  isBlocked,
  isConflict,
  isUniqueViolation,
  isUnreachable,
  type Postgres,
  type Statement,
} from "../postgres/postgres.ts";
import type { Failure } from "./batch-queue.ts";

const begin: Statement = { name: "billing/begin", text: "begin" };
const commit: Statement = { name: "billing/commit", text: "commit" };
const rollback: Statement = { name: "billing/rollback", text: "rollback" };

/**
 * A transaction in two round trips: `decide` sees the rows of the first queries and names the
 * writes.
 */
export type Decision<Outcome> = {
  readonly reads: readonly Query[];
  readonly decide: (rows: readonly unknown[][]) => {
    readonly writes: readonly Query[];
    readonly outcome: Outcome;
  };
};

/** A transaction in one round trip: nothing that its queries answer is needed to write the next. */
export type Sequence<Outcome> = {
  readonly queries: readonly Query[];
  readonly outcome: (rows: readonly unknown[][]) => Outcome;
};

// Several times what the server's own limits leave to the statements of a batch.
const answerMsMax = 5_000;
/** How long a server may take to say goodbye. */
const closeMsMax = 1_000;

/**
 * A database connection that one lane has for itself, opened again when it broke or fell silent.
 */
export class BatchConnection {
  readonly #postgres: Postgres;
  readonly #answerMs: number;
  #connection: Connection | undefined;

  constructor(postgres: Postgres, answerMs = answerMsMax) {
    this.#postgres = postgres;
    this.#answerMs = answerMs;
  }

  /**
   * Runs the batch that `build` makes once there is a connection. A commit that the server answered
   * with a rollback fails like any other statement.
   */
  async run<Outcome>(build: () => Decision<Outcome> | Sequence<Outcome>): Promise<Outcome> {
    if (this.#connection === undefined || this.#connection.lost)
      this.#connection = await this.#connect();
    const connection = this.#connection;
    const batch = build();
    const timer = setTimeout(() => connection.cut(), this.#answerMs);
    try {
      if ("queries" in batch) {
        const [, ...rows] = await this.#commit(connection, [[begin, []], ...batch.queries]);
        return batch.outcome(rows);
      }
      const [, ...read] = await connection.send([[begin, []], ...batch.reads]);
      const { writes, outcome } = batch.decide(read.map(({ rows }) => rows));
      await this.#commit(connection, writes);
      return outcome;
    } catch (error) {
      await connection.send([[rollback, []]]).catch(() => undefined);
      throw connection.lost
        ? new ConnectionLost("the connection was lost amid a batch", { cause: error })
        : error;
    } finally {
      clearTimeout(timer);
    }
  }

  // Whatever keeps a connection from being made (files, ports, certificates, passwords, a proxy)
  // says nothing about the batch.
  #connect(): Promise<Connection> {
    return this.#postgres.connect().catch((cause: unknown) => {
      throw new NotConnected("no connection to the ledger", { cause });
    });
  }

  async #commit(connection: Connection, queries: readonly Query[]): Promise<unknown[][]> {
    const answers = await connection.send([...queries, [commit, []]]);
    if (answers.pop()?.command !== "COMMIT") throw new RolledBack();
    return answers.map(({ rows }) => rows);
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    // A server that fell silent would be waited for until the system gives the socket up.
    const timer = setTimeout(() => connection?.cut(), closeMsMax);
    await connection?.end().catch(() => undefined);
    clearTimeout(timer);
  }
}

class NotConnected extends Error {}
class ConnectionLost extends Error {}
class RolledBack extends Error {}

// in_failed_sql_transaction; read_only_sql_transaction, of a server that has just become or is
// about to become the primary one; feature_not_supported and invalid_sql_statement_name, of a
// prepared statement whose columns a migration changed or that a proxy's other server never saw,
// and which is prepared anew at the repeat; and the classes of a server that lacks something, is
// told to stop, or fails itself.
const transientStates = /^(25P02|25006|0A000|26000|53...|57...|58...)$/;

/** True when the same batch, sent again, may pass. */
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
 * What the failure of a batch of admissions means. Whoever took the same request id at the same
 * time is seen by the repeat.
 */
export function classifyAdmissionError(error: unknown): Failure {
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  return isTransient(error) || isUniqueViolation(error) ? "unsure" : "refused";
}

// data_exception and integrity_constraint_violation: it lies in the values.
const valueStates = /^2[23]/;

/**
 * What the failure of a batch of settlements means. They are owed, so only what lies in the values
 * of one is final.
 */
export function classifySettlementError(error: unknown): Failure {
  if (error instanceof NotConnected) return "unsent";
  if (isBlocked(error)) return "blocked";
  if (isTransient(error)) return "unsure";
  return error instanceof DatabaseError && !valueStates.test(error.code ?? "")
    ? "blocked"
    : "refused";
}
