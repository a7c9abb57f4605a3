// Migrates a database to the schema of `migrations/`: numbered files, forward only, one transaction
// each. By hand rather than with a library, because the processes of a deployment start at once and
// must neither run a migration twice nor block running gateways.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "pg";
import { readCatalogue } from "./catalogue.ts";
import { isBlocked } from "./failures.ts";
import { addPartitions } from "./partitions.ts";
import { prepareRole } from "./role.ts";
import { Servers } from "./servers.ts";

export type Migration = {
  readonly number: number;
  readonly name: string;
  readonly text: string;
  /** Of the text, with `\n` at the end of each line. */
  readonly sha256: string;
  /** The lowest number with which a program may still run on the schema that this one makes. */
  readonly compatibleFrom: number;
};

/** A migration that the database ran. Null: by a program that did not note it. */
type Applied = {
  readonly number: number;
  readonly name: string;
  readonly applied_at: Date;
  readonly sha256: string | null;
  readonly compatible_from: number | null;
};

const folder = new URL("migrations/", import.meta.url);

// Row 0 is the lock: of several processes that start at once, one runs each file.
const prepare = `
  create table if not exists migrations (
    number          integer primary key,
    name            text not null,
    applied_at      timestamptz not null default now(),
    sha256          text,
    compatible_from integer
  );
  alter table migrations add column if not exists sha256 text;
  alter table migrations add column if not exists compatible_from integer;
  insert into migrations (number, name) values (0, 'lock') on conflict do nothing;
`;

// To add a column waits for a migration that runs, although it is there already.
const isPrepared = `
  select from pg_attribute
  where attrelid = to_regclass('migrations') and attname = 'compatible_from'`;

/** The database, as the migration found it. */
export type Migrated = {
  /** What an administrator has to run, so that the gateway can take its role. Empty: nothing. */
  readonly roleStatements: readonly string[];
};

/**
 * Runs the migrations that the database at `url` lacks, and adds partitions for the months ahead.
 * Safe when many processes do it at the same time. Needs the rights of the owner of the tables.
 * Throws an Error of one sentence when the database is newer than this program and does not suit
 * it, or when it ran other migrations than this program has. `migrations`: by default those of the
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
    const applied = await readApplied(client);
    checkApplied(applied, migrations);
    if (applied.some(({ sha256 }) => sha256 === null))
      await inTransaction(client, "the digests of migrations", () =>
        noteDigests(client, migrations),
      );
    for (const migration of migrations)
      await inTransaction(client, `migration ${migration.name}`, () =>
        applyOnce(client, migration),
      );
    if (options.partitions !== false)
      await inTransaction(client, "partitions", () => addPartitions(client));
    // What a newer program has added has rights that this one does not know.
    if (applied.length > migrations.length) return { roleStatements: [] };
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

/** Makes the schema of these migrations in an empty database. The caller is in a transaction. */
export async function createSchema(
  client: Client,
  migrations: readonly Migration[],
): Promise<void> {
  await client.query(prepare);
  for (const migration of migrations) await run(client, migration);
}

async function userOf(client: Client): Promise<string> {
  const { rows } = await client.query<{ name: string }>("select session_user::text as name");
  return rows[0]?.name ?? "";
}

const compatibleLine = /^-- compatible_from: (\d+)$/m;

/** The files of `migrations/`, in order. Throws when two share a number. */
export function readMigrations(): Migration[] {
  const migrations = readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .map((file) => toMigration(file, readFileSync(new URL(file, folder), "utf8")));
  migrations.sort((a, b) => a.number - b.number);
  migrations.forEach(({ number, name }, index) => {
    if (number !== index + 1) throw new Error(`migration ${name}: expected number ${index + 1}`);
  });
  return migrations;
}

