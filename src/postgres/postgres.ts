// Access to PostgreSQL: connection pools, transactions, and single connections for batch queues.

import { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { Client, Pool } from "pg";
import { withTimeout } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { changeable, type Durability, readDurability } from "./durability.ts";
import {
  isConflict,
  isReadOnly,
  isRefusal,
  isServerAtFault,
  throwTooLarge,
  throwUnavailable,
} from "./failures.ts";
import { type Prepared, type Result, RoundTrip } from "./pipeline.ts";
import { Servers } from "./servers.ts";
import {
  connectionConfig,
  connectTimeoutMs,
  prepareSession,
  runOn,
  type Server,
  type SessionSettings,
  textParser,
} from "./session.ts";
import { isSkipped, type Query, type Runner } from "./statement.ts";

export type { Durability } from "./durability.ts";
export {
  isBlocked,
  isConflict,
  isUniqueViolation,
  isUnreachable,
} from "./failures.ts";

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

/** The connections for reports. */
export interface Reports extends Runner {
  /** As that of `Postgres`. */
  transaction<T>(work: (tx: Runner) => Promise<T>): Promise<T>;
}

/** The database of one gateway. */
export interface Postgres extends Runner {
  /**
   * Runs `work` in one transaction. Retries up to five times after a serialization failure or a
   * deadlock. `statementMsMax`: after which the server ends a statement, and with it the locks of
   * the transaction. Default: two seconds less than the query timeout.
   */
  transaction<T>(work: (tx: Runner) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /**
   * A separate pool for reports. Callers may request as many large reports as they like; other
   * statements do not wait for them. The server ends a statement after ten seconds.
   */
  readonly reports: Reports;
  /** For heartbeats: other statements that wait for locks do not keep them waiting. */
  readonly heartbeats: Runner;
  /**
   * Runs work of any length, whose statements are short, on a connection of its own, until `signal`
   * or `close` cancels it. The statements follow indexes, and take one processor at most.
   */
  runSlices<T>(work: (db: Runner) => Promise<T>, signal: AbortSignal): Promise<T>;
  connect(): Promise<Connection>;
  /** Asks the server whether its commits survive its loss. */
  readDurability(): Promise<Durability>;
  /** The append-only tables that our role may change. */
  readChangeable(): Promise<string[]>;
  /** Cancels long statements, and waits a few seconds for the others. */
  close(): Promise<void>;
}

// Batches look up every row by its index. For array parameters the planner would choose otherwise:
// it scans tables of 10,000 rows, materializes them to loop over them once per key, and plans a
// batch of one request again each time.
const plannerSettings = {
  enable_seqscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_material: "off",
  plan_cache_mode: "force_generic_plan",
};

// A report reads thousands of rows and takes one processor at most. Compiling its expressions takes
// longer than running them. A plan for any range and any groups sorts where the one for these would
// not, which takes twice as long. Pages follow an index: to scan and sort all rows only looks
// cheaper while reading a page of an index counts as a move of the disk.
const reportSettings = {
  jit: "off",
  max_parallel_workers_per_gather: 0,
  plan_cache_mode: "force_custom_plan",
  random_page_cost: 1.1,
  work_mem: "32MB",
};

// How much of a table a slice takes, the server guesses by the first column of its bounds: for some
// hours of an account it would read all of them.
const sliceSettings = {
  ...reportSettings,
  enable_seqscan: "off",
  statement_timeout: 60_000,
  lock_timeout: 5_000,
};

// A plan suits the table sizes at the time when it was made, and the server updates its statistics
// once a minute. A plan made while a single request ran scans all holds once per charge: 880 ms for
// a batch of 256 among 10,000 holds, instead of 4 ms with a new plan.
const planAgeMsMax = 10_000;

const poolConnectionsMax = 10;
const reportConnectionsMax = 4;
// A second one, because a heartbeat whose connection hangs is sent again.
const heartbeatConnectionsMax = 2;
// A hung server and a lost network send no error, so every statement needs a timeout.
const defaultTimeoutMs = 30_000;
// A report that takes longer asks for too much at once.
const reportMsMax = 10_000;
// The server's own limit is shorter, so that it ends the statement before the client gives up on
// the connection.
const timeoutMarginMs = 2_000;
// Locks are held for milliseconds. The server ends the transaction of a process that hangs in one.
const lockMsMax = 5_000;
/** How long `close` waits for the server. */
const closeMsMax = 3_000;
const attemptsMax = 6;
/** The result of a query that was not sent. */
const nothing: Result = { rows: [], command: "" };

type TransactionOptions = { readonly statementMsMax?: number };

type ConnectOptions = {
  readonly timeoutMs?: number;
  readonly log?: Log | undefined;
  /** The role that every connection takes. Default: that of its user. */
  readonly role?: string | undefined;
};

/**
 * Connects with the first query, to the server of the list that takes writes. `timeoutMs` is the
 * query timeout. Throws an Error for an address that `parseDatabaseUrl` refuses.
 */
export function connectPostgres(
  url: string,
  { timeoutMs = defaultTimeoutMs, log, role }: ConnectOptions = {},
): Postgres {
  /** What every connection has in common. */
  const session: SessionSettings = role === undefined ? {} : { role };
  const servers = new Servers(url, log, connectTimeoutMs);
  servers.watch();
  const pools = new Pools(servers, session, timeoutMs);
  const closing = new AbortController();
  const runsOn = (choose: (pools: ServerPools) => Pool, fail = throwUnavailable): Runner => ({
    run: (statement, ...parameters) =>
      pools
        .use((open) => runOn(choose(open), statement, statement.with(...parameters)))
        .catch(fail),
  });
  return {
    ...runsOn(({ pool }) => pool),
    transaction: (work, options) =>
      pools.use(({ pool }) => transaction(pool, work, options)).catch(throwUnavailable),
    reports: {
      ...runsOn(({ reports }) => reports, throwTooLarge),
      transaction: (work) =>
        pools.use(({ reports }) => transaction(reports, work)).catch(throwTooLarge),
    },
    heartbeats: runsOn(({ heartbeats }) => heartbeats),
    runSlices: (work, signal) =>
      pools
        .use(() => runSlices(servers, session, work, AbortSignal.any([signal, closing.signal])))
        .catch(throwUnavailable),
    connect: () => connect(servers, session),
    async readDurability() {
      const { client } = await servers.connect();
      return readDurability(client, servers.isList).finally(() => client.end());
    },
    async readChangeable() {
      const tables = await pools.use(({ pool }) => runOn(pool, changeable, changeable.with()));
      return tables.map(({ name }) => name);
    },
    async close() {
      closing.abort();
      servers.stop();
      // Without a timeout, a server that does not respond delays this until the system's own one.
      await withTimeout(pools.close(), closeMsMax, () => undefined);
    },
  };
}

/** The pools of one server. */
type ServerPools = {
  readonly server: Server;
  readonly pool: Pool;
  readonly reports: Pool;
  readonly heartbeats: Pool;
};

/** The pools of the server of the moment. */
class Pools {
  readonly #servers: Servers;
  readonly #session: SessionSettings;
  readonly #timeoutMs: number;
  #open: ServerPools | undefined;
  #isClosed = false;

  constructor(servers: Servers, session: SessionSettings, timeoutMs: number) {
    this.#servers = servers;
    this.#session = session;
    this.#timeoutMs = timeoutMs;
  }

  /** Runs `work` once more, on the server of the moment, when the chosen one takes no writes. */
  async use<T>(work: (pools: ServerPools) => Promise<T>): Promise<T> {
    return this.#useOnce(work).catch((error: unknown) => {
      if (!this.#servers.isList || !isRefusal(error)) throw error;
      return this.#useOnce(work);
    });
  }

  async #useOnce<T>(work: (pools: ServerPools) => Promise<T>): Promise<T> {
    const server = await this.#servers.choose();
    if (this.#isClosed) throw new Error("Cannot use a pool after calling close");
    const pools = this.#open?.server === server ? this.#open : this.#moveTo(server);
    try {
      return await work(pools);
    } catch (error) {
      if (isServerAtFault(error)) this.#servers.suspect(server, error);
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(poolsOf(this.#open).map((one) => one.end()));
  }

  #moveTo(server: Server): ServerPools {
    for (const one of poolsOf(this.#open)) void one.end().catch(() => undefined);
    this.#open = {
      server,
      pool: this.#openPool(server, poolConnectionsMax),
      reports: this.#openPool(server, reportConnectionsMax, {
        ...reportSettings,
        statement_timeout: Math.min(reportMsMax, this.#timeoutMs - timeoutMarginMs),
      }),
      heartbeats: this.#openPool(server, heartbeatConnectionsMax),
    };
    return this.#open;
  }

  #openPool(server: Server, max: number, settings: SessionSettings = {}): Pool {
    const pool = new Pool({
      ...connectionConfig(server.url),
      max,
      query_timeout: this.#timeoutMs,
      onConnect: (client) =>
        prepareSession(client, server, this.#servers.target, {
          lock_timeout: lockMsMax,
          idle_in_transaction_session_timeout: lockMsMax,
          statement_timeout: this.#timeoutMs - timeoutMarginMs,
          ...this.#session,
          ...settings,
        }),
    });
    // A broken connection fails its next statement. Without error listeners it would end the
    // process: the pool listens on idle connections only.
    pool.on("error", () => {});
    pool.on("connect", (client) => {
      client.on("error", () => {});
      if (client instanceof Client) this.#servers.track(client, server);
    });
    return pool;
  }
}

function poolsOf(open: ServerPools | undefined): Pool[] {
  return open ? [open.pool, open.reports, open.heartbeats] : [];
}

async function runSlices<T>(
  servers: Servers,
  session: SessionSettings,
  work: (db: Runner) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const { client } = await servers.connect({ ...sliceSettings, ...session });
  let cancel = () => {};
  try {
    const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
    cancel = () => {
      // The server does not notice that the client is gone.
      void cancelBackend(servers, rows[0]?.pid).catch(() => undefined);
      void client.end();
    };
    signal.throwIfAborted();
    signal.addEventListener("abort", cancel, { once: true });
    return await work({
      run: (statement, ...parameters) => runOn(client, statement, statement.with(...parameters)),
    });
  } finally {
    signal.removeEventListener("abort", cancel);
    await client.end();
  }
}

// Without our role: it may not cancel a session of the user who took it.
async function cancelBackend(servers: Servers, pid: number | undefined): Promise<void> {
  const { client } = await servers.connect();
  await client.query("select pg_cancel_backend($1)", [pid]).finally(() => client.end());
}

async function transaction<T>(
  pool: Pool,
  work: (tx: Runner) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transactionOnce(pool, work, options);
    } catch (error) {
      if (!isConflict(error) || attempt === attemptsMax) throw error;
      await delay(Math.random() * 10 * 2 ** attempt);
    }
  }
}

