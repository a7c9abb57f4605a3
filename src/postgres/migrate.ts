// Brings a database to the schema of `migrations/`: numbered files, forward only, each in one
// transaction.

import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { connectionConfig, isBlocked } from "./postgres.ts";

type Migration = { number: number; name: string; text: string };

const folder = new URL("migrations/", import.meta.url);

// Row 0 is the lock: processes that start at once queue on it, so each file runs in one of them.
const prepare = `
  create table if not exists migrations (
    number     integer primary key,
    name       text not null,
    applied_at timestamptz not null default now()
  );
  insert into migrations (number, name) values (0, 'lock') on conflict do nothing;
`;

/**
 * Runs the migrations that the database at `url` has not had. Harmless when many processes do it at
 * the same time.
 */
export async function migrate(url: string): Promise<void> {
  const client = new Client(connectionConfig(url));
  // A broken connection also fails the query that waits for it; without a listener it would end the
  // process.
  client.on("error", () => {});
  await client.connect();
  try {
    await prepareTogether(client);
    for (const migration of readMigrations()) await apply(client, migration);
  } finally {
    await client.end();
  }
}

/** The files of `migrations/`, in order. Throws when two share a number. */
export function readMigrations(): Migration[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".sql"));
  const migrations = files.map((file) => ({
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

// Whoever waits for the lock of a table makes all wait that come after, the lanes of running
// gateways first, which give up after a second. So it waits for less, lets them through, and tries
// again for five minutes.
const lockMsMax = 400;
const lockPauseMs = 1_600;
const lockAttemptsMax = 150;

async function apply(client: Client, migration: Migration): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await applyOnce(client, migration);
    } catch (error) {
      if (!isBlocked(error)) throw error;
      if (attempt === lockAttemptsMax) {
        throw new Error(
          `migration ${migration.name}: another session kept its tables locked for too long`,
          { cause: error },
        );
      }
      await delay(lockPauseMs);
    }
  }
}

async function applyOnce(client: Client, { number, name, text }: Migration): Promise<void> {
  await client.query("begin");
  try {
    await client.query("select 1 from migrations where number = 0 for update");
    const { rows } = await client.query("select 1 from migrations where number = $1", [number]);
    if (rows.length === 0) {
      await client.query(`set local lock_timeout = ${lockMsMax}`);
      await client.query(text);
      await client.query("insert into migrations (number, name) values ($1, $2)", [number, name]);
    }
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch(() => {});
    throw error;
  }
}

// Two processes that create the same table at once may collide in the server's catalogue: the
// second try finds it there.
async function prepareTogether(client: Client, attemptsLeft = 5): Promise<void> {
  try {
    await client.query(prepare);
  } catch (error) {
    if (attemptsLeft === 0) throw error;
    await prepareTogether(client, attemptsLeft - 1);
  }
}
