// Several statements in one message to the server, with one Sync. pg sends a Sync per statement,
// and the server answers each with a write of its own, which wakes both sides a dozen times for a
// transaction of ten statements.

import { type Connection, DatabaseError, type Submittable } from "pg";
import { serialize } from "pg-protocol";
import type { Statement } from "./statement.ts";

export type Query = readonly [Statement, readonly unknown[]];

/** `command` tells a COMMIT that the server answered with ROLLBACK. */
export type Answer = { readonly rows: unknown[]; readonly command: string };

type Column = { readonly name: string; readonly parse: (text: string) => unknown };

/** The statements that a connection has prepared, with the columns that they answer, by name. */
export type Prepared = Map<string, readonly Column[]>;

export type FindParser = (typeId: number) => (text: string) => unknown;

/** Hand it to `Client.query`, once. Statements after one that fails are not run. */
export class RoundTrip implements Submittable {
  readonly queries: readonly Query[];
  readonly #values: readonly (string | null)[][];
  readonly #prepared: Prepared;
  readonly #findParser: FindParser;
  readonly #answers: Answer[] = [];
  readonly #settle = Promise.withResolvers<Answer[]>();
  // As of the moment when the statements were sent, by their order. Undefined: the server describes
  // them.
  #known: readonly (readonly Column[] | undefined)[] = [];
  #columns: readonly Column[] = [];
  #rows: unknown[] = [];

  constructor(queries: readonly Query[], prepared: Prepared, findParser: FindParser) {
    this.queries = queries;
    // A value that cannot be sent is found here, before anything is.
    this.#values = queries.map(([, values]) => values.map(encode));
    this.#prepared = prepared;
    this.#findParser = findParser;
  }

  /** One per statement. Fails with the error of the first that failed. */
  get answers(): Promise<Answer[]> {
    return this.#settle.promise;
  }

  submit(connection: Connection): void {
    this.#known = this.queries.map(([{ name }]) => this.#prepared.get(name));
    this.#expectNext();
    const messages: Buffer[] = [];
    for (const [index, [{ name, text }]] of this.queries.entries()) {
      const isPrepared = this.#known[index] !== undefined;
      if (!isPrepared) {
        // It may have been prepared by a trip that failed after that.
        messages.push(serialize.close({ type: "S", name }), serialize.parse({ name, text }));
      }
      messages.push(serialize.bind({ statement: name, values: this.#values[index] ?? [] }));
      if (!isPrepared) messages.push(serialize.describe({ type: "P" }));
      messages.push(serialize.execute());
    }
    messages.push(serialize.sync());
    // One piece: a stream spends more on a piece than the copy takes.
    connection.stream.write(Buffer.concat(messages));
  }

  // What pg calls as the messages of the server arrive.

  handleRowDescription({
    fields,
  }: {
    fields: readonly { name: string; dataTypeID: number }[];
  }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: this.#findParser(dataTypeID),
    }));
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    const row: Record<string, unknown> = {};
    for (const [index, { name, parse }] of this.#columns.entries()) {
      const text = fields[index];
      row[name] = text === null || text === undefined ? null : parse(text);
    }
    this.#rows.push(row);
  }

  handleCommandComplete({ text }: { text: string }): void {
    this.#prepared.set(this.queries[this.#answers.length]?.[0].name ?? "", this.#columns);
    const end = text.indexOf(" ");
    this.#answers.push({ rows: this.#rows, command: end < 0 ? text : text.slice(0, end) });
    this.#expectNext();
  }

  handleReadyForQuery(): void {
    this.#settle.resolve(this.#answers);
  }

  handleError(error: Error): void {
    // What no longer fits the tables, or was forgotten by the server, must be prepared anew, and is
    // seldom the only one.
    if (error instanceof DatabaseError) this.#prepared.clear();
    this.#settle.reject(error);
  }

  #expectNext(): void {
    this.#rows = [];
    this.#columns = this.#known[this.#answers.length] ?? [];
  }
}

/** A value as PostgreSQL reads it from text. */
function encode(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  return Array.isArray(value) ? `{${value.map(encodeElement).join(",")}}` : encodeScalar(value);
}

function encodeElement(value: unknown): string {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "string" ? quote(value) : encodeScalar(value);
}

function encodeScalar(value: unknown): string {
  switch (typeof value) {
    case "string":
      return value;
    case "number":
    case "bigint":
    case "boolean":
      return String(value);
    default:
      if (value instanceof Date) return value.toISOString();
      throw new TypeError(`a statement was given ${Object.prototype.toString.call(value)}`);
  }
}

const special = /["\\]/g;

function quote(text: string): string {
  // Most are ids.
  const isPlain = !text.includes('"') && !text.includes("\\");
  return isPlain ? `"${text}"` : `"${text.replace(special, "\\$&")}"`;
}
