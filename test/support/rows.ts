// Rows of a table, as tests of statements write them.

import type { Runner } from "../../src/postgres/statement.ts";
import { query } from "./query.ts";

/** Replaces the rows of a table by these, whose members are named as its columns are. */
export async function fillTable(db: Runner, table: string, rows: readonly object[]): Promise<void> {
  await query(db, { name: "", text: `delete from ${table}` });
  const columns = Object.keys(rows[0] ?? {}).join(", ");
  if (columns === "") return;
  const text = `insert into ${table} (${columns})
    select ${columns} from jsonb_populate_recordset(null::${table}, $1::jsonb)`;
  await query(db, { name: "", text }, [JSON.stringify(rows)]);
}
