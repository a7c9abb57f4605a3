// The clock of a database, which tests move by hand.

import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { query } from "./query.ts";

// Statements ask `now()` only. A function of that name hides the real one, which moves on, too.
const hideNow = `do $$ begin
  create schema clock;
  create table clock.shifts (shift interval not null);
  insert into clock.shifts values ('0');
  create function clock.now() returns timestamptz language sql stable as
    'select pg_catalog.now() + shift from clock.shifts';
  execute format('alter database %I set search_path = public, clock, pg_catalog',
    current_database());
end $$`;

/**
 * Makes the time of a database movable, for connections that are opened from now on. Returns the
 * function that sets how far it is ahead of the real time.
 */
export async function movableNow({
  postgres,
}: FreshDatabase): Promise<(aheadMs: number) => Promise<void>> {
  await query(postgres, { name: "", text: hideNow }, []);
  const shift = {
    name: "",
    text: "update clock.shifts set shift = $1 * interval '1 millisecond'",
  };
  return async (aheadMs) => {
    await query(postgres, shift, [aheadMs]);
  };
}

/**
 * Stops the time of a database at `at`, for connections that are opened from now on: rows can stand
 * exactly at the border of a condition.
 */
export async function stopNow({ postgres }: FreshDatabase, at: Date): Promise<void> {
  const hide = `do $$ begin
    create schema clock;
    create function clock.now() returns timestamptz language sql stable as
      'select timestamptz ''${at.toISOString()}''';
    execute format('alter database %I set search_path = public, clock, pg_catalog',
      current_database());
  end $$`;
  await query(postgres, { name: "", text: hide }, []);
}

/** Opens a database whose time stands still at `at`. */
export async function openStopped(
  at: Date,
): Promise<{ postgres: Postgres; close: () => Promise<void> }> {
  const database = await freshDatabase();
  await stopNow(database, at);
  const postgres = connectPostgres(database.url);
  return {
    postgres,
    async close() {
      await postgres.close();
      await database.drop();
    },
  };
}
