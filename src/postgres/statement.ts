// Statements whose parameters and rows have types. `gen/sql/` has one for each block of
// `src/*/sql/*.sql`; `generate.ts` writes it from what a migrated database says of the statement.

/** The value of a `jsonb` column. One named function for each shape reads it. */
export type Json = unknown;

/** What the server gets, and how its rows are read. */
export type Text<Row = unknown> = {
  /** The server's statistics list the statement under it: `people/end-session`. */
  readonly name: string;
  readonly text: string;
  /** Query timeout. Default: 30 s. */
  readonly timeoutMs?: number;
  /**
   * Makes a row of the values of its columns, in their order. Absent: it is an object by the names
   * of the server.
   */
  readonly row?: (values: readonly unknown[]) => Row;
};

/** A statement with its parameters, in their order. */
export type Query<Row = unknown> = readonly [Text<Row>, readonly unknown[]];

/** The rows of queries, in their order. */
export type RowsOf<Queries extends readonly Query[]> = {
  readonly [Index in keyof Queries]: Queries[Index] extends Query<infer Row>
    ? readonly Row[]
    : never;
};

type Given<Parameters> = [Parameters] extends [undefined] ? [] : [Parameters];

/** `Result`: what running it gives. */
export type Statement<Parameters, Row, Result> = Text<Row> & {
  with(...parameters: Given<Parameters>): Query<Row>;
  /** Throws an Error with the name of the statement where its rows are not of its kind. */
  result(rows: Row[], changed: number): Result;
};

/** Exactly one row. */
export type One<Parameters, Row> = Statement<Parameters, Row, Row>;
/** At most one row. */
export type Optional<Parameters, Row> = Statement<Parameters, Row, Row | undefined>;
export type Many<Parameters, Row> = Statement<Parameters, Row, Row[]>;
/** No row: how many were changed. */
export type Run<Parameters> = Statement<Parameters, never, number>;

/** Runs statements, in a transaction or each in its own. */
export type Runner = {
  run<Row, Result, Parameters = undefined>(
    statement: Statement<Parameters, Row, Result>,
    ...parameters: Given<NoInfer<Parameters>>
  ): Promise<Result>;
};

const skipped: Query<never> = [{ name: "", text: "" }, []];

/** The query, or none: nothing is sent for it, and it has no rows. */
export function when<Row>(isNeeded: boolean, make: () => Query<Row>): Query<Row> {
  return isNeeded ? make() : skipped;
}

export function isSkipped(query: Query): boolean {
  return query === skipped;
}

let checksRows = false;

/** While tests run: a null in a column whose type says that it has none throws. */
export function checkRows(): void {
  checksRows = true;
}

/** Throws an Error unless these are the result columns that the statement's types were made of. */
export function checkColumns({ name, row }: Text, columns: readonly string[]): void {
  // A statement without rows has no description either.
  if (columns.length === 0 || row === undefined) return;
  const expected = Object.keys(Object(row([])));
  const actual = columns.map(camelCase);
  if (actual.join() !== expected.join())
    throw new Error(`${name}: the columns are ${actual.join()}, not ${expected.join()}`);
}

/** A row of a statement that has no `row`. Its type is what the statement claims. */
export function byName<Row>(columns: readonly string[], values: readonly unknown[]): Row {
  return Object.fromEntries(
    columns.map((name, index): readonly unknown[] => [name, values[index]]),
  );
}

/** `cache_write_5m` is `cacheWrite5m`. */
export function camelCase(column: string): string {
  return column.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

type Parts<Parameters, Row> = readonly [
  name: string,
  text: string,
  encode: (...parameters: Given<Parameters>) => readonly unknown[],
  row: (values: readonly unknown[]) => Row,
  /** Columns that may be null, separated by blanks. */
  nullable: string,
  timeoutMs?: number | undefined,
];

export function one<Parameters, Row>(...parts: Parts<Parameters, Row>): One<Parameters, Row> {
  return define(parts, (rows, name) => {
    const [row] = rows;
    if (row === undefined || rows.length > 1) throw wrongRows(name, rows, "one");
    return row;
  });
}

export function optional<Parameters, Row>(
  ...parts: Parts<Parameters, Row>
): Optional<Parameters, Row> {
  return define(parts, (rows, name) => {
    if (rows.length > 1) throw wrongRows(name, rows, "at most one");
    return rows[0];
  });
}

export function many<Parameters, Row>(...parts: Parts<Parameters, Row>): Many<Parameters, Row> {
  return define(parts, (rows) => rows);
}

export function run<Parameters>(
  name: string,
  text: string,
  encode: (...parameters: Given<Parameters>) => readonly unknown[],
  timeoutMs?: number,
): Run<Parameters> {
  const row = () => assertNever(name);
  return define([name, text, encode, row, "", timeoutMs], (_rows, _name, changed) => changed);
}

function define<Parameters, Row, Result>(
  [name, text, encode, row, nullable, timeoutMs]: Parts<Parameters, Row>,
  result: (rows: Row[], name: string, changed: number) => Result,
): Statement<Parameters, Row, Result> {
  const mayBeNull = new Set(nullable.split(" "));
  const statement: Statement<Parameters, Row, Result> = {
    name,
    text,
    ...(timeoutMs !== undefined && { timeoutMs }),
    row(values) {
      const made = row(values);
      if (checksRows && values.length > 0) checkRow(name, made, mayBeNull);
      return made;
    },
    with: (...parameters) => [statement, encode(...parameters)],
    result: (rows, changed) => result(rows, name, changed),
  };
  return statement;
}

function checkRow(name: string, row: unknown, mayBeNull: ReadonlySet<string>): void {
  for (const [column, value] of Object.entries(Object(row)))
    if (value === null && !mayBeNull.has(column))
      throw new Error(`${name}: ${column} is null, and its type says that it never is`);
}

function wrongRows(name: string, rows: readonly unknown[], expected: string): Error {
  return new Error(`${name}: ${rows.length} rows where ${expected} was expected`);
}

function assertNever(name: string): never {
  throw new Error(`${name}: a row where none was expected`);
}
