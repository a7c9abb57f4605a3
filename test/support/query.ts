import type { Runner, Statement } from "../../src/postgres/statement.ts";

/** Runs SQL of a test. Rows are objects by the names of their columns. */
export function query<Row>(
  db: Runner,
  sql: { readonly name: string; readonly text: string },
  values: readonly unknown[] = [],
): Promise<Row[]> {
  const statement: Statement<undefined, Row, Row[]> = {
    ...sql,
    with: () => [statement, values],
    result: (rows) => rows,
  };
  return db.run(statement);
}
