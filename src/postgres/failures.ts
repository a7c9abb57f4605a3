// What an error of the database says: may a repeat succeed, and is the server at fault?

import { DatabaseError } from "pg";
import { ApiError } from "../base/errors.ts";
import { isLocalShortage } from "../base/shortage.ts";
import { tlsProblemOf } from "../base/tls-problem.ts";

/** The server does not take writes: it is a standby, or has been made read-only. */
export class ReadOnlyServer extends Error {
  readonly server: string;

  constructor(server: string, state: "a standby" | "read-only") {
    super(`the server ${server} is ${state}`);
    this.server = server;
  }
}

/** No server of a list can be used. The message names each one with its problem. */
export class NoServer extends Error {}

/** Serialization failure or deadlock: a repeat of the transaction may succeed. */
export function isConflict(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "40001" || error.code === "40P01");
}

/** A row with the same unique key exists. */
export function isUniqueViolation(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "23505";
}

/** Lock timeout or statement timeout: another transaction holds a lock that the statement needs. */
export function isBlocked(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "55P03" || error.code === "57014");
}

/** The server ended the statement because it took too long. */
function isTimedOut(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "57014";
}

// SQLSTATEs: class 08 connection exception, 57P01 to 57P03 the server stops or starts, 53300 too
// many connections, 25P03 idle transaction timeout.
const unreachableStates = /^(08|57P0[123]|53300|25P03)/;
const unreachableErrnos =
  /^(ECONNREFUSED|ECONNRESET|ENOENT|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ECONNABORTED|EACCES)$/;
// Messages of pg and pg-pool for a lost or failed connection; these errors have no code.
const unreachableMessages =
  /^(Connection terminated|Query read timeout|timeout e(xceeded|xpired)|Client (has encountered a connection error|was closed)|Cannot use a pool)/;

/**
 * True when this server cannot do the work and another one, or the same one later, may: the
 * connection failed, or the server takes no writes. The statement may or may not have run.
 */
export function isServerAtFault(error: unknown): boolean {
  if (isTranslated(error)) return isServerAtFault(error.cause);
  if (error instanceof ReadOnlyServer || error instanceof NoServer) return true;
  if (!(error instanceof Error) || isBlocked(error)) return false;
  if (isReadOnly(error)) return true;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  if (error instanceof DatabaseError) return unreachableStates.test(code);
  return (
    unreachableErrnos.test(code) ||
    unreachableMessages.test(error.message) ||
    tlsProblemOf(error) !== undefined
  );
}

/** True when nothing has run: the server refused the connection, or takes no writes. */
export function isRefusal(error: unknown): boolean {
  if (error instanceof ReadOnlyServer || isReadOnly(error)) return true;
  return error instanceof Error && "code" in error && error.code === "ECONNREFUSED";
}

/** 25006 read_only_sql_transaction: a standby, a fallen primary, or a server made read-only. */
export function isReadOnly(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === "25006";
}

/**
 * True when the server, the connection, a timeout or this machine failed, not the statement
 * itself. The statement may or may not have run.
 */
export function isUnreachable(error: unknown): boolean {
  return (
    isTranslated(error) || isBlocked(error) || isServerAtFault(error) || isLocalShortage(error)
  );
}

/** What `throwUnavailable` has thrown. */
function isTranslated(error: unknown): error is ApiError {
  return error instanceof ApiError && error.reason === "database_unavailable";
}

/** Throws what callers of the services may see of a failure; all other errors as they are. */
export function throwUnavailable(error: unknown): never {
  throw isUnreachable(error)
    ? new ApiError("database_unavailable", { retryAfterMs: 1000, cause: error })
    : error;
}

/** As `throwUnavailable`, for a statement that the server ends when it takes too long. */
export function throwTooLarge(error: unknown): never {
  if (isTimedOut(error)) throw new ApiError("report_too_large", { cause: error });
  throwUnavailable(error);
}
