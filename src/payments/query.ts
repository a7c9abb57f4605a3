// How this folder's files run their statements.

import { type Statement, statement } from "../postgres/postgres.ts";

// A database that does not answer within this time counts as unreachable.
const answerMsMax = 5_000;

/** A statement of this folder. */
export function timed(file: string): Statement {
  return { ...statement(import.meta.url, file), timeoutMs: answerMsMax };
}

/** Runs a statement, in a transaction or without one. Throws `database_unavailable`. */
export type Query = <Row>(one: Statement, values: readonly unknown[]) => Promise<Row[]>;