async function transactionOnce<T>(
  pool: Pool,
  work: (tx: Runner) => Promise<T>,
  { statementMsMax }: TransactionOptions,
): Promise<T> {
  const client = await pool.connect();
  try {
    const limit = statementMsMax && `; set local statement_timeout = ${statementMsMax}`;
    await client.query(`begin${limit ?? ""}`);
    const result = await work({
      run: (statement, ...parameters) => runOn(client, statement, statement.with(...parameters)),
    });
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
    client.release(broken ?? isReadOnly(error));
    throw error;
  }
}

async function connect(servers: Servers, session: SessionSettings): Promise<Connection> {
  const socket = new Socket();
  const settings = {
    // A waiting batch delays every batch behind it, so it fails early and is repeated.
    lock_timeout: 1_000,
    statement_timeout: 2_000,
    idle_in_transaction_session_timeout: 2_000,
    ...plannerSettings,
    ...session,
  };
  const { client, server } = await servers.connect(settings, { stream: () => socket });
  let isLost = false;
  let isEnding = false;
  const lose = () => {
    isLost = true;
    if (!isEnding) servers.suspect(server);
  };
  client.on("error", lose);
  client.on("end", lose);
  const prepared: Prepared = new Map();
  let preparedAtMs = performance.now();
  return {
    async send(queries) {
      if (performance.now() - preparedAtMs > planAgeMsMax) {
        prepared.clear();
        preparedAtMs = performance.now();
      }
      try {
        const sent = queries.filter((query) => !isSkipped(query));
        const results = await client.query(new RoundTrip(sent, prepared, textParser)).results;
        let next = 0;
        return queries.map((query) => (isSkipped(query) ? nothing : (results[next++] ?? nothing)));
      } catch (error) {
        // The server was made read-only: another connection may reach the new primary.
        if (isReadOnly(error)) lose();
        throw error;
      }
    },
    end() {
      isEnding = true;
      return client.end();
    },
    destroy: () => void socket.destroy(),
    get lost() {
      return isLost || servers.isSuperseded(server);
    },
  };
}
