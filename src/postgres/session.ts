// One connection to one server: how values are read, and the settings of its session.

import { Client, type ClientBase, type ClientConfig, type Pool, types } from "pg";
import type { TargetServer } from "../config/database-url.ts";
import { ReadOnlyServer } from "./failures.ts";
import { byName, checkColumns, type Query, type Text } from "./statement.ts";

/** A server, with the address that names it alone. `name` has no secret. */
export type Server = { readonly name: string; readonly url: string };

/** Settings of a session, by their names in PostgreSQL. A number is in milliseconds. */
export type SessionSettings = Readonly<Record<string, string | number>>;

/**
 * Name of our connections in `pg_stat_activity`. The embedded server keeps running while other
 * connections with this name exist.
 */
export const applicationName = "model-gateway";

/** How long a connection of a running gateway may take. */
export const connectTimeoutMs = 5_000;

/** Settings of every connection to the server at `url`. */
export function connectionConfig(url: string): ClientConfig {
  return {
    connectionString: url,
    application_name: applicationName,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    types: { getTypeParser },
  };
}

/**
 * Connects to `server`, and makes the settings. Throws `ReadOnlyServer` when it is not a server of
 * this `target`.
 */
export async function openClient(
  server: Server,
  target: TargetServer,
  settings: SessionSettings = {},
  config: ClientConfig = {},
): Promise<Client> {
  const all = { ...connectionConfig(server.url), ...config };
  const client = new Client(all);
  // A broken connection also fails its query. Without a listener it would end the process.
  client.on("error", () => {});
  await client.connect();
  try {
    await prepareSession(client, server, target, settings, all.connectionTimeoutMillis);
    return client;
  } catch (error) {
    void client.end().catch(() => undefined);
    throw error;
  }
}

// How values are written is ours to know, whatever the database, the user or the server sets. The
// search path names the schemas that it leads to now: `"$user"` in it would be that of our role.
const ownSettings = [
  `set_config('search_path', (select string_agg(quote_ident(name), ', ')
    from unnest(current_schemas(false)) as name), false)`,
  "set_config('DateStyle', 'ISO', false)",
  "set_config('IntervalStyle', 'postgres', false)",
  "set_config('TimeZone', 'UTC', false)",
  "set_config('bytea_output', 'hex', false)",
  "set_config('extra_float_digits', '1', false)",
  "set_config('standard_conforming_strings', 'on', false)",
];

/**
 * Makes the settings of a new connection. They are made by a statement, not as parameters of the
 * connection: PgBouncer refuses to connect with a parameter that it does not know.
 */
export async function prepareSession(
  client: ClientBase,
  { name }: Server,
  target: TargetServer,
  settings: SessionSettings,
  timeoutMs = connectTimeoutMs,
): Promise<void> {
  const entries = Object.entries(settings);
  const made = entries.map((_, index) => `set_config($${index * 2 + 1}, $${index * 2 + 2}, false)`);
  const state = `pg_is_in_recovery() as is_standby,
    current_setting('transaction_read_only') = 'on' as is_read_only`;
  const { rows } = await client.query<{ is_standby: boolean; is_read_only: boolean }>({
    text: `select ${[state, ...ownSettings, ...made].join(", ")}`,
    values: entries.flatMap(([setting, value]) => [setting, String(value)]),
    // In a spread: the types of `pg` lack it.
    ...{ query_timeout: timeoutMs },
  });
  if (target === "any") return;
  if (rows[0]?.is_standby !== false) throw new ReadOnlyServer(name, "a standby");
  if (target === "read-write" && rows[0].is_read_only) throw new ReadOnlyServer(name, "read-only");
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

/** The parser of a type's text form. */
export const textParser = (typeId: number) => getTypeParser(typeId, "text");

const parseBigints = (text: string) =>
  text === "{}"
    ? []
    : text
        .slice(1, -1)
        .split(",")
        .map((one) => (one === "NULL" ? null : BigInt(one)));

/** The names of the result columns are checked once in the life of this process. */
const checked = new WeakSet<Text>();

/** Runs a statement. Returns the result of its kind. */
export async function runOn<Row, Result>(
  db: Pool | ClientBase,
  statement: Text<Row> & { result(rows: Row[], changed: number): Result },
  [, values]: Query<Row>,
): Promise<Result> {
  const { name, text, timeoutMs, row } = statement;
  const { rows, fields, rowCount } = await db.query<unknown[]>({
    name,
    text,
    values: [...values],
    rowMode: "array",
    ...(timeoutMs !== undefined && { query_timeout: timeoutMs }),
  });
  const columns = fields.map(({ name }) => name);
  if (!checked.has(statement)) {
    checkColumns(statement, columns);
    checked.add(statement);
  }
  const made = rows.map(row ?? ((values) => byName<Row>(columns, values)));
  return statement.result(made, rowCount ?? 0);
}
