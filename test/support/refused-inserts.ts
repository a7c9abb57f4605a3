// A table into which nothing can be written for a while, as on a server that stops.

import { Client } from "pg";

export type RefusedInserts = {
  /** How often an insert was refused. */
  count(): Promise<number>;
  stop(): Promise<void>;
};

/** Refuses all inserts into a table, at once, with an error that may pass. */
export async function refuseInserts(databaseUrl: string, table: string): Promise<RefusedInserts> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  // What a sequence has counted stays counted.
  await client.query(`
    create sequence refused_inserts;
    grant usage on sequence refused_inserts to public;
    create function refuse_insert() returns trigger language plpgsql as $$
    begin
      perform nextval('refused_inserts');
      raise exception 'the server is stopping' using errcode = 'admin_shutdown';
    end $$;
    create trigger refuse_insert before insert on ${table}
      for each row execute function refuse_insert()`);
  return {
    async count() {
      const { rows } = await client.query(
        "select case when is_called then last_value else 0 end as count from refused_inserts",
      );
      return Number(rows[0]?.count);
    },
    async stop() {
      await client.query(`
        drop trigger refuse_insert on ${table};
        drop function refuse_insert;
        drop sequence refused_inserts`);
      await client.end();
    },
  };
}