/** The migration of a file `0005_views.sql`. */
export function toMigration(file: string, source: string): Migration {
  const text = source.replaceAll("\r\n", "\n");
  const number = Number.parseInt(file, 10);
  const [, compatibleFrom = number] = compatibleLine.exec(text) ?? [];
  return {
    number,
    name: file.slice(0, -".sql".length),
    text,
    sha256: createHash("sha256").update(text).digest("hex"),
    compatibleFrom: Number(compatibleFrom),
  };
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

async function applyOnce(client: Client, migration: Migration): Promise<void> {
  const { number, name, compatibleFrom } = migration;
  const { rows } = await client.query("select 1 from migrations where number = $1", [number]);
  if (rows.length > 0) return;
  if (compatibleFrom === number) await refuseBesideOlder(client, name);
  await run(client, migration);
}

async function run(
  client: Client,
  { number, name, text, sha256, compatibleFrom }: Migration,
): Promise<void> {
  await client.query(text);
  await client.query(
    "insert into migrations (number, name, sha256, compatible_from) values ($1, $2, $3, $4)",
    [number, name, sha256, compatibleFrom],
  );
}

// A live node of a database that lacks a migration runs an older program. A node that has died
// without a word counts as live until it was silent for so long.
const silentSecondsMax = 12;

/** Throws an Error while processes of an older program run. */
async function refuseBesideOlder(client: Client, name: string): Promise<void> {
  const { rows: tables } = await client.query("select 1 where to_regclass('nodes') is not null");
  if (tables.length === 0) return;
  const { rows } = await client.query<{ node_id: string }>(
    `select node_id from nodes
     where polled_at > now() - $1 * interval '1 second' and silent_polls < $1
     order by node_id`,
    [silentSecondsMax],
  );
  if (rows.length === 0) return;
  throw new Error(
    `migration ${name} may not run beside an older version of the gateway, and ` +
      `${rows.map(({ node_id }) => node_id).join(", ")} still ${rows.length > 1 ? "run" : "runs"}: ` +
      `stop what is older, and start again ${silentSecondsMax} seconds later.`,
  );
}

// When two processes create the same table at once, one fails in the server's catalogue. Its retry
// finds the table.
async function prepareTable(client: Client, attemptsLeft = 5): Promise<void> {
  try {
    const { rows } = await client.query(isPrepared);
    if (rows.length === 0) await client.query(prepare);
  } catch (error) {
    if (attemptsLeft === 0) throw error;
    await prepareTable(client, attemptsLeft - 1);
  }
}

async function readApplied(client: Client): Promise<Applied[]> {
  const { rows } = await client.query<Applied>(
    `select number, name, applied_at, sha256, compatible_from
     from migrations where number > 0 order by number`,
  );
  return rows;
}

/** Throws an Error where the database ran other migrations than the program has. */
function checkApplied(applied: readonly Applied[], migrations: readonly Migration[]): void {
  for (const { number, name, applied_at, sha256 } of applied) {
    const own = migrations[number - 1];
    if (own && own.name !== name)
      throw new Error(
        `migration ${number} of this database is ${name}, and that of this program is ` +
          `${own.name}: they are not of the same line of versions.`,
      );
    if (own && sha256 !== null && own.sha256 !== sha256)
      throw new Error(
        `migration ${name} was changed after this database ran it ` +
          `(${applied_at.toISOString().slice(0, 16).replace("T", " ")} UTC): ` +
          `database ${sha256.slice(0, 12)}…, program ${own.sha256.slice(0, 12)}…`,
      );
  }
  const newest = applied.at(-1);
  if (newest === undefined || newest.number <= migrations.length) return;
  // An older program might write rows that a later migration has given another meaning.
  const from = Math.max(...applied.map(({ number, compatible_from }) => compatible_from ?? number));
  if (migrations.length >= from) return;
  throw new Error(
    `the database is newer than this program: it has migration ${newest.name}, and this program ` +
      `knows ${migrations.length} migrations. Start a newer version of the gateway.`,
  );
}

/**
 * Takes over a database that was made before digests were noted, if its schema is the one that the
 * migrations that it names make. Throws an Error with what differs otherwise.
 */
async function noteDigests(client: Client, migrations: readonly Migration[]): Promise<void> {
  const applied = (await readApplied(client)).filter(({ sha256 }) => sha256 === null);
  const named = migrations.filter(({ number }) => applied.some((one) => one.number === number));
  if (named.length === 0) return;
  const actual = new Set(await readCatalogue(client));
  const expected = new Set(await readExpected(client, named));
  const lacks = [...expected.difference(actual)].map((one) => `lacks ${one}`);
  const more = [...actual.difference(expected)].map((one) => `has ${one}`);
  const differences = [...lacks, ...more];
  if (differences.length > 0)
    throw new Error(
      "this database was made by a version before digests of migrations were noted, and its " +
        `schema differs from theirs: it ${listSome(differences)}. Start with an empty database, ` +
        "or bring it to that schema.",
    );
  for (const { number, sha256, compatibleFrom } of named)
    await client.query(
      "update migrations set sha256 = $2, compatible_from = $3 where number = $1",
      [number, sha256, compatibleFrom],
    );
}

/** The catalogue that these migrations make, in a schema of their own that is taken back. */
async function readExpected(client: Client, migrations: readonly Migration[]): Promise<string[]> {
  await client.query("savepoint expected");
  await client.query("create schema gateway_expected");
  await client.query("set local search_path = gateway_expected");
  for (const { text } of migrations) await client.query(text);
  const catalogue = await readCatalogue(client);
  await client.query("rollback to savepoint expected");
  return catalogue;
}

const listedMax = 10;

function listSome(all: readonly string[]): string {
  const left = all.length - listedMax;
  return all.slice(0, listedMax).join("; ") + (left > 0 ? `; and ${left} more differences` : "");
}
