// Migrates a database to the schema of `migrations/`: numbered files, forward only, one transaction
// each. By hand rather than with a library, because the processes of a deployment start at once and
// must neither run a migration twice nor block running gateways.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "pg";
import { isBlocked } from "./failures.ts";
import { addPartitions } from "./partitions.ts";
import { prepareRole } from "./role.ts";
import { Servers } from "./servers.ts";

type Migration = { number: number; name: string; text: string };

const folder = new URL("migrations/", import.meta.url);

// Row 0 is the lock: of several processes that start at once, one runs each file.
const prepare = `
  create table if not exists migrations (
    number     integer primary key,
    name       text not null,
    applied_at timestamptz not null default now()
  );
  insert into migrations (number, name) values (0, 'lock') on conflict do nothing;
`;

/** The database, as the migration found it. */
export type Migrated = {
  /** What an administrator has to run, so that the gateway can take its role. Empty: nothing. */
  readonly roleStatements: readonly string[];
};

/**
 * Runs the migrations that the database at `url` lacks, and adds partitions for the months ahead.
 * Safe when many processes do it at the same time. Needs the rights of the owner of the tables.
 * Throws when the database is newer than this program. `migrations`: by default those of the
 * program.
 */
export async function migrate(
  url: string,
  options: {
    /** The user of the gateway, who gets the right to take its role. Default: the one of `url`. */
    user?: string;
    migrations?: readonly Migration[];
    /** False: no partitions are added. */
    partitions?: boolean;
  } = {},
): Promise<Migrated> {
  const { client } = await new Servers(url).connect();
  try {
    await prepareTable(client);
    const { migrations = readMigrations() } = options;
    await refuseNewer(client, migrations);
    for (const migration of migrations)
      await inTransaction(client, `migration ${migration.name}`, () =>
        applyOnce(client, migration),
      );
    if (options.partitions !== false)
      await inTransaction(client, "partitions", () => addPartitions(client));
    let roleStatements: readonly string[] = [];
    await inTransaction(client, "role", async () => {
      roleStatements = await prepareRole(client, options.user ?? (await userOf(client)));
    });
    return { roleStatements };
  } finally {
    await client.end();
  }
}

/** Adds partitions for the months ahead. Needs the rights of the owner of the tables. */
export async function keepMonthsAhead(url: string): Promise<void> {
  const { client } = await new Servers(url).connect();
  try {
    await inTransaction(client, "partitions", () => addPartitions(client));
  } finally {
    await client.end();
  }
}

async function userOf(client: Client): Promise<string> {
  const { rows } = await client.query<{ name: string }>("select session_user::text as name");
  return rows[0]?.name ?? "";
}

/** The files of `migrations/`, in order. Throws when two share a number. */
export function readMigrations(): Migration[] {
  const migrations = readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .map((file) => ({
      number: Number.parseInt(file, 10),
      name: file.slice(0, -".sql".length),
      text: readFileSync(new URL(file, folder), "utf8"),
    }));
  migrations.sort((a, b) => a.number - b.number);
  migrations.forEach(({ number, name }, index) => {
    if (number !== index + 1) throw new Error(`migration ${name}: expected number ${index + 1}`);
  });
  return migrations;
}

// While a migration waits for the lock of a table, later transactions queue behind it. Batches of
// running gateways fail after one second in that queue. So a migration waits for less than that,
// lets the others run, and retries for five minutes.
const lockMsMax = 400;
const lockPauseMs = 1_600;
const lockAttemptsMax = 150;

/**
 * Runs `work` in a transaction that waits for locks so shortly that requests do not notice, again
 * and again. One process at a time. `name`: what an Error calls the work.
 */
export async function inTransaction<T>(
  client: Client,
  name: string,
  work: () => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await lockAndRun(client, work);
    } catch (error) {
      if (!isBlocked(error)) throw error;
      if (attempt === lockAttemptsMax) {
        throw new Error(`${name}: other sessions kept its tables locked for five minutes`, {
          cause: error,
        });
      }
      await delay(lockPauseMs);
    }
  }
}

async function lockAndRun<T>(client: Client, work: () => Promise<T>): Promise<T> {
  await client.query("begin");
  try {
    await client.query("select 1 from migrations where number = 0 for update");
    await client.query(`set local lock_timeout = ${lockMsMax}`);
    const result = await work();
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch(() => {});
    throw error;
  }
}

async function applyOnce(client: Client, { number, name, text }: Migration): Promise<void> {
  const { rows } = await client.query("select 1 from migrations where number = $1", [number]);
  if (rows.length > 0) return;
  await client.query(text);
  await client.query("insert into migrations (number, name) values ($1, $2)", [number, name]);
}

// When two processes create the same table at once, one fails in the server's catalogue. Its retry
// finds the table.
async function prepareTable(client: Client, attemptsLeft = 5): Promise<void> {
  try {
    await client.query(prepare);
  } catch (error) {
    if (attemptsLeft === 0) throw error;
    await prepareTable(client, attemptsLeft - 1);
  }
}

// An older program would write rows that a later migration has given another meaning.
async function refuseNewer(client: Client, migrations: readonly Migration[]): Promise<void> {
  const { rows } = await client.query<{ number: number; name: string }>(
    "select number, name from migrations order by number desc limit 1",
  );
  const [newest] = rows;
  if (newest === undefined || newest.number <= migrations.length) return;
  throw new Error(
    `the database is newer than this program: it has migration ${newest.name}, and this program ` +
      `knows ${migrations.length} migrations. Start a newer version of the gateway.`,
  );
}
