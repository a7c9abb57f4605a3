// A database per suite, on the PostgreSQL server of the run.

import { randomBytes } from "node:crypto";
import { Client } from "pg";
import { inject } from "vitest";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";

export type FreshDatabase = { postgres: Postgres; url: string; drop(): Promise<void> };

/** A migrated, empty database. `drop` closes `postgres` and ends all other connections. */
export async function freshDatabase(): Promise<FreshDatabase> {
  const { url, drop: dropDatabase } = await cloneDatabase("gateway");
  const postgres = connectPostgres(url);
  const drop = async () => {
    await postgres.close();
    await dropDatabase();
  };
  return { postgres, url, drop };
}

/** A database without our schema. */
export function emptyDatabase(): Promise<{ url: string; drop(): Promise<void> }> {
  return cloneDatabase("template1");
}

async function cloneDatabase(template: string): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomBytes(8).toString("hex")}`;
  // The default copies by way of the log, which takes the server more than twice the time.
  await administer(`create database ${name} template ${template} strategy file_copy`);
  return {
    url: urlOf(name),
    drop: () => administer(`drop database if exists ${name} with (force)`),
  };
}

function urlOf(database: string): string {
  const url = new URL(inject("templateUrl"));
  url.pathname = `/${database}`;
  return url.href;
}

async function administer(sql: string): Promise<void> {
  const client = new Client({ connectionString: urlOf("postgres") });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
