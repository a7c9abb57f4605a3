// Checks a database before the first use, so that a start that cannot succeed says why.

import { type Client, DatabaseError } from "pg";
import { isReadOnly, ReadOnlyServer } from "./failures.ts";
import { Servers } from "./servers.ts";

/** The database cannot be used as it is configured. The message says what is wrong. */
export class UnusableDatabase extends Error {}

/** A server that hangs ends no statement by itself. */
const answerMsMax = 15_000;

const poolerMessage =
  "a pooler between the gateway and the database shares connections between transactions; " +
  "set it to session mode (PgBouncer: pool_mode = session), or connect directly";

/** Connects once. Throws the error of a connection that cannot be made. */
export async function checkConnection(url: string): Promise<void> {
  const { client } = await new Servers(url).connect();
  void client.end().catch(() => undefined);
}

/**
 * Throws `UnusableDatabase` for a server that takes no writes and for a pooler in transaction or
 * statement mode, and the error of a connection that cannot be made.
 */
export async function checkDatabase(url: string): Promise<void> {
  const servers = new Servers(url);
  await using stack = new AsyncDisposableStack();
  const connect = async () => {
    const { client } = await servers.connect({}, { query_timeout: answerMsMax });
    return stack.adopt(client, (one) => void one.end().catch(() => undefined));
  };
  try {
    const client = await connect();
    await refuseReadOnly(client);
    await refuseSharedConnections(client, [await connect(), await connect()]);
  } catch (error) {
    throw named(error);
  }
}

async function refuseReadOnly(client: Client): Promise<void> {
  const { rows } = await client.query<{ is_standby: boolean; is_read_only: boolean }>(
    "select pg_is_in_recovery() as is_standby, " +
      "current_setting('transaction_read_only') = 'on' as is_read_only",
  );
  if (rows[0]?.is_standby) throw new ReadOnlyServer("of DATABASE_URL", "a standby");
  if (rows[0]?.is_read_only) throw new ReadOnlyServer("of DATABASE_URL", "read-only");
}

// While two other clients are in transactions, a client of its own session keeps its process of the
// server. Behind a pooler that shares connections, one of the others has taken it.
async function refuseSharedConnections(
  client: Client,
  others: readonly [Client, Client],
): Promise<void> {
  const own = await processOf(client);
  for (const other of others) {
    await other.query("begin");
    if ((await processOf(other)) === own || (await processOf(client)) !== own)
      throw new UnusableDatabase(poolerMessage);
  }
  for (const other of others) await other.query("rollback");
}

async function processOf(client: Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
  return rows[0]?.pid;
}

function named(error: unknown): unknown {
  if (error instanceof ReadOnlyServer)
    return new UnusableDatabase(`${error.message}: it takes no writes`, { cause: error });
  if (isReadOnly(error)) return new UnusableDatabase("the database is read-only", { cause: error });
  // PgBouncer in statement mode ends a client that begins a transaction.
  if (error instanceof DatabaseError && /statement pooling/i.test(error.message))
    return new UnusableDatabase(poolerMessage, { cause: error });
  return error;
}
