// One PostgreSQL for everybody: named statements read from `.sql` files, a pool, transactions, and
// connections for lanes.

import { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import {
  Client,
  type ClientConfig,
  DatabaseError,
  Pool,
  type PoolClient,
  type QueryResultRow,
  types,
} from "pg";
import { withTimeout } from "../base/timeout.ts";
import { type Answer, type Prepared, type Query, RoundTrip } from "./pipeline.ts";
import type { Statement } from "./statement.ts";

export { type Statement, statement } from "./statement.ts";

/**
 * Whatever statements run in: a transaction, or autocommit. `int8` is `bigint`, `date` is
 * `YYYY-MM-DD`, `timestamptz` is `Date`.
 */
export type Tx = { query<Row>(statement: Statement, values: readonly unknown[]): Promise<Row[]> };

/** A connection of its own, for transactions of few round trips. */
export interface Connection {
  /**
   * Runs statements in one round trip. Fails with the error of the first that fails; those after it
   * are not run.
   */
  send(queries: readonly Query[]): Promise<Answer[]>;
  end(): Promise<void>;
  /** Breaks the connection: whatever waits for an answer fails. */
  cut(): void;
  /** The connection broke; every further round trip fails. */
  readonly lost: boolean;
}

/** The database of one gateway. */
export interface Postgres extends Tx {
  /**
   * Runs `work` in one transaction. Repeated, a few times, when the server answers that two
   * transactions got in each other's way.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /**
   * For what callers ask as often and as largely as they like: nothing else waits for these
   * connections.
   */
  readonly reports: Tx;
  /**
   * Runs a statement that may take `timeoutMs` on a connection of its own, until `signal` or
   * `close` cancels it.
   */
  runLong<Row>(
    statement: Statement,
    limits: { timeoutMs: number; signal: AbortSignal },
  ): Promise<Row[]>;
  connect(): Promise<Connection>;
  /** Waits a few seconds for what runs, and cancels what may take long. */
  close(): Promise<void>;
}

/**
 * Seen in `pg_stat_activity`; the embedded server is left running while others of this name are
 * connected.
 */
export const applicationName = "model-gateway";

// A batch names each of its rows, so each is found by its index. The planner guesses otherwise
// about arrays: it reads tables of 10,000 rows whole, keeps their rows to go through them once per
// key, and plans batches of one request anew each time.
const plannerOptions = [
  ...["seqscan", "hashjoin", "mergejoin", "material"].map((way) => `-c enable_${way}=off`),
  "-c plan_cache_mode=force_generic_plan",
].join(" ");

// A plan is made for the tables as they are at that moment, and the server looks again once a
// minute. One that was made while a single request ran goes through all holds once per charge: 880
// ms for a batch of 256 among 10,000, where a new one takes 4.
const planAgeMsMax = 10_000;

const connectTimeoutMs = 5_000;
const poolConnectionsMax = 10;
const reportConnectionsMax = 4;
// A server that stands still, or a network that lost it, says nothing: only a clock tells.
const usualAnswerMsMax = 30_000;
// The server gives up before its answer is no longer waited for, and the connection is free for the
// next statement.
const answerMarginMs = 2_000;
// Locks are held for milliseconds. A process that freezes during a transaction must not keep them.
const lockMsMax = 5_000;
/** How long `close` waits for servers to say goodbye. */
const closeMsMax = 5_000;
const attemptsMax = 6;

/**
 * Connects lazily: nothing is sent before the first query. `answerMsMax` is how long the answer to
 * a statement is waited for.
 */
export function connectPostgres(url: string, answerMsMax = usualAnswerMsMax): Postgres {
  const pool = openPool(url, { max: poolConnectionsMax, answerMsMax });
  const reports = openPool(url, { max: reportConnectionsMax, answerMsMax });
  const closing = new AbortController();
  return {
    query: (statement, values) => runOn(pool, statement, values),
    transaction: (work) => transaction(pool, work),
    reports: { query: (statement, values) => runOn(reports, statement, values) },
    runLong: (statement, { timeoutMs, signal }) =>
      runLong(url, pool, statement, {
        timeoutMs,
        signal: AbortSignal.any([signal, closing.signal]),
      }),
    connect: () => connect(url),
    async close() {
      closing.abort();
      // A server that fell silent would be waited for until the system gives the sockets up.
      await withTimeout(Promise.all([pool.end(), reports.end()]), closeMsMax, () => undefined);
    },
  };
}

function openPool(url: string, { max, answerMsMax }: { max: number; answerMsMax: number }): Pool {
  const pool = new Pool({
    ...connectionConfig(url),
    max,
    lock_timeout: lockMsMax,
    idle_in_transaction_session_timeout: lockMsMax,
    statement_timeout: answerMsMax - answerMarginMs,
    query_timeout: answerMsMax,
  });
  // A connection that breaks fails its next statement. Without listeners it would end the process:
  // the pool has one for idle connections, and takes its own off those that are in use.
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

/** How every connection of a gateway is made. */
export function connectionConfig(url: string): ClientConfig {
  return {
    connectionString: url,
    application_name: applicationName,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    types: { getTypeParser },
  };
}

const oid = { int8: 20, int8Array: 1016, date: 1082 };

// pg hands `int8` out as text because it predates bigint, and turns a `date` into midnight of the
// local zone.
const getTypeParser: typeof types.getTypeParser = (id: number, format?: "text" | "binary") => {
  if (id === oid.int8) return BigInt;
  if (id === oid.int8Array) return parseBigints;
  if (id === oid.date) return String;
  return format === "binary" ? types.getTypeParser(id, format) : types.getTypeParser(id, "text");
};

const textParser = (typeId: number) => getTypeParser(typeId, "text");

const parseBigints = (text: string) =>
  text === "{}"
    ? []
    : text
        .slice(1, -1)
        .split(",")
        .map((one) => (one === "NULL" ? null : BigInt(one)));

async function runOn<Row>(
  db: Pool | PoolClient,
  statement: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  const { name, text, timeoutMs } = statement;
  const ask = {
    name,
    text,
    values: [...values],
    ...(timeoutMs !== undefined && { query_timeout: timeoutMs }),
  };
  const { rows } = await db.query<QueryResultRow & Row>(ask);
  return rows;
}

async function runLong<Row>(
  url: string,
  pool: Pool,
  { text }: Statement,
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
): Promise<Row[]> {
  const client = new Client({ ...connectionConfig(url), statement_timeout: timeoutMs });
  client.on("error", () => {});
  await client.connect();
  let cancel = () => {};
  try {
    const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
    cancel = () => {
      // The server does not notice by itself that nobody listens any more.
      pool.query("select pg_cancel_backend($1)", [rows[0]?.pid]).catch(() => undefined);
      void client.end();
    };
    signal.throwIfAborted();
    signal.addEventListener("abort", cancel, { once: true });
    return (await client.query<QueryResultRow & Row>(text)).rows;
  } finally {
    signal.removeEventListener("abort", cancel);
    await client.end();
  }
}

async function transaction<T>(pool: Pool, work: (tx: Tx) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transactionOnce(pool, work);
    } catch (error) {
      if (!isConflict(error) || attempt === attemptsMax) throw error;
      await delay(Math.random() * 10 * 2 ** attempt);
    }
  }
}

