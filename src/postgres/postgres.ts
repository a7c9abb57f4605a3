// Access to PostgreSQL: connection pools, transactions, and single connections for batch queues.

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
import { type Prepared, type Query, type Result, RoundTrip } from "./pipeline.ts";
import type { Statement } from "./statement.ts";

export { type Statement, statement } from "./statement.ts";

/**
 * Runs statements, in a transaction or each in its own. `int8` is a `bigint`, `date` is
 * `YYYY-MM-DD`, `timestamptz` is a `Date`.
 */
export type Tx = { query<Row>(statement: Statement, values: readonly unknown[]): Promise<Row[]> };

/** A connection outside the pools, for transactions of few round trips. */
export interface Connection {
  /**
   * Runs statements in one round trip. Throws the error of the first statement that fails; the
   * server does not run the ones after it.
   */
  send(queries: readonly Query[]): Promise<Result[]>;
  end(): Promise<void>;
  /** Closes the socket at once. Pending and later round trips fail. */
  destroy(): void;
  /** True after the connection broke. Every later round trip fails. */
  readonly lost: boolean;
}

/** The database of one gateway. */
export interface Postgres extends Tx {
  /**
   * Runs `work` in one transaction. Retries up to five times after a serialization failure or a
   * deadlock.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /**
   * A separate pool for reports. Callers may request as many large reports as they like; other
   * statements do not wait for them.
   */
  readonly reports: Tx;
  /**
   * Runs a statement of up to `timeoutMs` on a connection of its own, until `signal` or `close`
   * cancels it.
   */
  runLong<Row>(
    statement: Statement,
    limits: { timeoutMs: number; signal: AbortSignal },
  ): Promise<Row[]>;
  connect(): Promise<Connection>;
  /** Cancels long statements, and waits a few seconds for the others. */
  close(): Promise<void>;
}

/**
 * Name of our connections in `pg_stat_activity`. The embedded server keeps running while other
 * connections with this name exist.
 */
export const applicationName = "model-gateway";

// Batches look up every row by its index. For array parameters the planner would choose otherwise:
// it scans tables of 10,000 rows, materializes them to loop over them once per key, and plans a
// batch of one request again each time.
const plannerOptions = [
  ...["seqscan", "hashjoin", "mergejoin", "material"].map((node) => `-c enable_${node}=off`),
  "-c plan_cache_mode=force_generic_plan",
].join(" ");

// A plan suits the table sizes at the time when it was made, and the server updates its statistics
// once a minute. A plan made while a single request ran scans all holds once per charge: 880 ms for
// a batch of 256 among 10,000 holds, instead of 4 ms with a new plan.
const planAgeMsMax = 10_000;

const connectTimeoutMs = 5_000;
const poolConnectionsMax = 10;
const reportConnectionsMax = 4;
// A hung server and a lost network send no error, so every statement needs a timeout.
const defaultTimeoutMs = 30_000;
// The server's own limit is shorter, so that it ends the statement before the client gives up on
// the connection.
const timeoutMarginMs = 2_000;
// Locks are held for milliseconds. The server ends the transaction of a process that hangs in one.
const lockMsMax = 5_000;
/** How long `close` waits for the server. */
const closeMsMax = 5_000;
const attemptsMax = 6;

/** Connects with the first query. `timeoutMs` is the query timeout. */
export function connectPostgres(url: string, timeoutMs = defaultTimeoutMs): Postgres {
  const pool = openPool(url, { max: poolConnectionsMax, timeoutMs });
  const reports = openPool(url, { max: reportConnectionsMax, timeoutMs });
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
      // Without a timeout, a server that does not respond delays this until the system's own one.
      await withTimeout(Promise.all([pool.end(), reports.end()]), closeMsMax, () => undefined);
    },
  };
}

function openPool(url: string, { max, timeoutMs }: { max: number; timeoutMs: number }): Pool {
  const pool = new Pool({
    ...connectionConfig(url),
    max,
    lock_timeout: lockMsMax,
    idle_in_transaction_session_timeout: lockMsMax,
    statement_timeout: timeoutMs - timeoutMarginMs,
    query_timeout: timeoutMs,
  });
  // A broken connection fails its next statement. Without error listeners it would end the process:
  // the pool listens on idle connections only.
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}

/** Settings of every connection to the database at `url`. */
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

// pg returns `int8` as text, because it predates bigint, and `date` as midnight in the local time
// zone.
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
  const query = {
    name,
    text,
    values: [...values],
    ...(timeoutMs !== undefined && { query_timeout: timeoutMs }),
  };
  const { rows } = await db.query<QueryResultRow & Row>(query);
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
      // The server does not notice that the client is gone.
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
    // The commit of a failed transaction succeeds, with the command ROLLBACK.
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
    // A waiting batch delays every batch behind it, so it fails early and is repeated.
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
      return client.query(new RoundTrip(queries, prepared, textParser)).results;
    },
    end: () => client.end(),
    destroy: () => void socket.destroy(),
    get lost() {
      return lost;
    },
  };
}

/** Serialization failure or deadlock: a repeat of the transaction may succeed. */
export function isConflict(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "40001" || error.code === "40P01");
}

/** A row with the same unique key exists. */
export function isUniqueViolation(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23505";
}

/** Lock timeout or statement timeout: another transaction holds a lock that the statement needs. */
export function isBlocked(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "55P03" || error.code === "57014");
}

// SQLSTATEs: class 08 connection exception, 57P01 to 57P03 the server stops or starts, 53300 too
// many connections, 25P03 idle transaction timeout.
const unreachableStates = /^(08|57P0[123]|53300|25P03)/;
const unreachableErrnos =
  /^(ECONNREFUSED|ECONNRESET|ENOENT|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ECONNABORTED|EACCES)$/;
// Messages of pg and pg-pool for a lost or failed connection; these errors have no code.
const unreachableMessages =
  /^(Connection terminated|Query read timeout|timeout e(xceeded|xpired)|Client (has encountered a connection error|was closed)|Cannot use a pool)/;

/**
 * True when the connection or a timeout failed, not the statement itself. The statement may or may
 * not have run.
 */
export function isUnreachable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (isBlocked(error)) return true;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  if (error instanceof DatabaseError) return unreachableStates.test(code);
  return unreachableErrnos.test(code) || unreachableMessages.test(error.message);
}