async function transactionOnce<T>(pool: Pool, work: (tx: Tx) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const result = await work({ query: (statement, values) => runOn(client, statement, values) });
    // A transaction that failed without its work noticing commits "successfully", as a rollback.
    const { command } = await client.query("commit");
    if (command !== "COMMIT") throw new Error("the transaction was rolled back");
    client.release();
    return result;
  } catch (error) {
    const broken = await client.query("rollback").then(
      () => undefined,
      (failure: Error) => failure,
    );
    client.release(broken);
    throw error;
  }
}

async function connect(url: string): Promise<Connection> {
  const socket = new Socket();
  const client = new Client({
    ...connectionConfig(url),
    stream: () => socket,
    // A batch that waits holds up everyone behind it, so it would rather fail and be tried again.
    lock_timeout: 1_000,
    statement_timeout: 2_000,
    idle_in_transaction_session_timeout: 2_000,
    options: plannerOptions,
  });
  let lost = false;
  const lose = () => {
    lost = true;
  };
  client.on("error", lose);
  client.on("end", lose);
  await client.connect();
  const prepared: Prepared = new Map();
  let preparedAtMs = performance.now();
  return {
    async send(queries) {
      if (performance.now() - preparedAtMs > planAgeMsMax) {
        prepared.clear();
        preparedAtMs = performance.now();
      }
      return client.query(new RoundTrip(queries, prepared, textParser)).answers;
    },
    end: () => client.end(),
    cut: () => void socket.destroy(),
    get lost() {
      return lost;
    },
  };
}

/** Serialization failure or deadlock: the same transaction, tried again, may pass. */
export function isConflict(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "40001" || error.code === "40P01");
}

/** A row of the same unique name is there. */
export function isUniqueViolation(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23505";
}

/**
 * Something holds what the statement needs: a lock was not to be had in time, or the time of the
 * statement was up.
 */
export function isBlocked(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "55P03" || error.code === "57014");
}

// SQLSTATE: class 08 connection exception, 57P01-57P03 the server stops or starts, 53300 too many
// connections, 25P03 a transaction stood still for too long.
const unreachableStates = /^(08|57P0[123]|53300|25P03)/;
const unreachableErrnos =
  /^(ECONNREFUSED|ECONNRESET|ENOENT|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ECONNABORTED|EACCES)$/;
// What pg and pg-pool say where the socket is gone or cannot be had; they give these errors no
// code.
const unreachableMessages =
  /^(Connection terminated|Query read timeout|timeout e(xceeded|xpired)|Client (has encountered a connection error|was closed)|Cannot use a pool)/;

/**
 * True for a failure of the connection or of its time limits, not of the statement: the statement
 * may or may not have run.
 */
export function isUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (isBlocked(error)) return true;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  if (error instanceof DatabaseError) return unreachableStates.test(code);
  return unreachableErrnos.test(code) || unreachableMessages.test(error.message);
}
